"""Tasks that engines send to workers. They can be pickled and do not open the log."""

"""What engines send to workers: it pickles, and opens no log."""

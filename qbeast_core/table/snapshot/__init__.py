"""One version of a table, read from its log."""

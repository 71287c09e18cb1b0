"""Rows that do not fit in memory: sorted by temporary files."""

"""Rows in memory and in files; knows no log."""

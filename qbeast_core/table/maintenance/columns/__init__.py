"""Rename and drop columns without a change of data files."""

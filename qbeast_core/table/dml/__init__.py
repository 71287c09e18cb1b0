"""Rows deleted, updated and merged."""

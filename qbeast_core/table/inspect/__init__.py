"""Metrics, history and pictures of a table."""

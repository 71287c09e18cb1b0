"""Parquet files, down to pages."""

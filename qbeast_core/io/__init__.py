"""Bytes: stores, Parquet files and pages."""

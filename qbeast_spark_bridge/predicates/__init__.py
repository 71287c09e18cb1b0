"""Filters between Spark SQL and Polars."""

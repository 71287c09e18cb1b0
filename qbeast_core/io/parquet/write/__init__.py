"""Writing of Parquet files: encodings, pages, row groups."""

"""The metadata of a table: schema, table status, segments, deleted rows; no data file is opened."""

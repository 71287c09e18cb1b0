"""Rules of a table for its rows: compiled once, then applied to new and changed rows."""

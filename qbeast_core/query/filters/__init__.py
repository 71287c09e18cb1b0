"""A filter as terms, and what it says of each column."""

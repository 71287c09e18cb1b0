"""A version of a table as its log tells it."""

"""Delete, update and merge rows."""

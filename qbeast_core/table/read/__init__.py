"""Plan reads and read rows."""

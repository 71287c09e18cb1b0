"""What a table looks like: metrics and pictures."""

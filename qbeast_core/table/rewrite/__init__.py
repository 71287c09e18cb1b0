"""Replace live files: optimize, and what changes of rows share with it."""

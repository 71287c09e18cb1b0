"""Replace live files: optimize, and the steps that changes of rows share with it."""

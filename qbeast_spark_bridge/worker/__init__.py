"""Code that runs in Spark's Python workers only."""

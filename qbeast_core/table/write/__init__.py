"""New rows: what fits, the plan, the files, the commit."""

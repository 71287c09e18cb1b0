"""One optimistic commit: conflicts, retries, checkpoints."""

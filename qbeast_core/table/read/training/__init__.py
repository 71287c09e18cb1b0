"""Rows for models: shuffled batches, datasets of PyTorch, disjoint parts, and equal numbers of each group."""

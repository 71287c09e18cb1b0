"""The tree: cells, thresholds, places of rows, files."""

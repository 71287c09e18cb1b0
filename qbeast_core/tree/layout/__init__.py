"""Build the tree: cells, thresholds, cubes of rows, files."""

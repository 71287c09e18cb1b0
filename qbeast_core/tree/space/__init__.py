"""The indexed space: summaries of columns, and the transformations fitted to them."""

"""What a read opens, and the rows it returns."""

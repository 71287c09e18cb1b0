"""Index keys: sketches, totals, heavy keys, the design effect."""

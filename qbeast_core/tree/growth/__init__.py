"""Cut files into bands: row groups with rows of one level and one range of weights (format 7)."""

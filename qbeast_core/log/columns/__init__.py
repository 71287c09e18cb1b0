"""How the columns of a Delta table are stored: names in files, ids, and values of partitions."""

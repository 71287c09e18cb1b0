"""Is a table what its log says: the faults, and what repairs them."""

"""The two hashes of the format, on whole arrays."""

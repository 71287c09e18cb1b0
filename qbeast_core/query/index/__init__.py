"""Decode tags into one index table of cubes and pages."""

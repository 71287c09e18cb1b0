"""Kernels on NumPy arrays: hashes, weights, coordinates, cubes and boxes."""

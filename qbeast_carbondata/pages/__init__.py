"""Whole pages to Arrow, with NumPy alone: bytes in, arrays out; no file, and no loop over rows."""

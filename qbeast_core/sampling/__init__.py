"""Estimates of aggregates from a sample of keys, and how far they may be off: statistics on frames and arrays."""

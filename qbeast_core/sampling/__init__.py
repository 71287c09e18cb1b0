"""Estimate aggregates from a sample of keys, with intervals: statistics on frames and arrays."""

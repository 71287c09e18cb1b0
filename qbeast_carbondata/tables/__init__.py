"""CarbonData tables as `qbeast` offers them: open, scan, read, explain, and import."""

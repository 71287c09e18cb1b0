"""CarbonData tables as `qbeast` offers them: open, scan, read, explain, and make them tables of ours."""

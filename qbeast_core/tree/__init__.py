"""The OTree as pure functions: statistics, domains, thresholds, assignment, packing."""

"""The index of a snapshot: live blocks, thresholds, revisions, design effect."""

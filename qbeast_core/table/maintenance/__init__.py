"""Commits that move no rows: convert, upgrade, dialect, restore, vacuum, metadata."""

"""Command line of qbeast; it has no commands yet."""

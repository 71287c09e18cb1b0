"""Temporary files that sort rows which do not fit in memory."""

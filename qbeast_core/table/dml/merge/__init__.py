"""Rows of a source merged into a table: clauses, what they mean for a version, matching, new columns."""

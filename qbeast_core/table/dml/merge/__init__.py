"""Merge the rows of a source into a table: clauses, rules for a version, matching, new columns."""

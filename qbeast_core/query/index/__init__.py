"""The blocks of a table: from tags to one table of cubes and pages."""

"""Estimate aggregates in rounds; each round reads the rows between two fractions."""

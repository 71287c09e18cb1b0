"""Estimates from rounds of reads, each of the rows between two fractions."""

"""Advice on the columns to index: candidate tables, simulated on some rows."""

"""Metadata domains of a Delta log, and the features that keep their state in them."""

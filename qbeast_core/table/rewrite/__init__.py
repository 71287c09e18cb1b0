"""Live files written anew: optimize, and what changes of rows share with it."""

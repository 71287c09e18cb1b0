"""Move rows: sources, engines, and the tasks for workers."""

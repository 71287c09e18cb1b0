"""Who moves rows: sources, engines and the tasks they send to workers."""

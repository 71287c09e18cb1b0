"""The Spark engine: samples, tasks, and matches of a merge, on executors."""

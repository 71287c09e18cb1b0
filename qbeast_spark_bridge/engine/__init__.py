"""The engine of Spark: samples, tasks, and matches of a merge, on executors."""

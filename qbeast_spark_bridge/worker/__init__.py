"""What runs in Spark's Python workers, and nothing else."""

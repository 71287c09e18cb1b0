"""``format("qbeast")``: Spark's Python data source."""

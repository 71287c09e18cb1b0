"""The bridge to Apache Spark, the only package that may know PySpark; empty until it is built."""

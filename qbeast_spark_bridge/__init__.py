"""The bridge to Apache Spark; the only package that may know PySpark. Empty until the Spark roads are built."""

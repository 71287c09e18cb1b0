"""SQL texts: parsed once by sqlglot, checked against a list of nodes, lowered to Polars expressions."""

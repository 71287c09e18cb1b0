"""SQL texts: parse them by sqlglot, check them against a list of nodes, lower them to Polars expressions."""

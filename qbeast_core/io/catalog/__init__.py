"""Names in catalogs: entries that lead to tables, and credentials that a catalog lends for them."""

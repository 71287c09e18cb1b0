"""Parse filters: terms, atoms and what each atom implies for its column."""

"""Data files of every version and format, opened: blocklets of pages, and their columns as Arrow."""

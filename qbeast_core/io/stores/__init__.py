"""Where files are: local folders and object stores."""

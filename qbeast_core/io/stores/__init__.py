"""Files in local folders and object stores."""

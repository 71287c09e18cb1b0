"""What the commands do; these modules load the library."""

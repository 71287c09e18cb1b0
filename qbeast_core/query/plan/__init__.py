"""Choose the files and pages that a read opens."""

"""Which files and pages a read opens."""

"""Read planning, pure: predicates, samples, and which files and pages can match."""

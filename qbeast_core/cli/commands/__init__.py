"""Arguments and options of the commands; the work is in `jobs`, loaded when a command runs."""

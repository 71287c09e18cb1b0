"""Arguments and options of the commands, one function each; the work is in `jobs`, loaded when a command runs."""

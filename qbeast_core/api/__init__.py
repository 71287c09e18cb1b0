"""The public functions and classes: signatures and documentation. Each imports its operation when it is called."""

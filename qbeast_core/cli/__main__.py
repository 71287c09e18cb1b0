"""``python -m qbeast_core.cli``, the same as ``qbeast``."""

from qbeast_core.cli import main

if __name__ == "__main__":
    main()

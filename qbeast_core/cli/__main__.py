"""``python -m qbeast_core.cli``, the same as ``qbeast``."""

from qbeast_core.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()

"""Packages that only some features need."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from qbeast_core.errors import MissingDependencyError

# The extra of each package, as in pyproject.toml.
_EXTRAS: Final = {"click": "cli", "matplotlib": "plot", "pyspark": "spark", "rich": "cli"}


def require(package: str, what: str) -> None:
    """Raise `MissingDependencyError` if a package is not installed; nothing is imported.

    >>> require("polars", "everything")
    """
    if find_spec(package) is None:
        extra = _EXTRAS.get(package)
        part = "" if extra is None else f" (it is in qbeast's extra {extra!r})"
        msg = f"{what} needs {package}, which is not installed: pip install {package}{part}"
        raise MissingDependencyError(msg, dependency=package, extra=extra)

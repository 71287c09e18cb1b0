"""What a process needs: optional packages, and threads that a fork does not copy."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

from qbeast_core.errors import MissingDependencyError, StorageError

FORKED: Final = (
    "this process was forked from one that had used the library, whose threads are missing here. Start processes "
    "with the method 'spawn': multiprocessing.get_context('spawn'), mp_context= of an executor, or "
    'multiprocessing_context="spawn" of a DataLoader'
)


class _Process:
    """State of this process."""

    used = False
    is_broken = False

    def forked(self) -> None:
        self.is_broken = self.used


_PROCESS: Final = _Process()

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_PROCESS.forked)


def is_forked() -> bool:
    """Return whether this process was forked from one that had called `refuse_forked`."""
    return _PROCESS.is_broken


def refuse_forked(uri: str) -> None:
    """Raise in a process that was forked from one that had called this function."""
    if is_forked():
        msg = f"{uri} cannot be used here: {FORKED}."
        raise StorageError(msg, path=uri)
    _PROCESS.used = True


# The extra of each package, as in pyproject.toml.
_EXTRAS: Final = {
    "boto3": "glue",
    "click": "cli",
    "duckdb": "cli",
    "matplotlib": "plot",
    "pyspark": "spark",
    "rich": "cli",
}


def require(package: str, what: str) -> None:
    """Raise `MissingDependencyError` if a package is not installed; nothing is imported.

    >>> require("polars", "everything")
    """
    if find_spec(package) is None:
        extra = _EXTRAS.get(package)
        part = "" if extra is None else f" (it is in qbeast's extra {extra!r}: pip install 'qbeast[{extra}]')"
        msg = f"{what} needs {package}, which is not installed: pip install {package}{part}"
        raise MissingDependencyError(msg, dependency=package, extra=extra)

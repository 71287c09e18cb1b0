"""Packages that qbeast does without until somebody asks for what needs them."""

from __future__ import annotations

from importlib.util import find_spec

from qbeast_core.errors import MissingDependencyError

__all__ = ["require"]


def require(package: str, what: str) -> None:
    """Raise, with the cure, where a package is not installed; nothing is imported.

    Parameters
    ----------
    package : str
        What is imported, under the name that pip knows it by.
    what : str
        Who needs it: ``"drawing"``.

    Raises
    ------
    MissingDependencyError
        It is not installed.

    Examples
    --------
    >>> require("polars", "everything")
    """
    if find_spec(package) is None:
        msg = f"{what} needs {package}, which is not installed: pip install {package}"
        raise MissingDependencyError(msg, dependency=package)

"""Other writers that commit between the data files of a change and its commit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from qbeast_core.table import commit as commit_module

__all__ = ["landing_first"]


@contextmanager
def landing_first(other: Callable[[], Any], *, times: int = 1) -> Generator[None]:
    """Let another writer commit just before each of our first `times` attempts to commit."""
    put, left, inside = commit_module.put_commit, times, False  # the only function that commits versions

    def put_late(*args: Any) -> Any:
        nonlocal left, inside
        if left and not inside:
            left, inside = left - 1, True
            try:
                other()
            finally:
                inside = False
        return put(*args)

    with mock.patch.object(commit_module, "put_commit", put_late):
        yield

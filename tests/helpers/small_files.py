"""Small files and pages; this module loads little, for processes that do one thing and are killed at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from qbeast_core.tree.layout import pack

__all__ = ["small_files"]


@contextmanager
def small_files(*, file_rows: int = 25, page_rows: int = 4) -> Iterator[None]:
    """Cut few rows into many files and pages, as millions of rows would be."""
    with (
        mock.patch.object(pack, "_MIN_FILE_ROWS", 1),
        mock.patch.object(pack, "_MAX_FILE_ROWS", file_rows),
        mock.patch.object(pack, "_MIN_PAGE_ROWS", page_rows),
    ):
        yield

"""Small files and pages; imports little, for short processes that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from qbeast_core.tree.layout import pack

__all__ = ["small_files"]


@contextmanager
def small_files(*, file_rows: int = 25, page_rows: int = 4) -> Iterator[None]:
    """Write few rows into many files and pages, like millions of rows."""
    with (
        mock.patch.object(pack, "_MIN_FILE_ROWS", 1),
        mock.patch.object(pack, "_MAX_FILE_ROWS", file_rows),
        mock.patch.object(pack, "_MIN_PAGE_ROWS", page_rows),
    ):
        yield

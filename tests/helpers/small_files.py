"""Small sizes, so that few rows behave like millions; imports little, for short processes that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from qbeast_core.support import sizing

__all__ = ["NO_BANDS", "resized", "small_files"]


NO_BANDS = 1 << 30
"""Minimum rows of a band with which files have one band."""


@contextmanager
def resized(**sizes: Any) -> Iterator[None]:
    """Replace fields of `Sizing` in this process."""
    with mock.patch.object(sizing, "_SIZING", replace(sizing.sizing(), **sizes)):
        yield


@contextmanager
def small_files(*, file_rows: int = 25, page_rows: int = 4, bands: bool = True) -> Iterator[None]:
    """Write few rows into many files, bands and pages, like millions of rows.

    A band has a few pages: with `bands`, it has at least `page_rows` rows, in smaller pages.
    """
    pages = {"min_page_rows": page_rows, "min_band_rows": NO_BANDS}
    if bands:
        pages = {"min_page_rows": max(page_rows // 2, 1), "min_band_rows": page_rows}
    costs = {"opened_file_rows": 1, "listed_file_rows": 0}
    with resized(min_file_rows=1, max_file_rows=file_rows, **pages, **costs):
        yield

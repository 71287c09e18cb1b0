"""Small sizes, so that few rows behave like millions; imports little, for short processes that are killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from qbeast_core.support import sizing

__all__ = ["NO_BANDS", "PLANNED", "TINY", "resized", "small_budget", "small_files"]


NO_BANDS = 1 << 30
"""Minimum rows of a band with which files have one band."""


PLANNED: dict[str, Any] = {
    "many_files": 1,
    "plan_chunk_files": 3,
    "plan_group_files": 2,
    "plan_batch_files": 4,
    "plan_part_files": 2,
}
"""Sizes at which tables of a few files are opened by plan files of several row groups."""


TINY: dict[str, Any] = {
    "chunk_rows": 16,
    "checked_rows": 7,
    "max_cubes": 4,
    "dense_keys": 0,
    "max_lookup_cells": 0,
    "max_counted_files": 1,
    "min_trial_bytes": 0,
    "sample_bytes": 64,
    "trial_bytes": 64,
    "task_bytes": 1_000,
    "batch_bytes": 1_000,
    "min_searched_pages": 1,
    "small_object_bytes": 0,
    "tails_at_once": 1,
    "max_sliced_sources": 1,
    "trusted_vector_bytes": 0,
    "trusted_vector_rows": 0,
    "max_copied_log_bytes": 0,
    "max_chunks": 1,
    "small_frame_bytes": 0,
    "few_tag_bytes": 0,
    "few_texts": 0,
    "max_short_commits": 0,
    "max_short_bytes": 0,
    **PLANNED,
    "slice_files": 1,
    "max_cached_files": 0,
    "min_cached_files": 1,
    "min_merged_groups": 1,
    "max_query_parts": 1,
    "listed_keys": 1,
}
"""Sizes at which the ways of large tables start, for tables of a few rows. `small_files` sets those of their files."""


@contextmanager
def resized(**sizes: Any) -> Iterator[None]:
    """Replace fields of `Sizing` in this process."""
    with mock.patch.object(sizing, "_SIZING", replace(sizing.sizing(), **sizes)):
        yield


@contextmanager
def small_budget(*, batch_bytes: int, load_bytes: int) -> Iterator[None]:
    """Give calls little memory: for batches of this size, and for rows of this size in each of two writers."""
    batches = resized(min_moved_bytes=batch_bytes, max_moved_bytes=batch_bytes)
    loads = resized(min_memory_bytes=1, min_load_bytes=load_bytes)
    with batches, loads, mock.patch.dict(os.environ, QBEAST_MEMORY_BYTES=str(32 * load_bytes)):
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

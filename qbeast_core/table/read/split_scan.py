"""Split a planned read into the parts of its files, as a whole or in tasks of about equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np
import polars as pl

from qbeast_core.errors import invalid_argument
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import DrawnPages, FileParts, ScanTask

# What opening a file counts, in bytes that could be read meanwhile.
OPEN_COST_BYTES: Final = 1 << 20

# Stored bytes that a task reads, about.
TASK_BYTES: Final = 64 << 20

_SMALL_BYTES: Final = 4 << 20
_NONE: Final = np.zeros(0, np.int64)


def scan_tasks(
    reader: Reader, plan: ScanPlan, columns: Sequence[str] | None = None, *, task_bytes: int = TASK_BYTES
) -> list[ScanTask]:
    """Cut a read into tasks; see `Table.scan_tasks`."""
    asked = cast("object", task_bytes)  # callers without a type checker pass anything
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        invalid_argument(
            "task_bytes", "must be a number of bytes, 1 or more", "nothing was read", value=asked
        )
    keep = reader.row_filter(plan, reader.names_of(columns))
    keep = replace(keep, schema=pl.Schema({name: keep.schema[name] for name in keep.needed}))
    return [
        ScanTask(
            uri=reader.store.uri,
            version=reader.snapshot.version,
            parts=parts,
            keep=keep,
            storage_options=dict(reader.snapshot.storage_options),
            allow_absolute_paths=reader.store.allow_absolute_paths,
        )
        for parts in _split(reader, plan, task_bytes)
    ]


def all_parts(reader: Reader, plan: ScanPlan) -> FileParts:
    """Return all that a read opens, as one part."""
    return _together([file_parts(reader, plan, number) for number in _opened(plan)])


def file_parts(reader: Reader, plan: ScanPlan, number: int) -> FileParts:
    """Return what a read opens of one file."""
    reader.store.locate(reader.paths[number])  # refused here, not in a worker
    request = reader.request(plan.selection, number)
    if request is not None and number in plan.selection.drawn:
        deleted = reader.deleted_rows.get(number, _NONE)
        return FileParts(drawn=(DrawnPages(request, plan.selection.drawn[number], deleted),))
    if request is not None:
        return FileParts(pages=(request,))
    hidden = reader.hidden_rows(plan.selection, number)
    if hidden is not None:
        return FileParts(hiding=((reader.paths[number], hidden),), others=reader.others([number]))
    # Polars asks an object store for few files at once: small ones would wait for each other.
    if reader.store.local_root is None and reader.snapshot.files["size_bytes"][number] <= _SMALL_BYTES:
        request = reader.all_pages(plan.selection, number)
        if request is not None:
            return FileParts(pages=(request,))
    path = reader.paths[number]
    return FileParts(whole=(path,), others=reader.others([number]))


def _split(reader: Reader, plan: ScanPlan, task_bytes: int) -> list[FileParts]:
    """Return what a read opens in parts of about equal bytes, in the order of files.

    A file counts with the share of its bytes that its chosen pages have, and `OPEN_COST_BYTES` besides.
    Files larger than a part are cut between pages where their pages are known.
    """
    pieces = [piece for number in _opened(plan) for piece in _pieces(reader, plan, number, task_bytes)]
    if not pieces:
        return []
    costs = np.array([cost for _, cost in pieces])
    ends = np.cumsum(costs)
    count = max(round(ends[-1] / task_bytes), 1)
    shares = np.minimum(((ends - costs / 2) * (count / ends[-1])).astype(np.int64), count - 1)
    cuts = np.flatnonzero(np.diff(shares)) + 1
    return [_together([pieces[at][0] for at in part]) for part in np.split(np.arange(len(pieces)), cuts)]


def _opened(plan: ScanPlan) -> list[int]:
    numbers: list[int] = np.flatnonzero(plan.selection.opened).tolist()
    return numbers


def _together(parts: Sequence[FileParts]) -> FileParts:
    return FileParts(
        pages=tuple(request for one in parts for request in one.pages),
        drawn=tuple(drawn for one in parts for drawn in one.drawn),
        whole=tuple(path for one in parts for path in one.whole),
        hiding=tuple(hiding for one in parts for hiding in one.hiding),
        others={path: size for one in parts for path, size in one.others.items()},
    )


def _pieces(
    reader: Reader, plan: ScanPlan, number: int, task_bytes: int
) -> Iterator[tuple[FileParts, float]]:
    """Return the parts of one file, and what each costs."""
    parts = file_parts(reader, plan, number)
    size = int(reader.snapshot.files["size_bytes"][number])
    request = parts.pages[0] if parts.pages else None
    for one in parts.drawn:
        share = len(one.request.pages) * one.request.page_rows / one.request.num_rows
        yield parts, size * min(share, 1.0) + OPEN_COST_BYTES
        return
    if request is None and parts.whole and size > task_bytes:
        request = reader.all_pages(plan.selection, number)
    if request is None:
        yield parts, size + OPEN_COST_BYTES
        return
    total = -(-request.num_rows // request.page_rows)
    stored = size * len(request.pages) / total
    count = min(max(round(stored / task_bytes), 1), len(request.pages))
    if count == 1:
        yield parts, stored + OPEN_COST_BYTES
        return
    for pages in np.array_split(request.pages, count):
        piece = FileParts(pages=(replace(request, pages=pages),))
        yield piece, size * len(pages) / total + OPEN_COST_BYTES

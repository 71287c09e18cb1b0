"""Split a planned read into parts of files, or into tasks of about equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import check_whole_number
from qbeast_core.log.columns.file_values import PartitionTexts
from qbeast_core.support.sizing import Sizing
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import DrawnPages, FileParts, ScanTask

# Cost of opening a file, as the number of bytes that can be read in the same time.
OPEN_COST_BYTES: Final = 1 << 20

# Approximate number of stored bytes per task.
TASK_BYTES: Final = Sizing().task_bytes

_SMALL_BYTES: Final = 4 << 20
_NONE: Final = np.zeros(0, np.int64)


def scan_tasks(
    reader: Reader,
    plan: ScanPlan,
    columns: Sequence[str] | None = None,
    *,
    task_bytes: int = TASK_BYTES,
    weight_column: str | None = None,
) -> list[ScanTask]:
    """Split a read into tasks; see `Table.scan_tasks`. `weight_column` adds a column with the weights of rows."""
    check_whole_number("task_bytes", task_bytes, 1)
    keep = replace(reader.row_filter(plan, reader.names_of(columns)), weight_column=weight_column)
    split = _split(reader, plan, task_bytes)
    lists = {part.indexed for parts in split for part in (parts, *parts.older)}
    needed = dict.fromkeys(name for indexed in (None, *lists) for name in keep.hashing(indexed).needed)
    keep = replace(keep, schema=pl.Schema({name: keep.schema[name] for name in needed}))
    return [
        ScanTask(
            uri=reader.store.uri,
            version=reader.snapshot.version,
            parts=parts,
            keep=keep,
            storage_options=dict(reader.snapshot.storage_options),
            allow_absolute_paths=reader.store.allow_absolute_paths,
            columns=reader.snapshot.columns,
        )
        for parts in split
    ]


def all_parts(reader: Reader, plan: ScanPlan) -> FileParts:
    """Return all files and pages that a read opens."""
    return _together([file_parts(reader, plan, number) for number in _opened(plan)])


def file_parts(reader: Reader, plan: ScanPlan, number: int) -> FileParts:
    """Return the parts of one file that a read opens."""
    parts = _file_parts(reader, plan, number)
    indexed = reader.other_columns(plan.selection.table, number)
    partitions = reader.partitions([number])
    if indexed is None and partitions is None:
        return parts
    return replace(parts, indexed=indexed, partitions=partitions)


def _file_parts(reader: Reader, plan: ScanPlan, number: int) -> FileParts:
    reader.store.locate(reader.paths[number])  # raise for an invalid path here, not in a worker
    request = reader.request(plan.selection, number)
    if request is not None and number in plan.selection.drawn:
        deleted = reader.deleted_rows.get(number, _NONE)
        return FileParts(drawn=(DrawnPages(request, plan.selection.drawn[number], deleted),))
    if request is not None:
        return FileParts(pages=(request,))
    hidden = reader.deleted_rows.get(number)
    if hidden is not None:
        return FileParts(hiding=((reader.paths[number], hidden),), others=reader.others([number]))
    # Polars reads few files of an object store at the same time. Small files are read by page, with more requests.
    if reader.store.local_root is None and reader.snapshot.files["size_bytes"][number] <= _SMALL_BYTES:
        request = reader.all_pages(plan.selection, number)
        if request is not None:
            return FileParts(pages=(request,))
    path = reader.paths[number]
    return FileParts(whole=(path,), others=reader.others([number]))


def _split(reader: Reader, plan: ScanPlan, task_bytes: int) -> list[FileParts]:
    """Split a read into parts of about equal cost, in the order of files.

    The cost of a file is the size of the pages to read plus `OPEN_COST_BYTES`. Files larger than a part are split
    between pages if their pages are known.
    """
    pieces = [piece for number in _opened(plan) for piece in _pieces(reader, plan, number, task_bytes)]
    if not pieces:
        return []
    costs = np.array([cost for _, cost in pieces])
    ends = np.cumsum(costs)
    count = max(round(ends[-1] / task_bytes), 1)
    shares = np.minimum(((ends - costs / 2) * (count / ends[-1])).astype(np.int64), count - 1)
    cuts = np.flatnonzero(np.diff(shares)) + 1
    return [
        _together([pieces[index][0] for index in part]) for part in np.split(np.arange(len(pieces)), cuts)
    ]


def _opened(plan: ScanPlan) -> list[int]:
    numbers: list[int] = np.flatnonzero(plan.selection.opened).tolist()
    return numbers


def _together(parts: Sequence[FileParts]) -> FileParts:
    """Join parts; those of revisions with other columns are apart, because their weights differ."""
    older: dict[tuple[str, ...], list[FileParts]] = {}
    for part in parts:
        if part.indexed is not None:
            older.setdefault(part.indexed, []).append(part)
    joined = _joined([part for part in parts if part.indexed is None]) if older else _joined(parts)
    others = (replace(_joined(same), indexed=indexed) for indexed, same in older.items())
    return replace(joined, older=tuple(others)) if older else joined


def _joined(parts: Sequence[FileParts]) -> FileParts:
    return FileParts(
        pages=tuple(request for part in parts for request in part.pages),
        drawn=tuple(drawn for part in parts for drawn in part.drawn),
        whole=tuple(path for part in parts for path in part.whole),
        hiding=tuple(hiding for part in parts for hiding in part.hiding),
        others={path: size for part in parts for path, size in part.others.items()},
        partitions=_partitions(parts),
    )


def _partitions(parts: Sequence[FileParts]) -> dict[str, PartitionTexts] | None:
    if not parts or parts[0].partitions is None:
        return None
    return {path: texts for part in parts for path, texts in (part.partitions or {}).items()}


def _pieces(
    reader: Reader, plan: ScanPlan, number: int, task_bytes: int
) -> Iterator[tuple[FileParts, float]]:
    """Yield the parts of one file and their costs."""
    parts = file_parts(reader, plan, number)
    size = int(reader.snapshot.files["size_bytes"][number])
    request = parts.pages[0] if parts.pages else None
    for drawn in parts.drawn:
        share = len(drawn.request.pages) / drawn.request.cuts.pages
        yield parts, size * share + OPEN_COST_BYTES
        return
    if request is None and parts.whole and size > task_bytes:
        request = reader.all_pages(plan.selection, number)
    if request is None:
        yield parts, size + OPEN_COST_BYTES
        return
    total = request.cuts.pages
    stored = size * len(request.pages) / total
    count = min(max(round(stored / task_bytes), 1), len(request.pages))
    if count == 1:
        yield parts, stored + OPEN_COST_BYTES
        return
    for pages in np.array_split(request.pages, count):
        piece = replace(parts, whole=(), others={}, pages=(replace(request, pages=pages),))
        yield piece, size * len(pages) / total + OPEN_COST_BYTES

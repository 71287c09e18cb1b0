"""A planned read as what is opened of its files, whole or in tasks of about equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.page_plan import PageRequest
from qbeast_core.space.arrays import I64Array
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import FileParts, ScanTask

__all__ = ["OPEN_COST_BYTES", "TASK_BYTES", "all_parts", "file_parts", "scan_tasks", "split_scan"]


OPEN_COST_BYTES: Final = 1 << 20
"""What opening a file counts, in bytes that could be read meanwhile."""

TASK_BYTES: Final = 64 << 20
"""Stored bytes that a task reads, about."""


def scan_tasks(
    reader: Reader, plan: ScanPlan, columns: Sequence[str] | None = None, *, task_bytes: int = TASK_BYTES
) -> list[ScanTask]:
    """Cut a read into tasks; see `Table.scan_tasks`.

    Parameters
    ----------
    reader : Reader
        Of the version.
    plan : ScanPlan
        What is opened, and which rows are kept.
    columns : sequence of str, optional
        Columns to return; all by default.
    task_bytes : int
        Stored bytes that a task aims at, 1 or more.

    Raises
    ------
    InvalidInputError
        If `columns` are no different columns of the table, or `task_bytes` is no positive integer.
    """
    asked = cast("object", task_bytes)  # callers without a type checker pass anything
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        msg = f"task_bytes must be a number of bytes, 1 or more, not {task_bytes!r}; nothing was read"
        raise InvalidInputError(msg, argument="task_bytes")
    keep = reader.wanted(plan, reader.names_of(columns))
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
        for parts in split_scan(reader, plan, task_bytes=task_bytes)
    ]


def all_parts(reader: Reader, plan: ScanPlan) -> FileParts:
    """Return all that a read opens, as one part.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    plan : ScanPlan
        What it opens.
    """
    share = _Share()
    for number in np.flatnonzero(plan.selection.opened).tolist():
        share.add(file_parts(reader, plan, number))
    return share.together()


def file_parts(reader: Reader, plan: ScanPlan, number: int) -> FileParts:
    """Return what a read opens of one file.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    plan : ScanPlan
        What it opens.
    number : int
        Of an opened file.

    Raises
    ------
    UnsupportedTableError
        If the file lies outside the table.
    """
    reader.store.locate(reader.paths[number])  # refused here, not in a worker
    request = reader.request(plan.selection, number)
    if request is not None:
        return FileParts(pages=(request,))
    hidden = reader.hidden_rows(plan.selection, number)
    if hidden is None:
        return FileParts(whole=(reader.paths[number],))
    return FileParts(hiding=((reader.paths[number], hidden),))


def split_scan(reader: Reader, plan: ScanPlan, *, task_bytes: int) -> list[FileParts]:
    """Return what a read opens in parts of about equal bytes, in the order of files.

    A file counts with the share of its bytes that its chosen pages have, and `OPEN_COST_BYTES` besides.
    Files larger than a part are cut between pages where their pages are known.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    plan : ScanPlan
        What it opens.
    task_bytes : int
        Bytes that a part aims at, 1 or more.

    Returns
    -------
    list of FileParts
        Empty where nothing is opened.
    """
    pieces = [
        piece
        for number in np.flatnonzero(plan.selection.opened).tolist()
        for piece in _pieces(reader, plan, number, task_bytes)
    ]
    if not pieces:
        return []
    ends = np.cumsum([piece.cost for piece in pieces])
    count = max(round(ends[-1] / task_bytes), 1)
    middles = ends - np.array([piece.cost for piece in pieces]) / 2
    shares = np.minimum((middles * (count / ends[-1])).astype(np.int64), count - 1).tolist()
    parts: dict[int, _Share] = {}
    for share, piece in zip(shares, pieces, strict=True):
        parts.setdefault(share, _Share()).add(piece.parts)
    return [part.together() for part in parts.values()]


@dataclass(frozen=True, slots=True)
class _Piece:
    """One file's part of a read, and what it costs."""

    parts: FileParts
    cost: float


@dataclass(slots=True)
class _Share:
    """Pieces for one task."""

    pages: list[PageRequest] = field(default_factory=list[PageRequest])
    whole: list[str] = field(default_factory=list[str])
    hiding: list[tuple[str, I64Array]] = field(default_factory=list[tuple[str, I64Array]])

    def add(self, parts: FileParts) -> None:
        self.pages += parts.pages
        self.whole += parts.whole
        self.hiding += parts.hiding

    def together(self) -> FileParts:
        return FileParts(tuple(self.pages), tuple(self.whole), tuple(self.hiding))


def _pieces(reader: Reader, plan: ScanPlan, number: int, task_bytes: int) -> Iterator[_Piece]:
    parts = file_parts(reader, plan, number)
    size = int(reader.snapshot.files["size_bytes"][number])
    request = parts.pages[0] if parts.pages else None
    if request is None and parts.whole and size > task_bytes:
        request = reader.all_pages(plan.selection, number)
    if request is None:
        yield _Piece(parts, size + OPEN_COST_BYTES)
        return
    total = -(-request.num_rows // request.page_rows)
    stored = size * len(request.pages) / total
    count = min(max(round(stored / task_bytes), 1), len(request.pages))
    if count == 1:
        yield _Piece(parts, stored + OPEN_COST_BYTES)
        return
    for pages in np.array_split(request.pages, count):
        piece = FileParts(pages=(replace(request, pages=pages),))
        yield _Piece(piece, size * len(pages) / total + OPEN_COST_BYTES)

"""A read cut into parts of about equal work, one for each task of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from qbeast_core.io.page_plan import PageRequest
from qbeast_core.space.arrays import I64Array
from qbeast_core.table.portion import Portion
from qbeast_core.table.reader import Job, Reader

__all__ = ["OPEN_COST_BYTES", "cut_read", "file_portion", "portion_of"]

OPEN_COST_BYTES: Final = 1 << 20
"""What opening a file counts, in bytes that could be read meanwhile."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One file's part of a read, and what it costs."""

    portion: Portion
    cost: float


@dataclass(slots=True)
class _Share:
    """Pieces for one task."""

    pages: list[PageRequest] = field(default_factory=list[PageRequest])
    whole: list[str] = field(default_factory=list[str])
    hiding: list[tuple[str, I64Array]] = field(default_factory=list[tuple[str, I64Array]])

    def add(self, portion: Portion) -> None:
        self.pages += portion.pages
        self.whole += portion.whole
        self.hiding += portion.hiding

    def portion(self) -> Portion:
        return Portion(tuple(self.pages), tuple(self.whole), tuple(self.hiding))


def portion_of(reader: Reader, job: Job) -> Portion:
    """Return all that a read opens, as one portion.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    job : Job
        What it opens.
    """
    share = _Share()
    for number in np.flatnonzero(job.selection.opened).tolist():
        share.add(file_portion(reader, job, number))
    return share.portion()


def file_portion(reader: Reader, job: Job, number: int) -> Portion:
    """Return what a read opens of one file.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    job : Job
        What it opens.
    number : int
        Of an opened file.

    Raises
    ------
    UnsupportedTableError
        If the file lies outside the table.
    """
    reader.store.locate(reader.paths[number])  # refused here, not in a worker
    request = reader.request(job.selection, number)
    if request is not None:
        return Portion(pages=(request,))
    hidden = reader.hidden_rows(job.selection, number)
    if hidden is None:
        return Portion(whole=(reader.paths[number],))
    return Portion(hiding=((reader.paths[number], hidden),))


def cut_read(reader: Reader, job: Job, *, task_bytes: int) -> list[Portion]:
    """Return what a read opens in portions of about equal bytes, in the order of files.

    A file counts with the share of its bytes that its chosen pages have, and `OPEN_COST_BYTES` besides.
    Files larger than a portion are cut between pages where their pages are known.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    job : Job
        What it opens.
    task_bytes : int
        Bytes that a portion aims at, 1 or more.

    Returns
    -------
    list of Portion
        Empty where nothing is opened.
    """
    pieces = [
        piece
        for number in np.flatnonzero(job.selection.opened).tolist()
        for piece in _pieces(reader, job, number, task_bytes)
    ]
    if not pieces:
        return []
    ends = np.cumsum([piece.cost for piece in pieces])
    count = max(round(ends[-1] / task_bytes), 1)
    middles = ends - np.array([piece.cost for piece in pieces]) / 2
    shares = np.minimum((middles * (count / ends[-1])).astype(np.int64), count - 1).tolist()
    parts: dict[int, _Share] = {}
    for share, piece in zip(shares, pieces, strict=True):
        parts.setdefault(share, _Share()).add(piece.portion)
    return [part.portion() for part in parts.values()]


def _pieces(reader: Reader, job: Job, number: int, task_bytes: int) -> Iterator[_Piece]:
    portion = file_portion(reader, job, number)
    size = int(reader.snapshot.files["size_bytes"][number])
    request = portion.pages[0] if portion.pages else None
    if request is None and portion.whole and size > task_bytes:
        request = reader.all_pages(job.selection, number)
    if request is None:
        yield _Piece(portion, size + OPEN_COST_BYTES)
        return
    total = -(-request.num_rows // request.page_rows)
    stored = size * len(request.pages) / total
    parts = min(max(round(stored / task_bytes), 1), len(request.pages))
    if parts == 1:
        yield _Piece(portion, stored + OPEN_COST_BYTES)
        return
    for pages in np.array_split(request.pages, parts):
        piece = Portion(pages=(replace(request, pages=pages),))
        yield _Piece(piece, size * len(pages) / total + OPEN_COST_BYTES)

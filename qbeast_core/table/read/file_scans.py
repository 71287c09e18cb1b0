"""The files that a planned read opens, together or in tasks of about equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import check_whole_number
from qbeast_core.io.footer import cuts_of
from qbeast_core.io.pages import PageRequest
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.select import Selection
from qbeast_core.space.values import I64Array, distinct
from qbeast_core.support.sizing import Sizing, sizing
from qbeast_core.table.data.scan import FileScan
from qbeast_core.table.read.planner import Planner, ScanPlan
from qbeast_core.table.read.scan_task import ScanTask
from qbeast_core.table.snapshot.snapshot import Snapshot

# Cost of opening a file, as the number of bytes that can be read in the same time.
OPEN_COST_BYTES: Final = 1 << 20

# Approximate number of stored bytes per task.
TASK_BYTES: Final = Sizing().task_bytes


def scan_tasks(
    planner: Planner,
    plan: ScanPlan,
    columns: Sequence[str] | None = None,
    *,
    task_bytes: int = TASK_BYTES,
    weight_column: str | None = None,
) -> list[ScanTask]:
    """Split a read into tasks; see `Table.scan_tasks`. `weight_column` adds a column with the weights of rows."""
    check_whole_number("task_bytes", task_bytes, 1)
    keep = replace(planner.row_filter(plan, planner.names_of(columns)), weight_column=weight_column)
    split = _split(planner, plan, task_bytes)
    lists = {None, *(scan.hashed for scans in split for scan in scans)}
    needed = dict.fromkeys(name for hashed in lists for name in keep.hashing(hashed).needed)
    keep = replace(keep, schema=pl.Schema({name: keep.schema[name] for name in needed}))
    return [
        ScanTask(
            uri=planner.store.uri,
            version=planner.snapshot.version,
            parts=scans,
            keep=keep,
            storage_options=dict(planner.snapshot.storage_options),
            allow_absolute_paths=planner.store.allow_absolute_paths,
            columns=planner.snapshot.columns,
        )
        for scans in split
    ]


def scans_of(planner: Planner, plan: ScanPlan, numbers: Sequence[int] | None = None) -> list[FileScan]:
    """Return the pages that a read opens of each file, or the file; by default of all files that it opens."""
    opened = _opened(plan) if numbers is None else numbers
    hidden = planner.hidden_rows.of(opened)
    return [_scan_of(planner, plan, number, hidden.get(number)) for number in opened]


def _scan_of(planner: Planner, plan: ScanPlan, number: int, hidden: I64Array | None) -> FileScan:
    snapshot, selection = planner.snapshot, plan.selection
    whole = file_at(snapshot, number)
    planner.store.locate(whole.path)  # raise for an invalid path here, not in a worker
    pages = page_request(snapshot, selection, number)
    # Polars reads few files of an object store at the same time. Small files are read by page, with more requests; and
    # all files if most pages are likely to have no match.
    by_page = plan.matches_few or whole.size_bytes <= sizing().small_object_bytes
    if pages is None and planner.store.local_root is None and by_page:
        pages = all_pages(snapshot, selection.table, number)
    return replace(
        whole,
        pages=pages,
        hidden=hidden,
        draw=selection.drawn.get(number),
        hashed=planner.other_columns(selection.table, number),
    )


def scan_of_rows(snapshot: Snapshot, number: int, rows: I64Array) -> FileScan:
    """Return some rows of a live file, by their ascending indexes: the pages that hold them, if its pages are known."""
    table = snapshot.blocks
    pages = None
    if _page_count(table, number) and len(rows):
        found = distinct(table.pages.pages_of(number, rows)) - table.pages.first_page[number]
        pages = _pages_of(snapshot, table, number, found)
    return replace(file_at(snapshot, number), pages=pages, only=rows)


def file_at(snapshot: Snapshot, number: int) -> FileScan:
    """Return a live file with all of its rows, also deleted ones."""
    size_bytes, may_differ = snapshot.file_facts[number]
    return FileScan(
        path=snapshot.data_paths[number],
        size_bytes=size_bytes,
        may_differ=may_differ,
        partition=snapshot.partition_texts[number] if snapshot.columns.partitions else (),
    )


def page_request(snapshot: Snapshot, selection: Selection, number: int) -> PageRequest | None:
    """Return the pages to read from an opened file. None: all rows are needed, or the pages are not known.

    Drawn rows are always read by page.
    """
    is_whole = selection.pages_opened[number] == selection.pages_total[number]  # also without a layout
    if is_whole and number not in selection.drawn:
        return None
    return _pages_of(snapshot, selection.table, number, selection.pages(number))


def all_pages(snapshot: Snapshot, blocks: BlockTable, number: int) -> PageRequest | None:
    """Return all pages of a file. None: its pages are not known."""
    total = _page_count(blocks, number)
    return _pages_of(snapshot, blocks, number, np.arange(total, dtype=np.int64)) if total else None


def _page_count(blocks: BlockTable, number: int) -> int:
    first, end = blocks.pages.first_page[number : number + 2].tolist()
    return int(end - first)


def _pages_of(snapshot: Snapshot, blocks: BlockTable, number: int, pages: I64Array) -> PageRequest:
    table = blocks.pages
    bands = slice(*table.first_band[number : number + 2].tolist())
    return PageRequest(
        path=snapshot.data_paths[number],
        size_bytes=snapshot.file_facts[number][0],
        cuts=cuts_of(table.band_rows[bands], table.band_page_rows[bands]),
        tail_bytes=int(table.tail_bytes[number]),
        pages=pages,
    )


def _split(planner: Planner, plan: ScanPlan, task_bytes: int) -> list[tuple[FileScan, ...]]:
    """Split a read into parts of about equal cost, in the order of files.

    The cost of a file is the size of the pages to read plus `OPEN_COST_BYTES`. Files larger than a part are split
    between pages if their pages are known.
    """
    numbers = _opened(plan)
    scans = zip(numbers, scans_of(planner, plan, numbers), strict=True)
    pieces = [piece for number, scan in scans for piece in _pieces(planner, plan, (number, scan), task_bytes)]
    if not pieces:
        return []
    costs = np.array([cost for _, cost in pieces])
    ends = np.cumsum(costs)
    count = max(round(ends[-1] / task_bytes), 1)
    shares = np.minimum(((ends - costs / 2) * (count / ends[-1])).astype(np.int64), count - 1)
    cuts = np.flatnonzero(np.diff(shares)) + 1
    return [tuple(pieces[index][0] for index in part) for part in np.split(np.arange(len(pieces)), cuts)]


def _opened(plan: ScanPlan) -> list[int]:
    numbers: list[int] = np.flatnonzero(plan.selection.opened).tolist()
    return numbers


def _pieces(
    planner: Planner, plan: ScanPlan, numbered: tuple[int, FileScan], task_bytes: int
) -> Iterator[tuple[FileScan, float]]:
    """Yield the parts of one file and their costs."""
    number, scan = numbered
    if scan.pages is None and scan.size_bytes > task_bytes:
        scan = replace(scan, pages=all_pages(planner.snapshot, plan.selection.table, number))
    if scan.pages is None:
        yield scan, scan.size_bytes + OPEN_COST_BYTES
        return
    page_bytes, pages = scan.size_bytes / scan.pages.cuts.pages, len(scan.pages.pages)
    for part in scan.split(min(max(round(page_bytes * pages / task_bytes), 1), pages)):
        yield part, page_bytes * (pages if part.pages is None else len(part.pages.pages)) + OPEN_COST_BYTES

"""Plan reads of a snapshot: the files and pages to open, together or in tasks of about equal size.

Tables without an index are read completely for a sample.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import (
    CorruptTagWarning,
    InvalidInputError,
    UnindexedSampleWarning,
    check_whole_number,
    invalid_argument,
)
from qbeast_core.io.footer import cuts_of
from qbeast_core.io.pages import PageRequest
from qbeast_core.io.store import Store
from qbeast_core.log.values import joined_files
from qbeast_core.plan.blocks import BlockTable, PageTable
from qbeast_core.plan.nodes import Node, Unknown, matches_few
from qbeast_core.plan.predicate import understand
from qbeast_core.plan.select import Matching, Selection, match
from qbeast_core.plan.weights import ALL_WEIGHTS, KeyChoice, Sample, WeightRange, sample_to_weights
from qbeast_core.space.values import BoolArray, I32Array, I64Array, distinct
from qbeast_core.support.process import LOG, caller_stacklevel, refuse_forked
from qbeast_core.support.sizing import Sizing, sizing
from qbeast_core.support.text import did_you_mean
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.data.schema import refuse_lost_columns
from qbeast_core.table.index.counts import index_call, latest_revision
from qbeast_core.table.read.tasks import RowFilter, ScanTask
from qbeast_core.table.snapshot.hidden_rows import HiddenRows
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.grid import can_be_hashed

# A part of the files that a plan file lists, and the files that were added since.
_FEW_PARTS: Final = 2

# Ids of the tables that a warning was shown for.
_WARNED: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Files and pages that a read of a snapshot opens."""

    selection: Selection
    weights: WeightRange
    predicate: pl.Expr | None
    # Whether the predicate only compares values, see `qbeast_core.plan.predicate.understand`.
    compares_values: bool = False
    # Whether the filter compares a column with few values, see `qbeast_core.plan.nodes.matches_few`.
    matches_few: bool = False
    # Keys to read, or to leave out. None: all.
    keys: KeyChoice | None = None


class FilterPlanner:
    """Plans reads of one filter. The filter is parsed once."""

    def __init__(self, planner: Planner, predicate: pl.Expr | None) -> None:
        self._planner, self._predicate = planner, predicate

    @cached_property
    def _matches(self) -> tuple[Matching, bool, bool]:
        schema, predicate = self._planner.snapshot.schema, self._predicate
        node, compares = (Unknown(), False) if predicate is None else understand(predicate, schema)
        few = matches_few(node, self._planner.snapshot.columns.partitions)
        return match(self._planner.blocks, node), compares, few

    def __call__(self, sample: Sample | None) -> ScanPlan:
        """Choose files and pages for a sample."""
        return self.within(self._planner.weights_of(sample))

    def within(self, weights: WeightRange) -> ScanPlan:
        """Choose files and pages for a range of weights."""
        blocks, compares, few = self._matches
        reads_all = self._planner.sample_by is not None and not weights.is_empty
        selection = blocks.within(ALL_WEIGHTS if reads_all else weights)
        return ScanPlan(selection, weights, self._predicate, compares, few)

    def of_keys(self, keys: I32Array) -> ScanPlan:
        """Choose files and pages for all rows of some keys, given by their weights in ascending order."""
        blocks, compares, few = self._matches
        choice = KeyChoice(keys, only=True)
        return ScanPlan(blocks.of_keys(keys), ALL_WEIGHTS, self._predicate, compares, few, choice)


class Planner:
    """Plans reads of a snapshot. Safe to share between threads."""

    def __init__(self, snapshot: Snapshot, sample_by: tuple[str, ...] | None = None) -> None:
        self.snapshot = snapshot
        # Columns whose hash is the weight of a row, instead of the indexed ones. Then samples read all files.
        self.sample_by = sample_by

    def __reduce__(self) -> tuple[type[Planner], tuple[Snapshot, tuple[str, ...] | None]]:
        """Pickle the arguments only. Cached parts of files are read again."""
        return Planner, (self.snapshot, self.sample_by)

    @property
    def store(self) -> Store:
        """Store of the table."""
        return self.snapshot.store

    @property
    def files(self) -> TableFiles:
        """Access to the data files."""
        return self.snapshot.data_files

    @property
    def hashed(self) -> tuple[str, ...]:
        """Columns whose hash is the weight of a row, in order. Empty if the table has no index, without `sample_by`."""
        return self.snapshot.hashed if self.sample_by is None else self.sample_by

    @property
    def hashes_differ(self) -> bool:
        """Whether revisions hash different columns, after a reindex of a table without a sampling key."""
        return bool(self._other_columns)

    @cached_property
    def _other_columns(self) -> dict[int, tuple[str, ...]]:
        """Hashed columns by revision, of revisions that hash other columns than the newest one."""
        revisions = {} if self.sample_by is not None else self.snapshot.config.revisions
        return {
            number: revision.hashed
            for number, revision in revisions.items()
            if revision.hashed != self.hashed
        }

    def other_columns(self, table: BlockTable, number: int) -> tuple[str, ...] | None:
        """Return the columns whose hash is the weight of the rows of a file. None: the columns of the newest revision.

        Files without a usable index have no revision: their rows have the weights of the newest one.
        """
        return self._other_columns.get(int(table.revision_of[number])) if self._other_columns else None

    @property
    def moves_rows(self) -> bool:
        """Whether live files have weights by other columns than those of the newest revision; no tag is decoded."""
        return self.hashes_differ and not self._other_columns.keys().isdisjoint(
            self.snapshot.revisions_without(())
        )

    @property
    def has_other_weights(self) -> BoolArray:
        """Files whose rows have weights by other columns than those of the newest revision, shape (files,)."""
        return np.isin(self.blocks.revision_of, list(self._other_columns))

    @property
    def paths(self) -> list[str]:
        """Decoded paths of the live files."""
        return self.snapshot.data_paths

    @cached_property
    def blocks(self) -> BlockTable:
        """Blocks of all live files. Warns of invalid tags and settings."""
        return self._warned(self.snapshot.blocks)

    def narrowed(self, predicate: pl.Expr | None) -> Planner:
        """Return the planner of only the files that may match a filter; itself if the table has few files.

        Plans of the result number its files, so it goes with them.
        """
        return self._of(self.snapshot.narrowed(self._node(predicate)))

    def one_part(self, predicate: pl.Expr | None) -> Planner | None:
        """Return the planner like `narrowed`. None: more files may match, so they are better planned in `parts`."""
        parts = list(islice(self.parts(predicate), _FEW_PARTS + 1))
        if len(parts) > _FEW_PARTS:
            return None
        files = joined_files([part.snapshot.listed for part in parts])
        return parts[0] if len(parts) == 1 else self._of(self.snapshot.with_files(files))

    def parts(self, predicate: pl.Expr | None) -> Iterator[Planner]:
        """Yield planners of the files that may match a filter, some files at a time."""
        yield from map(self._of, self.snapshot.parts(self._node(predicate)))

    def plans(self, predicate: pl.Expr | None, sample: Sample | None) -> Iterator[tuple[Planner, ScanPlan]]:
        """Yield planners like `parts`, each with its plan of a read."""
        for part in self.parts(predicate):
            yield part, part.plan(predicate, sample)

    @property
    def whole(self) -> Planner:
        """The planner of all live files of the version."""
        return self._of(self.snapshot.whole or self.snapshot)

    def all_parts(self) -> Iterator[Planner]:
        """Yield planners of all live files of the version, some files at a time."""
        whole = self.whole
        yield from (whole,) if whole.snapshot.planned is None else whole.parts(None)

    def _of(self, snapshot: Snapshot) -> Planner:
        return self if snapshot is self.snapshot else Planner(snapshot, self.sample_by)

    def _node(self, predicate: pl.Expr | None) -> Node:
        return Unknown() if predicate is None else understand(predicate, self.snapshot.schema)[0]

    def _warned(self, table: BlockTable) -> BlockTable:
        faults = self.snapshot.config.faults
        if faults:
            message = (
                f"settings of {self.snapshot.uri!r} cannot be read, or cannot be true ({', '.join(faults)}): files of "
                "such revisions are read whole. No row is lost; Table.check() says why, Table.repair() repairs what it "
                "can."
            )
            warnings.warn(message, CorruptTagWarning, stacklevel=caller_stacklevel())
        if table.corrupt:
            shown = ", ".join(table.corrupt[:3])
            message = (
                f"the index tags of {len(table.corrupt)} file(s) of {self.snapshot.uri!r} cannot be read, or "
                f"cannot be true ({shown}): these files are read whole. No row is lost; Table.repair() repairs them."
            )
            warnings.warn(message, CorruptTagWarning, stacklevel=caller_stacklevel())
        return table

    @property
    def hidden_rows(self) -> HiddenRows:
        """Rows that are not read, by index of the file."""
        return self.snapshot.hidden_rows

    def plan(self, predicate: pl.Expr | None, sample: Sample | None) -> ScanPlan:
        """Choose files and pages for a read."""
        return self.of_filter(predicate)(sample)

    def of_filter(self, predicate: pl.Expr | None) -> FilterPlanner:
        """Return the planner of reads of one filter."""
        refuse_forked(self.snapshot.uri)
        return FilterPlanner(self, predicate)

    def weights_of(self, sample: Sample | None) -> WeightRange:
        """Return the weights of the rows of a sample. Raise if the weights of rows are not known."""
        weights = ALL_WEIGHTS if sample is None else sample_to_weights(sample)
        if weights.is_full or self.sample_by is not None:
            return weights
        uri = self.snapshot.uri
        if not self.snapshot.config.is_indexed:
            msg = (
                f"{uri!r} has no index, so a sample needs `sample_by`: the columns whose hash selects rows. "
                'Pass sample_by=["user", ...], and each sample reads all files; or index the table, which '
                f"moves no data: {index_call(self.snapshot)}."
            )
            raise InvalidInputError(msg, argument="sample_by")
        refuse_lost_columns(uri, latest_revision(self.snapshot), self.snapshot.schema, self.snapshot.columns)
        return weights

    def names_of(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns to read, in order. By default all columns."""
        names = list(self.snapshot.schema)
        return names if columns is None else different_names(columns, names)

    def row_filter(self, plan: ScanPlan, columns: Sequence[str]) -> RowFilter:
        """Return the row filter of a read."""
        return RowFilter(
            columns=tuple(columns),
            schema=self.snapshot.schema,
            indexed=self.hashed,
            weights=plan.weights,
            predicate=plan.predicate,
            compares_values=plan.compares_values,
            matches_few=plan.matches_few,
            keys=plan.keys,
        )


def different_names(columns: Sequence[str], known: Sequence[str], *, argument: str = "columns") -> list[str]:
    """Validate and return names of columns to read.

    >>> different_names(["b", "a"], ["a", "b"])
    ['b', 'a']
    """
    items: list[object] = [columns] if isinstance(columns, str) else list(columns)
    names = [name for name in items if isinstance(name, str)]
    unknown = [name for name in names if name not in known]
    invalid = isinstance(columns, str) or unknown or len(names) < len(items)
    if invalid or not names or len(set(names)) < len(names):
        problem = f"must be different names of {list(known)}, at least one, in a list"
        value = columns if isinstance(columns, str) else items
        guess = did_you_mean(unknown, known).strip()
        if columns in known:
            guess = f"Write {argument}=[{columns!r}]."
        invalid_argument(argument, problem, value=value, known=known, cure=guess)
    return names


def log_read(planner: Planner, plan: ScanPlan, sample: Sample | None) -> None:
    """Log the number of files and rows that a read opens."""
    if not LOG.isEnabledFor(logging.DEBUG):  # the sums take time
        return
    chosen, snapshot = plan.selection, planner.snapshot
    opened, files, rows = int(chosen.opened.sum()), len(chosen.opened), int(chosen.rows_opened.sum())
    text = "version %d of %s: reads %d of %d files, %d of %d rows; filter %s, sample %s"
    version = (snapshot.version, snapshot.uri)
    LOG.debug(text, *version, opened, files, rows, snapshot.counted_rows, plan.predicate, sample)


def sampled_by(planner: Planner, columns: Sequence[str] | None) -> Planner:
    """Return the planner whose samples select rows by the hash of these columns; None: by the index of the table.

    If the index is of these columns, it is used.
    """
    if columns is None:
        return planner
    schema = planner.snapshot.schema
    names = different_names(columns, list(schema), argument="sample_by")
    unfit = {name: schema[name] for name in names if not can_be_hashed(schema[name])}
    if unfit:
        problem = f"must name columns with a hash; no hash is known for the types of {unfit}"
        invalid_argument("sample_by", problem, value=names)
    if tuple(names) == planner.hashed and not planner.hashes_differ:
        return planner
    return Planner(planner.snapshot, tuple(names))


def warn_of_full_read(planner: Planner) -> None:
    """Warn, once per table, if samples read all files."""
    snapshot = planner.snapshot
    reads_all = planner.sample_by is not None or not snapshot.config.is_indexed
    if not reads_all or snapshot.metadata.id in _WARNED:
        return
    if snapshot.config.is_indexed:
        columns = list(planner.hashed)
        now = Planner(snapshot).hashed
        reason = f"is sampled by {list(now)}, not by {columns}"
        cure = f"Leave sample_by out to sample by {list(now)}, or write a table with sample_by={columns}"
    else:
        reason = "has no index"
        cure = f"Index it, which moves no data, and sample by the same columns: {index_call(snapshot)}"
    message = f"samples and estimates read all files of {snapshot.uri!r}, because it {reason}. {cure}."
    warnings.warn(message, UnindexedSampleWarning, stacklevel=caller_stacklevel())
    _WARNED.add(snapshot.metadata.id)


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
    """Split a read into tasks; see `Read.tasks`. `weight_column` adds a column with the weights of rows."""
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
            storage_options=planner.snapshot.location.storage_options,
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
    if pages is None and reads_all_pages(planner, plan, number):
        pages = all_pages(snapshot, selection.table, number)
    return replace(
        whole,
        pages=pages,
        hidden=hidden,
        draw=selection.drawn.get(number),
        hashed=planner.other_columns(selection.table, number),
    )


def reads_all_pages(planner: Planner, plan: ScanPlan, number: int) -> bool:
    """Return whether a file of which all pages are needed is read by page.

    Polars reads few files of an object store at the same time. Small files are read by page, with more requests; and
    all files if most pages are likely to have no match.
    """
    small = planner.snapshot.file_facts[number][0] <= sizing().small_object_bytes
    return planner.store.local_root is None and (plan.matches_few or small)


def scan_of_rows(snapshot: Snapshot, number: int, rows: I64Array) -> FileScan:
    """Return some rows of a live file, by their ascending indexes."""
    return only_rows(file_at(snapshot, number), snapshot.blocks.pages, number, rows)


def only_rows(scan: FileScan, table: PageTable, number: int, rows: I64Array) -> FileScan:
    """Return some rows of a file, by their ascending indexes: the pages that hold them, if its pages are known.

    `number` is that of the file in the table of pages.
    """
    pages = None
    if _page_count(table, number) and len(rows):
        found = distinct(table.pages_of(number, rows)) - table.first_page[number]
        pages = _pages_of(scan, table, number, found)
    return replace(scan, pages=pages, only=rows)


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
    return _pages_of(file_at(snapshot, number), selection.table.pages, number, selection.pages(number))


def all_pages(snapshot: Snapshot, blocks: BlockTable, number: int) -> PageRequest | None:
    """Return all pages of a file. None: its pages are not known."""
    total = _page_count(blocks.pages, number)
    if not total:
        return None
    return _pages_of(file_at(snapshot, number), blocks.pages, number, np.arange(total, dtype=np.int64))


def _page_count(table: PageTable, number: int) -> int:
    first, end = table.first_page[number : number + 2].tolist()
    return int(end - first)


def _pages_of(scan: FileScan, table: PageTable, number: int, pages: I64Array) -> PageRequest:
    bands = slice(*table.first_band[number : number + 2].tolist())
    return PageRequest(
        path=scan.path,
        size_bytes=scan.size_bytes,
        cuts=cuts_of(table.band_rows[bands], table.band_page_rows[bands]),
        tail_bytes=int(table.tail_bytes[number]),
        directory_bytes=int(table.directory_bytes[number]),
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

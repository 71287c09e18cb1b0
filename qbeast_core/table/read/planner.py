"""Plan reads of a snapshot, and samples of it by the hash of any columns.

Tables without an index are read completely for a sample.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

from qbeast_core.errors import (
    CorruptTagWarning,
    InvalidInputError,
    UnindexedSampleWarning,
    invalid_argument,
)
from qbeast_core.io.store import Store
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.plan.nodes import Node, Unknown, matches_few
from qbeast_core.plan.predicate import understand
from qbeast_core.plan.select import Matching, Selection, files_that_may_match, match
from qbeast_core.plan.weights import ALL_WEIGHTS, KeyChoice, Sample, WeightRange, sample_to_weights
from qbeast_core.space.values import I32Array
from qbeast_core.support.process import LOG, caller_stacklevel, refuse_forked
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import did_you_mean
from qbeast_core.table.data.scan import TableFiles
from qbeast_core.table.data.schema import refuse_lost_columns
from qbeast_core.table.index.counts import index_call, latest_revision
from qbeast_core.table.read.scan_task import RowFilter
from qbeast_core.table.snapshot.hidden_rows import HiddenRows
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.grid import can_be_hashed

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
        return match(self._planner.blocks_for(node), node), compares, few

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
        self._is_planned = False

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
    def paths(self) -> list[str]:
        """Decoded paths of the live files."""
        return self.snapshot.data_paths

    @cached_property
    def blocks(self) -> BlockTable:
        """Blocks of all live files. Warns of invalid tags and settings."""
        return self._warned(self.snapshot.blocks)

    def blocks_for(self, node: Node) -> BlockTable:
        """Return the blocks that a filter needs: all blocks, except for the first filter on a table of many files.

        Decoding all tags takes longer than one narrow filter, so the first filter skips the tags of files that
        statistics exclude. With a second filter, more are likely to follow: then all tags are decoded, once.
        """
        is_first, self._is_planned = not self._is_planned, True
        snapshot, files = self.snapshot, self.snapshot.files
        if is_first and files.height >= sizing().many_files and snapshot.decoded_blocks is None:
            needed = files_that_may_match(files, node)
            if needed.sum() <= sizing().max_needed * files.height:
                tag = pl.when(pl.Series(needed))
                files = files.with_columns(tag.then("blocks"), tag.then("layout"))
                revisions, rehashed = snapshot.config.revisions, snapshot.columns.rehashed
                return self._warned(build_block_table(files, revisions, snapshot.schema, rehashed))
        return self.blocks

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


def planner_of_estimate(planner: Planner, columns: Sequence[str] | None, sample: Sample | None) -> Planner:
    """Return the planner of an estimate: without an index on these columns, it reads all rows. Warn of that."""
    planner = sampled_by(planner, columns)
    planner.weights_of(sample)  # raises if a sample needs other arguments
    warn_of_full_read(planner)
    return planner


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

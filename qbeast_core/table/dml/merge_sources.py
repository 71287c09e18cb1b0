"""Sources of a merge: frames in memory, or batches joined with the table's keys in temporary files.

The source is read twice: first for a digest of its keys, then to partition its rows. Both the rows and the keys of the
table are hashed into buckets. Each bucket is joined, and the rows are partitioned again by the file they match in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import polars as pl

from qbeast_core.io.location import Location
from qbeast_core.plan.nodes import Node, Operand, Unknown, all_of, any_of, is_in
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.select import select
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.space.values import BoolArray, I64Array, distinct
from qbeast_core.support.frames import own_column
from qbeast_core.table.dml.merge_rules import (
    DoubledKeys,
    KeyDigest,
    MergeChange,
    MergedFiles,
    MergedPlaces,
    MergeRules,
    NewKeys,
    digest_of,
    join_source,
    key_filter,
    key_hashes,
    key_nodes,
    merge_digests,
)
from qbeast_core.table.dml.plan import live_rows
from qbeast_core.table.engine.engine import Engine, Source
from qbeast_core.table.engine.local import LocalEngine
from qbeast_core.table.engine.row_change import (
    SUFFIX,
    AddedFiles,
    AddedFrame,
    AddedRows,
    RowChange,
    StoredPart,
    as_bytes,
)
from qbeast_core.table.engine.sources import FrameSource
from qbeast_core.table.engine.spill import PlacedBatch, Spill, SpilledRange, identity, map_ahead
from qbeast_core.table.read.planner import Planner, ScanPlan, scans_of
from qbeast_core.table.read.tasks import read_scans
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN
from qbeast_core.table.snapshot.snapshot import Snapshot

# Maximum number of rows of the table that are matched at once.
MAX_ROWS_MATCHED: Final = 1 << 22
# Each join hashes the source: rows to match at once that amortise it, at least, and per row of the source.
_ROWS_MATCHED: Final = 1 << 19
_MATCHED_PER_ROW: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class MergeMatches:
    """The matches of a merge with a version."""

    # Index of each file with rows to update or delete, ascending -> these rows.
    found: Mapping[int, MergedPlaces]
    # Opens at least these rows.
    scan: ScanPlan
    # Whether a row of the source has a match, even if no row changes.
    any_matched: bool
    # Change of the rows of `files`.
    change: RowChange
    added: AddedRows
    # Rows of `added` with equal keys.
    doubled: DoubledKeys
    source_rows: int
    # Index of a file -> its updated rows, with the columns that matching reads. Files may be missing.
    updated: Mapping[int, pl.DataFrame] = field(default_factory=dict[int, pl.DataFrame])

    @property
    def files(self) -> I64Array:
        """Indexes of the files in the snapshot, ascending."""
        return np.array(list(self.found), np.int64)

    @property
    def counts(self) -> I64Array:
        """Rows of each file to update, to delete with a match, and to delete without one; shape (3, files)."""
        counts = [[len(rows) for rows in places] for places in self.found.values()]
        return np.array(counts, np.int64).reshape(-1, 3).T


class MergeSource(Protocol):
    """Rows to merge."""

    @property
    def empty(self) -> pl.DataFrame:
        """Frame without rows, with the columns and types of the source."""
        ...

    def scope(self, rules: MergeRules) -> Node | None:
        """Return the condition of all rows that may match, or be deleted. None: these may be any rows."""
        ...

    def match(
        self, rules: MergeRules, snapshot: Snapshot, engine: Engine, *, among: BoolArray | None = None
    ) -> MergeMatches:
        """Match the rows with the rows of a version, or of some of its files.

        Statistics and cubes exclude files that cannot hold a match. Of the others, only the keys and the columns of
        the conditions are read.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FrameMergeSource:
    """Rows in memory."""

    frame: pl.DataFrame
    # Maximum number of rows of the table that fit in memory with the frame.
    rows_at_once: int = MAX_ROWS_MATCHED

    @property
    def empty(self) -> pl.DataFrame:
        """See `MergeSource`."""
        return self.frame.clear()

    def scope(self, rules: MergeRules) -> Node | None:
        """See `MergeSource`."""
        return _scope_of(rules, self._keys(rules, rules.fit(self.frame)))

    def _keys(self, rules: MergeRules, frame: pl.DataFrame) -> list[Node]:
        schema = rules.schema
        return [
            is_in(Operand(name, schema[name]), frame[name], nulls_equal=False) for name in rules.clauses.keys
        ]

    def match(
        self, rules: MergeRules, snapshot: Snapshot, engine: Engine, *, among: BoolArray | None = None
    ) -> MergeMatches:
        """Match all rows with each file, in the tasks that read the files; see `MergeSource`."""
        frame = rules.fit(self.frame)
        planner, live = Planner(snapshot), live_rows(snapshot)
        plan = scan_plan(rules, planner, self._keys(rules, frame))
        files = np.flatnonzero(plan.selection.opened & (True if among is None else among))
        rows_at_once = min(self.rows_at_once, max(_MATCHED_PER_ROW * frame.height, _ROWS_MATCHED))
        chunks = list(_chunks(files, live, rows_at_once))
        scans = dict(zip(files.tolist(), scans_of(planner, plan, files.tolist()), strict=True))
        opened = [[scans[file] for file in chunk.tolist()] for chunk in chunks]
        keep = planner.row_filter(plan, rules.match_columns())
        call = rules.matching(planner.files, keep, frame, returns_rows=engine.shares_memory)
        matched = np.zeros(frame.height, np.bool_)
        found, updated, room = dict[int, MergedPlaces](), dict[int, pl.DataFrame](), frame.height
        for chunk, part in zip(chunks, engine.map(call, opened, at_once=1), strict=True):
            matched[part.source_rows] = True
            files_of_part = chunk.tolist()
            found |= {file: rows for file, rows in zip(files_of_part, part.places, strict=True) if any(rows)}
            room -= sum(rows.height for rows in part.updated)
            if room >= 0:  # more rows, where keys of the table are not unique, may not fit in memory
                updated |= zip(files_of_part, part.updated, strict=False)
        return replace(_matches(rules, frame, matched, found, plan), updated=updated)


def _scope_of(rules: MergeRules, keys: Sequence[Node]) -> Node:
    """Return the condition of all rows that may match, or be deleted because they do not."""
    not_matched = rules.conditions.not_matched
    nodes = [all_of(keys)]
    if rules.clauses.when_not_matched_by_source == "delete":
        nodes.append(Unknown() if not_matched.constant else parse_predicate(not_matched.expr, rules.schema))
    return any_of(nodes)


def scan_plan(rules: MergeRules, planner: Planner, keys: Sequence[Node]) -> ScanPlan:
    """Plan which files to open: files with possible matches, or with rows to delete because they have none."""
    return ScanPlan(select(planner.blocks, _scope_of(rules, keys), ALL_WEIGHTS), ALL_WEIGHTS, None)


def _matches(
    rules: MergeRules,
    frame: pl.DataFrame,
    matched: BoolArray,
    found: Mapping[int, MergedPlaces],
    plan: ScanPlan,
) -> MergeMatches:
    mask = pl.Series(matched, dtype=pl.Boolean)
    source = rules.numbered(frame, whole=True)
    if rules.clauses.when_not_matched_by_source == "ignore":
        source = source.filter(mask)  # a delete of rows without a match needs all source rows
    inserted = rules.inserted(frame.filter(~mask))
    keys = NewKeys(rules)
    keys.add(inserted)
    return MergeMatches(
        found=found,
        scan=plan,
        any_matched=bool(matched.any()),
        change=MergeChange(rules, source),
        added=AddedFrame(rules.new_rows(inserted)),
        doubled=keys.doubled,
        source_rows=frame.height,
    )


def _chunks(files: I64Array, live: I64Array, max_rows: int) -> Iterator[I64Array]:
    """Cut files into chunks of at most `max_rows` rows, or of a single file."""
    rows = np.where(live[files] == UNKNOWN, max_rows, live[files])
    cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(rows) - 1, 0) // max_rows)) + 1
    yield from (part for part in np.split(files, cuts) if len(part))


_COPIES: Final = 8  # copies of a source in memory: fitted, joined, assigned to columns of the table
_MATCHED_BYTES: Final = 384  # memory per row of the table whose keys are read and joined
_MIN_ROWS_MATCHED: Final = 1 << 12
_BUCKETS_HELD: Final = 16  # buckets that would fill the memory: a bucket and its join take a small part of it
_VALUE_BYTES: Final = 24  # estimated memory per key value
_FILE: Final = own_column("file")


def local_merge_source(source: Source, engine: LocalEngine) -> MergeSource:
    """Return a merge source. It is in memory if the rows fit."""
    taken = engine.take(source, copies=_COPIES)
    if isinstance(taken, FrameSource):
        room = engine.free.memory_bytes // _MATCHED_BYTES
        return FrameMergeSource(taken.frame, min(max(room, _MIN_ROWS_MATCHED), MAX_ROWS_MATCHED))
    return StreamMergeSource(taken, engine.spill)


@dataclass(frozen=True, slots=True, eq=False)
class StreamMergeSource:
    """Rows in batches. A second read must return the same rows."""

    stream: Source
    # Temporary files of the join. The next match deletes those of the last one; the folder deletes the rest.
    spill: Spill
    _stored: list[str] = field(default_factory=list[str], init=False, repr=False)

    @property
    def empty(self) -> pl.DataFrame:
        """See `MergeSource`."""
        return self.stream.empty

    def scope(self, rules: MergeRules) -> Node | None:
        """See `MergeSource`. The keys are known after all rows were read."""
        del rules
        return None

    def match(
        self, rules: MergeRules, snapshot: Snapshot, engine: Engine, *, among: BoolArray | None = None
    ) -> MergeMatches:
        """Match the rows bucket by bucket; see `MergeSource`."""
        del engine  # this process reads the rows
        digest = self._digest(rules)
        if among is None:  # a match of some files keeps the files of the match of all: they are still in use
            self._forget(self._stored)
        matching = _Matching(rules, snapshot, digest, spill=self.spill, among=among)
        try:
            judged = self._judged(matching, digest)
        finally:
            if among is None:
                self._stored.extend(matching.stored)
            else:  # only the counts are used
                self._forget(matching.stored)
        return MergeMatches(
            found=judged,
            scan=matching.scan,
            any_matched=matching.any_matched,
            change=MergedFiles(rules, Location.of(self.spill.folder.path), matching.stored_by_file),
            added=matching.added,
            doubled=DoubledKeys.sum(matching.doubled),
            source_rows=digest.rows,
        )

    def _digest(self, rules: MergeRules) -> KeyDigest:
        names = [name for name in rules.clauses.keys if name in self.empty.columns]
        batches = self.stream.batches(names, size_bytes=self.spill.budget.batch_bytes)
        digest = digest_of(rules, self.empty.select(names))
        for part in map_ahead(lambda rows: digest_of(rules, rows), batches, at_once=self.spill.budget.cores):
            digest = merge_digests([digest, part])
        return digest

    def _judged(self, matching: _Matching, digest: KeyDigest) -> dict[int, MergedPlaces]:
        batches = self.stream.batches(None, size_bytes=self.spill.budget.batch_bytes)
        rows, hash_sum = matching.take(batches)
        advice = "give rows that are the same each time, or an iterator, whose rows are kept."
        digest.check(rows, hash_sum, advice=advice)
        return matching.judge(matching.join())

    def _forget(self, paths: list[str]) -> None:
        for path in paths:
            with suppress(OSError):
                Path(self.spill.folder.path, path).unlink()
        paths.clear()


class _Matching:
    """One match of a source with a version: its buckets, and the files stored so far."""

    def __init__(
        self,
        rules: MergeRules,
        snapshot: Snapshot,
        digest: KeyDigest,
        *,
        spill: Spill,
        among: BoolArray | None,
    ) -> None:
        self._rules, self._planner, self._digest, self._spill = rules, Planner(snapshot), digest, spill
        self._on = list(rules.clauses.keys)
        self.scan = scan_plan(rules, self._planner, key_nodes(rules, digest))
        self._live = live_rows(snapshot)
        self._files = np.flatnonzero(self.scan.selection.opened & (True if among is None else among))
        numbers = self._files.tolist()
        self._scans = dict(zip(numbers, scans_of(self._planner, self.scan, numbers), strict=True))
        self._source: list[SpilledRange] = []
        self._keys: dict[int, SpilledRange] = {}
        self._new: list[pl.DataFrame] = []
        self._added: list[StoredPart] = []
        self.any_matched = False
        self.doubled: list[DoubledKeys] = []
        self.stored: list[str] = []
        self.stored_by_file: dict[str, str] = {}

    @property
    def added(self) -> AddedFiles:
        """Rows to insert, from source rows without a match."""
        return AddedFiles(Location.of(self._spill.folder.path), tuple(self._added))

    def take(self, batches: Iterator[pl.DataFrame]) -> tuple[int, int]:
        """Partition the source and the keys of the table into buckets. Return the number of rows and the hash sum."""
        count = np.uint64(self._bucket_count())
        buckets = np.arange(count, dtype=np.uint64)
        totals: list[tuple[int, int]] = []

        def placed(batch: pl.DataFrame) -> PlacedBatch:
            rows = self._rules.fit(batch)
            hashes = key_hashes(rows, self._on)
            totals.append((rows.height, int(hashes.sum(dtype=np.int64))))
            return rows, hashes.astype(np.uint64) % count

        def keys_of(number: int) -> PlacedBatch:
            keys = self._keys_of(number)
            return keys, key_hashes(keys, self._on).astype(np.uint64) % count

        budget, schema = self._spill.budget, self._rules.source_schema
        scatter, keys = self._spill.scatter, self._empty_keys.schema
        self._source = scatter(batches, placed, buckets, schema, packed=False, at_once=budget.cores)
        ranges = scatter(self._files.tolist(), keys_of, buckets, keys, packed=False, at_once=budget.writers)
        self._keys = {int(part.starts[0]): part for part in ranges}
        return sum(rows for rows, _ in totals), sum(hashes for _, hashes in totals)

    def join(self) -> list[SpilledRange]:
        """Partition source rows by the file they match in. Rows without a match are stored as new rows."""
        pairs, files = self._pairs(), self._files.astype(np.uint64)
        if not len(files):
            for _ in pairs:
                pass
            return []
        return self._spill.scatter(pairs, identity, files, self._rules.source_schema, packed=False)

    def judge(self, parts: list[SpilledRange]) -> dict[int, MergedPlaces]:
        """Apply the merge to each file. Return the files with rows that change, and these rows."""
        judging = map_ahead(
            lambda item: (item[0], self._judged(*item)),
            self._by_file(parts),
            at_once=self._spill.budget.writers,
        )
        with closing(judging):
            return {number: places for number, places in judging if any(places)}

    def _bucket_count(self) -> int:
        rows = int(np.maximum(self._live[self._files], 0).sum()) + self._digest.rows
        bucket_bytes = self._spill.budget.memory_bytes // _BUCKETS_HELD
        count = rows * (len(self._on) + 1) * _VALUE_BYTES // bucket_bytes + 1
        return min(count, self._spill.max_open)

    @property
    def _empty_keys(self) -> pl.DataFrame:
        schema = {name: self._rules.schema[name] for name in self._on}
        return pl.DataFrame(schema={**schema, self._spilled_file: pl.Int32})

    @property
    def _spilled_file(self) -> str:
        """Name of `_FILE` in temporary files. Arrow does not allow its NUL; a name longer than all keys is unique."""
        return f"file of {''.join(self._on)}"

    def _keys_of(self, number: int) -> pl.DataFrame:
        """Return the distinct keys of a file that can match."""
        keep = key_filter(self._rules, self._planner.row_filter(self.scan, self._on), self._digest)
        scans = [self._scans[number]]
        frames = [frame.select(self._on).unique() for frame in read_scans(scans, keep, self._planner.files)]
        empty = self._empty_keys
        if not frames:
            return empty
        file = pl.lit(number, dtype=pl.Int32).alias(self._spilled_file)
        return pl.concat(frames).unique().with_columns(file).select(empty.columns)

    def _pairs(self) -> Iterator[PlacedBatch]:
        """Yield source rows with the number of each file they match in. Store the rows without a match."""
        batch_bytes = self._spill.budget.batch_bytes
        for part in self._source:
            bucket = self._keys.get(int(part.starts[0]))
            keys = self._empty_keys
            if bucket is not None:
                keys = pl.concat([keys, *(frame for frame, _ in bucket.batches(size_bytes=batch_bytes))])
                bucket.delete()
            keys = keys.rename({self._spilled_file: _FILE})
            # A row is repeated for each file that it matches in: smaller slices keep the join within the budget.
            new_keys = NewKeys(self._rules)
            max_files = int(keys.group_by(self._on).len()["len"].to_numpy().max(initial=1))
            for batch, _ in part.batches(size_bytes=batch_bytes):
                for source in batch.iter_slices(max(batch.height // max_files, 1)):
                    yield self._joined(source, keys, new_keys)
            self.doubled.append(new_keys.doubled)
            part.delete()
        self._store_new()

    def _joined(self, source: pl.DataFrame, keys: pl.DataFrame, new_keys: NewKeys) -> PlacedBatch:
        pairs, alone = join_source(source, keys, self._on)
        new = self._rules.inserted(alone)
        new_keys.add(new)
        self.any_matched = self.any_matched or pairs.height > 0
        self._new.append(self._rules.new_rows(new))
        if sum(int(frame.estimated_size()) for frame in self._new) >= self._spill.budget.batch_bytes:
            self._store_new()
        return pairs.select(source.columns), pairs[_FILE].to_numpy().astype(np.uint64)

    def _store_new(self) -> None:
        if not self._new:
            return
        rows, self._new = pl.concat(self._new), []
        if rows.height:
            self._added.append(StoredPart(self._store(rows), rows.height, int(rows.estimated_size())))

    def _by_file(self, parts: Sequence[SpilledRange]) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the files whose rows may change, each with the source rows that match in it."""
        sources = self._sources(parts)
        if self._rules.clauses.when_not_matched_by_source != "delete":
            yield from sources
            return
        file_index, source = next(sources, (-1, self._rules.empty_source))
        for file in self._files.tolist():
            if file != file_index:
                yield file, self._rules.empty_source
                continue
            yield file, source
            file_index, source = next(sources, (-1, self._rules.empty_source))

    def _sources(self, parts: Sequence[SpilledRange]) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield files in ascending order, each with the source rows that match in it. Skip files without any."""
        budget = self._spill.budget
        for part in parts:
            if part.size_bytes > budget.load_bytes and len(part.starts) > 1:
                batches = part.batches(size_bytes=budget.batch_bytes)
                smaller = self._spill.scatter(batches, identity, part.starts, part.schema, packed=False)
                part.delete()
                yield from self._sources(smaller)
                continue
            for rows in part.loads():
                for number in distinct(rows.keys).tolist():
                    yield number, rows.take(np.flatnonzero(rows.keys == number), list(part.schema))
            part.delete()

    def _judged(self, number: int, source: pl.DataFrame) -> MergedPlaces:
        rules, planner = self._rules, self._planner
        keep = planner.row_filter(self.scan, rules.match_columns())
        (places,) = rules.matching(planner.files, keep, source)([self._scans[number]]).places
        if any(places):
            self.stored_by_file[planner.snapshot.data_paths[number]] = self._store(source)
        return places

    def _store(self, rows: pl.DataFrame) -> str:
        """Write rows to a file that is kept until the table's files are rewritten. Return its name."""
        folder = self._spill.folder
        path = Path(folder.new_path() + SUFFIX)
        self.stored.append(path.name)
        with folder.writing():
            self._spill.report(path.write_bytes(as_bytes(rows)))
        return path.name

"""Match the rows of a merge in workers, first by buckets of key hashes, then by file.

Two kinds of tasks send rows to buckets by the hash of their keys: the keys of each file, and the rows of the source. A
task per bucket joins them: matching rows of the source go to the tasks of the matching files, the others are stored as
rows to add. A task per file applies the clauses to its rows, and stores the rows of the source that the rewrite of the
file needs.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.values import I32Array
from qbeast_core.support.frames import own_column
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.dml.merge_rules import (
    DoubledKeys,
    MergedPlaces,
    MergeRules,
    NewKeys,
    digest_of,
    join_source,
    key_hashes,
    merge_digests,
)
from qbeast_core.table.engine.row_change import StoredPart, store_rows
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_spark_bridge.worker.tasks import BUFFER_BYTES, batch_of, gathered, longs_as_decimals, received

# The columns of `digest_keys`, and of the other functions.
DIGESTS: Final = "digest binary"
PIECES: Final = "key int, file int, kind int, data binary"

_KEYS, _SOURCE = 0, 1  # kinds of rows of a bucket, in this order
_ITEM, _MATCHES, _ANSWER = 0, 1, 2  # kinds of rows of a file
_NO_FILE: Final = -1
_FILE: Final = own_column("file")


@dataclass(frozen=True, slots=True, eq=False)
class MatchTask:
    """The picklable context of all tasks of a match."""

    rules: MergeRules
    files: TableFiles = field(repr=False)
    # Reads the keys of rows that can match.
    keys: RowFilter
    judged: RowFilter
    # Keys that lead to the task of each bucket, and to the tasks of files.
    bucket_keys: I32Array = field(repr=False)
    file_keys: I32Array = field(repr=False)
    # A UUID that marks the stored files.
    operation: str

    def store(self, rows: pl.DataFrame) -> str:
        """Store rows for a later step, and return their path."""
        return store_rows(self.files.store, rows, operation=self.operation)


@dataclass(frozen=True, slots=True)
class BucketAnswer:
    """The result of a bucket: number of rows, sum of their hashes, and the stored new rows."""

    rows: int
    hash_sum: int
    any_matched: bool
    added: tuple[StoredPart, ...]
    doubled: DoubledKeys


@dataclass(frozen=True, slots=True, eq=False)
class FileAnswer:
    """The result of a file: the rows that change, and the path of its rows of the source."""

    number: int
    places: MergedPlaces
    stored: str


def digest_keys(
    argument: tuple[MergeRules, Sequence[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the digest of the keys of a partition of the source, if it has rows."""
    rules, names, decimals = argument
    frames = (pl.DataFrame(longs_as_decimals(table, decimals)) for table in gathered(batches, names))
    digests = [digest_of(rules, frame) for frame in frames]
    if digests:
        yield batch_of(DIGESTS, [pickle.dumps(merge_digests(digests))])


def pack_source(
    argument: tuple[MatchTask, Sequence[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of the source by bucket."""
    task, names, decimals = argument
    for table in gathered(batches, names):
        rows = task.rules.fit(pl.DataFrame(longs_as_decimals(table, decimals)))
        yield from _by_bucket(task, rows, _SOURCE)


def pack_keys(task: MatchTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the distinct keys of each file by bucket."""
    for _, (file, scan) in received(batches):
        frames = [frame.unique() for frame in read_scans([scan], task.keys, task.files)]
        if frames:  # otherwise no row can match
            keys = pl.concat(frames).unique().with_columns(pl.lit(file, dtype=pl.Int32).alias(_FILE))
            yield from _by_bucket(task, keys, _KEYS)


def join_buckets(task: MatchTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of the source by the file of their match, and one answer for the bucket."""
    bucket = _Bucket(task)
    key = 0
    for batch in batches:
        for bucket_key, kind, data in zip(
            batch.column("key"), batch.column("kind"), batch.column("data"), strict=True
        ):
            key = bucket_key.as_py()
            frame = _unpacked(data.as_buffer())
            if kind.as_py() == _KEYS:
                bucket.keys.append(frame)
            else:
                yield from bucket.join(frame)
    yield from bucket.end(key)


def judge_files(task: MatchTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield an answer for each file with changed or deleted rows, and pass on the answers of buckets."""
    scan: FileScan | None = None
    number, matches = _NO_FILE, list[pl.DataFrame]()
    for batch in batches:
        columns = (batch.column(name) for name in ("file", "kind", "data"))
        for file, kind, data in zip(*columns, strict=True):
            if kind.as_py() == _ANSWER:
                yield _pieces(0, _NO_FILE, _ANSWER, [data.as_py()])
            elif kind.as_py() == _ITEM:
                yield from _judge_file(task, number, scan, matches)
                number, matches = file.as_py(), []
                scan = pickle.loads(data.as_py())  # noqa: S301 -- bytes of our own driver
            else:
                matches.append(_unpacked(data.as_buffer()))
    yield from _judge_file(task, number, scan, matches)


def _judge_file(
    task: MatchTask, number: int, scan: FileScan | None, matches: list[pl.DataFrame]
) -> Iterator[pa.RecordBatch]:
    """Apply the clauses to the rows of one file."""
    rules = task.rules
    if scan is None or not (matches or rules.clauses.when_not_matched_by_source == "delete"):
        return
    source = pl.concat(matches) if matches else rules.empty_source
    (places,) = rules.matching(task.files, task.judged, source)([scan]).places
    if any(places):
        answer = FileAnswer(number, places, task.store(source))
        yield _pieces(0, number, _ANSWER, [pickle.dumps(answer)])


class _Bucket:
    """The keys of a bucket, and the result of its rows so far."""

    def __init__(self, task: MatchTask) -> None:
        self._task, self._on = task, list(task.rules.clauses.keys)
        self.keys: list[pl.DataFrame] = []
        self._rows = self._hash_sum = 0
        self._any_matched = False
        self._new: list[pl.DataFrame] = []
        self._new_keys = NewKeys(task.rules)
        self._added: list[StoredPart] = []

    def join(self, source: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Match rows of the source; yield the matching ones."""
        self._rows += source.height
        self._hash_sum += int(key_hashes(source, self._on).sum(dtype=np.int64))
        new = source
        if self.keys:
            self.keys = [pl.concat(self.keys)]
            pairs, new = join_source(source, self.keys[0], self._on)
            self._any_matched = self._any_matched or pairs.height > 0
            yield from self._by_file(pairs)
        inserted = self._task.rules.inserted(new)
        self._new_keys.add(inserted)
        rows = self._task.rules.new_rows(inserted)
        if rows.height:
            self._new.append(rows)
        if sum(int(frame.estimated_size()) for frame in self._new) >= BUFFER_BYTES:
            self._store()

    def end(self, key: int) -> Iterator[pa.RecordBatch]:
        """Yield a single answer, so that results of two attempts of a task never mix."""
        self._store()
        if self._rows:
            doubled = self._new_keys.doubled
            answer = BucketAnswer(self._rows, self._hash_sum, self._any_matched, tuple(self._added), doubled)
            keys = self._task.file_keys
            yield _pieces(int(keys[key % len(keys)]), _NO_FILE, _ANSWER, [pickle.dumps(answer)])

    def _by_file(self, pairs: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        keys = self._task.file_keys
        for (number,), rows in pairs.partition_by(_FILE, as_dict=True, include_key=False).items():
            place = int(str(number))
            yield _pieces(int(keys[place % len(keys)]), place, _MATCHES, _packed(rows))

    def _store(self) -> None:
        if not self._new:
            return
        rows, self._new = pl.concat(self._new), []
        self._added.append(StoredPart(self._task.store(rows), rows.height, int(rows.estimated_size())))


def _by_bucket(task: MatchTask, rows: pl.DataFrame, kind: int) -> Iterator[pa.RecordBatch]:
    if not rows.height:
        return
    count = len(task.bucket_keys)
    buckets = key_hashes(rows, task.rules.clauses.keys) % count
    order = np.argsort(buckets, kind="stable")
    starts = np.searchsorted(buckets[order], np.arange(count + 1))
    for bucket in range(count):
        bucket_rows = order[starts[bucket] : starts[bucket + 1]]
        if len(bucket_rows):
            yield _pieces(
                int(task.bucket_keys[bucket]), _NO_FILE, kind, _packed(rows[pl.Series(bucket_rows)])
            )


def _pieces(key: int, file: int, kind: int, data: Sequence[bytes]) -> pa.RecordBatch:
    return batch_of(PIECES, [key] * len(data), [file] * len(data), [kind] * len(data), data)


def _packed(rows: pl.DataFrame) -> list[bytes]:
    """Return rows as compressed streams of about 16 MB of rows each."""
    max_rows = max(rows.height * (BUFFER_BYTES // 4) // max(int(rows.estimated_size()), 1), 1)
    streams = []
    for part in rows.iter_slices(max_rows):
        sink = io.BytesIO()
        part.write_ipc_stream(sink, compression="zstd", compat_level=pl.CompatLevel.newest())
        streams.append(sink.getvalue())
    return streams


def _unpacked(data: pa.Buffer) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(data))

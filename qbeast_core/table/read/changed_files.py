"""The files that hold the rows a commit changed, and how to read these rows. Picklable: workers read commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.io.store import Store
from qbeast_core.log.actions import AddFile, CdcFile, RemoveFile, row_count
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.data.schema import CHANGE_TYPE, FEED_COLUMNS
from qbeast_core.table.read.net_rows import SignedRows, net_rows
from qbeast_core.table.read.scan_task import RowFilter, read_scans
from qbeast_core.table.snapshot.hidden_rows import deleted_rows

_MAX_FILE_BYTES: Final = 1 << 50

# Kinds of changed rows, and whether the table loses or gains them.
_SIGNS: Final = {"delete": -1, "update_preimage": -1, "insert": 1, "update_postimage": 1}
_KINDS: Final = {-1: "delete", 1: "insert"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitChanges:
    """The files of a commit that hold changed rows."""

    version: int
    timestamp_ms: int
    operation: str | None
    # Files of the feed. If there are any, other files do not count.
    feed: tuple[CdcFile, ...] = ()
    # Without files that only moved rows (`data_change`).
    removes: tuple[RemoveFile, ...] = ()
    adds: tuple[AddFile, ...] = ()
    # Whether the table keeps a feed. Then a commit without files of the feed changes all rows of its files.
    keeps_feed: bool = False

    @property
    def compares(self) -> bool:
        """Whether rows that are removed and added again have to be found."""
        return bool(not self.feed and not self.keeps_feed and self.adds and self.removes)

    @property
    def source(self) -> str:
        """Where the changed rows come from: ``"feed"``, ``"files"``, ``"compared files"`` or ``"none"``."""
        if self.feed:
            return "feed"
        if self.compares:
            return "compared files"
        return "files" if self.adds or self.removes else "none"

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each file to read by path; 0 if it is unknown, or more than any file has."""
        files = {file.path: file.size or 0 for file in self.feed or self.rewritten}
        return {path: size if 0 <= size <= _MAX_FILE_BYTES else 0 for path, size in files.items()}

    @property
    def size_bytes(self) -> int:
        """Size of the files to read."""
        return sum(self.sizes.values())

    @property
    def rewritten(self) -> tuple[RemoveFile | AddFile, ...]:
        """Removed files, then added files."""
        return (*self.removes, *self.adds)

    def split(self) -> list[CommitChanges]:
        """Return parts to read separately: a file of the feed, or all that the commit says about a file."""
        if self.feed:
            return [replace(self, feed=(file,)) for file in self.feed]
        if self.compares:
            return [self]
        return [
            replace(
                self,
                removes=tuple(file for file in self.removes if file.path == path),
                adds=tuple(file for file in self.adds if file.path == path),
            )
            for path in self.sizes
        ]


@dataclass(frozen=True, slots=True, eq=False)
class ChangeReader:
    """Reads the changed rows of commits, in the columns of one version."""

    files: TableFiles = field(repr=False)
    schema: pl.Schema

    @property
    def shown(self) -> pl.Schema:
        """Columns of the changed rows."""
        return pl.Schema({**self.schema, **FEED_COLUMNS})

    def read(self, commit: CommitChanges, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """Yield the changed rows of a commit with some columns of `shown`, in frames of bounded size."""
        names = list(self.shown) if columns is None else list(columns)
        # Without a column of the table, its first one counts the rows.
        own = [name for name in names if name in self.schema] or list(self.schema)[:1]
        moment = pl.lit(commit.timestamp_ms * 1000).cast(FEED_COLUMNS["_commit_timestamp"])
        of_commit = [
            pl.lit(commit.version, pl.Int64).alias("_commit_version"),
            moment.alias("_commit_timestamp"),
        ]
        for frame in self._feed(commit, own) if commit.feed else self._changed(commit, own):
            yield frame.with_columns(of_commit).select(names)

    def signed(self, commit: CommitChanges) -> Iterator[SignedRows]:
        """Yield the rows that a commit removes and adds, also those that only moved."""
        names = list(self.schema)
        for frame in self._feed(commit, names) if commit.feed else ():
            for (kind,), rows in frame.partition_by(CHANGE_TYPE, as_dict=True).items():
                yield _SIGNS[str(kind)], rows.select(names)
        if not commit.feed:
            yield from self._read(self._signed_scans(commit), names)

    def _feed(self, commit: CommitChanges, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        schema = pl.Schema({**self.schema, CHANGE_TYPE: FEED_COLUMNS[CHANGE_TYPE]})
        scans = [self._scan(file) for file in commit.feed]
        yield from read_scans(scans, _all_rows(schema, [*names, CHANGE_TYPE]), self.files)

    def _changed(self, commit: CommitChanges, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        scans = self._signed_scans(commit)
        every = list(self.schema)
        signed = net_rows(lambda: self._read(scans, every)) if commit.compares else self._read(scans, names)
        for sign, rows in signed:
            yield rows.select(*names, pl.lit(_KINDS[sign]).alias(CHANGE_TYPE))

    def _read(self, scans: Sequence[tuple[int, FileScan]], names: Sequence[str]) -> Iterator[SignedRows]:
        keep = _all_rows(self.schema, names)
        for sign, scan in scans:
            for frame in read_scans([scan], keep, self.files):
                yield sign, frame

    def _signed_scans(self, commit: CommitChanges) -> list[tuple[int, FileScan]]:
        """Return the rows of removed files (-1) and of added files (1)."""
        hidden = _hidden(commit.rewritten, self.files)
        numbers = {(file.path, type(file)): number for number, file in enumerate(commit.rewritten)}
        signed: list[tuple[int, FileScan]] = []
        for number, file in enumerate(commit.rewritten):
            sign, other = (-1, AddFile) if isinstance(file, RemoveFile) else (1, RemoveFile)
            scan, twin = self._scan(file), numbers.get((file.path, other))
            if twin is None:
                signed.append((sign, replace(scan, hidden=hidden.get(number))))
                continue
            # The file stays with another vector: the rows that only the other vector hides are removed, or added.
            none = np.zeros(0, np.int64)
            only = np.setdiff1d(hidden.get(twin, none), hidden.get(number, none), assume_unique=True)
            if len(only):
                signed.append((sign, replace(scan, only=only)))
        return signed

    def _scan(self, file: CdcFile | AddFile | RemoveFile) -> FileScan:
        path = FilePath.of_log(file.path).text
        self.files.store.locate(path)
        size = self.files.store.size(path) if file.size is None else file.size
        values, columns = file.partition_values or {}, self.files.columns
        texts = tuple(values.get(columns.stored_name(name)) for name in columns.partitions)
        return FileScan(path=path, size_bytes=size, partition=texts)


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTask:
    """The changed rows of a commit, for a worker. Picklable."""

    reader: ChangeReader
    commit: CommitChanges
    # Columns of the rows. None: all, with those of the feed.
    columns: tuple[str, ...] | None = None

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in frames of bounded size."""
        yield from self.reader.read(self.commit, self.columns)


def _all_rows(schema: pl.Schema, names: Sequence[str]) -> RowFilter:
    return RowFilter(tuple(names), schema, (), ALL_WEIGHTS)


def _num_records(file: CdcFile | RemoveFile | AddFile) -> int | None:
    return row_count(file.stats) if isinstance(file, AddFile) else None


@dataclass(frozen=True, slots=True)
class _Files:
    """Files with deletion vectors, as `deleted_rows` takes them."""

    files: pl.DataFrame
    uri: str
    store: Store


def _hidden(actions: Sequence[RemoveFile | AddFile], files: TableFiles) -> Mapping[int, I64Array]:
    """Return the rows that deletion vectors hide, by the position of the file."""
    vectors = [
        None if file.deletion_vector is None else orjson.dumps(dict(file.deletion_vector)).decode()
        for file in actions
    ]
    listed = pl.DataFrame(
        {
            "path": [file.path for file in actions],
            "num_records": [_num_records(file) for file in actions],
            "deletion_vector": vectors,
            "has_deletion_vector": [vector is not None for vector in vectors],
        },
        schema={
            "path": pl.String,
            "num_records": pl.Int64,
            "deletion_vector": pl.String,
            "has_deletion_vector": pl.Boolean,
        },
    )
    numbers = listed["has_deletion_vector"].arg_true().to_list()
    return deleted_rows(_Files(listed, files.location.uri, files.store), numbers)

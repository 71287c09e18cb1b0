"""Rows that commits changed: version by version, and as net changes between two versions."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import (
    InvalidInputError,
    InvalidMetadataError,
    VersionNotFoundError,
    invalid_argument,
    unknown_columns,
)
from qbeast_core.io.store import Store
from qbeast_core.log.actions import (
    AddFile,
    CdcFile,
    Commit,
    Metadata,
    Protocol,
    RemoveFile,
    parse_commit,
    row_count,
)
from qbeast_core.log.protocol import has_change_feed
from qbeast_core.log.replay import RULES, TAG_KEYS, newest_settings
from qbeast_core.log.values import joined_files, removes_of
from qbeast_core.plan.blocks import PageTable, build_page_table
from qbeast_core.plan.nodes import named_columns
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.frames import own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.data.schema import CHANGE_TYPE, FEED_COLUMNS
from qbeast_core.table.read.planner import only_rows
from qbeast_core.table.read.scan import first_rows, lazy_frame
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_core.table.snapshot.hidden_rows import deleted_rows
from qbeast_core.table.snapshot.log_files import (
    PlanUnusable,
    read_history,
    read_log,
    version_at,
    version_or_time,
)
from qbeast_core.table.snapshot.snapshot import Snapshot

# -1: the rows were removed; 1: they were added.
SignedRows: TypeAlias = tuple[int, pl.DataFrame]

# Rows whose hashes are in memory at the same time.
ROWS_AT_ONCE: Final = 1 << 23

_KEY: Final = [own_column("first hash"), own_column("second hash")]
_SIGN, _SURPLUS, _PLACE = own_column("sign"), own_column("surplus"), own_column("place")


def net_rows(
    read: Callable[[], Iterator[SignedRows]], *, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[SignedRows]:
    """Yield removed and added rows without pairs of equal rows.

    `read` yields the same rows in the same order at each call: once if they fit into memory together, else twice for
    each part of the rows, which are divided by their hash so that the hashes of about `rows_at_once` rows are in
    memory. Rows are equal if two hashes of 64 bits are.
    """
    rows = _ReadAgain(read)
    part, parts = 0, 1
    while part < parts:
        places, parts = _left_over(rows, part, parts, rows_at_once)
        if len(places):
            yield from _rows_at(rows, places)
        part += 1


class _ReadAgain:
    """Rows that can be read again: few are kept, without the buffers of the frames that they are parts of."""

    def __init__(self, read: Callable[[], Iterator[SignedRows]]) -> None:
        self._read = read
        self._kept: list[tuple[int, bytes]] | None = None

    def __call__(self) -> Iterator[SignedRows]:
        if self._kept is not None:
            for sign, stored in self._kept:
                yield sign, pl.DataFrame.deserialize(io.BytesIO(stored))
            return
        kept, left = list[tuple[int, bytes]](), sizing().kept_change_bytes
        for sign, rows in self._read():
            if left >= 0:
                left -= int(rows.estimated_size())
                if left >= 0:
                    kept.append((sign, rows.serialize()))
                else:
                    kept.clear()
            yield sign, rows
        self._kept = kept if left >= 0 else None


def _left_over(
    read: Callable[[], Iterator[SignedRows]], part: int, parts: int, rows_at_once: int
) -> tuple[pl.Series, int]:
    """Return the places of the rows of a part without an equal row of the other sign, ascending, and the parts.

    The first part counts the rows, whatever the log claims: when there are too many, it is halved.
    """
    hashed, end = list[pl.DataFrame](), 0
    for sign, rows in read():
        places = pl.int_range(end, end + rows.height, eager=True)
        end += rows.height
        keys = pl.DataFrame({_KEY[0]: rows.hash_rows(1), _KEY[1]: rows.hash_rows(2), _PLACE: places})
        keys = keys.with_columns(pl.lit(sign, pl.Int8).alias(_SIGN))
        while end > parts * rows_at_once:
            parts *= 2
            hashed = [before.filter(pl.col(_KEY[0]) % parts == part) for before in hashed]
        hashed.append(keys.filter(pl.col(_KEY[0]) % parts == part))
    if not hashed:
        return pl.Series(dtype=pl.Int64()), parts
    keys = pl.concat(hashed)
    hashed.clear()
    surplus = keys.group_by(_KEY).agg(pl.col(_SIGN).cast(pl.Int64).sum().alias(_SURPLUS))
    surplus = surplus.filter(pl.col(_SURPLUS) != 0)
    found = keys.join(surplus, on=_KEY).filter(pl.col(_SIGN) * pl.col(_SURPLUS) > 0)
    return found.filter(pl.int_range(pl.len()).over(_KEY) < pl.col(_SURPLUS).abs())[_PLACE].sort(), parts


def _rows_at(read: Callable[[], Iterator[SignedRows]], places: pl.Series) -> Iterator[SignedRows]:
    """Yield the rows at some places."""
    wanted, end = places.to_numpy(), 0
    for sign, rows in read():
        first, end = end, end + rows.height
        here = wanted[slice(*np.searchsorted(wanted, (first, end)))]
        if len(here):
            yield sign, rows[here - first]


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
        parts = {path: (list[RemoveFile](), list[AddFile]()) for path in self.sizes}
        for remove in self.removes:
            parts[remove.path][0].append(remove)
        for add in self.adds:
            parts[add.path][1].append(add)
        return [replace(self, removes=tuple(gone), adds=tuple(new)) for gone, new in parts.values()]


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
        # If no row is removed, or none is added, none cancels out.
        compares = commit.compares and all(scans.values())
        read = partial(self._read, scans, list(self.schema) if compares else names)
        for sign, rows in net_rows(read) if compares else read():
            yield rows.select(*names, pl.lit(_KINDS[sign]).alias(CHANGE_TYPE))

    def _read(self, scans: Mapping[int, Sequence[FileScan]], names: Sequence[str]) -> Iterator[SignedRows]:
        keep = _all_rows(self.schema, names)
        for sign, of_sign in scans.items():
            for frame in read_scans(of_sign, keep, self.files):
                yield sign, frame

    def _signed_scans(self, commit: CommitChanges) -> dict[int, list[FileScan]]:
        """Return the rows of removed files (-1) and of added files (1)."""
        hidden = _hidden(commit, self.files)
        numbers = {(file.path, type(file)): number for number, file in enumerate(commit.rewritten)}
        pages = _pages_of(commit)
        signed: dict[int, list[FileScan]] = {-1: [], 1: []}
        for number, file in enumerate(commit.rewritten):
            sign, other = (-1, AddFile) if isinstance(file, RemoveFile) else (1, RemoveFile)
            scan, twin = self._scan(file), numbers.get((file.path, other))
            if twin is None:
                signed[sign].append(replace(scan, hidden=hidden.get(number)))
                continue
            # The file stays with another vector: the rows that only the other vector hides are removed, or added.
            none = np.zeros(0, np.int64)
            only = np.setdiff1d(hidden.get(twin, none), hidden.get(number, none), assume_unique=True)
            if len(only):
                added = max(number, twin) - len(commit.removes)
                signed[sign].append(only_rows(scan, pages, added, only))
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


# Columns of live files: tags that show which pages a file has.
_PAGE_TAGS: Final = ("rules", "layout")


def _all_rows(schema: pl.Schema, names: Sequence[str]) -> RowFilter:
    return RowFilter(tuple(names), schema, (), ALL_WEIGHTS)


@dataclass(frozen=True, slots=True)
class _Files:
    """Files with deletion vectors, as `deleted_rows` takes them."""

    files: pl.DataFrame
    uri: str
    store: Store


def _hidden(commit: CommitChanges, files: TableFiles) -> Mapping[int, I64Array]:
    """Return the rows that deletion vectors hide, by the position of the file in `rewritten`."""
    vectors = [
        None if file.deletion_vector is None else orjson.dumps(dict(file.deletion_vector)).decode()
        for file in commit.rewritten
    ]
    counts = {add.path: row_count(add.stats) for add in commit.adds}
    listed = pl.DataFrame(
        {
            "path": [file.path for file in commit.rewritten],
            "num_records": [counts.get(file.path) for file in commit.rewritten],
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


def _pages_of(commit: CommitChanges) -> PageTable:
    """Return the pages of added files that were in the table before, as far as they are known."""
    removed = {file.path for file in commit.removes}
    tags, sizes = [add.tags or {} for add in commit.adds], commit.sizes
    stays = [add.path in removed for add in commit.adds]
    is_ours = [of_file.get(TAG_KEYS["rules"]) == RULES for of_file in tags]
    counts = [row_count(add.stats) for add in commit.adds]
    return build_page_table(
        pl.Series([of_file.get(TAG_KEYS["layout"]) for of_file in tags], dtype=pl.String),
        np.array([-1 if count is None else count for count in counts], np.int64),
        np.logical_and(stays, is_ours),
        size_bytes=pl.Series([sizes[add.path] for add in commit.adds], dtype=pl.Int64),
    )


# A version number, or a time as `qbeast.open_table` takes it.
VersionLike: TypeAlias = int | str | date

_EMPTY: Final = -1  # the version before the first one


def commits_between(snapshot: Snapshot, since: VersionLike, until: VersionLike | None) -> list[CommitChanges]:
    """Return the commits after the version `since`, up to `until`; see `Table.changes`."""
    first, last = _number(snapshot, since, "since") + 1, snapshot.version
    if until is not None:
        last = _number(snapshot, until, "until")
    if first > last:
        return []
    commits = read_commits(snapshot, first, last, cure="Begin with a later version")
    feeds = _keep_feeds(snapshot, commits)
    infos = {info["version"]: info for info in read_history(snapshot.store, version=last)}
    return [
        _changes(commit, infos[commit.version], keeps_feed=keeps_feed)
        for commit, keeps_feed in zip(commits, feeds, strict=True)
    ]


def read_commits(snapshot: Snapshot, first: int, last: int, *, cure: str) -> list[Commit]:
    """Read the commits of versions; raise with `cure` if the log does not have all of them any more."""
    try:
        bodies = read_log(snapshot.store, last, after=first - 1).commits
    except FileNotFoundError as error:
        msg = (
            f"the log of {snapshot.uri} does not have all versions from {first} to {last} any more. {cure}; "
            "Table.versions() lists the versions."
        )
        raise VersionNotFoundError(msg, path=snapshot.uri, version=first) from error
    return [parse_commit(body, version=number) for number, body in enumerate(bodies, start=first)]


def changes_of(snapshot: Snapshot, commits: Sequence[CommitChanges]) -> pl.LazyFrame:
    """Return the changed rows of commits, with the columns of a version and `FEED_COLUMNS`."""
    reader = change_reader(snapshot)
    return lazy_frame(partial(_rows, reader, commits), reader.shown)


def change_reader(snapshot: Snapshot) -> ChangeReader:
    """Return the reader of changed rows in the columns of a version."""
    taken = [name for name in snapshot.schema if name.lower() in FEED_COLUMNS]
    if taken:
        msg = f"changes add columns, and {snapshot.uri!r} has {taken} already. Rename them first: Table.rename_column."
        raise InvalidInputError(msg, argument="since")
    return ChangeReader(snapshot.data_files, snapshot.schema)


def changes_of_commit(commit: Commit) -> CommitChanges:
    """Return the files that a commit removes and adds, without those that only move rows; without its time."""
    return CommitChanges(
        version=commit.version,
        timestamp_ms=0,
        operation=None,
        removes=tuple(remove for remove in commit.removes if remove.data_change),
        adds=tuple(add for add in commit.adds if add.data_change),
    )


def plan_frame(commits: Sequence[CommitChanges]) -> pl.DataFrame:
    """Return one row per commit; see `Table.explain_changes`."""
    facts = {
        "version": [commit.version for commit in commits],
        "timestamp": [commit.timestamp_ms * 1000 for commit in commits],
        "operation": [commit.operation for commit in commits],
        "source": [commit.source for commit in commits],
        "files": [len(commit.sizes) for commit in commits],
        "bytes": [commit.size_bytes for commit in commits],
    }
    types = {"operation": pl.String, "source": pl.String}
    frame = pl.DataFrame(facts, schema={name: types.get(name, pl.Int64) for name in facts})
    return frame.with_columns(pl.col("timestamp").cast(pl.Datetime("us", "UTC")))


def _shown_rows(
    frames: Iterator[pl.DataFrame], names: Sequence[str], predicate: pl.Expr | None, n_rows: int | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a filter with some columns, up to a limit."""
    rows = frames if predicate is None else (frame.filter(predicate) for frame in frames)
    return first_rows((frame.select(names) for frame in rows), n_rows)


def _number(snapshot: Snapshot, version: object, argument: str) -> int:
    """Return the newest version at a time, -1 before the first one, or the number itself."""
    number, moment = (_EMPTY, None) if version == _EMPTY else version_or_time(version, argument)
    if moment is not None:
        found, _ = version_at(snapshot.store, int(moment.timestamp() * 1000))
        return _EMPTY if found is None else min(found, snapshot.version)
    if number is None or number > snapshot.version:
        problem = f"must be a version up to {snapshot.version}, the version of this table, or a time"
        invalid_argument(argument, problem, value=version)
    return number


def _keep_feeds(snapshot: Snapshot, commits: Sequence[Commit]) -> list[bool]:
    """Return whether the table kept a feed at each commit; False where the log does not show it any more."""
    is_last = commits[-1].version == snapshot.version
    if is_last and not any(commit.protocol or commit.metadata for commit in commits):
        return [has_change_feed(snapshot.protocol, snapshot.metadata)] * len(commits)
    protocol, metadata = _settings_before(snapshot, commits[0].version)
    feeds: list[bool] = []
    for commit in commits:
        protocol, metadata = commit.protocol or protocol, commit.metadata or metadata
        # A table that has had a feed keeps the feature in its protocol.
        feeds.append(metadata is not None and has_change_feed(protocol or snapshot.protocol, metadata))
    return feeds


def _settings_before(snapshot: Snapshot, version: int) -> tuple[Protocol | None, Metadata | None]:
    """Return protocol and metadata before a version. None: the first version sets them, or the log was cleaned up."""
    with suppress(FileNotFoundError, InvalidMetadataError):
        return newest_settings(read_log(snapshot.store, version - 1, actions=("protocol", "metaData")))
    return None, None


def _changes(commit: Commit, info: dict[str, Any], *, keeps_feed: bool) -> CommitChanges:
    return replace(
        changes_of_commit(commit),
        timestamp_ms=info["timestamp"],
        operation=info.get("operation"),
        feed=commit.changes,
        keeps_feed=keeps_feed,
    )


def _rows(
    reader: ChangeReader,
    commits: Sequence[CommitChanges],
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _size: int | None,
) -> Iterator[pl.DataFrame]:
    """Read changed rows for Polars."""
    names = list(reader.shown) if with_columns is None else with_columns
    needed = list(dict.fromkeys([*names, *named_columns(predicate)]))
    frames = (frame for commit in commits for frame in reader.read(commit, needed))
    return _shown_rows(frames, names, predicate, n_rows)


def diff_of(old: Snapshot, new: Snapshot, key: str | Sequence[str]) -> pl.LazyFrame:
    """Return the net changes between two versions, in the columns of `new`; see `Table.diff`."""
    keys = [key] if isinstance(key, str) else list(key)
    if not keys or len(set(keys)) < len(keys):
        invalid_argument("key", "must name one column or several, each once", value=key)
    unknown = [name for name in keys if name not in new.schema]
    if unknown:
        unknown_columns("key", unknown, new.schema)
    reader = change_reader(new)
    schema = pl.Schema({**new.schema, CHANGE_TYPE: FEED_COLUMNS[CHANGE_TYPE]})
    return lazy_frame(partial(_net_changes, old=old, new=new, reader=reader, keys=keys), schema)


def _net_changes(
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _size: int | None,
    *,
    old: Snapshot,
    new: Snapshot,
    reader: ChangeReader,
    keys: list[str],
) -> Iterator[pl.DataFrame]:
    """Compute the net changes for Polars."""
    commits, sign = _cheaper(old, new)

    def read() -> Iterator[SignedRows]:
        for commit in commits:
            for side, rows in reader.signed(commit):
                yield sign * side, rows

    sides = {side: [new.schema.to_frame()] for side in (-1, 1)}
    for side, rows in net_rows(read):
        sides[side].append(rows)
    found = _by_key(pl.concat(sides[-1]), pl.concat(sides[1]), keys)
    yield from _shown_rows(
        iter([found]), found.columns if with_columns is None else with_columns, predicate, n_rows
    )


def _cheaper(old: Snapshot, new: Snapshot) -> tuple[list[CommitChanges], int]:
    """Return what to read: the commits between the versions, or the files that only one of them has.

    -1: the commits lead from the new version back to the old one.
    """
    files = _different_files(old, new)
    first, last, sign = (old, new, 1) if old.version <= new.version else (new, old, -1)
    with suppress(VersionNotFoundError):
        commits = commits_between(last, first.version, None)
        if sum(commit.size_bytes for commit in commits) < files.size_bytes:
            return commits, sign
    return [files], 1


def _different_files(old: Snapshot, new: Snapshot) -> CommitChanges:
    """Return the files that only one version has, as if one commit had removed and added them."""
    old, new = _without_common(old, new)
    removed, added = _files_without(old, new), _files_without(new, old)
    adds = removes_of(added, new.columns, data_change=True)
    facts = added.select("num_records", *(pl.col(name).cast(pl.String) for name in _PAGE_TAGS)).iter_rows()
    return CommitChanges(
        version=new.version,
        timestamp_ms=new.timestamp_ms,
        operation=None,
        removes=removes_of(removed, old.columns, data_change=True),
        adds=tuple(_as_add(add, rows, tags) for add, (rows, *tags) in zip(adds, facts, strict=True)),
    )


def _without_common(old: Snapshot, new: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Return two versions without the files that both have in the same plan file; unchanged without a plan file."""
    before, after = old.planned, new.planned
    if before is None or after is None or before.plan.folder != after.plan.folder:
        return old, new
    removed, added = np.setdiff1d(after.gone, before.gone), np.setdiff1d(before.gone, after.gone)
    with suppress(PlanUnusable):
        return (
            old.with_files(joined_files([*before.parts(removed), old.listed])),
            new.with_files(joined_files([*after.parts(added), new.listed])),
        )
    return old.from_log(), new.from_log()


def _files_without(version: Snapshot, other: Snapshot) -> pl.DataFrame:
    key = ["path", "deletion_vector"]
    theirs = other.light(key)
    alone = version.light(key).join(theirs, on=key, how="anti", nulls_equal=True)
    files = version.at_paths(alone["path"]).listed
    return files.join(theirs, on=key, how="anti", nulls_equal=True, maintain_order="left")


def _as_add(file: RemoveFile, rows: int | None, tags: Sequence[str | None]) -> AddFile:
    return AddFile(
        path=file.path,
        size=file.size or 0,
        modification_time=0,
        partition_values=file.partition_values or {},
        deletion_vector=file.deletion_vector,
        stats=None if rows is None else orjson.dumps({"numRecords": rows}).decode(),
        tags={TAG_KEYS[name]: text for name, text in zip(_PAGE_TAGS, tags, strict=True) if text is not None},
    )


def _by_key(removed: pl.DataFrame, added: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return removed and added rows with their kinds: rows of one key are an update."""
    for rows in (removed, added):
        doubled = rows.filter(pl.struct(keys).is_duplicated())
        if doubled.height:
            example = doubled.select(keys).row(0, named=True)
            msg = f"`key` {keys} does not identify rows: several changed rows have the key {example}"
            raise InvalidInputError(msg, argument="key", value=keys)
    parts: list[pl.DataFrame] = []
    for rows, others, alone, updated in (
        (removed, added, "delete", "update_preimage"),
        (added, removed, "insert", "update_postimage"),
    ):
        is_alone = rows.join(others, on=keys, how="anti", nulls_equal=True)
        is_updated = rows.join(others, on=keys, how="semi", nulls_equal=True)
        parts += [is_alone.with_columns(pl.lit(alone).alias(CHANGE_TYPE))]
        parts += [is_updated.with_columns(pl.lit(updated).alias(CHANGE_TYPE))]
    return pl.concat(parts)

"""A table at one version: its live files with their index tags."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from qbeast_core.errors import (
    AddedColumnWarning,
    QbeastError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
)
from qbeast_core.io.location import Location
from qbeast_core.io.machine import LruCache
from qbeast_core.io.store import Store, status_of
from qbeast_core.log.actions import AddFile, CommitInfo, Metadata, Protocol
from qbeast_core.log.columns import StoredColumns, config_by_name, sample_column_of, with_fields
from qbeast_core.log.commits import no_files
from qbeast_core.log.protocol import Brings, WriteIntent, WriteMode, check_writable
from qbeast_core.log.rebase import (
    RowIdColumns,
    RowIdsOfFile,
    clustering_columns,
    dialect_of,
    is_clustered,
    row_id_columns,
)
from qbeast_core.log.replay import (
    NO_COPIES,
    CopiedRows,
    LogState,
    domains_of,
    files_with_tags,
    keys_in,
    needs_removes,
    newest_adds,
    whole_files,
    without_copies,
)
from qbeast_core.log.schema import schema_from_delta
from qbeast_core.log.values import (
    LiveFiles,
    PartitionTexts,
    joined_files,
    partition_texts,
    sound_bounds,
    statistics_by_name,
    statistics_of,
)
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.plan.nodes import Node, Unknown
from qbeast_core.plan.select import files_that_may_match
from qbeast_core.spec.blocks import FilePath
from qbeast_core.spec.table_config import TableConfig
from qbeast_core.support.process import LOG, caller_stacklevel, new_id, now_ms, refuse_forked
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.scan import TableFiles
from qbeast_core.table.data.schema import visible_columns
from qbeast_core.table.snapshot.delta import (
    DeltaSource,
    DeltaVersion,
    open_delta,
    open_short,
    refuse_other_log,
    version_at_time,
)
from qbeast_core.table.snapshot.hidden_rows import HiddenRows, VectorCache, logged_totals
from qbeast_core.table.snapshot.log_files import (
    LogFiles,
    PlanUnusable,
    checkpoint_hint,
    commit_path,
    fingerprint,
    read_log,
    version_or_time,
)

if TYPE_CHECKING:
    from qbeast_core.table.snapshot.planned import PlannedFiles

_CACHED_TABLES: Final = 8

_SOME: Final = 64  # files that show how tags are written

_COPIES_OF_FILES: Final = 4  # memory of a snapshot, as a multiple of its frame of files


@dataclass(frozen=True, eq=False, kw_only=True)  # no slots: derived values are cached
class Snapshot:
    """One version of a table. It is immutable, and all reads share the values derived from it."""

    version: int
    # Time of the commit, milliseconds since 1970 UTC; 0 if unknown.
    timestamp_ms: int
    metadata: Metadata
    protocol: Protocol
    # Settings of the index in the configuration.
    config: TableConfig
    # The columns as files store them.
    columns: StoredColumns = field(repr=False)
    # Columns of the table in Polars types, without the hidden weight column.
    schema: pl.Schema
    schema_json: str
    # One row per live file: `path` (as in the log, encoded), `size_bytes`, `modification_time` (ms),
    # `num_records` (with deleted rows), typed structs `min`, `max`, `null_count` (null if unknown) and, of tables with
    # partitions, `partition`, by the names of columns in the table; the tags
    # `revision`, `blocks`, `layout`, `rules`, `keys` and `state`, null if a file does not have them;
    # `deletion_vector` (descriptor as JSON) and `has_deletion_vector`; `base_row_id`, `default_row_commit_version`
    # and `clustering_provider`, null if unset.
    # With `planned`, only the files that were added after its checkpoint.
    listed: pl.DataFrame = field(repr=False)
    source: DeltaSource = field(repr=False)
    fingerprint: tuple[int, int, int] | None = field(repr=False)
    # Metadata domains: names and configurations.
    domains: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Copies of rows in a table from before 0.6.0, which are in none of `files`.
    copies: CopiedRows = field(default=NO_COPIES, repr=False)
    # Deletion vectors that were read.
    vectors: VectorCache = field(default_factory=VectorCache, repr=False)
    # The other live files, which are not in memory. None: there are no others.
    planned: PlannedFiles | None = field(default=None, repr=False)
    # The version with all files. None: this is it.
    whole: Snapshot | None = field(default=None, repr=False)

    @staticmethod
    def empty(location: Location) -> Snapshot:
        """Return a table that is not there yet: version -1, without columns and files."""
        metadata = Metadata(id=new_id(), schema_string=_NO_COLUMNS, created_time=now_ms())
        return Snapshot(
            version=-1,
            timestamp_ms=0,
            metadata=metadata,
            protocol=_FIRST_PROTOCOL,
            config=TableConfig.from_configuration({}),
            columns=StoredColumns.of(metadata),
            schema=pl.Schema(),
            schema_json=_NO_COLUMNS,
            listed=no_files(pl.Schema()),
            source=DeltaSource(location),
            fingerprint=None,
        )

    @property
    def is_new(self) -> bool:
        """Whether the table is not there yet, see `empty`."""
        return self.version < 0

    @property
    def files(self) -> pl.DataFrame:
        """All live files. Of a version with `planned`, they are read from the log."""
        return self.unplanned.listed

    @property
    def unplanned(self) -> Snapshot:
        """The version with all files in memory."""
        if self.planned is None:
            return self  # not cached: a version that refers to itself is freed late
        self.planned.refuse_many(self.planned.count, self.uri)
        return self._loaded

    @cached_property
    def _loaded(self) -> Snapshot:
        loaded = load_snapshot(self.location, version=self.version, use_plan=False)
        if loaded.metadata.id != self.metadata.id:
            message = f"the table is not at {self.uri} any more: there is another table now"
            raise TableNotFoundError(message, path=self.uri)
        return loaded

    @property
    def file_count(self) -> int:
        """Number of live files."""
        whole = self.whole or self
        return whole.listed.height + (0 if whole.planned is None else whole.planned.count)

    @property
    def some_files(self) -> pl.DataFrame:
        """Some of the live files, and of copies: enough to see how tags are written."""
        return self._some_files

    @cached_property
    def _some_files(self) -> pl.DataFrame:
        whole = self.whole or self
        with suppress(PlanUnusable):
            if whole.planned is not None:
                return joined_files([whole.planned.first(_SOME), whole.listed])
        return whole.logged_files

    def revisions_without(self, paths: Collection[str]) -> set[int]:
        """Return the revisions of the live files without some."""
        files, others = self.logged_files if self.planned is None else self.listed, set[int]()
        try:
            if self.planned is not None:
                others = self.planned.without(FilePath.of_log(path).text for path in paths).revisions
        except PlanUnusable:
            files = self.logged_files
        kept = files.filter(~pl.col("path").is_in(list(paths)))["revision"].drop_nulls()
        return {*kept.unique().to_list(), *others}

    def light(self, names: Sequence[str], statistics: Collection[str] = ()) -> pl.DataFrame:
        """Return some columns of `files`, and the statistics of some columns of the table, without reading tags.

        The order of files may be another one.
        """
        listed = self.listed.select(*names, *statistics_of(self.listed, statistics))
        if self.planned is None:
            return listed
        with suppress(PlanUnusable):
            return joined_files([*self.planned.columns(names, statistics), listed])
        return self.files.select(listed.columns)

    def narrowed(self, node: Node) -> Snapshot:
        """Return the version with only the files that may match a filter, by statistics; itself if it has few files.

        File numbers are those of the result.
        """
        is_few = self.listed.height < sizing().many_files or isinstance(node, Unknown)
        if self.planned is None and (is_few or self.decoded_blocks is not None):
            return self
        listed = _matching(self.listed, node)
        if self.planned is None:
            return self if listed.height == self.listed.height else self.with_files(listed)
        try:
            rows = self.planned.matching(node)
            self.planned.refuse_many(len(rows), self.uri)
            return self.with_files(joined_files([*self.planned.parts(rows), listed]))
        except PlanUnusable:
            return self.from_log().narrowed(node)

    def count_matching(self, node: Node) -> int:
        """Return how many live files may match a filter by their statistics."""
        whole = self.whole or self
        count = int(files_that_may_match(whole.listed, node).sum())
        if whole.planned is None:
            return count
        with suppress(PlanUnusable):
            return count + len(whole.planned.matching(node))
        return int(files_that_may_match(whole.from_log().files, node).sum())

    def parts(self, node: Node) -> Iterator[Snapshot]:
        """Yield the files that may match a filter, some at a time, each part as a version with only these files."""
        if self.planned is None:
            yield self.narrowed(node)
            return
        taken = [pl.Series(dtype=pl.String)]
        try:
            for part in self.planned.parts(self.planned.matching(node)):
                taken.append(part["path"])
                yield self.with_files(part)
        except PlanUnusable:
            rest = self.from_log().narrowed(node)
            others = ~pl.col("path").is_in(pl.concat(taken).implode())
            yield rest.with_files(rest.listed.filter(others))
            return
        yield self.with_files(_matching(self.listed, node))

    @cached_property
    def others(self) -> Snapshot | None:
        """The version with the other live files, of a version with some files of one that has a plan file."""
        whole = self.whole
        if whole is None or whole.planned is None:
            return None
        is_other = ~pl.col("path").is_in(self.listed["path"].implode())
        with suppress(PlanUnusable):
            planned = whole.planned.without(self.data_paths)
            return replace(whole, listed=whole.listed.filter(is_other), planned=planned, whole=whole)
        return whole.unplanned.with_files(whole.files.filter(is_other))

    def without_newer(self) -> Snapshot:
        """Return the version with only the files that the plan file lists."""
        return replace(self, listed=self.listed.clear())

    def at_paths(self, paths: Sequence[str] | pl.Series) -> Snapshot:
        """Return the version with only the files at some paths, as in the log, in their order."""
        wanted = pl.DataFrame({"path": paths}, schema={"path": pl.String}).unique(maintain_order=True)
        listed = self.listed.join(wanted, on="path", how="semi")
        if self.planned is not None:
            try:
                rows = self.planned.rows_of(FilePath.of_log(path).text for path in paths)
                self.planned.refuse_many(len(rows), self.uri)
                listed = joined_files([*self.planned.parts(rows), listed])
            except PlanUnusable:
                return self.from_log().at_paths(paths)
        return self.with_files(wanted.join(listed, on="path", maintain_order="left").select(listed.columns))

    def with_files(self, files: pl.DataFrame) -> Snapshot:
        """Return the version with only these files."""
        return replace(self, listed=files, planned=None, whole=self.whole or self)

    def from_log(self) -> Snapshot:
        """Return the version with all files in memory. The plan file is damaged, so it is removed."""
        self.discard_plan()
        return self.with_files(self.files)

    def discard_plan(self) -> None:
        """Remove the plan file, because it is damaged: it is made again."""
        if self.planned is not None:
            self.planned.discard()

    @property
    def logged_files(self) -> pl.DataFrame:
        """The files that other readers read: the live files, then files of copies."""
        return pl.concat([self.files, self.copies.files]) if self.copies.files.height else self.files

    @property
    def with_copies(self) -> Snapshot:
        """The version with files of copies among its files: for what a check, metrics or a list of blocks show."""
        return self._with_copies if self.copies else self

    @cached_property
    def _with_copies(self) -> Snapshot:
        return replace(self, listed=self.logged_files, copies=NO_COPIES, planned=None)

    @property
    def location(self) -> Location:
        """Address of the table, and options of its store."""
        return self.source.location

    @property
    def uri(self) -> str:
        """Address of the table, see `Location`."""
        return self.location.uri

    @property
    def log(self) -> LogFiles:
        """The files of the log. The copy of a version with `planned` lacks the files of its checkpoint."""
        return self.source.log if self.planned is None else self.store

    def check_writable(self, mode: WriteMode, *, brings: Brings = "rows") -> None:
        """Raise unless a commit of this mode keeps what the table promises; call it before writing files."""
        self.location.refuse_changes()
        check_writable(self.protocol, self.metadata, mode=mode, path=self.uri, brings=brings)

    @property
    def store(self) -> Store:
        """Store of the table."""
        return self.location.store

    @property
    def indexed(self) -> tuple[str, ...]:
        """Indexed columns, in order. Empty if there is no valid revision."""
        latest = self.config.latest
        return () if latest is None else latest.columns

    @property
    def hashed(self) -> tuple[str, ...]:
        """Columns whose hash is the weight of a row, in order. Empty if there is no valid revision."""
        latest = self.config.latest
        return () if latest is None else latest.hashed

    @property
    def key_columns(self) -> tuple[str, ...]:
        """All columns that the place of a row depends on. Empty if there is no valid revision."""
        latest = self.config.latest
        return () if latest is None else latest.key_columns

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the version: files (also in `deltalake`), index, footers and deletion vectors."""
        index_bytes = 0 if self.decoded_blocks is None else self.decoded_blocks.size_bytes
        files_bytes = int(self.listed.estimated_size()) * _COPIES_OF_FILES
        return files_bytes + index_bytes + self.source.pages.size_bytes + self.vectors.size_bytes

    @property
    def sample_column(self) -> str | None:
        """Name of the sample column; None: the table has none."""
        return sample_column_of(self.metadata.configuration, self.schema, self.columns)

    @cached_property
    def blocks(self) -> BlockTable:
        """The blocks of all live files. An append sets it, if the index of the version before is decoded."""
        return build_block_table(self.files, self.config.revisions, self.schema, self.columns.rehashed)

    @property
    def partitions(self) -> pl.DataFrame:
        """Values of the partition columns, one row per file; no columns if the table has no partitions."""
        if not self.columns.partitions:
            return pl.DataFrame(height=self.files.height)
        return self.files["partition"].struct.unnest().select(self.columns.partitions)

    @cached_property
    def partition_texts(self) -> list[PartitionTexts]:
        """Texts of the values of the partition columns, for each file."""
        return pl.DataFrame([partition_texts(values) for values in self.partitions]).rows()

    @property
    def data_files(self) -> TableFiles:
        """Access to the data files."""
        return TableFiles(self.location, self.source.pages, self.columns)

    @cached_property
    def file_facts(self) -> list[tuple[int, bool]]:
        """Size in bytes of each live file, and whether the types of its columns may differ from `schema`."""
        changed = bool(self.columns.type_changes)  # our own older files have other types then, too
        return self.files.select("size_bytes", pl.col("rules").is_null() | changed).rows()

    @property
    def decoded_blocks(self) -> BlockTable | None:
        """The index, or None if the tags are not decoded yet."""
        return self.blocks if "blocks" in self.__dict__ else None

    @cached_property
    def row_id_columns(self) -> RowIdColumns | None:
        """Hidden columns that keep the ids of rows that are copied. None: the table does not keep them."""
        columns = row_id_columns(self.protocol, self.metadata)
        # A JVM fails on files with columns that the schema lacks.
        return None if columns is None or dialect_of(self) == "qbeast-spark" else columns

    @cached_property
    def copied_schema(self) -> pl.Schema:
        """Columns of rows that are copied to new files: `schema` and `row_id_columns`."""
        hidden = self.row_id_columns
        return self.schema if hidden is None else pl.Schema({**self.schema, **hidden.schema})

    def row_ids(self, numbers: Sequence[int]) -> dict[str, RowIdsOfFile]:
        """Return the row ids of live files by path. Files without row ids are left out."""
        if self.row_id_columns is None:
            return {}
        fields = self.files.select("base_row_id", "default_row_commit_version")[numbers].rows()
        return {
            self.data_paths[number]: RowIdsOfFile(self.row_id_columns, base, version)
            for number, (base, version) in zip(numbers, fields, strict=True)
            if base is not None and version is not None
        }

    @property
    def clustered_by(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the clustering columns; empty if another feature organises the files."""
        if not is_clustered(self.protocol):
            return ()
        paths = clustering_columns(self.domains)
        return tuple((self.columns.name(first), *inner) for first, *inner in paths)

    @cached_property
    def hidden_rows(self) -> HiddenRows:
        """Rows that are not read: deleted rows."""
        if self.copies.mixed:
            msg = (
                f"file {self.copies.mixed[0]!r} of {self.uri!r} holds replicated blocks beside others, and its tags "
                "do not show which rows they are. Drop the replicated files with the tool that wrote them."
            )
            raise UnsupportedTableError(msg, path=self.uri, feature="replicated blocks in mixed files")
        return HiddenRows(self, self.vectors)

    @cached_property
    def data_paths(self) -> list[str]:
        """Decoded paths of the live files in the order of `files`: relative to the table or absolute."""
        return [FilePath.of_log(path).text for path in self.files["path"].to_list()]

    @cached_property
    def file_names(self) -> Counter[str]:
        """How many live files have a name, by name; folders do not count."""
        return Counter(FilePath(path).name for path in self.data_paths)

    @property
    def counted_rows(self) -> int:
        """Number of rows of the live files that the log counts, including deleted rows."""
        whole = self.whole or self
        return int(whole.listed["num_records"].sum()) + (whole.planned.totals[0] if whole.planned else 0)

    @property
    def live_rows(self) -> int:
        """Number of rows of the live files, by the counts in the log, without rows that deletion vectors hide."""
        whole = self.whole or self
        planned = whole.planned.totals if whole.planned else (0, 0, 0)
        rows, hidden, _ = logged_totals(whole.listed)
        return rows - hidden + planned[0] - planned[1]

    @property
    def data_bytes(self) -> int:
        """Size of the live files."""
        whole = self.whole or self
        return int(whole.listed["size_bytes"].sum()) + (whole.planned.totals[2] if whole.planned else 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URI and the version, and the paths of some files. Unpickling opens the table again."""
        paths = None if self.whole is None else self.listed["path"].to_list()
        return _reopened, (self.location, self.version, self.metadata.id, paths)

    def transaction_version(self, app_id: str) -> int | None:
        """Return the transaction version of an application, at this version or later. None: there is none."""
        return None if self.is_new else self.source.transaction_version(app_id, version=self.version)

    def has_applied(self, txn: tuple[str, int] | None) -> bool:
        """Return whether the table holds this version of an application, or a later one."""
        version = None if txn is None else self.transaction_version(txn[0])
        return txn is not None and version is not None and version >= txn[1]


_NO_COLUMNS: Final = '{"type":"struct","fields":[]}'
_FIRST_PROTOCOL: Final = Protocol(min_reader_version=1, min_writer_version=2)

# Newest known versions of local tables, with all values that reads derived from them.
_NEWEST: Final = LruCache[object, Snapshot](_CACHED_TABLES, lambda snapshot: snapshot.size_bytes)


def load_snapshot(
    path: str | os.PathLike[str] | Location,
    *,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
    use_plan: bool = True,
) -> Snapshot:
    """Load a table: the newest version, a given version, or the newest version at a time, see `qbeast.open_table`.

    A table of many files is loaded by a plan file, unless `use_plan` is false.

    >>> from deltalake import write_deltalake
    >>> write_deltalake("sales", pl.DataFrame({"price": [1.5, 2.5]}))
    >>> snapshot = load_snapshot("sales")
    >>> snapshot.version, dict(snapshot.schema), snapshot.files["num_records"].to_list()
    (0, {'price': Float64}, [2])
    """
    number, timestamp = version_or_time(version)
    location = Location.of(path, storage_options, allow_absolute_paths=allow_absolute_paths)
    refuse_forked(location.uri)
    if timestamp is not None:
        number = version_at_time(location, timestamp)
    short = open_short(location, version=number)
    if short is not None:
        return _kept(_snapshot(*short), version)
    hint = checkpoint_hint(location.store)
    if use_plan and hint is not None and hint.files >= sizing().many_files:
        from qbeast_core.table.snapshot.planned import open_planned  # noqa: PLC0415 - loads pyarrow

        planned = open_planned(location, hint, version=number)
        if planned is not None:
            return _kept(_snapshot(*planned[:3], planned=planned[3]), version)
    missing: FileNotFoundError | None = None
    for _ in range(2):  # try again if another process cleans up the log meanwhile
        source, known = open_delta(location, version=number, hint=hint)
        try:
            actions = ("add", "remove") if needs_removes(known.files) else ("add",)
            domains = ("domainMetadata",) if _has_domains(known.protocol) else ()
            its_hint = hint if source.copy is None else None  # a copy has one checkpoint
            log = read_log(source.log, known.version, actions=(*actions, *domains), hint=its_hint)
        except FileNotFoundError as error:
            missing = error
            continue
        return _kept(_snapshot(source, known, log), version)
    message = f"a file of the log of {location.uri} is missing: {missing}."
    raise StorageError(message, path=location.uri) from missing


def _kept(snapshot: Snapshot, version: object) -> Snapshot:
    """Return a loaded snapshot; cache it if it is the newest."""
    if version is None:
        keep(snapshot)
    return snapshot


def newest_snapshot(
    path: str | os.PathLike[str] | Location,
    *,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Snapshot:
    """Return the newest version of a table, from the cache if possible.

    The cache holds the local tables used last, up to a share of the memory: files, blocks and footers.
    Each call checks the log for new versions and for another table at the same path. Tables in object stores are not
    cached, because no cheap request detects another table.
    """
    location = Location.of(path, storage_options, allow_absolute_paths=allow_absolute_paths)
    refuse_forked(location.uri)
    cached = _NEWEST.get(location.key)
    if cached is not None:
        with suppress(QbeastError, OSError):  # missing or damaged: `load_snapshot` raises the error
            return refresh(cached)
    return load_snapshot(location)


def _reopened(
    location: Location, version: int, table_id: str, paths: Sequence[str] | None = None
) -> Snapshot:
    """Load a pickled snapshot, with some of its files in the same order."""
    uri, snapshot = location.uri, load_snapshot(location, version=version)
    if snapshot.metadata.id != table_id:
        message = f"the pickled table is not at {uri} any more: there is another table now"
        raise TableNotFoundError(message, path=uri)
    return snapshot if paths is None else snapshot.at_paths(paths)


def refresh(snapshot: Snapshot) -> Snapshot:
    """Return the newest version of the table; `snapshot` itself if there is no newer version."""
    return follow(snapshot)[0]


def follow(snapshot: Snapshot) -> tuple[Snapshot, LogState | None]:
    """Return the newest version like `refresh`, and the commits since `snapshot` if they were read."""
    refuse_forked(snapshot.uri)
    latest = _later_in_cache(snapshot) or snapshot
    if latest is not snapshot or _is_current(snapshot):
        with suppress(FileNotFoundError):  # a commit was cleaned up
            newer = None if _is_newest(latest) else latest.source.newer_than(latest.version)
            if newer is None:
                return latest, None
            log = read_log(latest.source.log, newer.version, after=latest.version)
            planned = latest.planned
            try:
                planned = planned and planned.without_keys(keys_in(log.commits))
            except PlanUnusable:
                latest.discard_plan()
                return load_snapshot(snapshot.location), None
            if planned is not None and not planned.fits(newer.metadata):
                return load_snapshot(snapshot.location), None
            newest = _snapshot(latest.source, newer, log, before=latest, planned=planned)
            keep(newest)
            return newest, log if latest is snapshot else None
    # There may be another table at this path now: load it from scratch.
    return load_snapshot(snapshot.location), None


def _later_in_cache(snapshot: Snapshot) -> Snapshot | None:
    """Return a later version of the same table from the cache, or None."""
    cached = _NEWEST.get(snapshot.location.key)
    if cached is None or cached.metadata.id != snapshot.metadata.id or cached.version <= snapshot.version:
        return None
    return cached if _is_current(cached) else None


def _is_current(snapshot: Snapshot) -> bool:
    """Return whether the commit file of a local snapshot is unchanged; True for object stores."""
    return fingerprint(snapshot.source.store, snapshot.version) == snapshot.fingerprint


def _is_newest(snapshot: Snapshot) -> bool:
    """Return whether a local table has no next version yet. False if this is not certain."""
    root = snapshot.source.store.local_root
    if root is None or snapshot.fingerprint is None:
        return False
    return status_of(root / commit_path(snapshot.version + 1)) is None


def keep(snapshot: Snapshot) -> None:
    """Cache the newest version of a local table."""
    if snapshot.source.store.local_root is not None:
        _NEWEST.put(snapshot.location.key, snapshot)


def _snapshot(
    source: DeltaSource,
    known: DeltaVersion,
    log: LogState,
    *,
    before: Snapshot | None = None,
    planned: PlannedFiles | None = None,
) -> Snapshot:
    info, schema_json = log.commit_info, known.metadata.schema_string
    domains = {} if before is None else before.domains
    if before is not None and before.metadata == known.metadata:
        config, schema, columns = before.config, before.schema, before.columns
    else:
        schema = visible_columns(schema_from_delta(schema_json, path=log.uri))
        columns = StoredColumns.of(known.metadata, known.protocol.writer_features)
        config = config_by_name(known.metadata.configuration, columns)
    LOG.debug("opened version %d of %s: %d files", known.version, log.uri, known.files.height)
    tagged = sound_bounds(statistics_by_name(known.files, columns), columns)
    if not known.is_tagged:
        earlier = None if before is None else pl.concat([before.listed, before.copies.files], how="diagonal")
        tagged = files_with_tags(tagged, log, known=earlier)
    if source.copy is None and source.store.local_root is None:
        refuse_other_log(tagged, log)
    files, copies = without_copies(tagged)
    return Snapshot(
        version=known.version,
        timestamp_ms=timestamp_of(info),
        metadata=known.metadata,
        protocol=known.protocol,
        config=config,
        columns=columns,
        schema=schema,
        schema_json=schema_json,
        listed=files,
        copies=copies,
        planned=planned,
        vectors=VectorCache() if before is None else before.vectors.for_files(None if planned else files),
        source=source,
        fingerprint=log.fingerprint if planned is None else fingerprint(source.store, known.version),
        domains=domains_of(log, known=domains) if _has_domains(known.protocol) else {},
    )


def _matching(files: pl.DataFrame, node: Node) -> pl.DataFrame:
    """Return the files that may match a filter by their statistics."""
    return files.filter(pl.Series(files_that_may_match(files, node), dtype=pl.Boolean))


def _has_domains(protocol: Protocol) -> bool:
    """Return whether the log of a table may have metadata domains."""
    return "domainMetadata" in (protocol.writer_features or ())


def timestamp_of(info: CommitInfo | None) -> int:
    """Return the time of a commit, milliseconds since 1970 UTC; 0 if unknown."""
    return 0 if info is None else info.time or 0


def read_live_files(snapshot: Snapshot) -> LiveFiles:
    """Return the files of a snapshot with all fields of the log, and files that only Spark takes for live."""
    return whole_files(snapshot.logged_files["path"].to_list(), log_of(snapshot))


def live_adds(snapshot: Snapshot, numbers: Sequence[int]) -> list[AddFile]:
    """Return some live files with all fields of the log."""
    paths = snapshot.files["path"].gather(list(numbers)).to_list()
    whole = snapshot.whole or snapshot
    if whole.planned is None:
        log = log_of(snapshot)
    else:
        from qbeast_core.table.snapshot.planned import log_of_files  # noqa: PLC0415 - loads pyarrow

        log = log_of_files(snapshot.store, snapshot.version, paths)
    found = newest_adds(frozenset(paths), log)
    return [found[path] for path in paths]


def log_of(snapshot: Snapshot, actions: Sequence[str] = ("add",)) -> LogState:
    """Return the log up to a version, with some kinds of actions of its checkpoint."""
    whole = snapshot.whole or snapshot
    try:
        return read_log(whole.log, snapshot.version, actions=actions)
    except FileNotFoundError as error:
        message = f"a file of the log of {snapshot.uri} is missing: {error}; try again."
        raise StorageError(message, path=snapshot.uri) from error


def write_checkpoint(snapshot: Snapshot) -> None:
    """Write a checkpoint of the newest version."""
    if snapshot.planned is not None:
        from qbeast_core.table.snapshot import planned  # noqa: PLC0415 - loads pyarrow

        with suppress(PlanUnusable):
            count = snapshot.file_count
            planned.write_checkpoint(snapshot.location, snapshot.planned, snapshot.version, files=count)
            return
        snapshot.planned.refuse_many(snapshot.file_count, snapshot.uri)
    snapshot.source.checkpoint(snapshot.version, files=snapshot.file_count)


def files_for(intent: WriteIntent, head: Snapshot) -> LiveFiles | None:
    """Return the files of the newest version if a change needs them, because reading them takes time."""
    replaces_all = intent.mode == "overwrite" and has_old_layout(head)
    return read_live_files(head) if intent.files is not None or replaces_all else None


def has_old_layout(snapshot: Snapshot) -> bool:
    """Return whether a table has the layout before 0.6.0 (format 11)."""
    # Plan files have no files of such tables.
    states = (snapshot.logged_files if snapshot.planned is None else snapshot.listed)["state"]
    return bool(snapshot.config.replicated_sets) or states.null_count() < len(states)


def with_schema(snapshot: Snapshot, schema_json: str) -> Snapshot:
    """Return a version with another schema; the version itself if the schema is the same."""
    return with_metadata(snapshot, with_fields(snapshot.metadata, schema_json, new_id))


def with_metadata(snapshot: Snapshot, metadata: Metadata) -> Snapshot:
    """Return a version with other metadata; the version itself if they are the same."""
    if metadata == snapshot.metadata:
        return snapshot
    columns = StoredColumns.of(metadata, snapshot.protocol.writer_features)
    return replace(
        snapshot,
        metadata=metadata,
        config=config_by_name(metadata.configuration, columns),
        columns=columns,
        schema=visible_columns(schema_from_delta(metadata.schema_string, path=snapshot.uri)),
        schema_json=metadata.schema_string,
    )


def warn_of_added_columns(before: Snapshot, schema: pl.Schema) -> None:
    """Warn if columns were added to a table with rows that qbeast-spark may optimize."""
    added = [name for name in schema if name not in before.schema]
    if not added or not before.file_count or dialect_of(before) != "qbeast-spark":
        return
    message = (
        f"column(s) {added} were added to {before.uri!r}. qbeast-spark 0.7.1 ignores the schema of the table when it "
        "optimizes files, and their values become null then. Do not optimize this table with it; Table.optimize() "
        "keeps them."
    )
    warnings.warn(message, AddedColumnWarning, stacklevel=caller_stacklevel())

"""The actions of one commit, built again on the newest state of the table at each attempt, with metadata domains.

Row tracking gives rows stable ids, and the versions that last changed them. The id of a row is the value of a hidden
column of its file, or, where that is null, `base_row_id` of the file plus the index of the row. The version is found in
the same way. New files get ids above all earlier ones when they are committed, so each attempt of a commit assigns them
again.

Data files are never rewritten after a lost race: the place of a cube depends on the space of its revision, and the
revision's number is in the tags alone.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast
from typing import Protocol as Interface

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, row_count
from qbeast_core.log.columns import (
    StoredColumns,
    has_sample_column,
    mapping_mode,
    stored_revision,
    stored_schema,
)
from qbeast_core.log.protocol import (
    CHANGE_FEED,
    DELETION_VECTORS,
    WriteIntent,
    is_true,
    merge_metadata,
    required_protocol,
    with_features,
)
from qbeast_core.log.rules import CONSTRAINT, NO_RULES, DeclaredRules, Identity, declared_rules
from qbeast_core.log.schema import schema_problems
from qbeast_core.log.values import NEVER_MS, LiveFiles, remove_of, removes_of
from qbeast_core.spec.blocks import WEIGHT_COLUMN, BlocksDialect, blocks_dialect, dump_blocks
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.spec.table_config import (
    BLOCKS_DIALECT,
    COLUMN_SPECS,
    LAST_REVISION_ID,
    MAPPING_READER,
    MAX_REVISION_ID,
    REPLICATED_SET_PREFIX,
    REVISION_PREFIX,
    SAMPLE_BY,
    TableConfig,
    may_have_other_columns,
    min_reader_entry,
    revision_entries,
)


def _configuration_of(domains: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the configuration of a domain as JSON; empty if the table does not have the domain.

    >>> _configuration_of({"a": '{"x":1}'}, "a"), _configuration_of({}, "a")
    ({'x': 1}, {})
    """
    text = domains.get(name) or "{}"
    try:
        configuration = orjson.loads(text)
    except ValueError:
        configuration = None
    if not isinstance(configuration, dict):
        problem = f"the metadata domain {name!r} is damaged: {text[:100]!r} is not an object of JSON"
        message = f"{problem}."
        raise InvalidMetadataError(message)
    return cast("dict[str, Any]", configuration)


# Name in `clustering_provider` of files that this library indexed.
PROVIDER: Final = "qbeast"

_CLUSTERING: Final = "delta.clustering"
_COLUMNS: Final = "clusteringColumns"


def is_clustered(protocol: Protocol) -> bool:
    """Return whether files name the implementation that clustered them."""
    return "clustering" in (protocol.writer_features or ())


def clustering_columns(domains: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the paths of the clustering columns, by their names in files.

    >>> clustering_columns({"delta.clustering": '{"clusteringColumns":[["year"],["a","b"],"day"]}'})
    [('year',), ('a', 'b'), ('day',)]
    """
    listed = _configuration_of(domains, _CLUSTERING).get(_COLUMNS, [])
    # Spark writes a list of names for each column, the protocol shows names.
    return [(column,) if isinstance(column, str) else tuple(column) for column in listed]


def clustered_by_others(files: pl.DataFrame) -> pl.Series:
    """Return which files another implementation clustered: only that one may cluster them again."""
    return files["clustering_provider"].ne(PROVIDER).fill_null(value=False)


# Key of `tags` in commitInfo: whether all rows that were copied or updated kept their ids.
PRESERVED: Final = "delta.rowTracking.preserved"

_ROW_TRACKING: Final = "delta.rowTracking"
_HIGHEST: Final = "rowIdHighWaterMark"
_FEATURE: Final = "rowTracking"
_ENABLED: Final = "delta.enableRowTracking"
_SUSPENDED: Final = "delta.rowTrackingSuspended"
_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"


class RowIdColumns(NamedTuple):
    """Names of the hidden columns of data files. Delta allows no other column of these names."""

    row_id: str
    version: str

    @property
    def schema(self) -> pl.Schema:
        """Names and types."""
        return pl.Schema(dict.fromkeys(self, pl.Int64()))


class RowIdsOfFile(NamedTuple):
    """The ids of rows for which the hidden columns of a file are null."""

    columns: RowIdColumns
    # Id of the first row.
    base_row_id: int
    version: int

    def filled(self, row: pl.Expr, names: Container[str]) -> list[pl.Expr]:
        """Return the hidden columns among `names` without nulls; `row` is the index of a row in the file.

        >>> ids = RowIdsOfFile(RowIdColumns("id", "version"), base_row_id=5, version=2)
        >>> rows = pl.DataFrame({"id": [9, None], "version": [None, 1], "row": [0, 1]})
        >>> rows.select(ids.filled(pl.col("row"), rows.columns)).rows()
        [(9, 2), (6, 1)]
        """
        fresh = row.cast(pl.Int64) + self.base_row_id
        values = {self.columns.row_id: fresh, self.columns.version: pl.lit(self.version, pl.Int64)}
        return [pl.coalesce(name, value) for name, value in values.items() if name in names]


def _assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether each new file needs row ids.

    >>> protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("rowTracking",))
    >>> metadata = Metadata(id="", schema_string="{}")
    >>> suspended = metadata.model_copy(update={"configuration": {"delta.rowTrackingSuspended": "true"}})
    >>> _assigns_row_ids(protocol, metadata), _assigns_row_ids(protocol, suspended)
    (True, False)
    """
    return _FEATURE in (protocol.writer_features or ()) and not _is_true(metadata, _SUSPENDED)


def _keeps_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether rows should keep their ids when they are copied or updated."""
    return _assigns_row_ids(protocol, metadata) and _is_true(metadata, _ENABLED)


def row_id_columns(protocol: Protocol, metadata: Metadata) -> RowIdColumns | None:
    """Return the hidden columns of rows that are copied. None: row ids are not kept."""
    row_id, version = (metadata.configuration.get(key) for key in (_ID_COLUMN, _VERSION_COLUMN))
    return (
        RowIdColumns(row_id, version) if row_id and version and _keeps_row_ids(protocol, metadata) else None
    )


def hidden_columns(configuration: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the hidden columns that files of a table may have."""
    return frozenset(configuration.get(key, "") for key in (_ID_COLUMN, _VERSION_COLUMN))


def with_row_ids(
    adds: Iterable[AddFile], domains: Mapping[str, str], *, version: int
) -> tuple[list[AddFile], list[DomainMetadata]]:
    """Return the files of a commit with row ids, and the new highest id. Files with row ids keep them.

    >>> new = AddFile(path="a", size=1, modification_time=1, stats='{"numRecords":3}')
    >>> old = AddFile(path="b", size=1, modification_time=1, base_row_id=0, default_row_commit_version=4)
    >>> adds, changed = with_row_ids([new, old], {"delta.rowTracking": '{"rowIdHighWaterMark":9}'}, version=7)
    >>> [(add.base_row_id, add.default_row_commit_version) for add in adds], changed[0].configuration
    ([(10, 7), (0, 4)], '{"rowIdHighWaterMark":12}')
    """
    before = highest = int(_configuration_of(domains, _ROW_TRACKING).get(_HIGHEST, -1))
    numbered: list[AddFile] = []
    for add in adds:
        fields: dict[str, int] = {}
        if add.base_row_id is None:
            fields["base_row_id"] = highest + 1
            highest += _rows_to_number(add)
        if add.default_row_commit_version is None:
            fields["default_row_commit_version"] = version
        numbered.append(add.model_copy(update=fields))
    configuration = orjson.dumps({_HIGHEST: highest}).decode()
    changed = [DomainMetadata(domain=_ROW_TRACKING, configuration=configuration)] if highest > before else []
    return numbered, changed


def _rows_to_number(add: AddFile) -> int:
    count = row_count(add.stats)
    if count is not None:
        return count
    message = (
        f"file {add.path!r} cannot get row ids ({_FEATURE}): its statistics have no number of rows. "
        "Let the writer of the file rewrite it with statistics."
    )
    raise UnsupportedTableError(message, path=add.path, feature=_FEATURE)


def _is_true(metadata: Metadata, key: str) -> bool:
    return metadata.configuration.get(key, "").lower() == "true"


_MAX_TAGS: Final = 1000
_USER_STATISTICS: Final = ("columnStats", "columnstats")


class _TableState(Interface):
    """The part of a snapshot that a commit is built on. A table that is not there yet has version -1.

    Columns of `files`: `path`, `size_bytes`, `revision`, `blocks`, `deletion_vector`, `base_row_id`,
    `default_row_commit_version`.
    """

    @property
    def version(self) -> int: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def protocol(self) -> Protocol: ...
    @property
    def logged_files(self) -> pl.DataFrame: ...
    @property
    def some_files(self) -> pl.DataFrame: ...
    def revisions_without(self, paths: Collection[str]) -> set[int]: ...
    @property
    def domains(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Rebased:
    """The actions of a commit without its commitInfo, and the revision number its files got."""

    actions: tuple[Action, ...]
    revision_id: int | None
    metadata: Metadata
    protocol: Protocol
    # Whether all rows that were copied or updated kept their row ids. None: the table does not keep them.
    preserves_row_ids: bool | None = None

    @property
    def adds(self) -> list[AddFile]:
        """The new files."""
        return [action for action in self.actions if isinstance(action, AddFile)]


def rebase(
    intent: WriteIntent,
    *,
    base: Metadata,
    head: _TableState,
    now_ms: int,
    live: LiveFiles | None = None,
) -> Rebased | str:
    """Return the actions that publish `intent` on `head`, or why the change no longer fits the table."""
    metadata = _metadata(intent, base, head)
    if isinstance(metadata, str):
        return metadata
    dialect = found_dialect(intent, metadata, head.some_files)
    outdated = _outdated_files(intent, metadata, dialect) or _outdated_rows(intent, base, head)
    if outdated is not None:
        return outdated
    indexed = _indexed(intent, metadata, head, dialect)
    if isinstance(indexed, str):
        return indexed
    number, metadata = indexed
    excluded = _excluded_dialect(metadata, head)
    if excluded is not None:
        return excluded
    metadata = _with_min_reader(metadata)
    protocol = with_features(_protocol(metadata, head), intent.features)
    actions: list[Action] = []
    is_new = head.version < 0
    if is_new or protocol != head.protocol:
        actions.append(protocol)
    if is_new or metadata != head.metadata:
        actions.append(metadata)
    if intent.txn is not None:
        actions.append(intent.txn.model_copy(update={"last_updated": now_ms}))
    removes, adds = _files(intent, head, live, number=number, dialect=dialect, now_ms=now_ms)
    adds, domains = _with_features(adds, protocol, metadata, head)
    preserves = _preserves_row_ids(intent, protocol, metadata)
    changes = *actions, *domains, *removes, *adds, *intent.changes
    return Rebased(changes, number, metadata, protocol, preserves)


def found_dialect(intent: WriteIntent, metadata: Metadata, files: pl.DataFrame) -> BlocksDialect:
    """Return the dialect to write blocks in: the dialect of live tags, else the table's key, else the intent."""
    # Live tags come first: a JVM may append to a table of ours without setting our key, and it fails on blocks in
    # the other dialect.
    if intent.mode in ("overwrite", "create") and intent.dialect is not None:
        return intent.dialect
    tags = files["blocks"]
    texts = (tags.drop_nulls() if tags.null_count() else tags).head(_MAX_TAGS).to_list()
    dialects: set[BlocksDialect] = {dialect for dialect in map(blocks_dialect, texts) if dialect is not None}
    if len(dialects) == 1:
        return dialects.pop()
    config = TableConfig.from_configuration(metadata.configuration)
    if config.dialect is not None:
        return config.dialect
    if config.is_indexed:  # with neither tags nor our key: the JVM made it
        return "qbeast-spark"
    return intent.dialect or "documented"


def dialect_of(state: _TableState) -> BlocksDialect:
    """Return the dialect of a table as it is; see `found_dialect`."""
    return found_dialect(WriteIntent(mode="append"), state.metadata, state.some_files)


# Properties of tables that must not have deletion vectors.
_ICEBERG: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")


def why_no_vectors(state: _TableState, *, is_indexed: bool) -> str | None:
    """Return why a table cannot have deletion vectors, and a cure: its readers would return the hidden rows."""
    iceberg = [name for name in _ICEBERG if is_true(state.metadata, name)]
    if iceberg:
        return (
            f"{iceberg[0]} is true, and readers of Iceberg ignore them. Let Spark unset that property first."
        )
    if is_indexed and dialect_of(state) == "qbeast-spark":
        return (
            "it has the dialect 'qbeast-spark', and qbeast-spark reads files without them, and its optimize refuses "
            "the table. If qbeast-spark need not read it, use the dialect 'documented': Table.switch_dialect."
        )
    return None


def _outdated_files(intent: WriteIntent, metadata: Metadata, dialect: BlocksDialect) -> str | None:
    """Return why the new files no longer have the columns of the table's files; None if they have."""
    if dialect == "qbeast-spark" and any(add.has_hidden_weights or add.has_row_ids for add in intent.adds):
        # The JVM optimizes files by their own columns, not by the table's schema: it fails on one column more.
        return (
            "its blocks were rewritten for the JVM meanwhile (dialect qbeast-spark), whose files lack hidden columns "
            f"such as {WEIGHT_COLUMN}, and these files have them"
        )
    if not has_sample_column(metadata):
        return None
    if any(add.has_hidden_weights and add.blocks for add in intent.adds):
        return "a sample column was added meanwhile, and these files do not have it"
    return None


def _protocol(metadata: Metadata, head: _TableState) -> Protocol:
    """Return the protocol after a commit. Only a property or a constraint that it sets needs a new feature."""
    now, before = metadata.configuration, head.metadata.configuration
    added = now.keys() - before.keys()
    return required_protocol(
        metadata.schema_string,
        current=head.protocol,
        is_mapped=mapping_mode(before) == "none" != mapping_mode(now),
        constrained=any(key.startswith(CONSTRAINT) for key in added),
        feeds_changes=is_true(metadata, CHANGE_FEED) and not is_true(head.metadata, CHANGE_FEED),
        hides_rows=is_true(metadata, DELETION_VECTORS) and not is_true(head.metadata, DELETION_VECTORS),
    )


def _outdated_rows(intent: WriteIntent, base: Metadata, head: _TableState) -> str | None:
    """Return why the new rows may break rules that the table has now; None if they keep them."""
    if base == head.metadata or intent.brings != "rows" or not intent.adds:
        return None
    planned, now = (declared_rules(metadata, head.protocol) for metadata in (base, head.metadata))
    if not (planned or NO_RULES).same_checks(now or NO_RULES):
        return "another writer changed the rules of its rows (constraints, generated columns)"
    ours = None if intent.metadata is None else declared_rules(intent.metadata, head.protocol)
    drawn = {identity.column for identity in _changed(planned, ours)}
    if drawn & {identity.column for identity in _changed(planned, now)}:
        return (
            f"another writer drew numbers of the identity column(s) {sorted(drawn)}, which these files have"
        )
    return None


def _changed(before: DeclaredRules | None, after: DeclaredRules | None) -> set[Identity]:
    return set() if after is None else {*after.identities}.difference((before or NO_RULES).identities)


def _excluded_dialect(metadata: Metadata, head: _TableState) -> str | None:
    """Return why the dialect and the rest of the metadata exclude each other; None if they do not."""
    configuration = metadata.configuration
    if configuration.get(BLOCKS_DIALECT) != "qbeast-spark":
        return None
    if has_sample_column(metadata):
        other = "a sample column"
    elif metadata.partition_columns:
        other = "partitions"
    elif mapping_mode(configuration) != "none":
        other = "column mapping"
    elif SAMPLE_BY in configuration:
        other = "a sampling key"
    elif is_true(metadata, DELETION_VECTORS) and not (
        is_true(head.metadata, DELETION_VECTORS) and dialect_of(head) == "qbeast-spark"
    ):  # as earlier versions allowed, and other writers do
        other = "deletion vectors"
    elif (
        may_have_other_columns(configuration)
        and TableConfig.from_configuration(configuration).has_other_columns
    ):
        other = "several lists of indexed columns"
    else:
        return None
    return f"the dialect qbeast-spark and {other} exclude each other, and another writer chose one of them"


def _with_min_reader(metadata: Metadata) -> Metadata:
    """Return the metadata so that versions without column mapping and partitions refuse a table that has these."""
    configuration = metadata.configuration
    is_plain = mapping_mode(configuration) == "none" and not metadata.partition_columns
    if is_plain or not TableConfig.from_configuration(configuration).is_indexed:
        return metadata
    entry = min_reader_entry(configuration, MAPPING_READER)
    return metadata.model_copy(update={"configuration": {**configuration, **entry}})


def _metadata(intent: WriteIntent, base: Metadata, head: _TableState) -> Metadata | str:
    """Return the metadata to publish, still without our revision."""
    if head.version < 0:
        return intent.metadata or "the table does not exist any more"
    if intent.metadata is None:
        metadata = head.metadata
    elif base == head.metadata:
        metadata = intent.metadata
    else:
        merged = merge_metadata(base=base, ours=intent.metadata, theirs=head.metadata)
        if isinstance(merged, str):
            return merged
        metadata = merged
    # The data files are written already: they have to fit the schema that the table has by now.
    return _misfit(intent, intent.metadata or base, metadata) or metadata


def _misfit(intent: WriteIntent, written_for: Metadata, metadata: Metadata) -> str | None:
    """Return why files that were written for a table do not fit it as it is now; None if they do."""
    if written_for.partition_columns != metadata.partition_columns:
        return "another writer changed the partition columns"
    if _sampling_key(written_for) != _sampling_key(metadata):
        return "another writer changed the sampling key, whose hash is the weight of these rows"
    if written_for.schema_string != metadata.schema_string:
        # By their names in files: columns may have other names in the table now.
        ours, now = StoredColumns.of(written_for), StoredColumns.of(metadata)
        if intent.removes and {**now.names, **ours.names} != {**ours.names, **now.names}:
            return "another writer renamed columns"
        names = {**ours.names, **now.names}
        problems = schema_problems(stored_schema(written_for), stored_schema(metadata), names)
        if problems:
            return f"another writer changed the schema: {'; '.join(problems)}"
    return None


def _sampling_key(metadata: Metadata) -> str | None:
    return metadata.configuration.get(SAMPLE_BY)


def _indexed(
    intent: WriteIntent, metadata: Metadata, head: _TableState, dialect: BlocksDialect
) -> tuple[int | None, Metadata] | str:
    """Return the number that our revision has or gets, None without a revision, and the metadata with it."""
    if intent.revision is None:
        # Files that wait for an index have its columns; the configuration in the log may have those of another writer.
        planned = {} if intent.metadata is None else intent.metadata.configuration
        if intent.mode == "overwrite" and not TableConfig.from_configuration(planned).column_specs:
            config = TableConfig.from_configuration(metadata.configuration).left_unindexed()
            metadata = metadata.model_copy(update={"configuration": config.to_configuration()})
        return None, metadata
    ours = intent.revision
    if mapping_mode(metadata.configuration) != "none":
        ours = stored_revision(ours, StoredColumns.of(metadata))
    chosen = _revision(intent, ours, metadata, head, dialect)
    if isinstance(chosen, str):
        return chosen
    revision, metadata = chosen
    if intent.drops_unused:
        metadata = _without_unused(metadata, intent, head, newest=revision)
    return revision.revision_id, metadata


def _revision(
    intent: WriteIntent, ours: Revision, metadata: Metadata, head: _TableState, dialect: BlocksDialect
) -> tuple[Revision, Metadata] | str:
    """Return our revision under the number it has or gets, and the metadata that holds it."""
    config = TableConfig.from_configuration(metadata.configuration)
    # Revisions are compared whole, not by number: an overwrite may have given our number to another space, and
    # our cubes would then lie in the wrong place. Without a conflict of columns ours gets a number of its own.
    current = config.revisions.get(ours.revision_id)
    if current == ours and not intent.new_revision and intent.mode != "overwrite":
        return ours, metadata
    if intent.mode == "append" and config.is_left_unindexed:
        return f"the table has no index now, these files are indexed by {', '.join(ours.columns)}"
    latest = config.latest
    if intent.mode == "append" and latest is not None and latest.columns != ours.columns:
        return (
            f"the table is indexed by {', '.join(latest.columns)} now, "
            f"these files are indexed by {', '.join(ours.columns)}"
        )
    # Files may name a revision that the configuration lost. Larger ids are damage: new ids are not counted from them.
    tagged = [number for number in head.revisions_without(()) if number <= MAX_REVISION_ID]
    numbered = ours.with_id(config.free_revision_id(max(tagged, default=0)))
    return numbered, _published(metadata, config, numbered, dialect, replaces=intent.mode == "overwrite")


def _published(
    metadata: Metadata, config: TableConfig, revision: Revision, dialect: BlocksDialect, *, replaces: bool
) -> Metadata:
    """Return the metadata with one revision more, or with this one alone."""
    dropped = (REVISION_PREFIX, REPLICATED_SET_PREFIX, LAST_REVISION_ID) if replaces else ()
    # The column specs of a conversion count until there is a real revision.
    kept = {key: text for key, text in config.entries.items() if not key.startswith((*dropped, COLUMN_SPECS))}
    added = [revision] if config.revisions and not replaces else [revision.staging(), revision]
    configuration = {**kept, BLOCKS_DIALECT: dialect, **revision_entries(added)}
    return metadata.model_copy(update={"configuration": configuration})


def _without_unused(
    metadata: Metadata, intent: WriteIntent, head: _TableState, *, newest: Revision
) -> Metadata:
    """Return the metadata without revisions that no live file needs, and without statistics that a user gave."""
    gone = [remove.path for remove in intent.removes]
    needed = head.revisions_without(gone)
    needed |= {int(number) for add in intent.adds if (number := (add.tags or {}).get("revision"))}
    needed |= {STAGING_REVISION_ID, newest.revision_id}
    config = TableConfig.from_configuration(metadata.configuration)
    unused = {f"{REVISION_PREFIX}{number}" for number in config.revision_ids if number not in needed}
    kept = {key: text for key, text in config.entries.items() if key not in unused}
    kept |= dict.fromkeys(kept.keys() & set(_USER_STATISTICS), "")
    return metadata.model_copy(update={"configuration": kept})


def _files(
    intent: WriteIntent,
    head: _TableState,
    live: LiveFiles | None,
    *,
    number: int | None,
    dialect: BlocksDialect,
    now_ms: int,
) -> tuple[list[RemoveFile], list[AddFile]]:
    """Return the files to remove and to add."""
    removes, adds = list(intent.removes), [_tagged(add, number, dialect) for add in intent.adds]
    renamed: list[RemoveFile] = []
    if intent.mode == "overwrite":
        # All that is live now, not when the overwrite was planned: files that came since are replaced too.
        removes += removes_of(head.logged_files, StoredColumns.of(head.metadata), data_change=True)
        removes += [remove_of(add, data_change=True) for add in (live.unlisted if live else ())]
    if intent.files is not None and live is not None:
        change = intent.files(live, dialect)
        removes += [remove_of(add, data_change=change.data_change) for add in change.removed]
        adds += change.adds
        renamed = [remove_of(add, data_change=False) for add in change.renamed]
    # The add of the same commit repeats the tags, which are most of its bytes.
    marked = [remove_of(before, data_change=True) for before, _ in intent.marked]
    removes += [remove.model_copy(update={"tags": None}) for remove in marked]
    adds += [after for _, after in intent.marked]
    dated = [(removes, now_ms), (renamed, NEVER_MS)]
    return [
        remove.model_copy(update={"deletion_timestamp": time_ms})
        for group, time_ms in dated
        for remove in group
    ], adds


def _with_features(
    adds: list[AddFile], protocol: Protocol, metadata: Metadata, head: _TableState
) -> tuple[list[AddFile], list[DomainMetadata]]:
    """Return the new files with the fields that features of the table need, and the domains that change."""
    if is_clustered(protocol):
        ours = {"clustering_provider": PROVIDER}
        adds = [add if add.blocks is None else add.model_copy(update=ours) for add in adds]
    if not _assigns_row_ids(protocol, metadata):
        return adds, []
    return with_row_ids(adds, head.domains, version=head.version + 1)


def _preserves_row_ids(intent: WriteIntent, protocol: Protocol, metadata: Metadata) -> bool | None:
    """Return whether all rows that were copied or updated keep their row ids; None if the table does not keep them."""
    if not _keeps_row_ids(protocol, metadata):
        return None
    replaces = bool(intent.removes or intent.marked)
    return not replaces or all(add.has_row_ids for add in intent.adds)  # an overwrite copies no row


def _tagged(add: AddFile, revision_id: int | None, dialect: BlocksDialect) -> AddFile:
    if add.blocks is None or revision_id is None:
        return add
    index = {"revision": str(revision_id), "blocks": dump_blocks(add.blocks, dialect=dialect)}
    return add.model_copy(update={"tags": index | dict(add.tags or {})})

"""The protocol of Delta: features and properties of a table, and what a write intends.

Supported features are listed; all others are refused by name. A feature that binds writers alone does not matter to
readers.

An intent is compared here with each commit of other writers. `qbeast_core.log.rebase` decides what depends on the
table after these commits (schema, configuration, revisions), `qbeast_core.table.index.revision` what depends on the
thresholds of cubes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import AddFile, CdcFile, Commit, Metadata, Protocol, RemoveFile, Txn
from qbeast_core.log.deletion_vectors import file_key
from qbeast_core.log.schema import is_widening, type_changes, unstored_voids
from qbeast_core.log.values import FileChangePlanner
from qbeast_core.spec.blocks import BlocksDialect, FilePath
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import MIN_READER, READER_VERSION, SAMPLE_BY, TableConfig
from qbeast_core.support.text import convert_call, delta_copy_call

# The largest change of a commit: new rows; the same rows in other files or with other tags; a new schema;
# properties.
Brings: TypeAlias = Literal["rows", "files", "columns", "settings"]

# The first version of readers, and of writers, that knows features by their names.
NAMED_READER: Final = 3
NAMED_WRITER: Final = 7
# At the end of the name of a feature that is not final.
PREVIEW: Final = "-preview"


class Feature(NamedTuple):
    """Facts about a feature; the defaults are those of an unknown one."""

    # Meaning in words, for messages.
    meaning: str = ""
    # "read": tables with it are read and written; "written": the same, but the feature binds writers alone.
    support: Literal["read", "written", "none"] = "none"
    # The first writer version with it, from before features had names.
    since: int = NAMED_WRITER


FEATURES: Final[Mapping[str, Feature]] = {
    "allowColumnDefaults": Feature("values for columns that new rows lack", "written"),
    "appendOnly": Feature("", "written", since=2),
    "catalogManaged": Feature("commits go through a catalog"),
    "catalogOwned": Feature("commits go through a catalog"),  # its name in previews
    "changeDataFeed": Feature("", "written", since=4),
    "checkConstraints": Feature("rules that new rows have to meet", "written", since=3),
    "clustering": Feature("", "written"),
    "collations": Feature("", "written"),
    "columnMapping": Feature("", "read", since=5),
    "coordinatedCommits": Feature("commits go through a coordinator"),
    "deletionVectors": Feature("", "read"),
    "domainMetadata": Feature("", "written"),
    "generatedColumns": Feature("columns computed from others", "written", since=4),
    "geospatial": Feature("columns of points and shapes"),
    "icebergCompatV1": Feature("", "written"),
    "icebergCompatV2": Feature("", "written"),
    "identityColumns": Feature("numbers that the writer gives", "written", since=6),
    "inCommitTimestamp": Feature("", "written"),
    "invariants": Feature("rules that new rows have to meet", "written", since=2),
    "materializePartitionColumns": Feature("", "written"),
    "rowTracking": Feature("", "written"),
    "timestampNtz": Feature("", "read"),
    "typeWidening": Feature("older files hold narrower types", "read"),
    "v2Checkpoint": Feature("", "read"),
    "vacuumProtocolCheck": Feature("", "read"),
    "variantShredding": Feature(
        "files that store parts of variants apart", "read"
    ),  # refused are such files alone
    "variantType": Feature("", "read"),
}


def _feature_of(name: str) -> Feature:
    """Return the facts about a feature; a preview is like the final feature.

    >>> _feature_of("new").support, _feature_of("variantType-preview").support
    ('none', 'read')
    """
    return FEATURES.get(name.removesuffix(PREVIEW), Feature())


VOID_INSIDE: Final = "the type void inside"
MAPPING_OF_NO_PROTOCOL: Final = "columnMapping that its protocol does not name"
APPEND_ONLY: Final = "delta.appendOnly"

# How a table of these features is copied; the rest is in `_copy_of`.
_COPIES: Final[Mapping[str, str]] = {
    "catalogManaged": (
        "Copy it with Spark that is connected to the catalog, because only the catalog has the newest version: "
        "qbeast_spark_bridge.write_table(spark.table(name), new, columns=[...])."
    ),
    "geospatial": (
        "Spark with Delta 4.4 does not support it either. Copy it with the program that wrote it, without the columns "
        "of points and shapes, or with these as binaries (WKB)."
    ),
    "typeWidening": (
        "Copy it with Spark and Delta: "
        'qbeast_spark_bridge.write_table(spark.read.format("delta").load({path!r}), new, columns=[...]); or remove '
        "the feature: ALTER TABLE ... DROP FEATURE typeWidening."
    ),
    MAPPING_OF_NO_PROTOCOL: (
        "Other readers return nulls for it. Name the feature first, deltalake.DeltaTable({path!r}).alter.add_feature("
        "deltalake.TableFeatures.ColumnMapping, allow_protocol_versions_increase=True)."
    ),
}

_RULES_OF_DELTALAKE: Final = frozenset({"checkConstraints", "invariants"})

# What deltalake's own engine reads.
_DELTALAKE: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType"}
)


def damaged_index(config: TableConfig, *, path: str) -> str:
    """Return the message about a newest revision that cannot be read: what still works, and the cure.

    >>> config = TableConfig.from_configuration({"qbeast.lastRevisionID": "one"})
    >>> "convert_table('t'" in damaged_index(config, path="t")
    True
    """
    if SAMPLE_BY in config.faults:
        return (
            f"the sampling key of {path!r} is not known: {config.faults[SAMPLE_BY]} Reads "
            "without a sample still return every row. Go back to a version that can be read (Table.restore), or "
            'replace the rows with mode="overwrite" and sample_by=[...].'
        )
    if config.last_revision_id is None:
        cure = (
            f"{convert_call(path)} begins a new index and moves no data; or go back to a version that can be read "
            '(Table.restore), or replace the table with mode="overwrite"'
        )
    else:
        cure = (
            f"Table.repair() goes back to revision {config.last_revision_id} and stages what cannot be placed; or go "
            "back to a version that can be read (Table.restore)"
        )
    return (
        f"the newest revision of {path!r} is not known: {config.newest_fault} Whole reads and "
        f"filters still return every row. {cure}."
    )


def _refusal(
    features: Sequence[str],
    verb: Literal["read", "written"],
    protocol: Protocol,
    metadata: Metadata,
    *,
    path: str,
) -> str:
    """Return why a table is refused, what works with it here, and what to do."""
    if list(features) == [APPEND_ONLY]:
        return (
            f"{path} allows only appends ({APPEND_ONLY} is true). Appends, optimize and reads "
            f"work. To allow changes of its rows: Table.set_properties({{{APPEND_ONLY!r}: None}})."
        )
    meanings = [(feature, _feature_of(feature).meaning) for feature in features]
    used = ", ".join(f"{feature} ({text})" if text else feature for feature, text in meanings)
    cannot = "cannot be read by qbeast" if verb == "read" else "cannot be written in this way by qbeast"
    indexed = any(key.startswith("qbeast.") for key in metadata.configuration)
    works = "Reads and samples work. " if verb == "written" and indexed else ""
    cure = cure_of(features, protocol, path)
    cure = f"Or {cure[0].lower()}{cure[1:]}" if works else cure
    return f"{path} {cannot}: it uses {used}. {works}{cure}"


def unsupported_rule(
    feature: str, name: str, expression: str, reason: str, metadata: Metadata, *, path: str
) -> str:
    """Return why rows of a table cannot be written: a rule of its rows is not understood."""
    keeper = "deltalake or Spark" if feature in _RULES_OF_DELTALAKE else "Spark"
    constraints = sorted(key for key in metadata.configuration if key.startswith("delta.constraints."))
    drop = f", or drop the rule: Table.set_properties({{{constraints[0]!r}: None}})" if constraints else ""
    return (
        f"rows cannot be written to {path}: qbeast does not support the expression {expression!r} of {name!r} "
        f"({feature}): {reason}. Reads, samples, delete, optimize, convert_table and changes of "
        f"properties work. Append with an engine that checks them ({keeper}), and optimize then{drop}."
    )


def cure_of(features: Sequence[str], protocol: Protocol, path: str) -> str:
    """Return what to do with a table that has features which are not supported, as a sentence.

    >>> protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("geospatial",))
    >>> cure_of(["geospatial-preview"], protocol, "old")[:49]
    'Spark with Delta 4.4 does not support it either. '
    """
    for feature in features:
        if feature.startswith(VOID_INSIDE):
            column = feature.removeprefix(VOID_INSIDE).strip()
            return f"Copy the other columns into a new table: {delta_copy_call(path, without=column)}."
        special = _COPIES.get(feature.removesuffix(PREVIEW)) or _COPIES.get(feature.partition(" ")[0])
        if special is not None:
            return special.format(path=path)
    return f"Copy it into a table without: {_copy_of(protocol, path)}."


def _copy_of(protocol: Protocol, path: str) -> str:
    """Return the call that copies a Delta table's rows into a new table."""
    if _DELTALAKE.issuperset(name.removesuffix(PREVIEW) for name in protocol.reader_features or ()):
        return delta_copy_call(path)
    spark = f'spark.read.format("delta").load({path!r})'
    return f"qbeast_spark_bridge.write_table({spark}, new, columns=[...]), where Spark with Delta reads it"


# Property of tables with a change data feed.
CHANGE_FEED: Final = "delta.enableChangeDataFeed"

# Property of tables whose deleted rows may be listed in deletion vectors.
DELETION_VECTORS: Final = "delta.enableDeletionVectors"

WriteMode: TypeAlias = Literal["append", "overwrite", "create", "metadata"]

_WITHOUT_ZONE: Final = re.compile(r'"(?:type|elementType|keyType|valueType)"\s*:\s*"timestamp_ntz"')
_MAX_DIGITS: Final = 18  # of a version
_CONSTRAINTS: Final = "checkConstraints"
_PHYSICAL: Final = "delta.columnMapping.physicalName"


def check_readable(protocol: Protocol, metadata: Metadata, *, path: str) -> None:
    """Raise unless every row of the table can be read right.

    Features that bind writers alone do not matter here.
    """
    _refuse_newer(metadata, path)
    named = set(protocol.reader_features or ())
    refused = sorted(name for name in named if _feature_of(name).support in ("written", "none"))
    # Checked under any protocol: if a file has other names or types, its rows would come back wrong.
    if _is_mapped(metadata) and not _reads_mapped(protocol):
        refused.append(MAPPING_OF_NO_PROTOCOL)
    refused += [
        f"typeWidening from {change.from_type} to {change.to_type}"
        for change in type_changes(metadata.schema_string)
        if not is_widening(change.from_type, change.to_type)
    ]
    if protocol.min_reader_version > NAMED_READER:
        refused.insert(0, f"reader version {protocol.min_reader_version}")
    _refuse(refused, "read", protocol, metadata, path)


def check_writable(
    protocol: Protocol, metadata: Metadata, *, mode: WriteMode, path: str, brings: Brings = "rows"
) -> None:
    """Raise unless a commit of this mode keeps what the table promises; call it before writing files."""
    check_readable(protocol, metadata, path=path)
    refused = sorted({name for name in protocol.writer_features or () if _feature_of(name).support == "none"})
    if protocol.min_writer_version > NAMED_WRITER:
        refused.insert(0, f"writer version {protocol.min_writer_version}")
    if brings in ("rows", "files"):
        refused += [f"{VOID_INSIDE} {name}" for name in unstored_voids(metadata.schema_string)]
    if mode == "overwrite" and is_bound("appendOnly", protocol) and is_true(metadata, APPEND_ONLY):
        refused.append(APPEND_ONLY)
    _refuse(refused, "written", protocol, metadata, path)
    if mode == "append":
        config = TableConfig.from_configuration(metadata.configuration)
        if config.newest_fault is not None:
            raise InvalidMetadataError(damaged_index(config, path=path))


def in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether every commit has to carry an ``inCommitTimestamp``."""
    features = protocol.writer_features or ()
    return any(
        is_true(metadata, f"delta.enableInCommitTimestamps{kind}") and f"inCommitTimestamp{kind}" in features
        for kind in ("", "-preview")
    )


def has_change_feed(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether commits that change rows have to write them to the change data feed."""
    return is_true(metadata, CHANGE_FEED) and is_bound("changeDataFeed", protocol)


def may_hide_rows(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether writers may list deleted rows in deletion vectors."""
    named = set(protocol.reader_features or ()) & set(protocol.writer_features or ())
    return is_true(metadata, DELETION_VECTORS) and "deletionVectors" in named


def required_protocol(
    schema_string: str,
    *,
    current: Protocol | None = None,
    is_mapped: bool = False,
    constrained: bool = False,
    feeds_changes: bool = False,
    hides_rows: bool = False,
) -> Protocol:
    """Return the protocol a table of this schema needs: `current` where that is enough, never less.

    `is_mapped`: the table maps columns, and readers and writers have to know it. `constrained`: it has check
    constraints that writers have to keep. `feeds_changes`: it has a change data feed that they have to write.
    `hides_rows`: its deleted rows may be listed in deletion vectors.

    >>> required_protocol('{"type":"struct","fields":[]}').min_writer_version
    2
    """
    has = current or Protocol(min_reader_version=1, min_writer_version=2)
    if is_mapped and not (is_bound("columnMapping", has) and _reads_mapped(has)):
        # By its name: of tables with reader version 2, some readers ignore the mapping and return nulls.
        has = with_features(has, ["columnMapping"])
    for feature, is_new in ((_CONSTRAINTS, constrained), ("changeDataFeed", feeds_changes)):
        if not is_new or is_bound(feature, has):
            continue
        if has.min_writer_version < NAMED_WRITER:
            has = has.model_copy(update={"min_writer_version": FEATURES[feature].since})
        else:
            features = (*(has.writer_features or ()), feature)
            has = has.model_copy(update={"writer_features": features})
    without_zone = _WITHOUT_ZONE.search(schema_string) is not None
    new = {"timestampNtz": without_zone, "deletionVectors": hides_rows}
    return with_features(has, [name for name, is_needed in new.items() if is_needed])


def with_features(has: Protocol, features: Iterable[str]) -> Protocol:
    """Return a protocol with features for readers and writers; the same one if it has them.

    >>> with_features(Protocol(min_reader_version=1, min_writer_version=2), ["typeWidening"]).writer_features
    ('appendOnly', 'invariants', 'typeWidening')
    """
    new = tuple(name for name in features if name not in (has.writer_features or ()))
    if not new:
        return has
    # Version 7 knows features by name alone: those that the old version implied have to be listed, or they would
    # be switched off.
    kept = has.writer_features
    if kept is None:
        implied = min(has.min_writer_version, NAMED_WRITER - 1)
        kept = tuple(name for name, feature in FEATURES.items() if feature.since <= implied)
    readers = has.reader_features
    if readers is None:
        readers = ("columnMapping",) if has.min_reader_version >= 2 else ()
    return has.model_copy(
        update={
            "min_reader_version": NAMED_READER,
            "min_writer_version": NAMED_WRITER,
            "reader_features": tuple(dict.fromkeys((*readers, *new))),
            "writer_features": (*kept, *new),
        }
    )


def is_true(metadata: Metadata, key: str) -> bool:
    """Return whether a property is true."""
    return metadata.configuration.get(key, "").lower() == "true"


def is_bound(feature: str, protocol: Protocol) -> bool:
    """Return whether writers of the table have to know a feature, by its name or by the writer version."""
    if protocol.min_writer_version >= NAMED_WRITER:
        return not {feature, f"{feature}-preview"}.isdisjoint(protocol.writer_features or ())
    return protocol.min_writer_version >= _feature_of(feature).since


def _reads_mapped(protocol: Protocol) -> bool:
    """Return whether readers apply column mapping; some writers list the feature for writers alone."""
    if protocol.min_reader_version < NAMED_READER:
        return protocol.min_reader_version == 2
    return "columnMapping" in {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def _refuse_newer(metadata: Metadata, path: str) -> None:
    """Raise if the table needs a newer version of this library."""
    text = metadata.configuration.get(MIN_READER, "1")
    is_number = text.isascii() and text.isdigit()
    if is_number and len(text) <= _MAX_DIGITS and int(text) <= READER_VERSION:
        return
    problem = "a newer version of qbeast" if is_number else "a version of qbeast that is not a number"
    message = (
        f"{path} needs {problem}: {MIN_READER} is {text[:_MAX_DIGITS]!r}, and this version knows up to "
        f"{READER_VERSION}. Upgrade qbeast: pip install --upgrade qbeast. Other Delta engines can "
        "read the table."
    )
    raise UnsupportedTableError(message, path=path, feature=MIN_READER)


def _refuse(
    features: list[str], verb: Literal["read", "written"], protocol: Protocol, metadata: Metadata, path: str
) -> None:
    if features:
        message = _refusal(features, verb, protocol, metadata, path=path)
        raise UnsupportedTableError(message, path=path, feature=features[0])


def _is_mapped(metadata: Metadata) -> bool:
    """Return whether the files of a table have other column names than its schema."""
    # Mapping by name is harmless while each physical name equals the logical one: so it is in tables that got the
    # mapping later and had no column renamed or added again since.
    mode = metadata.configuration.get("delta.columnMapping.mode", "none").lower()
    if mode != "name":
        return mode != "none"
    fields = _fields(orjson.loads(metadata.schema_string))
    return any((field.get("metadata") or {}).get(_PHYSICAL) != field["name"] for field in fields)


def _fields(dtype: Any) -> Iterator[dict[str, Any]]:
    """Walk all fields of structs, at any depth."""
    if not isinstance(dtype, dict):
        return
    for inner in dtype.get("fields", ()):
        yield inner
        yield from _fields(inner["type"])
    for key in ("elementType", "keyType", "valueType"):
        yield from _fields(dtype.get(key))


_HOURS: Final = {
    "week": 168.0,
    "day": 24.0,
    "hour": 1.0,
    "minute": 1 / 60,
    "second": 1 / 3600,
    "millisecond": 1 / 3_600_000,
    "microsecond": 1 / 3_600_000_000,
}
_PERIOD: Final = rf"(\d+)\s+({'|'.join(_HOURS)})s?"

_BOOLEAN: Final = ("true or false", "true|false")
_COUNT: Final = ("a whole number of at least 1", r"0*[1-9]\d{0,8}")
_INTERVAL: Final = ("a time like 'interval 30 days'", rf"(?:interval\s+)?{_PERIOD}(?:\s+{_PERIOD})*")

# Compression of new data files.
COMPRESSION: Final = "delta.parquet.compression.codec"

Codec: TypeAlias = Literal["zstd", "snappy", "gzip", "none"]

_CODECS: Final[Mapping[str, Codec]] = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "none": "none",
    "uncompressed": "none",
}

# What each of them takes, in words and as a pattern of the lower-case text.
SETTABLE: Final[Mapping[str, tuple[str, str]]] = {
    "delta.appendOnly": _BOOLEAN,
    "delta.autoOptimize.autoCompact": ("true, false, auto or legacy", "true|false|auto|legacy"),
    "delta.autoOptimize.optimizeWrite": _BOOLEAN,
    "delta.checkpoint.writeStatsAsJson": _BOOLEAN,
    "delta.checkpoint.writeStatsAsStruct": _BOOLEAN,
    "delta.checkpointInterval": _COUNT,
    "delta.dataSkippingNumIndexedCols": ("a whole number of at least -1", r"-1|\d{1,9}"),
    "delta.dataSkippingStatsColumns": ("names of columns", "(?s:.*)"),
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.enableChangeDataFeed": _BOOLEAN,
    "delta.enableDeletionVectors": _BOOLEAN,
    "delta.enableExpiredLogCleanup": _BOOLEAN,
    "delta.logRetentionDuration": _INTERVAL,
    COMPRESSION: ("one of zstd, snappy, gzip and uncompressed", "|".join(_CODECS)),
    "delta.randomizeFilePrefixes": _BOOLEAN,
    "delta.randomPrefixLength": _COUNT,
    "delta.setTransactionRetentionDuration": _INTERVAL,
    "delta.targetFileSize": ("a number of bytes, or a size like 128mb", r"0*[1-9]\d*\s*(?:[kmgtp]i?)?b?"),
    "delta.tuneFileSizesForRewrites": _BOOLEAN,
}


def expected_value(key: str, value: str) -> str | None:
    """Return the valid values in words if `value` is invalid; None: it is valid, or the key is not Delta's own.

    >>> expected_value("delta.appendOnly", "maybe"), expected_value("delta.appendOnly", "True")
    ('true or false', None)
    """
    words, pattern = SETTABLE.get(key, ("", "(?s:.*)"))
    return None if re.fullmatch(pattern, value.lower(), re.ASCII) else words


def codec_of(configuration: Mapping[str, str]) -> Codec:
    """Return the compression of new data files. A codec that not all readers know counts as none chosen: zstd.

    >>> codec_of({COMPRESSION: "UNCOMPRESSED"}), codec_of({COMPRESSION: "lzo"}), codec_of({})
    ('none', 'zstd', 'zstd')
    """
    return _CODECS.get(configuration.get(COMPRESSION, "").strip().lower(), "zstd")


def stored_codec(codec: Codec) -> str:
    """Return the value of the property for a compression."""
    return "uncompressed" if codec == "none" else codec


def interval_hours(text: str) -> float | None:
    """Return the hours of an interval; None: the text is not an interval.

    >>> interval_hours("interval 2 days 6 hours"), interval_hours("1 week"), interval_hours("a while")
    (54.0, 168.0, None)
    """
    plain = text.strip().lower()
    if re.fullmatch(_INTERVAL[1], plain, re.ASCII) is None:
        return None
    return sum(int(count) * _HOURS[unit] for count, unit in re.findall(_PERIOD, plain, re.ASCII))


_WHOLE: Final = ("schema_string", "name", "description", "partition_columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntent:
    """One change to a table, for whichever version it becomes."""

    # `create` needs a place without a table. `overwrite` removes all files that are live when it is committed, and all
    # older revisions. `metadata` publishes `metadata` and the result of `files`, or nothing if neither is a change.
    mode: WriteMode
    # The largest change, see `qbeast_core.log.protocol.Brings`. Features of the table that only restrict larger changes
    # are allowed.
    brings: Brings = "rows"
    # New files with different paths. Indexed files have `blocks` and no tags of them, which each attempt fills in. They
    # have a `revision` tag only if their revision is not `revision` but that of files they replace. Files without
    # `blocks` are published unchanged.
    adds: tuple[AddFile, ...] = ()
    # Live files to replace. The change fails if another writer changes one of them first.
    removes: tuple[RemoveFile, ...] = ()
    # Live files before and after their deleted rows change. It fails if another writer changes one of them first.
    marked: tuple[tuple[AddFile, AddFile], ...] = ()
    # Files with the new deletion vectors, by path in the table.
    vector_files: tuple[str, ...] = ()
    # New files of the change data feed.
    changes: tuple[CdcFile, ...] = ()
    # Plans what happens to live files, see `qbeast_core.log.values`. Each attempt plans again, for the
    # files that are live then.
    files: FileChangePlanner | None = None
    # Revision of `adds`. If `new_revision` is false, the table must still have this revision under its id. None: `adds`
    # are not indexed, and an overwrite drops the index.
    revision: Revision | None = None
    # Whether to publish `revision` under the next free id. An overwrite always does.
    new_revision: bool = False
    # Whether to drop the revisions that no live file needs, and statistics that a user set.
    drops_unused: bool = False
    # The new metadata, without `revision`; None: no change. Changes of other writers are merged by key.
    metadata: Metadata | None = None
    # Features for readers and writers that the new metadata needs.
    features: tuple[str, ...] = ()
    # Dialect of a table that has none yet or is overwritten. None: that of the table, else `"documented"`.
    dialect: BlocksDialect | None = None
    # Transaction of an application. If the table has its version or a later one, the change is already committed.
    txn: Txn | None = None
    # Name in the history. Empty: the name of the mode.
    operation: str = ""
    # More keys for the history, such as `operationMetrics`, written as texts. Keys of this library take precedence.
    commit_info: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def new_paths(self) -> list[str]:
        """Decoded paths of the files that exist only for this change. They are deleted if it fails."""
        files: tuple[AddFile | CdcFile, ...] = (*self.adds, *self.changes)
        return [*(FilePath.of_log(file.path).text for file in files), *self.vector_files]


def find_conflict(intent: WriteIntent, winner: Commit) -> str | None:
    """Return why `intent` cannot follow `winner`; None if it can, rebuilt on the newer table."""
    # Appends commute with every commit, and an overwrite removes the files that are live when it lands. That leaves
    # three conflicts: both create the table, both touch a file, both are commits of one application.
    if intent.mode == "create":
        return "another writer created a table at this place"
    # With its deletion vector a path names one set of rows: a new vector means that rows were deleted meanwhile,
    # and a rewrite planned before would bring them back.
    olds: list[AddFile | RemoveFile] = [*intent.removes, *(before for before, _ in intent.marked)]
    replaced = {file_key(old.path, old.deletion_vector) for old in olds}
    changed = {file_key(add.path, add.deletion_vector) for add in winner.adds}
    changed |= {file_key(remove.path, remove.deletion_vector) for remove in winner.removes}
    touched = replaced & changed
    if touched:
        return f"version {winner.version} changed {min(touched)[0]}, which this change replaces"
    if intent.txn is None:
        return None
    # A lower version of the application came while we planned: two of its writers run at once. (A version at or
    # above ours is our progress: `already_applied` comes first.)
    if any(txn.app_id == intent.txn.app_id for txn in winner.txns):
        return f"version {winner.version} is another commit of the application {intent.txn.app_id!r}"
    return None


def already_applied(intent: WriteIntent, winner: Commit) -> bool:
    """Return whether `winner` brought the application to the version of `intent`, or beyond."""
    ours = intent.txn
    return ours is not None and any(
        txn.app_id == ours.app_id and txn.version >= ours.version for txn in winner.txns
    )


def merge_metadata(*, base: Metadata, ours: Metadata, theirs: Metadata) -> Metadata | str:
    """Return `theirs` with our changes since `base`, or the reason of a conflict.

    Keys of the configuration are merged one by one; the schema, the name and the description each as a whole.

    >>> base = Metadata(id="t", schema_string="{}", configuration={"a": "1"})
    >>> ours = base.model_copy(update={"configuration": {"a": "1", "b": "2"}})
    >>> theirs = base.model_copy(update={"configuration": {"a": "3"}})
    >>> dict(merge_metadata(base=base, ours=ours, theirs=theirs).configuration)
    {'a': '3', 'b': '2'}
    """
    configuration, clashes = _three_way(base.configuration, ours.configuration, theirs.configuration)
    if clashes:
        return f"another writer set {', '.join(clashes)} to something else"
    sides = [{name: getattr(metadata, name) for name in _WHOLE} for metadata in (base, ours, theirs)]
    fields, clashes = _three_way(*sides)
    if clashes:
        return f"another writer changed the table's {', '.join(clashes)} too"
    return theirs.model_copy(update={**fields, "configuration": configuration})


def _three_way(
    base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return `theirs` with our changes since `base`, and the keys that both changed differently."""
    changed = [key for key in {**base, **ours} if ours.get(key) != base.get(key)]
    clashes = [key for key in changed if theirs.get(key) not in (base.get(key), ours.get(key))]
    kept = {key: value for key, value in theirs.items() if key not in changed}
    return kept | {key: ours[key] for key in changed if key in ours}, clashes

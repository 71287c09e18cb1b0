"""The protocol of Delta: the features of a table decide whether it may be read and written.

Supported features are listed; all others are refused by name. A feature that binds writers alone does not matter to
readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.columns.schema_fields import is_widening, type_changes, unstored_voids
from qbeast_core.spec.table_config import MIN_READER, READER_VERSION, SAMPLE_BY, TableConfig
from qbeast_core.support.suggestions import convert_call, delta_copy_call

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

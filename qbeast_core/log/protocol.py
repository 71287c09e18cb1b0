"""Which tables may be read and written: an allow-list of Delta features; all others are refused by name.

A program that does not know a feature must leave the table alone. Features count when they are *active* where
Delta says so: a table may be able to hold generated columns and have none, or have their marks in its schema under
a protocol that does not heed them. And a feature may bind some changes alone: rules on rows do not bind a commit
that brings no rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.field_marks import is_mapped, marks_in_use
from qbeast_core.log.refusals import APPEND_ONLY, PARTITIONING, damaged_index, refusal
from qbeast_core.spec.table_config import TableConfig

__all__ = [
    "Brings",
    "WriteMode",
    "check_readable",
    "check_writable",
    "in_commit_timestamps",
    "required_protocol",
]

WriteMode: TypeAlias = Literal["append", "overwrite", "create", "metadata"]

Brings: TypeAlias = Literal["rows", "files", "columns", "settings"]
"""The most that a commit brings: new rows; the same rows in other files, or under other tags; another schema alone;
properties alone."""

_MOST_READER: Final = 3
_MOST_WRITER: Final = 7
_READER_FEATURES: Final = frozenset(
    {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_WRITER_FEATURES: Final = _READER_FEATURES | {
    "appendOnly",
    "changeDataFeed",
    "domainMetadata",
    "inCommitTimestamp",
    "materializePartitionColumns",  # and the table has no partitions
}
# Allowed while nothing in the schema or the configuration uses them; a column of type variant is refused by its type.
_WHILE_INACTIVE: Final = frozenset(
    {
        "allowColumnDefaults",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "icebergCompatV1",
        "icebergCompatV2",
        "identityColumns",
        "invariants",
        "typeWidening",
        "typeWidening-preview",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
# What a feature binds where it does not bind every commit.
_ROWS_ALONE: Final[frozenset[Brings]] = frozenset({"rows"})
_ROWS_AND_FILES: Final[frozenset[Brings]] = frozenset({"rows", "files"})
_BINDS: Final[Mapping[str, frozenset[Brings]]] = {
    "allowColumnDefaults": _ROWS_ALONE,
    "checkConstraints": _ROWS_ALONE,
    "generatedColumns": _ROWS_ALONE,
    "identityColumns": _ROWS_ALONE,
    "invariants": _ROWS_ALONE,
    "clustering": _ROWS_AND_FILES,
    "rowTracking": _ROWS_AND_FILES,
    "columnMapping": frozenset({"rows", "files", "columns"}),
}
_EVERYTHING: Final[frozenset[Brings]] = frozenset({"rows", "files", "columns", "settings"})
_WITHOUT_ZONE: Final = re.compile(r'"(?:type|elementType|keyType|valueType)"\s*:\s*"timestamp_ntz"')
# What a writer version meant before features had names.
_LEGACY: Final[Mapping[str, int]] = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}


def check_readable(protocol: Protocol, metadata: Metadata, *, path: str) -> None:
    """Raise unless every row of the table can be read right.

    Features that bind writers only do not matter here.

    Parameters
    ----------
    protocol, metadata : Protocol, Metadata
        The newest of the snapshot.
    path : str
        The table, for the message.

    Raises
    ------
    UnsupportedTableError
        Names every feature, version or partitioning in the way, and the cure.
    """
    named = set(protocol.reader_features or ())
    refused = sorted(named - _READER_FEATURES - _WHILE_INACTIVE)
    # Heeded whatever the protocol says: where a file holds other names or types, rows would come back wrong.
    if is_mapped(metadata):
        refused.append("columnMapping")
    if "typeWidening" in marks_in_use(metadata.schema_string):
        refused.append("typeWidening")
    if protocol.min_reader_version > _MOST_READER:
        refused.insert(0, f"reader version {protocol.min_reader_version}")
    if metadata.partition_columns:
        refused.append(f"{PARTITIONING} {', '.join(metadata.partition_columns)}")
    _refuse(refused, "read", protocol, metadata, path)


def check_writable(
    protocol: Protocol, metadata: Metadata, *, mode: WriteMode, path: str, brings: Brings = "rows"
) -> None:
    """Raise unless a commit of this mode keeps what the table promises; call it before writing files.

    Parameters
    ----------
    protocol, metadata : Protocol, Metadata
        The newest of the snapshot.
    mode : {"append", "overwrite", "create", "metadata"}
        Of the commit.
    path : str
        The table, for the message.
    brings : {"rows", "files", "columns", "settings"}
        The most that the commit brings; features that do not bind such commits do not matter.

    Raises
    ------
    UnsupportedTableError
        Names every feature, version, property or partitioning in the way, and the cure.
    InvalidMetadataError
        Rows would be indexed, and the newest revision is not known.
    """
    check_readable(protocol, metadata, path=path)
    named = set(protocol.writer_features or ()) - _WRITER_FEATURES - _WHILE_INACTIVE
    if _is_true(metadata, "delta.rowTrackingSuspended"):
        named -= {"rowTracking"}
    in_the_way = sorted(named) + sorted(_active(protocol, metadata))
    refused = [feature for feature in in_the_way if brings in _BINDS.get(feature, _EVERYTHING)]
    if protocol.min_writer_version > _MOST_WRITER:
        refused.insert(0, f"writer version {protocol.min_writer_version}")
    if mode == "overwrite" and _is_bound("appendOnly", protocol) and _is_true(metadata, APPEND_ONLY):
        refused.append(APPEND_ONLY)
    _refuse(refused, "written", protocol, metadata, path)
    if mode == "append":
        config = TableConfig.from_configuration(metadata.configuration)
        if config.newest_fault is not None:
            raise InvalidMetadataError(damaged_index(config, path=path, refused="written"))


def in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether every commit has to carry an ``inCommitTimestamp``."""
    enabled = _is_true(metadata, "delta.enableInCommitTimestamps")
    return enabled and "inCommitTimestamp" in (protocol.writer_features or ())


def required_protocol(schema_string: str, *, current: Protocol | None = None) -> Protocol:
    """Return the protocol a table of this schema needs: `current` where that is enough, never less.

    Examples
    --------
    >>> required_protocol('{"type":"struct","fields":[]}').min_writer_version
    2
    """
    has = current or Protocol(min_reader_version=1, min_writer_version=2)
    without_zone = _WITHOUT_ZONE.search(schema_string) is not None
    if not without_zone or "timestampNtz" in (has.writer_features or ()):
        return has
    kept = has.writer_features
    if kept is None:
        kept = tuple(name for name, since in _LEGACY.items() if has.min_writer_version >= since)
    readers = has.reader_features
    if readers is None:
        readers = ("columnMapping",) if has.min_reader_version >= 2 else ()
    return has.model_copy(
        update={
            "min_reader_version": 3,
            "min_writer_version": 7,
            "reader_features": (*readers, "timestampNtz"),
            "writer_features": (*kept, "timestampNtz"),
        }
    )


def _active(protocol: Protocol, metadata: Metadata) -> set[str]:
    """Return what is in use of the features that a table may list and not use."""
    active = marks_in_use(metadata.schema_string)
    if any(key.startswith("delta.constraints.") for key in metadata.configuration):
        active.add("checkConstraints")
    if metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        active.add("columnMapping")
    for version in ("V1", "V2"):
        if _is_true(metadata, f"delta.enableIcebergCompat{version}"):
            active.add(f"icebergCompat{version}")
    return {feature for feature in active if _is_bound(feature, protocol)}


def _is_bound(feature: str, protocol: Protocol) -> bool:
    """Tell whether writers of the table have to know a feature: by its name, or by what versions meant before."""
    if protocol.min_writer_version >= _MOST_WRITER:
        return not {feature, f"{feature}-preview"}.isdisjoint(protocol.writer_features or ())
    return protocol.min_writer_version >= _LEGACY.get(feature, _MOST_WRITER)


def _is_true(metadata: Metadata, key: str) -> bool:
    return metadata.configuration.get(key, "").lower() == "true"


def _refuse(
    features: list[str], verb: Literal["read", "written"], protocol: Protocol, metadata: Metadata, path: str
) -> None:
    if features:
        message = refusal(features, verb, protocol, metadata, path=path)
        raise UnsupportedTableError(message, path=path, feature=features[0])

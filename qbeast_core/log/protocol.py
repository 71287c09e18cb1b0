"""Which tables may be read and written: an allow-list of Delta features; all others are refused by name.

A program that does not know a feature must leave the table alone. Features count when they are *active* where
Delta says so: a table may be able to hold generated columns and have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol

__all__ = ["WriteMode", "check_readable", "check_writable", "in_commit_timestamps", "required_protocol"]

WriteMode: TypeAlias = Literal["append", "overwrite", "create", "metadata"]

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
}
# Allowed while nothing in the schema or the configuration uses them.
_WHILE_INACTIVE: Final = frozenset(
    {
        "allowColumnDefaults",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "typeWidening",
        "typeWidening-preview",
    }
)
_FIELD_MARKS: Final[Mapping[str, str]] = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
    "delta.typeChanges": "typeWidening",
}
_READING_HARMED: Final = frozenset({"columnMapping", "typeWidening"})
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
        Names the first feature, version or partitioning in the way.
    """
    named = set(protocol.reader_features or ())
    refused = sorted(named - _READER_FEATURES - _WHILE_INACTIVE) + sorted(_active(metadata) & _READING_HARMED)
    if protocol.min_reader_version > _MOST_READER:
        refused.insert(0, f"reader version {protocol.min_reader_version}")
    if metadata.partition_columns:
        refused.append(f"partitioning by {', '.join(metadata.partition_columns)}")
    _refuse(refused, "read", path)


def check_writable(protocol: Protocol, metadata: Metadata, *, mode: WriteMode, path: str) -> None:
    """Raise unless a commit of this mode keeps what the table promises; call it before writing files.

    Raises
    ------
    UnsupportedTableError
        Names the first feature, version, property or partitioning in the way.
    """
    check_readable(protocol, metadata, path=path)
    named = set(protocol.writer_features or ())
    refused = sorted(named - _WRITER_FEATURES - _WHILE_INACTIVE) + sorted(_active(metadata))
    if protocol.min_writer_version > _MOST_WRITER:
        refused.insert(0, f"writer version {protocol.min_writer_version}")
    if mode == "overwrite" and _is_true(metadata, "delta.appendOnly"):
        refused.append("delta.appendOnly (only appends are allowed)")
    _refuse(refused, "written", path)


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


def _active(metadata: Metadata) -> set[str]:
    configuration = metadata.configuration
    # A field's metadata is searched as text: a false alarm refuses a table, a miss would break one.
    active = {feature for mark, feature in _FIELD_MARKS.items() if f'"{mark}' in metadata.schema_string}
    if any(key.startswith("delta.constraints.") for key in configuration):
        active.add("checkConstraints")
    if configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        active.add("columnMapping")
    return active


def _is_true(metadata: Metadata, key: str) -> bool:
    return metadata.configuration.get(key, "").lower() == "true"


def _refuse(features: list[str], verb: str, path: str) -> None:
    if features:
        message = (
            f"{path} cannot be {verb}: it uses {', '.join(features)}, which qbeast does not support. "
            f"Nothing was changed; another Delta engine can still use the table."
        )
        raise UnsupportedTableError(message, path=path, feature=features[0])

"""Which tables may be read and written: an allow-list of Delta features; all others are refused by name.

A program must not touch a table with a feature that it does not know. A feature that binds writers alone does not
matter to readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import orjson

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.columns.special_types import unstored_voids
from qbeast_core.log.columns.type_changes import is_widening, type_changes
from qbeast_core.log.features import FEATURES, NAMED_READER, NAMED_WRITER, Brings, feature_of
from qbeast_core.log.refusals import (
    APPEND_ONLY,
    MAPPING_OF_NO_PROTOCOL,
    VOID_INSIDE,
    damaged_index,
    refusal,
)
from qbeast_core.spec.table_config import MIN_READER, READER_VERSION, TableConfig

# Property of tables with a change data feed.
CHANGE_FEED: Final = "delta.enableChangeDataFeed"

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
    refused = sorted(name for name in named if feature_of(name).support in ("written", "none"))
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
    refused = sorted({name for name in protocol.writer_features or () if feature_of(name).support == "none"})
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


def required_protocol(
    schema_string: str,
    *,
    current: Protocol | None = None,
    is_mapped: bool = False,
    constrained: bool = False,
    feeds_changes: bool = False,
) -> Protocol:
    """Return the protocol a table of this schema needs: `current` where that is enough, never less.

    `is_mapped`: the table maps columns, and readers and writers have to know it. `constrained`: it has check
    constraints that writers have to keep. `feeds_changes`: it has a change data feed that they have to write.

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
    return with_features(has, ["timestampNtz"] if without_zone else [])


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
    return protocol.min_writer_version >= feature_of(feature).since


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
        message = refusal(features, verb, protocol, metadata, path=path)
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
    for field in dtype.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for key in ("elementType", "keyType", "valueType"):
        yield from _fields(dtype.get(key))

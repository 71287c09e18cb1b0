from __future__ import annotations

import json
from typing import get_args

import pytest

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.protocol import (
    Brings,
    check_readable,
    check_writable,
    in_commit_timestamps,
    required_protocol,
)
from qbeast_core.log.rules import declared_rules

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
HARMLESS = [
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
]
WRITERS_ONLY = [
    "appendOnly",
    "collations",
    "collations-preview",
    "changeDataFeed",
    "domainMetadata",
    "inCommitTimestamp",
    "inCommitTimestamp-preview",
    "rowTracking",
    "clustering",
]
IDLE = [
    "checkConstraints",
    "columnMapping",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "invariants",
]
REFUSED = ["icebergCompatV3", "catalogManaged", "checkpointProtection", "never-heard-of"]


def table(marks: dict[str, object] | None = None, **fields: object) -> Metadata:
    column = {"name": "x", "type": "long", "nullable": True, "metadata": marks or {}}
    return Metadata(id="i", schema_string=json.dumps({"type": "struct", "fields": [column]}), **fields)


def named(*writer: str, reader: tuple[str, ...] = ()) -> Protocol:
    return Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=reader, writer_features=writer
    )


@pytest.mark.parametrize("feature", [*HARMLESS, *WRITERS_ONLY, *IDLE])
def test_harmless_features_allow_writes(feature: str) -> None:
    both = feature in (*HARMLESS, "columnMapping")
    check_writable(named(feature, reader=(feature,) if both else ()), table(), mode="append", path="t")


@pytest.mark.parametrize("feature", REFUSED)
def test_other_features_raise_for_writers_or_readers(feature: str) -> None:
    with pytest.raises(UnsupportedTableError, match=feature) as caught:
        check_writable(named(feature), table(), mode="append", path="t")
    assert (caught.value.feature, caught.value.path) == (feature, "t")
    check_readable(named(feature), table(), path="t")
    with pytest.raises(UnsupportedTableError, match=feature):
        check_readable(named(feature, reader=(feature,)), table(), path="t")


RULES: dict[str, tuple[Metadata, int | None]] = {
    # What has it in use, and the writer version that heeds it without naming it.
    "invariants": (table({"delta.invariants": "{}"}), 2),
    "checkConstraints": (table(configuration={"delta.constraints.c": "x > 0"}), 3),
    "generatedColumns": (table({"delta.generationExpression": "1"}), 4),
    "identityColumns": (table({"delta.identity.start": 1}), 6),
    "allowColumnDefaults": (table({"CURRENT_DEFAULT": "1"}), None),
}


def bound_to(feature: str, since: int | None) -> tuple[list[Protocol], list[Protocol]]:
    """Give the protocols under which writers have to heed a feature, and those under which they need not."""
    legacy = [Protocol(min_reader_version=1, min_writer_version=version) for version in range(1, 7)]
    unnamed = Protocol(min_reader_version=1, min_writer_version=7)
    heeding = [item for item in legacy if since is not None and item.min_writer_version >= since]
    return [named(feature), *heeding], [
        named(),
        named("appendOnly"),
        unnamed,
        *(item for item in legacy if item not in heeding),
    ]


@pytest.mark.parametrize("feature", RULES)
def test_rules_count_where_the_protocol_has_them(feature: str) -> None:
    metadata, since = RULES[feature]
    heeding, free = bound_to(feature, since)
    for protocol in (*heeding, *free):
        check_readable(protocol, metadata, path="t")
        for brings in get_args(Brings):
            check_writable(protocol, metadata, mode="append", path="t", brings=brings)
    assert all(declared_rules(metadata, protocol) is not None for protocol in heeding)
    assert all(declared_rules(metadata, protocol) is None for protocol in free)


@pytest.mark.parametrize("key", ["start", "step", "highWaterMark"])
@pytest.mark.parametrize("value", ["many", [], {}, "9" * 5000])
def test_invalid_identity_number_raises_for_writers(key: str, value: object) -> None:
    metadata = table({"delta.identity.start": 1, f"delta.identity.{key}": value})
    with pytest.raises(InvalidMetadataError, match=rf"identity\.{key}.*'x' is not an integer"):
        declared_rules(metadata, named("identityColumns"))
    check_readable(named("identityColumns"), metadata, path="t")


@pytest.mark.parametrize("brings", get_args(Brings))
def test_unknown_feature_binds_every_change(brings: Brings) -> None:
    with pytest.raises(UnsupportedTableError, match="checkpointProtection"):
        check_writable(named("checkpointProtection"), table(), mode="metadata", path="t", brings=brings)


def mapped(physical: str, mode: str = "name") -> Metadata:
    marks = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
    return table(marks, configuration={"delta.columnMapping.mode": mode})


def test_mapped_tables_allow_all_changes() -> None:
    protocol = Protocol(min_reader_version=2, min_writer_version=5)
    for metadata in (mapped("x"), mapped("y"), mapped("y", "id")):
        check_readable(protocol, metadata, path="t")
        for brings in ("rows", "files", "columns", "settings"):
            check_writable(protocol, metadata, mode="metadata", path="t", brings=brings)


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        (table(configuration={"delta.columnMapping.mode": "name"}), "columnMapping"),
        (
            table({"delta.typeChanges": [{"fromType": "byte", "toType": "new"}]}),
            "typeWidening from byte to new",
        ),
    ],
)
def test_unsafe_metadata_raises_for_reads(metadata, feature) -> None:
    with pytest.raises(UnsupportedTableError, match=feature):
        check_readable(PLAIN, metadata, path="t")


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (3, 8)])
def test_future_versions_raise(reader: int, writer: int) -> None:
    protocol = Protocol(min_reader_version=reader, min_writer_version=writer)
    with pytest.raises(UnsupportedTableError, match="version"):
        check_writable(protocol, table(), mode="append", path="t")


@pytest.mark.parametrize("needed", ["6", "99", "1" + "0" * 5000, "two", "", "-1", "1.5", "٣"])
def test_newer_reader_version_is_refused_by_name(needed: str) -> None:
    metadata = table(configuration={"qbeast.minReader": needed})
    with pytest.raises(UnsupportedTableError, match=r"qbeast\.minReader .*Upgrade qbeast") as caught:
        check_readable(PLAIN, metadata, path="t")
    assert (caught.value.code, caught.value.feature) == ("unsupported-table", "qbeast.minReader")
    with pytest.raises(UnsupportedTableError, match="minReader"):
        check_writable(PLAIN, metadata, mode="append", path="t")


@pytest.mark.parametrize("needed", ["0", "1", "2", "02", "3"])
def test_known_reader_version_is_accepted(needed: str) -> None:
    check_writable(PLAIN, table(configuration={"qbeast.minReader": needed}), mode="append", path="t")


def test_append_only_table_rejects_overwrites() -> None:
    metadata = table(configuration={"delta.appendOnly": "true"})
    check_writable(PLAIN, metadata, mode="append", path="t")
    with pytest.raises(UnsupportedTableError, match="appendOnly") as caught:
        check_writable(PLAIN, metadata, mode="overwrite", path="t")
    assert caught.value.feature == "delta.appendOnly"
    check_writable(named(), metadata, mode="overwrite", path="t")  # which does not heed the property


def test_mapping_mode_none_is_not_a_mapping() -> None:
    check_readable(PLAIN, table(configuration={"delta.columnMapping.mode": "none"}), path="t")


NTZ = '{"type":"struct","fields":[{"name":"x","type":"timestamp_ntz"}]}'


def test_timestamp_ntz_upgrade_keeps_implied_features() -> None:
    upgraded = required_protocol(NTZ, current=Protocol(min_reader_version=1, min_writer_version=4))
    assert (upgraded.min_reader_version, upgraded.min_writer_version) == (3, 7)
    assert upgraded.reader_features == ("timestampNtz",)
    assert set(upgraded.writer_features or ()) == {
        "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz"
    }  # fmt: skip
    assert required_protocol(NTZ, current=upgraded) == upgraded


def test_no_other_schema_changes_the_protocol() -> None:
    schema = '{"type":"struct","fields":[{"name":"timestamp_ntz","type":"timestamp"}]}'
    assert required_protocol(schema) == PLAIN
    assert required_protocol(schema, current=named("appendOnly")) == named("appendOnly")


def test_in_commit_timestamps_need_feature_and_property() -> None:
    on = table(configuration={"delta.enableInCommitTimestamps": "true"})
    early = table(configuration={"delta.enableInCommitTimestamps-preview": "true"})
    assert in_commit_timestamps(named("inCommitTimestamp"), on)
    assert in_commit_timestamps(named("inCommitTimestamp-preview"), early)
    assert not in_commit_timestamps(named("inCommitTimestamp"), table())
    assert not in_commit_timestamps(PLAIN, on)


def test_version_seven_without_features_implies_the_old_ones() -> None:
    """deltalake reports an empty list of features as none."""
    upgraded = required_protocol(NTZ, current=Protocol(min_reader_version=1, min_writer_version=7))
    assert set(upgraded.writer_features or ()) == {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
    }

from __future__ import annotations

import json

import pytest

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.protocol import check_readable, check_writable, in_commit_timestamps, required_protocol

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
HARMLESS = ["deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"]
WRITERS_ONLY = ["appendOnly", "changeDataFeed", "domainMetadata", "inCommitTimestamp"]
IDLE = [
    "checkConstraints",
    "columnMapping",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "typeWidening",
]
REFUSED = ["rowTracking", "clustering", "icebergCompatV1", "catalogManaged", "collations", "never-heard-of"]


def table(marks: dict[str, object] | None = None, **fields: object) -> Metadata:
    column = {"name": "x", "type": "long", "nullable": True, "metadata": marks or {}}
    return Metadata(id="i", schema_string=json.dumps({"type": "struct", "fields": [column]}), **fields)


def named(*writer: str, reader: tuple[str, ...] = ()) -> Protocol:
    return Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=reader, writer_features=writer
    )


@pytest.mark.parametrize("feature", [*HARMLESS, *WRITERS_ONLY, *IDLE])
def test_features_that_ask_nothing_of_us_are_written_to(feature: str) -> None:
    both = feature in (*HARMLESS, "columnMapping", "typeWidening")
    check_writable(named(feature, reader=(feature,) if both else ()), table(), mode="append", path="t")


@pytest.mark.parametrize("feature", REFUSED)
def test_any_other_feature_is_refused_by_name_but_binds_readers_only_if_it_says_so(feature: str) -> None:
    with pytest.raises(UnsupportedTableError, match=feature) as caught:
        check_writable(named(feature), table(), mode="append", path="t")
    assert (caught.value.feature, caught.value.path) == (feature, "t")
    check_readable(named(feature), table(), path="t")
    with pytest.raises(UnsupportedTableError, match=feature):
        check_readable(named(feature, reader=(feature,)), table(), path="t")


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        (table({"delta.invariants": "{}"}), "invariants"),
        (table({"delta.generationExpression": "1"}), "generatedColumns"),
        (table({"delta.identity.start": 1}), "identityColumns"),
        (table({"CURRENT_DEFAULT": "1"}), "allowColumnDefaults"),
        (table(configuration={"delta.constraints.c": "x > 0"}), "checkConstraints"),
    ],
)
def test_a_feature_in_use_is_refused_for_writing_whatever_the_protocol_calls_it(metadata, feature) -> None:
    for protocol in (named(), Protocol(min_reader_version=1, min_writer_version=6)):
        check_readable(protocol, metadata, path="t")
        with pytest.raises(UnsupportedTableError, match=feature):
            check_writable(protocol, metadata, mode="append", path="t")


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        (table(configuration={"delta.columnMapping.mode": "name"}), "columnMapping"),
        (table({"delta.typeChanges": []}), "typeWidening"),
        (table(partition_columns=("x",)), "partitioning by x"),
    ],
)
def test_what_would_give_wrong_rows_is_refused_for_reading_too(metadata, feature) -> None:
    with pytest.raises(UnsupportedTableError, match=feature):
        check_readable(PLAIN, metadata, path="t")


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (3, 8)])
def test_versions_of_the_future_are_refused(reader: int, writer: int) -> None:
    protocol = Protocol(min_reader_version=reader, min_writer_version=writer)
    with pytest.raises(UnsupportedTableError, match="version"):
        check_writable(protocol, table(), mode="append", path="t")


def test_an_append_only_table_is_appended_to_but_not_overwritten() -> None:
    metadata = table(configuration={"delta.appendOnly": "true"})
    check_writable(PLAIN, metadata, mode="append", path="t")
    with pytest.raises(UnsupportedTableError, match="appendOnly"):
        check_writable(PLAIN, metadata, mode="overwrite", path="t")


def test_a_mapping_mode_of_none_is_no_mapping() -> None:
    check_readable(PLAIN, table(configuration={"delta.columnMapping.mode": "none"}), path="t")


NTZ = '{"type":"struct","fields":[{"name":"x","type":"timestamp_ntz"}]}'


def test_a_timestamp_without_zone_asks_for_its_feature_and_keeps_what_the_versions_meant() -> None:
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
    assert in_commit_timestamps(named("inCommitTimestamp"), on)
    assert not in_commit_timestamps(named("inCommitTimestamp"), table())
    assert not in_commit_timestamps(PLAIN, on)

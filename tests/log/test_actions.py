from __future__ import annotations

import json

import pytest

from qbeast_core.errors import InvalidInputError, InvalidMetadataError
from qbeast_core.log.actions import (
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    dump_commit,
    parse_commit,
)
from qbeast_core.spec.blocks import Block

LINES = [
    '{"commitInfo":{"timestamp":5,"operation":"WRITE","txnId":"t","engineInfo":"other/1","readVersion":3}}',
    '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"],"writerFeatures":["x","y"]}}',
    (
        '{"metaData":{"id":"i","schemaString":"{}","configuration":{"k":"v"},"partitionColumns":[],"createdTime":7,'
        '"format":{"provider":"parquet","options":{}},"later":{"a":null}}}'
    ),
    '{"txn":{"appId":"a","version":2,"lastUpdated":9}}',
    (
        '{"remove":{"path":"b%20c","deletionTimestamp":4,"dataChange":false,"extendedFileMetadata":true,'
        '"partitionValues":{},"size":10,"deletionVector":{"storageType":"u","pathOrInlineDv":"ab","offset":1}}}'
    ),
    (
        '{"add":{"path":"d","size":1,"modificationTime":2,"dataChange":true,"stats":"{\\"numRecords\\":1}",'
        '"tags":{"revision":"1","other":null},"partitionValues":{},"baseRowId":8}}'
    ),
    '{"cdc":{"path":"_change_data/c","size":7,"partitionValues":{"p":null},"dataChange":false,"unknown":1}}',
]


def test_actions_round_trip_with_unknown_keys() -> None:
    commit = parse_commit("\n".join(LINES).encode(), version=4)
    actions = [
        commit.commit_info,
        commit.protocol,
        commit.metadata,
        *commit.txns,
        *commit.removes,
        *commit.adds,
        *commit.changes,
    ]
    written = dump_commit([action for action in actions if action is not None])
    assert [json.loads(line) for line in written.splitlines()] == [json.loads(line) for line in LINES]
    assert written.endswith(b"\n")


def test_unknown_action_kinds_are_skipped() -> None:
    body = b'{"domainMetadata":{"domain":"d"}}\n\n{"cdc":{"path":"x"}}\n{"add":null}\n'
    assert parse_commit(body, version=0).adds == ()


def test_empty_body_is_commit_without_actions() -> None:
    assert parse_commit(b"", version=3).commit_info is None


@pytest.mark.parametrize("body", [b'{"add":{"path', b'{"add":{"size":1}}', b"[]", b'{"add":3}'])
def test_damaged_commit_names_its_version(body: bytes) -> None:
    with pytest.raises(InvalidMetadataError, match="version 17"):
        parse_commit(body, version=17)


def test_unencoded_blocks_are_not_written() -> None:
    add = AddFile(path="a", size=1, modification_time=1, blocks=(Block("", 0, 1, 1),))
    assert b"locks" not in dump_commit([add])


def test_minimal_actions_are_written() -> None:
    actions = [
        CommitInfo(),
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="i", schema_string="{}"),
        Txn(app_id="a", version=0),
        RemoveFile(path="p"),
    ]
    assert len(dump_commit(actions).splitlines()) == 5


def test_values_without_json_form_raise() -> None:
    for action in (Txn(app_id="a", version=2**70), CommitInfo.model_construct(operation="\ud800")):
        with pytest.raises(InvalidInputError, match="cannot be written as JSON"):
            dump_commit([action])


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        ('"yesterday"', None),
        ("5.0", 5),
        ("1.5", 1),
        ("true", None),
        ("[1]", None),
        ("18446744073709551616", None),
        ("-5", -5),
    ],
)
def test_time_of_any_type_is_accepted(report: str, shown: int | None) -> None:
    body = f'{{"commitInfo":{{"timestamp":{report},"inCommitTimestamp":{report},"engineInfo":[1]}}}}'
    info = parse_commit(body.encode(), version=1).commit_info
    assert info is not None
    assert (info.timestamp, info.in_commit_timestamp) == (shown, shown)


@pytest.mark.parametrize(
    ("report", "shown"), [("7", "7"), ('["WRITE"]', '["WRITE"]'), ("null", None), ('"w"', "w")]
)
def test_provenance_of_any_type_is_kept(report: str, shown: str | None) -> None:
    body = (
        f'{{"commitInfo":{{"operation":{report},"txnId":{report},"operationMetrics":[1],"readVersion":"x"}}}}'
    )
    info = parse_commit(body.encode(), version=1).commit_info
    assert info is not None
    assert (info.operation, info.txn_id) == (shown, shown)


@pytest.mark.parametrize("report", ["5", '"x"', "[1]", "null"])
def test_non_object_provenance_is_ignored(report: str) -> None:
    assert parse_commit(f'{{"commitInfo":{report}}}'.encode(), version=1).commit_info is None


def test_add_is_read_as_by_deltalake() -> None:
    add = AddFile.model_validate(
        {"path": "p", "size": 5.5, "modificationTime": 7.0, "stats": 5, "tags": {"a": 1, "b": None, "c": "x"}}
    )
    assert (add.size, add.modification_time, add.stats) == (5, 7, "5")
    assert add.tags == {"a": "1", "b": None, "c": "x"}

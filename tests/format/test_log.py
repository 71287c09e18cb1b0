"""The JVM's metadata, read and written again: whole configurations, actions and tags, byte for byte."""

from __future__ import annotations

import json
from typing import Any

from qbeast_core.log.actions import Metadata, dump_commit, parse_commit
from qbeast_core.log.replay import block_from_flat_tags
from qbeast_core.log.schema import schema_from_delta, schema_to_delta
from qbeast_core.spec.blocks import blocks_dialect, dump_blocks, parse_blocks
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import REVISION_PREFIX, TableConfig
from tests.format.collection import Golden, each, open_golden


def actions(golden: Golden, kind: str) -> list[dict[str, Any]]:
    return [action[kind] for commit in golden.commits for action in commit if kind in action]


@each()
def test_configuration_round_trips(golden: Golden):
    for metadata in actions(golden, "metaData"):
        stored = metadata["configuration"]
        config = TableConfig.from_configuration(stored)
        assert list(config.to_configuration().items()) == list(stored.items())
        for number, revision in config.revisions.items():
            text = stored[f"{REVISION_PREFIX}{number}"]
            assert revision.to_json() == text


@each()
def test_configuration_is_rebuilt_from_revisions(golden: Golden):
    stored = actions(golden, "metaData")[-1]["configuration"]
    config = TableConfig.from_configuration(stored)
    bare = {key: text for key, text in stored.items() if not key.startswith("qbeast.")}
    again = TableConfig.from_configuration(bare).with_revisions(
        [Revision.from_json(value.to_json()) for value in config.revisions.values()]
    )
    legacy = {key: text for key, text in stored.items() if key.startswith("qbeast.replicatedSet.")}
    assert {**again.to_configuration(), **legacy} == stored
    opened = {item.revision_id: item for item in open_golden(golden).revisions}
    assert dict(again.revisions) == dict(config.revisions) == opened


@each()
def test_tags_round_trip(golden: Golden):
    for add in actions(golden, "add"):
        tags = add.get("tags") or {}
        if "blocks" in tags:
            text = tags["blocks"]
            assert blocks_dialect(text) == "qbeast-spark"
            written = dump_blocks(parse_blocks(text), dialect="qbeast-spark")
            if '"replicated"' not in text:  # 0.8 leaves it out
                written = written.replace(',"replicated":false', "")
            assert written == text
        elif "cube" in tags:
            block = block_from_flat_tags(tags)
            assert tags == {
                "state": tags["state"],
                "revision": tags["revision"],
                "cube": block.cube,
                "minWeight": str(block.min_weight),
                "maxWeight": str(block.max_weight),
                "elementCount": str(block.element_count),
            }


@each()
def test_commits_round_trip(golden: Golden):
    for version, lines in enumerate(golden.commits):
        body = "\n".join(map(json.dumps, lines)).encode()
        commit = parse_commit(body, version=version)
        info = [] if commit.commit_info is None else [commit.commit_info]
        several = [item for item in (commit.protocol, commit.metadata) if item is not None]
        written = dump_commit([*info, *several, *commit.txns, *commit.removes, *commit.adds])
        actual = [json.loads(line) for line in written.splitlines()]
        key = lambda action: json.dumps(action, sort_keys=True)  # noqa: E731 -- used twice below
        assert sorted(actual, key=key) == sorted(lines, key=key)


@each()
def test_schema_round_trips_through_row_types(golden: Golden):
    for metadata in actions(golden, "metaData"):
        schema = schema_from_delta(Metadata.model_validate(metadata).schema_string)
        assert schema == golden.expected.schema
        assert schema_from_delta(schema_to_delta(schema)) == schema

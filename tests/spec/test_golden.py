"""What the JVM wrote is read, and written again byte for byte."""

from __future__ import annotations

import json

import pytest

from qbeast_core.log.replay import block_from_flat_tags
from qbeast_core.spec.blocks import blocks_dialect, dump_blocks, parse_blocks
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import TableConfig, qbeast_spark_entries
from tests.spec.golden import golden


@pytest.mark.parametrize("text", golden("revision"))
def test_revision_round_trips(text):
    revision = Revision.from_json(text)
    assert revision.to_json() == text
    # Every key that the JVM writes is known here.
    assert not any(item.model_extra for item in (*revision.column_transformers, *revision.transformations))


@pytest.mark.parametrize("text", golden("revision"))
def test_renumbered_revision_changes_only_its_id(text):
    renumbered = Revision.from_json(text).with_id(77)
    assert json.loads(renumbered.to_json()) == json.loads(text) | {"revisionID": 77}
    assert Revision.from_json(renumbered.to_json()) == renumbered


@pytest.mark.parametrize("configuration", golden("configuration"))
def test_configuration_round_trips(configuration):
    config = TableConfig.from_configuration(configuration)
    assert list(config.to_configuration().items()) == list(configuration.items())
    assert config.latest is not None
    assert config.latest.to_json() == configuration[f"qbeast.revision.{config.last_revision_id}"]


@pytest.mark.parametrize("configuration", golden("configuration", holding="columnsToIndex"))
def test_keys_of_0_8_keep_their_names(configuration):
    ours = qbeast_spark_entries(
        configuration["columnsToIndex"].split(","),
        cube_size=int(configuration["cubeSize"]),
    )
    theirs = {key: text for key, text in configuration.items() if not key.startswith("qbeast.")}
    theirs.pop("columnstats", None)  # we never write statistics that a user gave
    assert ours == theirs | {"columnStats": ""}


@pytest.mark.parametrize("text", golden("blocks"))
def test_jvm_blocks_round_trip(text):
    blocks = parse_blocks(text)
    assert blocks_dialect(text) == "qbeast-spark"
    written = dump_blocks(blocks, dialect="qbeast-spark")
    if '"replicated"' not in text:  # 0.8 leaves it out
        written = written.replace(',"replicated":false', "")
    assert written == text


@pytest.mark.parametrize("tags", golden("flat tags"))
def test_flat_tags_are_one_block(tags):
    block = block_from_flat_tags(tags)
    assert block.cube == tags["cube"]
    assert str(block.min_weight) == tags["minWeight"]
    assert str(block.max_weight) == tags["maxWeight"]
    assert str(block.element_count) == tags["elementCount"]
    assert block.replicated == (tags["state"] != "FLOODED")


def test_empty_golden_set_fails():
    with pytest.raises(AssertionError, match="holds no revision"):
        golden("revision", holding="no text holds this")

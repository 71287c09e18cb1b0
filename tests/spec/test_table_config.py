"""The table's configuration: Qbeast's keys are understood, all others left alone."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.spec.revision import staging_revision
from qbeast_core.spec.table_config import (
    BLOCKS_DIALECT,
    COLUMN_SPECS,
    HIGHEST_REVISION_ID,
    LAST_REVISION_ID,
    OTHER_COLUMNS_READER,
    REPLICATED_SET_PREFIX,
    TableConfig,
    min_reader_entry,
)

STAGING = staging_revision(["x"], timestamp_ms=1, table_id="/t", cube_size=5)


def config(*ids: int, **more: str) -> TableConfig:
    empty = TableConfig.from_configuration(more)
    return empty.with_revisions([STAGING.with_id(number) for number in ids]) if ids else empty


@given(st.dictionaries(st.text().filter(lambda key: not key.startswith("qbeast.")), st.text()))
def test_plain_delta_table_keeps_its_keys(configuration):
    read = TableConfig.from_configuration(configuration)
    assert list(read.to_configuration().items()) == list(configuration.items())
    assert read.latest is None
    assert read.last_revision_id is None
    assert read.free_revision_id(0) == 1


def test_similar_foreign_keys_are_kept():
    strange = {
        "qbeast.revision.x": "?",
        "qbeast.revision.": "?",
        "qbeast.revision.01": "?",
        "qbeast.revision.-1": "?",
        "qbeast.revision.²": "?",
        "qbeast.revision." + "9" * 5000: "?",
        "qbeast.replicatedSet": "?",
        "Qbeast.lastRevisionID": "?",
    }
    read = TableConfig.from_configuration(strange)
    assert read.to_configuration() == strange
    assert not read.revisions
    assert not read.replicated_sets


def test_added_revisions_follow_existing_keys():
    made = config(0, 1, owner="me")
    assert list(made.to_configuration()) == [
        "owner",
        "qbeast.revision.0",
        "qbeast.revision.1",
        "qbeast.lastRevisionID",
    ]
    assert made.last_revision_id == 1
    assert made.latest == STAGING.with_id(1)
    assert made.free_revision_id(0) == 2
    more = made.with_revisions([STAGING.with_id(2)])
    assert list(more.revisions) == [0, 1, 2]
    assert more.last_revision_id == 2
    assert list(made.revisions) == [0, 1]


def test_revisions_are_ordered_by_id():
    assert list(config(10, 9, 2).revisions) == [2, 9, 10]


def test_ids_may_start_anywhere():
    assert config(2).latest == STAGING.with_id(2)
    assert config(2).free_revision_id(0) == 3


def test_configuration_survives_pickling():
    made = config(0, 3)
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 -- our own bytes


def test_dialect_and_column_specs_are_read():
    made = TableConfig.from_configuration(
        {BLOCKS_DIALECT: "qbeast-spark", COLUMN_SPECS: '["a,b:linear","c"]'}
    )
    assert made.dialect == "qbeast-spark"
    assert made.column_specs == ("a,b:linear", "c")
    assert config(0).dialect is None
    assert config(0).column_specs is None


@pytest.mark.parametrize("specs", [["x"], ["x:linear"], ["x:hashing"], []])
def test_column_specs_are_set_and_removed(specs):
    made = config(0).with_column_specs(specs)
    assert made.column_specs == (tuple(specs) or None)
    assert (COLUMN_SPECS in made.to_configuration()) == bool(specs)
    assert made.with_column_specs([]) == config(0)


def test_replicated_sets_are_read_and_dropped():
    made = config(0, 1, **{"qbeast.replicatedSet.1": '["","A"]', "qbeast.other": "x"})
    assert made.replicated_sets == {1: ("", "A")}
    upgraded = made.without(REPLICATED_SET_PREFIX)
    assert not upgraded.replicated_sets
    assert upgraded.to_configuration() == {
        key: text for key, text in made.to_configuration().items() if "replicated" not in key
    }


MALFORMED = {
    "qbeast.lastRevisionID": ("one", "the revisions that can be read are"),
    "qbeast.revision.1": ("{}", "revisionID"),
    "qbeast.revision.2": (STAGING.to_json(), "calls itself revision 0"),
    BLOCKS_DIALECT: ("klingon", "'documented' or 'qbeast-spark'"),
    COLUMN_SPECS: ("x,y", COLUMN_SPECS),
    "qbeast.replicatedSet.1": ("[1]", "qbeast.replicatedSet.1"),
    HIGHEST_REVISION_ID: ("9" * 18, "it is not the id of a revision"),
}


def test_malformed_keys_are_named_and_kept():
    broken = {key: text for key, (text, _) in MALFORMED.items()} | {"owner": "me"}
    read = TableConfig.from_configuration(broken)
    assert set(read.faults) == set(MALFORMED)
    for key, (_, problem) in MALFORMED.items():
        assert problem in read.faults[key]
    assert read.to_configuration() == broken
    assert read.is_indexed
    assert (read.latest, read.dialect, read.column_specs) == (None, None, None)
    assert read.replicated_sets == {1: ()}
    assert read.without_faults().to_configuration() == {"owner": "me", HIGHEST_REVISION_ID: "2"}


@pytest.mark.parametrize("last", ["1", "one", "", "7"])
def test_newest_readable_revision_replaces_unreadable_one(last: str) -> None:
    broken = config(0, 1).to_configuration() | {"qbeast.revision.2": "oops", LAST_REVISION_ID: last}
    read = TableConfig.from_configuration(broken)
    assert read.latest == STAGING.with_id(1)
    assert (read.newest_fault is None) == (last == "1")
    assert read.free_revision_id(0) == 3
    mended = read.without_faults()
    assert not mended.faults
    assert (mended.last_revision_id, mended.free_revision_id(0)) == (1, 3)


def test_unreadable_revision_needs_one_with_same_columns():
    other = staging_revision(["y"], timestamp_ms=1, table_id="/t", cube_size=5).with_id(1)
    broken = config(0).to_configuration() | {"qbeast.revision.1": other.to_json(), LAST_REVISION_ID: "2"}
    assert TableConfig.from_configuration(broken).latest is None
    reindexed = TableConfig.from_configuration(broken | min_reader_entry(broken, OTHER_COLUMNS_READER))
    assert (reindexed.last_revision_id, reindexed.has_other_columns) == (1, True)


@pytest.mark.parametrize("had", ["9" * 18, "9" * 17, str(10**9), str(10**9 + 1)])
def test_ids_are_never_reused(had: str) -> None:
    made = config(0, **{HIGHEST_REVISION_ID: had})
    for _ in range(3):
        free = made.free_revision_id(0)
        assert free not in made.revisions
        made = made.with_revisions([STAGING.with_id(free)])
        assert made.last_revision_id == free


@pytest.mark.parametrize("specs", ['["y"]', '["x","y"]', '["x:nope"]', "[]"])
def test_column_specs_of_other_columns_are_ignored(specs: str) -> None:
    read = TableConfig.from_configuration(config(0).to_configuration() | {COLUMN_SPECS: specs})
    assert read.column_specs is None
    assert list(read.faults) == [COLUMN_SPECS]

"""A version that our own append made is known without a look at the log, and is the one that stands there."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.table.commit import commit
from qbeast_core.table.index.counts import counts_of
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, newest_snapshot, read_live_files
from tests.helpers.examples import examples
from tests.helpers.requests import counted, decoded_tags, of_log
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import folder, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

ROWS = pl.DataFrame({"id": range(50), "name": [f"n{i}" for i in range(50)]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    return tmp_path / "t"


def placed(snapshot: Snapshot) -> pl.DataFrame:
    """What is known of each block, by the path of its file instead of its number."""
    named = snapshot.files.select("path").with_row_index("file").cast({"file": pl.Int64})
    return Index(snapshot).table.binding.join(named, on="file").drop("file").sort("path", "cube")


def assert_as_loaded(known: Snapshot) -> None:
    loaded = load_snapshot(known.uri)
    assert known is not loaded
    for name in ("version", "timestamp_ms", "metadata", "protocol", "schema_json", "fingerprint"):
        assert getattr(known, name) == getattr(loaded, name), name
    assert_frame_equal(known.files.sort("path"), loaded.files.sort("path"), check_exact=True)
    assert_frame_equal(placed(known), placed(loaded))
    assert counts_of(known).design_effect == pytest.approx(counts_of(loaded).design_effect)


@examples(2, sweep=100)
@given(case=cases(most_frames=2, most_rows=20, most_columns=8))
def test_predicted_snapshot_equals_a_fresh_load(case: Case) -> None:
    with folder() as path:
        write(path, case)
        for rows in case.frames:  # of values that the revision knows
            qbeast.write_table(rows, path, mode="append")
        assert_as_loaded(newest_snapshot(str(path)))


@examples(10, sweep=300)
@given(case=cases(most_frames=1, most_rows=20, most_columns=8))
def test_created_snapshot_equals_a_fresh_load(case: Case) -> None:
    with folder() as path:
        write(path, case)
        created = newest_snapshot(str(path))
        assert created.version == 0
        assert_as_loaded(created)


def test_append_skips_deltalake_and_decodes_no_tag(table: Path) -> None:
    qbeast.write_table(ROWS, table, mode="append")
    with (
        mock.patch.object(DeltaTable, "update_incremental") as update,
        counted() as requests,
        decoded_tags() as decoded,
    ):
        for _ in range(3):
            qbeast.write_table(ROWS, table, mode="append")
    assert not update.called
    assert not of_log(requests)
    assert not decoded
    assert_as_loaded(newest_snapshot(str(table)))


def test_next_write_knows_committed_application_progress(table: Path) -> None:
    for number in range(3):
        assert qbeast.write_table(ROWS, table, mode="append", txn=("loader", number)).committed
        assert not qbeast.write_table(ROWS, table, mode="append", txn=("loader", number)).committed
    assert newest_snapshot(str(table)).transaction_version("loader") == 2


def test_deletes_and_checkpoints_use_predicted_snapshot(table: Path) -> None:
    for _ in range(11):  # and a checkpoint
        qbeast.write_table(ROWS.head(3), table, mode="append")
    qbeast.open_table(table).delete(pl.col("id") == 1)
    assert_as_loaded(newest_snapshot(str(table)))
    assert qbeast.read_table(table).height == 50 + 11 * 3 - 12
    assert pl.read_delta(str(table)).height == 50 + 11 * 3 - 12
    assert qbeast.open_table(table).check().ok


def test_changed_tags_do_not_duplicate_a_file(table: Path) -> None:
    qbeast.write_table(ROWS, table, mode="append")
    existing = newest_snapshot(str(table))
    spoilt = [add.model_copy(update={"tags": None}) for add in read_live_files(existing).listed]
    outcome = commit(existing.source.store, existing, WriteIntent(mode="append", adds=tuple(spoilt)))
    assert outcome.snapshot is not None
    assert outcome.snapshot.files.height == 2
    assert_as_loaded(outcome.snapshot)

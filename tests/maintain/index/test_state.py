"""One decoding of a version's tags serves all who look at its index, each in a view of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.requests import decoded_tags
from tests.helpers.tables import small_files

ROWS = pl.DataFrame({"x": range(400), "y": [number * 37 % 401 for number in range(400)]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    with small_files(file_rows=50, page_rows=8):
        qbeast.write_table(ROWS, tmp_path / "t", columns=["x", "y"], cube_size=20)
    return tmp_path / "t"


def test_tags_of_a_version_are_decoded_once(table: Path) -> None:
    opened = qbeast.open_table(table)
    with decoded_tags() as decoded:
        opened.rows(pl.col("x") < 9).explain()
        opened.read(sample=0.5)
        opened.blocks()
        opened.metrics()
        opened.check(data=False)
        opened.optimize(dry_run=True)
        opened.delete("x < 9", dry_run=True)
    assert len(decoded) == 1


def test_impossible_blocks_limit_appends_but_not_rewrites(table: Path) -> None:
    snapshot = load_snapshot(table)
    state = Index(snapshot)
    revision = state.newest
    assert revision is not None
    wrong = snapshot.files.with_columns(
        num_records=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(1)).otherwise("num_records")
    )
    spoilt = Index(replace(snapshot, listed=wrong))
    assert spoilt.binding(revision).drop("usable").equals(state.binding(revision).drop("usable"))
    assert set(spoilt.blocks["file"]) == set(state.blocks["file"]) - {0}
    assert spoilt.files["revision_id"].to_list() == [None, *state.files["revision_id"][1:]]
    assert spoilt.listed().height == state.listed().height == state.blocks.height

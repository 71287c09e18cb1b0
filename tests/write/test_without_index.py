"""Tables with ``columns=[]``: written, changed and maintained without an index, against plain Polars and deltalake."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.location import Location
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.table.data.files import FileTarget, RowShape
from qbeast_core.table.engine.files import write_plain
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples
from tests.helpers.races import landing_first
from tests.helpers.small_files import resized
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, sampled

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")
ROWS = pl.DataFrame(
    {ROW: range(1000), "flag": [i % 3 == 0 for i in range(1000)], "list": [[i % 7] for i in range(1000)]}
)
UNORDERED = ROWS.select("flag", "list")


def check(path: Path, expected: pl.DataFrame) -> qbeast.Table:
    """Compare all rows with the expected ones, also as deltalake reads them, and check the table."""
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), expected)
    others = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    assert sorted(others[ROW].to_pylist()) == expected[ROW].sort().to_list()
    report = table.check()
    assert report.ok, report
    assert report.notes == ("the table has no index",)
    assert (table.indexed_columns, table.revisions) == ((), ())
    return table


@given(cases(most_rows=30, most_frames=2), st.sampled_from([MEMORY, SPILL]), st.booleans())
@examples(2, sweep=60)
def test_writes_keep_rows_of_every_type(case: Case, resources: Any, overwrite: bool) -> None:  # noqa: FBT001 -- drawn
    with folder() as path, resized(max_file_rows=9, min_file_rows=1):
        for number, frame in enumerate(case.frames):
            columns = None if number else []
            result = qbeast.write_table(frame, path, columns, mode="append", resources=resources)
            assert (result.rows, result.staged_files, result.cubes) == (frame.height, 0, 0)
        assert_same_rows(qbeast.read_table(path), case.rows)
        qbeast.open_table(path, resources=resources).optimize()
        check(path, case.rows)
        if overwrite:
            qbeast.write_table(case.frames[-1], path, mode="overwrite", resources=resources)
            check(path, case.frames[-1])


def test_changes_equal_those_of_polars(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=[])
    table = qbeast.open_table(tmp_path)
    assert table.delete("row % 10 = 3").rows_deleted == 100
    table.update("row < 50", {"flag": "NOT flag"})
    flipped = pl.when(pl.col(ROW) < 50).then(~pl.col("flag")).otherwise("flag")
    check(tmp_path, ROWS.filter(pl.col(ROW) % 10 != 3).with_columns(flag=flipped))
    source = ROWS.with_columns(pl.col(ROW) * 2, flag=None).cast(ROWS.schema)
    result = table.merge(source, on=ROW, when_not_matched_by_source="delete")
    assert result.rows_updated + result.rows_inserted == 1000
    check(tmp_path, source)
    assert table.delete("row >= 0").plan["action"].to_list() == ["drop"]
    assert table.read().is_empty()


def test_optimize_joins_small_files(tmp_path: Path) -> None:
    parts = [ROWS.with_columns(pl.col(ROW) + 1000 * number) for number in range(3)]
    for part in parts:
        qbeast.write_table(part, tmp_path, columns=[], mode="append")
    table = qbeast.open_table(tmp_path)
    assert table.metrics().health.reasons == ("small file",)
    assert table.optimize(dry_run=True).plan["reason"].to_list() == ["small file"] * 3
    result = table.optimize()
    assert (result.files, result.rows, result.cubes, table.rows().files().height) == (1, 3000, 0, 1)
    assert not table.optimize().committed
    assert table.optimize(full=True).plan["reason"].to_list() == ["requested"]
    assert table.optimize(files=table.rows().files()["path"].to_list()).committed
    check(tmp_path, pl.concat(parts))
    for options in ({"into": "new"}, {"fraction": 0.5}, {"revision": 1}):
        with pytest.raises(qbeast.NotQbeastTableError, match=r"Table\.reindex\("):
            table.optimize(**options)  # type: ignore[arg-type]
    assert "Without index: 3,000 rows in 1 files" in repr(table.metrics())


def test_optimize_applies_deletion_vectors(tmp_path: Path) -> None:
    from tests.helpers.deletion_vectors import GONE, delete  # noqa: PLC0415 - rows of this helper
    from tests.helpers.deletion_vectors import ROWS as PLAIN  # noqa: PLC0415

    rows = PLAIN.rename({"id": ROW})
    rows.write_delta(tmp_path)
    delete(tmp_path, GONE)
    qbeast.convert_table(tmp_path, columns=[])
    left = rows.filter(~pl.col(ROW).is_in(GONE))
    table = qbeast.open_table(tmp_path)
    assert_same_rows(table.read(), left)
    assert not table.optimize().committed  # few rows are hidden
    assert table.optimize(purge=True).plan["reason"].to_list() == ["deletion vector"]
    check(tmp_path, left)


def test_other_readers_see_a_plain_delta_table(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=[])
    commit = (tmp_path / "_delta_log" / f"{0:020}.json").read_text()
    actions = [json.loads(line) for line in commit.splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    (add,) = (action["add"] for action in actions if "add" in action)
    assert metadata["configuration"] == {"qbeast.columnSpecs": "[]"}
    assert not add.get("tags")
    file = pl.read_parquet(tmp_path / add["path"])
    assert file.equals(ROWS)  # in the order of the rows, without another column
    assert json.loads(add["stats"])["maxValues"][ROW] == 999


@pytest.mark.parametrize("converts", [False, True])
def test_reindex_begins_an_index(converts: bool, tmp_path: Path) -> None:  # noqa: FBT001 -- a parameter
    qbeast.write_table(ROWS, tmp_path, columns=[])
    qbeast.write_table(ROWS.with_columns(pl.col(ROW) + 1000), tmp_path, mode="append")
    rows = pl.concat([ROWS, ROWS.with_columns(pl.col(ROW) + 1000)])
    table = qbeast.open_table(tmp_path)
    if converts:
        assert qbeast.convert_table(tmp_path, columns=[ROW]).committed
    else:
        assert table.reindex([ROW]).columns == (ROW,)
    expected = sampled(rows, [ROW], 0.2)
    assert_same_rows(table.refresh().read(sample=0.2), expected)
    assert table.optimize().plan["reason"].unique().to_list() == ["staged"]
    assert_same_rows(table.read(sample=0.2), expected)
    assert table.indexed_columns == (ROW,)
    assert table.check().ok
    with pytest.raises(qbeast.InvalidColumnsError):
        table.reindex([])
    with pytest.raises(qbeast.InvalidColumnsError, match=r"Table\.reindex"):
        qbeast.convert_table(tmp_path, columns=[])


def test_reindex_moves_all_rows_at_once_on_request(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=[])
    table = qbeast.open_table(tmp_path)
    assert table.reindex([ROW], cube_size=100, full=True).rows == 1000
    assert (table.cube_size, table.blocks()["element_count"].sum()) == (100, 1000)


def test_overwrite_drops_the_index_and_its_settings(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=[ROW])
    qbeast.write_table(ROWS, tmp_path, columns=[], mode="overwrite")
    table = check(tmp_path, ROWS)
    assert load_snapshot(tmp_path).config.entries == {
        "qbeast.highestRevisionID": "1",
        "qbeast.columnSpecs": "[]",
    }
    qbeast.write_table(ROWS[:10], tmp_path, mode="overwrite")  # stays without index
    check(tmp_path, ROWS[:10])
    assert qbeast.write_table(ROWS, tmp_path, columns=[ROW], mode="overwrite").revision_id == 2
    assert table.refresh().restore(1).committed
    check(tmp_path, ROWS)


def test_concurrent_changes_of_the_index_lose_no_row(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=[])
    more = ROWS.with_columns(pl.col(ROW) + 1000)
    with landing_first(lambda: qbeast.open_table(tmp_path).reindex([ROW])):
        qbeast.write_table(more, tmp_path, mode="append")  # plain files; the table has an index by now
    table = qbeast.open_table(tmp_path)
    assert_same_rows(table.read(), pl.concat([ROWS, more]))
    assert table.indexed_columns == (ROW,)
    with (
        landing_first(lambda: qbeast.write_table(ROWS, tmp_path, columns=[], mode="overwrite")),
        pytest.raises(qbeast.CommitConflictError, match="has no index now"),
    ):
        qbeast.write_table(more, tmp_path, mode="append", columns=[ROW])
    check(tmp_path, ROWS)


def test_columns_of_an_append_are_refused(tmp_path: Path) -> None:
    qbeast.write_table(UNORDERED, tmp_path, columns=())
    with pytest.raises(qbeast.InvalidColumnsError, match=r"Table\.reindex\("):
        qbeast.write_table(UNORDERED, tmp_path, columns=["flag"], mode="append")
    assert qbeast.write_table(UNORDERED, tmp_path, columns=[], mode="append").rows == 1000
    assert qbeast.write_table(UNORDERED, tmp_path, columns=[], mode="append", dry_run=True).rows == 1000
    spilled = qbeast.write_table(UNORDERED, tmp_path, mode="append", dry_run=True, resources=SPILL)
    assert (spilled.rows, spilled.committed) == (1000, False)
    by_flag = qbeast.read_table(tmp_path, sample=0.5, sample_by=["flag"])
    assert by_flag.height in {0, 2 * 334, 2 * 666, 2000}


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    frames = iter([ROWS, ROWS.drop("flag")])
    with pytest.raises(qbeast.SchemaMismatchError), resized(max_file_rows=10, min_file_rows=1):
        qbeast.write_table(frames, tmp_path, columns=[], resources=SPILL)
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_files_hold_rows_of_one_partition(max_bytes: int, tmp_path: Path) -> None:
    rows = pl.DataFrame({"p": np.arange(300) % 4, "q": [None, "x", "y"] * 100, "v": range(300)})
    schema = schema_to_delta(rows.schema)
    columns = StoredColumns({}, partitions=("p", "q"))
    target = FileTarget(
        location=Location.of(tmp_path),
        shape=RowShape(schema, rows.schema, merge=False, partitions=columns.partitions),
        configuration={},
        dialect="documented",
        columns=columns,
        time_ms=1,
    )
    target = pickle.loads(pickle.dumps(target))  # noqa: S301
    adds = write_plain([rows[:100], rows[100:]], target, max_bytes=max_bytes)
    bounds = [json.loads(add.stats) for add in adds]
    assert len({tuple(add.partition_values.items()) for add in adds}) == 12
    assert sum(stats["numRecords"] for stats in bounds) == 300
    assert len(adds) == (24 if max_bytes == 1 else 12)

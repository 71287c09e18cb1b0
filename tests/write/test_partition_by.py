"""Partitioned tables: files of one partition, a tree in each, and every row once, after every operation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.others import rows_of_others
from tests.helpers.scattering import scatter
from tests.helpers.small_files import resized
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, small_files, using

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

SMALL = pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning")


@st.composite
def frames(draw: st.DrawFn, first: int = 0) -> pl.DataFrame:
    rows, seed = draw(st.integers(0, 90)), draw(st.integers(0, 9))
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "row": np.arange(first, first + rows),
            "x": random.integers(0, draw(st.sampled_from([3, 1000])), rows),
            "y": random.normal(size=rows),
            "day": pl.Series(["mon", "", None, "a/b=c %", "tue"]).gather(random.integers(0, 5, rows)),
            "f": pl.Series([1.5, -0.0, 0.0, None]).gather(random.integers(0, 4, rows)),
        }
    )


def as_stored(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows as Delta keeps them: the empty text of a partition column is null."""
    return frame.with_columns(
        pl.col("day").replace("", None),
        pl.when(pl.col("f") != 0).then("f").otherwise(pl.col("f").abs()).alias("f"),
    )


def move(frame: pl.DataFrame, path: Path, engine: str, **options: Any) -> None:
    if engine == "parts":
        scatter(path, list(frame.iter_slices(40)) or [frame], **options)
    else:
        qbeast.write_table(frame, path, resources=MEMORY if engine == "memory" else SPILL, **options)


def rows_by_file(table: Path) -> dict[tuple[Any, ...], list[tuple[int, ...]]]:
    """Numbers of the rows of each file, in its order, by partition."""
    found: dict[tuple[Any, ...], list[tuple[int, ...]]] = {}
    for path, add in read_log(table).adds.items():
        with pq.ParquetFile(table / unquote(path)) as file:
            rows = tuple(file.read(["row"]).column("row").to_pylist())
        found.setdefault(tuple(add["partitionValues"].values()), []).append(rows)
    return {partition: sorted(files) for partition, files in found.items()}


@pytest.mark.sweep
@SMALL
@examples(3, sweep=20)
@given(st.data(), st.sampled_from([MEMORY, SPILL]), st.sampled_from([["day"], ["day", "f"]]))
def test_no_row_is_lost_after_any_operation(
    data: st.DataObject, resources: qbeast.Resources, partition_by: list[str]
) -> None:
    indexed = ["x", "y", *data.draw(st.sampled_from([[], ["day"]]))]
    rows = [data.draw(frames(first)) for first in (0, 1000, 2000)]
    with folder() as path, small_files():
        qbeast.write_table(
            rows[0], path, indexed, partition_by=partition_by, cube_size=20, resources=resources
        )
        for frame in rows[1:]:
            qbeast.write_table(frame, path, mode="append", resources=resources)
        expected = as_stored(pl.concat(rows))
        check_invariants(path)
        assert_same_rows(qbeast.read_table(path), expected)
        assert_same_rows(pl.scan_delta(path).collect(), expected)
        table = qbeast.open_table(path)
        using(table, resources).optimize()
        using(table, resources).delete(pl.col("row") % 3 == 0)
        expected = expected.filter(pl.col("row") % 3 != 0)
        check_invariants(path)
        changed = pl.col("row") % 3 == 1
        using(table, resources).update(changed, {"day": pl.lit("moved"), "y": 0.5})
        day, y = pl.when(changed).then(pl.lit("moved")), pl.when(changed).then(0.5)
        expected = expected.with_columns(day=day.otherwise("day"), y=y.otherwise("y"))
        check_invariants(path)
        assert table.check().ok
        assert_same_rows(pl.scan_delta(path).collect(), expected)
        moved = qbeast.read_table(path, where="day = 'moved'")
        assert_same_rows(moved, expected.filter(pl.col("day") == "moved"))


@SMALL
def test_indexed_partition_columns_of_odd_values_are_kept(tmp_path: Path) -> None:
    days, numbers = ["", "a/b=c %"] * 6, [0.0, -0.0, -0.0, None] * 3
    rows = pl.DataFrame({"row": range(12), "x": range(12), "day": days, "f": numbers})
    more = rows.head(5).with_columns(pl.col("row") + 100)
    qbeast.write_table(rows, tmp_path, columns=["x", "day"], partition_by=["day", "f"], cube_size=5)
    qbeast.write_table(more, tmp_path, mode="append")
    expected = as_stored(pl.concat([rows, more]))
    check_invariants(tmp_path)
    assert_same_rows(pl.scan_delta(tmp_path).collect(), expected)
    for where in (pl.col("day").is_null(), (pl.col("day") == "a/b=c %") & (pl.col("f") == 0)):
        assert_same_rows(qbeast.read_table(tmp_path, where=where), expected.filter(where))


@SMALL
def test_engines_write_the_same_files(tmp_path: Path) -> None:
    rows = pl.DataFrame({"row": range(50), "x": range(50), "y": [n / 7 for n in range(50)]})
    rows = rows.with_columns(day=pl.lit("mon"), f=pl.col("row") % 2 / 2)
    for engine in ("memory", "spill", "parts"):
        with small_files():
            move(rows, tmp_path / engine, engine, columns=["x", "y"], partition_by=["day", "f"], cube_size=20)
        assert rows_by_file(tmp_path / engine) == rows_by_file(tmp_path / "memory")


@SMALL
def test_partitions_without_sampled_rows_get_files_of_their_own(tmp_path: Path) -> None:
    rows = pl.DataFrame({"row": range(400), "x": range(400), "day": [min(n // 10, 9) for n in range(400)]})
    with resized(domain_rows=12), small_files(file_rows=100):
        scatter(
            tmp_path / "t", list(rows.iter_slices(150)), columns=["x"], partition_by=["day"], cube_size=100
        )
    check_invariants(tmp_path / "t")
    assert len(rows_by_file(tmp_path / "t")) == 10
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows)


@SMALL
def test_new_partition_grows_a_tree_of_its_own(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = pl.DataFrame({"row": range(4000), "x": random.random(4000), "day": [0] * 2000 + [1] * 2000})
    qbeast.write_table(rows[:2000], tmp_path / "t", columns=["x"], partition_by="day", cube_size=100)
    qbeast.write_table(rows[2000:], tmp_path / "t", mode="append")
    qbeast.write_table(
        rows[2000:].with_columns(day=pl.lit(0)),
        tmp_path / "alone",
        columns=["x"],
        partition_by="day",
        cube_size=100,
    )
    blocks = check_invariants(tmp_path / "t")
    roots = {block.partition: block.rows for block in blocks if not block.cube}
    # As many rows as the first tree kept in its root, not as many as an append to it would keep.
    assert 0.5 < roots[("1",)] / roots[("0",)] < 2


def test_optimize_joins_small_files_of_one_partition(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(3):
        rows = pl.DataFrame({"row": range(40), "x": range(40), "day": [n % 2 for n in range(40)]})
        qbeast.write_table(
            rows, table, columns=["x"], partition_by=["day"], mode="append" if number else "error"
        )
    one = pl.DataFrame({"row": [0], "x": [1], "day": [7]})
    qbeast.write_table(one, table, mode="append")
    plan = qbeast.open_table(table).optimize().plan
    assert plan.height == 6
    assert [len(files) for files in rows_by_file(table).values()] == [1, 1, 1]
    check_invariants(table)
    assert not qbeast.open_table(table).optimize().committed


def test_merge_moves_rows_to_other_partitions(tmp_path: Path) -> None:
    rows = pl.DataFrame({"row": range(90), "x": range(90), "day": [n % 3 for n in range(90)]})
    qbeast.write_table(rows, tmp_path / "t", columns=["x"], partition_by=["day"])
    source = pl.DataFrame({"row": [*range(10), 500], "x": range(11), "day": [8] * 11})
    qbeast.open_table(tmp_path / "t").merge(source, on="row")
    expected = pl.concat([rows.filter(pl.col("row") >= 10), source])
    check_invariants(tmp_path / "t")
    assert_same_rows(pl.scan_delta(str(tmp_path / "t")).collect(), expected)


VALUES: list[tuple[Any, Any]] = [
    (pl.Boolean(), [True, False, None]),
    (pl.Int8(), [-3, 0, None]),
    (pl.Float32(), [0.1, math.inf, -math.inf, None]),
    (pl.Float64(), [0.1, -1e300, None]),
    (pl.Decimal(9, 2), [Decimal("1.50"), Decimal("-0.01"), None]),
    (pl.Date(), [date(1, 1, 1), date(2024, 2, 29), None]),
    (pl.Datetime("us"), [datetime(2024, 1, 1), datetime(1960, 5, 1, 1, 2, 3, 4), None]),  # noqa: DTZ001
    (pl.Datetime("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None]),
    (pl.String(), ["ä", "x" * 300, "__HIVE_DEFAULT_PARTITION__x", "a\nb", None]),
    (pl.Binary(), [b"abc", None]),
]


ENGINES = cycle(["memory", "spill", "parts"])


@pytest.mark.parametrize(
    ("engine", "dtype", "values"),
    [(engine, *item) for engine, item in zip(ENGINES, VALUES, strict=False)],
    ids=[str(dtype) for dtype, _ in VALUES],
)
def test_partition_columns_have_all_flat_types(
    tmp_path: Path, engine: str, dtype: pl.DataType, values: Sequence[Any]
) -> None:
    rows = pl.DataFrame({"row": range(len(values)), "p": pl.Series(values, dtype=dtype)})
    move(rows, tmp_path, engine, columns=["row"], partition_by=["p"])
    assert_same_rows(qbeast.read_table(tmp_path), rows)
    assert DeltaTable(tmp_path).metadata().partition_columns == ["p"]
    assert len(read_log(tmp_path).adds) == len(values)
    qbeast.write_table(rows, tmp_path, mode="append")
    assert qbeast.read_table(tmp_path).height == 2 * len(values)
    assert qbeast.open_table(tmp_path).check().ok


def test_nan_is_a_partition_value(tmp_path: Path) -> None:
    rows = pl.DataFrame({"row": range(6), "p": [math.nan, 1.0, math.nan, None, 1.0, math.nan]})
    qbeast.write_table(rows, tmp_path / "t", columns=["row"], partition_by=["p"])
    qbeast.write_table(rows, tmp_path / "t", mode="append")
    assert sorted(map(len, rows_by_file(tmp_path / "t").values())) == [2, 2, 2]
    assert qbeast.read_table(tmp_path / "t")["p"].is_nan().sum() == 6


@pytest.mark.parametrize("values", [[math.nan], [1.0, math.nan], [-0.0, None], [-0.0, 0.0]], ids=str)
def test_floats_are_values_of_partitions_in_any_order(tmp_path: Path, values: list[float | None]) -> None:
    rows = pl.DataFrame({"row": range(len(values)), "p": pl.Series(values, dtype=pl.Float64)}).sort("p")
    qbeast.write_table(rows, tmp_path, columns=["row"], partition_by=["p"])
    qbeast.write_table(rows.with_columns(pl.col("row") + 10), tmp_path, mode="append")
    table = qbeast.open_table(tmp_path)
    table.update("row >= 10", {"row": "row + 10"})
    table.merge(rows.with_columns(pl.col("row") + 20), on="row")
    table.optimize(full=True)
    assert table.metrics().frame.height
    assert table.check().ok
    expected = pl.concat([rows, rows.with_columns(pl.col("row") + 20)]).with_columns(pl.col("p") + 0.0)
    assert_same_rows(rows_of_others(tmp_path).select("row", "p"), expected)
    assert qbeast.read_table(tmp_path, where=pl.col("p").is_nan()).height == expected["p"].is_nan().sum()


def test_removes_carry_the_partition_of_their_file(tmp_path: Path) -> None:
    rows = pl.DataFrame({"row": range(4), "x": range(4), "day": [date(2024, 1, 1), None] * 2})
    qbeast.write_table(rows, tmp_path / "t", columns=["x"], partition_by=["day"])
    added = {path: add["partitionValues"] for path, add in read_log(tmp_path / "t").adds.items()}
    qbeast.open_table(tmp_path / "t").delete("x = 0")
    qbeast.write_table(rows, tmp_path / "t", mode="overwrite")
    log = "".join(path.read_text() for path in sorted((tmp_path / "t" / "_delta_log").glob("*.json")))
    actions = [json.loads(line) for line in log.splitlines()]
    added |= {
        action["add"]["path"]: action["add"]["partitionValues"] for action in actions if "add" in action
    }
    removed = [action["remove"] for action in actions if "remove" in action]
    assert len(removed) == 3
    for remove in removed:
        assert {"day": None, **remove["partitionValues"]} == {"day": None, **added[remove["path"]]}


def test_partitions_leave_a_column_to_store(tmp_path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="all columns"):
        qbeast.write_table(pl.DataFrame({"x": [1]}), tmp_path, columns=["x"], partition_by=["x"])


def test_table_keeps_its_partitions_until_overwritten(tmp_path: Path) -> None:
    table, rows = tmp_path / "t", pl.DataFrame({"row": range(9), "x": range(9), "day": ["a", "b", "c"] * 3})
    qbeast.write_table(rows, table, columns=["x"], partition_by=["day"])
    qbeast.write_table(rows, table, mode="append", partition_by=["day"])
    for mode in ("append", "overwrite"):
        for other in (["row"], []):
            with pytest.raises(qbeast.InvalidInputError, match="partitioned by"):
                qbeast.write_table(rows, table, mode=mode, partition_by=other)
    qbeast.write_table(rows, table, mode="overwrite")
    assert DeltaTable(table).metadata().partition_columns == ["day"]
    with pytest.raises(qbeast.InvalidInputError, match="dialect"):
        qbeast.open_table(table).switch_dialect("qbeast-spark")
    qbeast.write_table(rows, table, mode="overwrite", schema_mode="overwrite", partition_by=["row"])
    assert DeltaTable(table).metadata().partition_columns == ["row"]
    qbeast.write_table(rows, table, mode="overwrite", schema_mode="overwrite", partition_by=[])
    assert DeltaTable(table).metadata().partition_columns == []
    assert_same_rows(pl.scan_delta(str(table)).collect(), rows)
    check_invariants(table)


def test_small_partitions_warn_once(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": range(24), "day": [n // 3 for n in range(24)]})
    with pytest.warns(qbeast.SmallPartitionsWarning, match="3 rows or fewer"):
        qbeast.write_table(rows, tmp_path / "t", columns=["x"], partition_by=["day"], cube_size=20)
    qbeast.write_table(rows[:3], tmp_path / "t", mode="append")
    qbeast.write_table(rows, tmp_path / "large", columns=["x"], partition_by=["day"], cube_size=1000)


def test_bytes_that_are_no_text_raise(tmp_path: Path) -> None:
    rows = pl.DataFrame({"key": [b"ab", b"\xff"], "x": [1, 2]})
    with pytest.raises(qbeast.InvalidInputError, match="not UTF-8"):
        qbeast.write_table(rows, tmp_path / "t", columns=["x"], partition_by=["key"])
    assert not list(tmp_path.rglob("*.parquet"))

"""A column of nulls only is indexed in the JVM's dialect as the JVM indexes it, and tables of either go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import copy_of
from tests.format.collection import find, swept
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NAMES = swept(
    ["qbeast-spark-0.7.1/null_all", "qbeast-spark-0.7.1/null_all_date"], but=["qbeast-spark-0.7.1/null_all"]
)


def spaces(path: Path) -> list[dict[str, Any]]:
    """The transformations of the newest revision, as the log has them."""
    configuration = load_snapshot(path).metadata.configuration
    actual = json.loads(configuration[f"qbeast.revision.{configuration['qbeast.lastRevisionID']}"])
    transformations: list[dict[str, Any]] = actual["transformations"]
    return transformations


@pytest.mark.parametrize("name", NAMES)
def test_null_column_is_indexed_as_by_jvm(name: str, tmp_path: Path) -> None:
    golden = find(name)
    theirs = copy_of(golden, tmp_path)
    indexed, ours, rows = golden.indexed, tmp_path / "ours", golden.expected
    qbeast.write_table(rows, ours, columns=indexed, dialect="qbeast-spark", cube_size=400)
    assert spaces(ours)[0] == spaces(theirs)[0]
    assert spaces(ours)[0] == {"className": "io.qbeast.core.transform.NullToZeroTransformation$"}
    check_invariants(ours)
    more = rows.with_columns(pl.col("id") + 100_000)
    for path in (ours, theirs):
        assert not qbeast.write_table(more, path, mode="append").new_revision
        assert_same_rows(qbeast.read_table(path), pl.concat([rows, more]), "id")
        assert qbeast.read_table(path, where=pl.col(indexed[0]).is_not_null()).is_empty()
    drawn = [qbeast.read_table(path, sample=0.2)["id"].sort() for path in (ours, theirs)]
    assert drawn[0].equals(drawn[1])


@pytest.mark.parametrize("is_ours", swept([True, False], but=[True]))
@pytest.mark.parametrize("name", NAMES)
def test_values_begin_a_linear_revision(name: str, is_ours: bool, tmp_path: Path) -> None:  # noqa: FBT001
    golden = find(name)
    path = tmp_path / "ours" if is_ours else copy_of(golden, tmp_path)
    column, rows = golden.indexed[0], golden.expected
    if is_ours:
        qbeast.write_table(rows, path, columns=golden.indexed, dialect="qbeast-spark", cube_size=400)
    values = pl.int_range(pl.len(), dtype=pl.Int32).cast(rows.schema[column])
    more = rows.with_columns(pl.col("id") + 100_000, values.alias(column))
    assert qbeast.write_table(more, path, mode="append").new_revision
    assert spaces(path)[0]["className"].endswith(".LinearTransformation")
    assert_same_rows(qbeast.read_table(path), pl.concat([rows, more]), "id")
    kept = qbeast.read_table(path, where=pl.col(column) < more[column][50])
    assert_same_rows(kept, more.head(50), "id")
    assert qbeast.open_table(path).check().ok


def test_first_nulls_of_an_empty_table_are_indexed_as_by_jvm(tmp_path: Path) -> None:
    golden = find("qbeast-spark-0.7.1/null_all")
    rows, column = golden.expected, golden.indexed[0]
    qbeast.write_table(rows.clear(), tmp_path, columns=golden.indexed, dialect="qbeast-spark", cube_size=400)
    assert qbeast.write_table(rows, tmp_path, mode="append").new_revision
    assert spaces(tmp_path)[0] == spaces(copy_of(golden, tmp_path / "theirs"))[0]
    assert_same_rows(qbeast.read_table(tmp_path, where=pl.col(column).is_null()), rows, "id")
    check_invariants(tmp_path)


def test_empty_and_nan_columns_are_linear(tmp_path: Path) -> None:
    nan = pl.DataFrame({"id": range(9), "f": [float("nan")] * 8 + [None]})
    for number, rows in enumerate([nan, nan.clear()]):
        path = tmp_path / str(number)
        qbeast.write_table(rows, path, columns=["f", "id"], dialect="qbeast-spark")
        assert spaces(path)[0]["className"].endswith(".LinearTransformation")

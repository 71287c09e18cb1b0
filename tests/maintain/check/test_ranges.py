"""Rows outside of the range of their revision: `check` reports them, `repair` stages their files."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.helpers.damage import other_range
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
DAY = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = pl.DataFrame({"row": range(200)}).with_columns(
    a=pl.col("row") * 7919 % 201, at=DAY + pl.col("row") * timedelta(hours=1), one=pl.lit(5)
)
INDEXED = ["a", "row", "at", "one"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranges") / "t"
    with small_files(file_rows=100):
        qbeast.write_table(ROWS, path, columns=INDEXED, cube_size=50)
    assert qbeast.open_table(path).check().ok
    return path


@pytest.mark.parametrize(
    ("column", "ends", "wrong"),
    [
        ("a", {"maxNumber": 193}, 7),
        ("a", {"minNumber": 7}, 7),
        ("at", {"maxNumber": int((DAY + timedelta(hours=189)).timestamp() * 1000)}, 10),
        ("one", {"identityValue": 6}, 200),
    ],
)
def test_rows_out_of_range_are_found_and_staged(
    column: str, ends: dict[str, int], wrong: int, sound: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(sound, tmp_path / "t"))
    other_range(path, column, **ends)
    table = qbeast.open_table(path)
    actual = table.check().faults.filter(pl.col("code") == "row-range")
    assert set(actual["severity"]) == {"error"}
    assert actual["message"].str.extract(r"([\d,]+) row").cast(pl.Int64).sum() == wrong
    table.repair()
    assert_same_rows(qbeast.read_table(path), ROWS, "row")
    assert_same_rows(qbeast.read_table(path, sample=0.3), sampled(ROWS, INDEXED, 0.3), "row")
    assert "row-range" not in table.check().faults["code"]
    table.optimize()
    check_invariants(path)
    assert_same_rows(qbeast.read_table(path), ROWS, "row")


def test_special_values_are_in_range(tmp_path: Path) -> None:
    odd = pl.DataFrame({"row": range(6), "f": [float("nan"), float("inf"), -float("inf"), None, 0.5, 1e300]})
    qbeast.write_table(odd.tail(2), tmp_path, columns=["f:linear", "row"])
    qbeast.write_table(odd, tmp_path, mode="append")
    assert qbeast.open_table(tmp_path).check().ok

"""Texts of partition values: read as deltalake reads them, and written only if they can be read back."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.log.values import partition_texts, typed_values
from tests.helpers.examples import examples
from tests.helpers.handmade_log import PROTOCOL, add, metadata, write_log

DAY, TIME = pl.Date(), pl.Datetime("us", "UTC")
FAR_DAYS = [2_932_897, -719_563, -719_163, 95_026_236, -96_465_292]
SINCE_1970 = 86_400_000_000


@pytest.mark.parametrize(
    ("dtype", "delta", "text"),
    [
        (DAY, "date", "2024-1-5"),
        (DAY, "date", "0000-01-01"),
        (DAY, "date", "+10000-01-01"),
        (DAY, "date", "-0001-11-27"),
        (TIME, "timestamp", "-0001-11-27 01:00:00"),
        (TIME, "timestamp", "+10000-01-01 00:00:00"),
        (TIME, "timestamp", "+10000-01-01T00:00:00.000000Z"),
        (TIME, "timestamp", "2024-01-01T00:00:00.5+01:00"),
    ],
)
def test_texts_are_read_as_deltalake_reads_them(
    tmp_path: Path, dtype: pl.DataType, delta: str, text: str
) -> None:
    schema = {"type": "struct", "fields": [{"name": "p", "type": delta, "nullable": True, "metadata": {}}]}
    write_log(tmp_path, [PROTOCOL, metadata(schema, partitions=["p"]), add("a", partitionValues={"p": text})])
    values = pl.DataFrame(DeltaTable(tmp_path).get_add_actions())["partition"].struct.field("p")
    assert typed_values(pl.Series([text]), dtype).to_physical().to_list() == values.to_physical().to_list()


@pytest.mark.parametrize("text", ["10000-01-01", "10000-01-01 00:00:00", "10000-01-01T00:00:00"])
def test_years_without_a_sign_are_read(text: str) -> None:
    assert typed_values(pl.Series([text]), DAY).to_physical().to_list() == [2_932_897]
    assert typed_values(pl.Series([text]), TIME).to_physical().to_list() == [2_932_897 * SINCE_1970]


@given(
    days=st.lists(st.integers(-96_465_292, 95_026_236) | st.none(), max_size=5),
    micros=st.integers(0, SINCE_1970 - 1),
)
@examples(10, sweep=500)
def test_written_texts_are_read_back(days: list[int | None], micros: int) -> None:
    dates = pl.Series(days, dtype=pl.Int32).cast(pl.Date)
    times = (pl.Series(days, dtype=pl.Int64) * SINCE_1970 + micros).cast(TIME)
    for values in (dates, times):
        assert typed_values(partition_texts(values), values.dtype).equals(values)


@pytest.mark.parametrize("day", FAR_DAYS[:2])
def test_far_partitions_are_written_and_read(tmp_path: Path, day: int) -> None:
    rows = pl.DataFrame({"id": [1, 2], "day": pl.Series([day, 0], dtype=pl.Int32).cast(pl.Date)})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"], partition_by=["day"])
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(rows)
    (value,) = {json.loads(line)["add"]["partitionValues"]["day"] for line in _adds(tmp_path / "t")} - {
        "1970-01-01"
    }
    assert value == rows["day"].cast(pl.String)[0]


@pytest.mark.parametrize("dtype", [pl.Date(), TIME])
def test_partitions_without_a_text_are_refused(tmp_path: Path, dtype: pl.DataType) -> None:
    last = 2**31 - 1 if dtype == pl.Date() else 2**63 - 1
    rows = pl.DataFrame({"id": [1, 2], "day": pl.Series([last, 0], dtype=pl.Int64).cast(dtype)})
    with pytest.raises(qbeast.InvalidInputError, match=r"'day' has values outside the years"):
        qbeast.write_table(rows, tmp_path / "t", columns=["id"], partition_by=["day"])
    assert not (tmp_path / "t" / "_delta_log").exists()


def _adds(path: Path) -> list[str]:
    log = (path / "_delta_log" / f"{0:020d}.json").read_text()
    return [line for line in log.splitlines() if line.startswith('{"add"')]

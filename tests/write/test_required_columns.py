"""Columns of Arrow that allow no nulls allow none in a new table, as deltalake writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import qbeast
from qbeast_core.errors import SchemaMismatchError
from tests.helpers.tables import SPILL

FIELDS = [pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())]
ROWS = pa.table({"id": list(range(20)), "city": [None, *"abcd"] * 4}, schema=pa.schema(FIELDS))


class Foreign:
    """Rows of another library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return ROWS.__arrow_c_stream__(requested_schema)


def batches() -> Iterator[Any]:
    yield from ROWS.to_batches(10)


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "reader": lambda: ROWS.to_reader(10),
    "iterator": batches,
    "dataset": lambda: ds.dataset(ROWS),
    "stream": Foreign,
}


def fields(path: Path) -> Any:
    return json.loads(deltalake.DeltaTable(path).schema().to_json())["fields"]


@pytest.mark.parametrize("source", SOURCES)
def test_required_columns_are_those_of_deltalake(tmp_path: Path, source: str) -> None:
    deltalake.write_deltalake(tmp_path / "theirs", ROWS)
    qbeast.write_table(SOURCES[source](), tmp_path / "ours", columns=["id"])
    assert fields(tmp_path / "ours") == fields(tmp_path / "theirs")
    assert [field["nullable"] for field in fields(tmp_path / "ours")] == [False, True]
    assert deltalake.DeltaTable(tmp_path / "ours").to_pyarrow_table().num_rows == 20


def test_appends_keep_required_columns(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    frame = pl.DataFrame({"id": [20, None], "city": ["e", None]})
    with pytest.raises(SchemaMismatchError, match="'id' may hold no nulls"):
        qbeast.write_table(frame, tmp_path, mode="append")
    with pytest.raises(SchemaMismatchError, match="'id' may hold no nulls"):
        qbeast.write_table(frame.select("city"), tmp_path, mode="append", schema_mode="merge")
    qbeast.write_table(frame.head(1), tmp_path, mode="append")
    assert qbeast.read_table(tmp_path).height == 21
    assert [field["nullable"] for field in fields(tmp_path)] == [False, True]


def test_only_a_new_schema_takes_required_columns(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame(ROWS), tmp_path, columns=["id"])
    more = ROWS.append_column(pa.field("day", pa.int32(), nullable=False), pa.array([1] * 20, pa.int32()))
    qbeast.write_table(more, tmp_path, mode="append", schema_mode="merge")
    assert [field["nullable"] for field in fields(tmp_path)] == [True] * 3
    qbeast.write_table(more, tmp_path, mode="overwrite", schema_mode="overwrite")
    assert [field["nullable"] for field in fields(tmp_path)] == [False, True, False]


@pytest.mark.parametrize("resources", [qbeast.Resources(), SPILL])
def test_rows_that_break_their_own_schema_are_refused(tmp_path: Path, resources: qbeast.Resources) -> None:
    broken = pa.table({"id": [1, None], "city": ["a", "b"]}, schema=pa.schema(FIELDS))
    with pytest.raises(SchemaMismatchError, match="'id' may hold no nulls"):
        qbeast.write_table(broken.to_reader(1), tmp_path / "t", columns=["id"], resources=resources)
    assert not (tmp_path / "t").exists()


def test_an_empty_text_is_no_value_of_a_required_partition_column(tmp_path: Path) -> None:
    schema = pa.schema([FIELDS[0], pa.field("city", pa.string(), nullable=False)])
    rows = pa.table({"id": [1, 2], "city": ["a", "b"]}, schema=schema)
    qbeast.write_table(rows, tmp_path, columns=["id"], partition_by=["city"])
    with pytest.raises(SchemaMismatchError, match="'city' may hold no nulls"):
        qbeast.write_table(pl.DataFrame({"id": [3], "city": [""]}), tmp_path, mode="append")


def test_fields_inside_of_columns_allow_nulls(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    schema = pa.schema([FIELDS[0], pa.field("s", inner, nullable=False)])
    rows = pa.table({"id": [1], "s": [{"x": 1}]}, schema=schema)
    qbeast.write_table(rows, tmp_path, columns=["id"], sample_column="sample")
    found = fields(tmp_path)
    assert [field["nullable"] for field in found] == [False, False, True]
    assert found[1]["type"]["fields"][0]["nullable"]

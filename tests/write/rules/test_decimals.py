"""Decimals that lose digits are rounded like a CAST of DuckDB, whatever assigns them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import qbeast
from qbeast_core.table.data.expressions import value_of
from tests.helpers.handmade_log import features, metadata, write_log

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["1.005", "-1.005", "1.015", "1.025", "0.005", "-0.005", "9.995", "999.994", "2.0049", "7"]
SHORT = pl.Decimal(5, 2)
ROWS = pl.DataFrame({"a": [Decimal(text) for text in TEXTS]}, schema_overrides={"a": pl.Decimal(10, 4)})


def rounded(texts: list[str], kind: str = "DECIMAL(10, 4)") -> list[Decimal]:
    with duckdb.connect() as connection:
        casts = ", ".join(f"CAST(CAST('{text}' AS {kind}) AS DECIMAL(5, 2))" for text in texts)
        return list(connection.execute(f"SELECT {casts}").fetchall()[0])


def test_values_are_rounded_like_a_cast() -> None:
    expected = rounded(TEXTS)
    for source in (
        "a",
        "a * 1",
        "coalesce(a, 1.5)",
        pl.col("a"),
        pl.col("a") * 1,
        "CAST(a AS DECIMAL(5, 2))",
    ):
        expr = value_of(source, ROWS.schema, SHORT, column="n")
        assert ROWS.select(expr)["n"].to_list() == expected, source
    for text, value in zip(TEXTS, expected, strict=True):
        for literal in (text, Decimal(text), pl.lit(Decimal(text))):
            assert pl.select(value_of(literal, ROWS.schema, SHORT, column="n")).item() == value


def test_floats_are_rounded_like_a_cast() -> None:
    texts = ["1.125", "-1.125", "0.375", "0.125", "2.5", "1e-9"]
    floats = pl.DataFrame({"x": [float(text) for text in texts]})
    for dtype, kind in ((pl.Float64(), "DOUBLE"), (pl.Float32(), "REAL")):
        rows = floats.cast(dtype)
        for source in ("x", pl.col("x")):
            expr = value_of(source, rows.schema, SHORT, column="n")
            assert rows.select(expr)["n"].to_list() == rounded(texts, kind)


def table(path: Path) -> qbeast.Table:
    """Return an empty table with a column that has a default, and a generated column."""

    def field(name: str, dtype: str, **notes: str) -> dict[str, Any]:
        return {"name": name, "type": dtype, "nullable": True, "metadata": notes}

    fields = [
        field("id", "long"),
        field("a", "decimal(10,4)"),
        field("n", "decimal(5,2)", CURRENT_DEFAULT="1.005"),
        field("g", "decimal(5,2)", **{"delta.generationExpression": "a * 1"}),
    ]
    names = ("allowColumnDefaults", "generatedColumns", "appendOnly", "invariants")
    write_log(path, [features(*names), metadata({"type": "struct", "fields": fields}, {})])
    qbeast.convert_table(path, columns=["id"])
    return qbeast.open_table(path)


def test_every_change_rounds_half_up(tmp_path: Path) -> None:
    new = table(tmp_path)
    rows = ROWS.with_row_index("id").cast({"id": pl.Int64})
    qbeast.write_table(rows, tmp_path, mode="append")
    expected = rounded(TEXTS)
    actual = new.refresh().read().sort("id")
    assert actual["g"].to_list() == expected
    assert set(actual["n"]) == {Decimal("1.01")}
    new.update("id < 5", {"n": "a"})
    new.merge(rows.filter(pl.col("id") >= 5), on="id", update={"n": "source.a + 0"})
    assert new.read().sort("id")["n"].to_list() == expected


def test_rows_with_more_digits_are_refused(tmp_path: Path) -> None:
    table(tmp_path)
    rows = pl.DataFrame({"id": [1], "n": [Decimal("1.005")]}, schema_overrides={"n": pl.Decimal(10, 3)})
    with pytest.raises(qbeast.SchemaMismatchError, match="'n' is Decimal"):
        qbeast.write_table(rows, tmp_path, mode="append")

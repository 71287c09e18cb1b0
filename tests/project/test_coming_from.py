"""The lines of other libraries and ours, side by side, leave the same rows and return the same rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Transaction

import qbeast
from tests.helpers.snippets import ROOT

PAGE = (ROOT / "docs" / "coming-from-deltalake.md").read_text()
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
LINES = {name: ROW.findall(text) for name, text in SECTION.findall(PAGE)}

STATE: dict[str, Callable[[dict[str, Any]], pl.DataFrame]] = {
    "deltalake": lambda _: pl.DataFrame(
        QueryBuilder().register("t", DeltaTable("sales")).execute("SELECT * FROM t").read_all()
    ),
    "pandas": lambda names: pl.from_pandas(names["frame"]),
    "DuckDB": lambda names: names["con"].sql("FROM sales").pl(),
    "Lance": lambda names: pl.DataFrame(names["lance"].dataset("sales").to_table()),
}
"""How to read the rows that the lines of a library leave."""

RANDOM = ("sample(", "SAMPLE", "head(", "history(", "vacuum(", "versions(")
"""Lines whose results differ: each library draws other rows, and counts other versions and files."""


def given() -> dict[str, Any]:
    """Return the frames that the page names."""
    n = pl.int_range(120)
    rows = pl.select(
        id=n,
        day=pl.lit(date(2026, 1, 1)) + pl.duration(days=n % 4),
        price=n * 7919 % 997 / 10,
        city=pl.format("{}", pl.Series(["Rome", "Oslo", "Bonn"]).gather(n % 3)),
    )
    moved = rows.with_columns(pl.col("id") + 1_000)
    return {
        "pl": pl,
        "rows": rows,
        "more": rows.with_columns(pl.col("id") + 120),
        "day": moved.filter(pl.col("day") == date(2026, 1, 2)),
        "wide": moved.head(2).with_columns(pl.col("id") + 1_000, tip=0.5),
        "late": pl.concat([rows.slice(28, 4).with_columns(price=77.5), moved.slice(0, 2)]),
    }


@pytest.mark.sweep
@pytest.mark.parametrize("library", STATE)
def test_lines_of_a_library_and_ours_are_equal(library: str, tmp_path: Path) -> None:
    if library == "Lance":
        pytest.importorskip("lance")
    names = {"theirs": given() | DELTALAKE, "ours": given()}
    for side in names:
        (tmp_path / side).mkdir()
    for lines in LINES[library]:
        results = []
        for side, line in zip(names, lines, strict=True):
            with contextlib.chdir(tmp_path / side):
                results.append(run(line, names[side]))
        compare(lines, *results)
        states = state(library, tmp_path, names)
        assert states is None or normal(states[0]).equals(normal(states[1])), lines


def test_every_library_has_lines() -> None:
    assert set(STATE) == set(LINES)
    assert len(re.findall(r"^\| `", PAGE, re.MULTILINE)) == sum(map(len, LINES.values())) > 70


DELTALAKE = {
    "CommitProperties": CommitProperties,
    "DeltaTable": DeltaTable,
    "Field": Field,
    "QueryBuilder": QueryBuilder,
    "Transaction": Transaction,
}


def run(line: str, names: dict[str, Any]) -> Any:
    """Run a line, and return its value if it is an expression."""
    try:
        code = compile(line, line, "eval")
    except SyntaxError:
        exec(line, names)  # noqa: S102 - our own text is what is tested
        return None
    return eval(code, names)  # noqa: S307 - the same


def compare(lines: tuple[str, str], theirs: Any, ours: Any) -> None:
    """Compare what both lines return, if they return rows or a number."""
    if any(word in line for line in lines for word in RANDOM):
        return
    if (rows := frame(theirs)) is not None:
        returned = frame(ours)
        assert returned is not None, lines
        assert rows.height, lines
        assert normal(rows).equals(normal(returned)), lines
    elif isinstance(theirs, int | float):
        assert theirs == pytest.approx(ours), lines


def frame(value: Any) -> pl.DataFrame | None:
    if isinstance(value, pd.DataFrame):
        return pl.from_pandas(value)
    if isinstance(value, pl.DataFrame):
        return value
    is_lazy = isinstance(value, duckdb.DuckDBPyRelation)  # also what DuckDB counts
    return pl.DataFrame(value) if hasattr(value, "__arrow_c_stream__") and not is_lazy else None


def normal(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in a fixed order, in types that all libraries have."""
    dates = [name for name, kind in rows.schema.items() if kind.is_temporal() or kind == pl.Object]
    wide = {pl.Float64: pl.Float64, pl.UInt32: pl.Int64, pl.Int32: pl.Int64, pl.Null: pl.String}
    rows = rows.with_columns(pl.col(dates).cast(pl.Date)).cast(
        {name: wide[kind] for name, kind in rows.schema.items() if kind in wide}
    )
    rows = rows.select(sorted(rows.columns)).with_columns(pl.col(pl.Float64).round(6))
    return rows.sort(pl.all(), nulls_last=True)


def state(
    library: str, folder: Path, names: dict[str, dict[str, Any]]
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return the rows that both tables have, once there are tables."""
    with contextlib.chdir(folder / "ours"):
        if not qbeast.table_exists("sales"):
            return None
        ours = qbeast.read_table("sales")
    with contextlib.chdir(folder / "theirs"):
        return STATE[library](names["theirs"]), ours

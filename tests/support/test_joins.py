"""Joins by values of the user's columns, compared with DuckDB: NaN equals NaN, 0.0 equals -0.0."""

from __future__ import annotations

from typing import Any, Final, Literal

import duckdb
import polars as pl
import pytest

from qbeast_core.support.frames import join_equal

NAN: Final = float("nan")
SIDES: Final = {
    "one row": ([NAN], [NAN]),
    "zeros": ([-0.0], [0.0]),
    "sorted": ([-0.0, 1.0, NAN], [0.0, NAN]),
    "any order": ([NAN, 1.0, -0.0, None], [None, 0.0, NAN, 2.0]),
}
_JOINS: Final = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "SEMI JOIN", "anti": "ANTI JOIN"}


@pytest.mark.parametrize("test", ["IS NOT DISTINCT FROM", "="])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("side", list(SIDES))
def test_equal_floats_are_joined_as_duckdb_does(
    side: str, how: Literal["inner", "left", "semi", "anti"], test: str
) -> None:
    left, right = (pl.DataFrame({"f": pl.Series(values, dtype=pl.Float64)}) for values in SIDES[side])
    rows, others = left.with_row_index("row"), right.with_row_index("other")
    if side == "sorted":
        rows, others = rows.sort("f"), others.sort("f")
    chosen = "rows.row, others.other" if how in ("inner", "left") else "rows.row"
    query = f"SELECT {chosen} FROM rows {_JOINS[how]} others ON rows.f {test} others.f"  # noqa: S608
    expected = duckdb.sql(query).pl()
    for lazy in (False, True):
        joined: Any = [frame.lazy() if lazy else frame for frame in (rows, others)]
        actual = join_equal(*joined, ["f"], how, nulls_equal=test != "=").lazy().collect()
        assert "f" in actual.columns
        assert actual.select(expected.columns).sort("row").rows() == expected.sort("row").rows()

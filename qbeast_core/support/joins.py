"""Joins by values of users' columns, and names for temporary columns beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar, cast

import polars as pl

_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)


def own_column(name: str) -> str:
    r"""Return a name that no column of a user has: it ends in NUL, which the names of users' columns cannot hold.

    No name of a user begins with it either, so a number may follow. Arrow refuses such names: use them in Polars only.

    >>> own_column("row").encode()
    b'__qbeast_row\x00'
    """
    return f"__qbeast_{name}\0"


_SAME: Final = own_column("same")


def join_equal(
    rows: _Frame,
    others: _Frame,
    on: Sequence[str],
    how: Literal["left", "inner", "semi", "anti"],
    *,
    nulls_equal: bool = False,
    maintain_order: Literal["none", "left", "left_right"] = "none",
) -> _Frame:
    """Join rows with equal values: NaN equals NaN, and 0.0 equals -0.0.

    >>> nan = pl.DataFrame({"a": [float("nan")]})
    >>> join_equal(nan, nan, ["a"], "inner").height
    1
    """
    other = cast("Any", others)  # of the same type as `rows`
    if len(on) > 1 or not rows.lazy().collect_schema()[on[0]].is_float():
        return rows.join(other, on=on, how=how, nulls_equal=nulls_equal, maintain_order=maintain_order)
    # Polars 2.1 compares one column of sorted frames, or of one row each, by `==`. A second column avoids it.
    same = pl.lit(value=True).alias(_SAME)
    return (
        rows.with_columns(same)
        .join(
            other.with_columns(same),
            on=[*on, _SAME],
            how=how,
            nulls_equal=nulls_equal,
            maintain_order=maintain_order,
        )
        .drop(_SAME)
    )

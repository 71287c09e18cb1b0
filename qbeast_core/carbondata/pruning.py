"""Blocklets and pages that a filter may match, by their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.files.data_file import StoredBounds
from qbeast_core.carbondata.pages.statistics import decode_bounds
from qbeast_core.query.filters.nodes import And, Atom, Node, Or, column_of
from qbeast_core.query.plan.evaluate import evaluate
from qbeast_core.query.plan.statistics import Statistics
from qbeast_core.space.arrays import BoolArray

# A blocklet or page: by the table's name of a column, the file's column and its stored bounds.
Unit = Mapping[str, tuple[Column, StoredBounds]]


def filtered_columns(node: Node) -> set[str]:
    """Return the columns in the understood part of a filter."""
    if isinstance(node, And | Or):
        return {name for child in node.children for name in filtered_columns(child)}
    return {column_of(node)} if isinstance(node, Atom) else set()


def may_match(node: Node, units: Sequence[Unit], schema: pl.Schema) -> BoolArray:
    """Return which units can have a row that a filter keeps."""
    names = sorted(filtered_columns(node) & set(schema))
    if not names:  # most reads have no filter, and each statement of Polars costs as much as decoding a page
        return evaluate(node, len(units), lambda _: np.ones(len(units), np.bool_))
    bounds = {
        name: [decode_bounds(*unit[name]) if name in unit else None for unit in units] for name in names
    }
    files = pl.DataFrame({"num_records": [0] * len(units)})
    for at, side in enumerate(("min", "max")):
        columns = [
            _series(name, [pair and pair[at] for pair in bounds[name]], schema[name]) for name in names
        ]
        files = files.with_columns(pl.DataFrame(columns).to_struct(side))
    rows = np.zeros(len(units), np.int64)
    no, yes = (pl.repeat(value=value, n=len(units), dtype=pl.Boolean, eager=True) for value in (False, True))
    # Bounds of doubles ignore NaN, like those of other writers of Parquet.
    exact, floats = Statistics(files, no, rows, no), Statistics(files, yes, rows, no)

    def of_atom(atom: Atom) -> BoolArray:
        return (floats if schema[column_of(atom)].is_float() else exact).may_match(atom)

    return evaluate(node, len(units), of_atom)


def _series(name: str, values: list[object], dtype: pl.DataType) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=dtype, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return pl.Series(name, [None] * len(values), dtype=dtype)

"""Cubes alone, without the statistics of files to hide behind, never close a file that holds a match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from qbeast_core.plan.nodes import Unknown
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.select import select
from qbeast_core.plan.weights import ALL_WEIGHTS, sample_to_weights
from qbeast_core.table.read.planner import Planner
from qbeast_core.tree.grid import frame_weights
from tests.format.collection import FAST, Golden, each, find, load_golden
from tests.helpers.examples import is_sweep

STAGED = {
    "qbeast-spark-0.7.1/delta_delete",
    "qbeast-spark-0.8/allnull_then_values",
    "qbeast-spark-0.8/convert_parquet_append",
}
VALUES = 24 if is_sweep() else 4


def without_statistics(golden: Golden) -> Planner:
    snapshot = load_golden(golden)
    nothing = [pl.lit(None, snapshot.files.schema[name]).alias(name) for name in ("min", "max", "null_count")]
    return Planner(replace(snapshot, listed=snapshot.files.with_columns(nothing)))


def rows_by_file(golden: Golden, planner: Planner) -> pl.DataFrame:
    """Return the rows of every file that is read, with the number of the file."""
    ids = [
        pl.read_parquet(golden.path / path, columns=["id"]).with_columns(pl.lit(number).alias("file"))
        for number, path in enumerate(planner.paths)
    ]
    return pl.concat(ids).join(golden.expected, on="id")


def filters(column: pl.Series) -> Iterator[pl.Expr]:
    """Filters around values of a column: its ends, its oddities, and some in between."""
    name, existing = column.name, column.drop_nulls().unique().sort()
    step = max(1, len(existing) // VALUES)
    some = pl.concat([existing.gather_every(step), existing.tail(2)]).unique().sort()
    if column.dtype.is_float():
        some = pl.concat([some, pl.Series([0.0, -0.0, float("nan")], dtype=column.dtype)])
    wrapped = [pl.lit(value, dtype=column.dtype) for value in some]
    yield pl.col(name).is_null()
    yield pl.col(name).is_not_null()
    for low, high in zip(wrapped, wrapped[1:] + wrapped[-1:], strict=True):
        yield pl.col(name) == low
        yield (pl.col(name) >= low) & (pl.col(name) < high)
    for middle in wrapped[:: max(1, len(wrapped) // 4)]:
        yield pl.col(name) < middle
        yield pl.col(name) > middle
        yield pl.col(name) != middle
    yield pl.col(name).is_in(some.gather_every(5).to_list())


@each(lambda golden: golden.expected.height, fast=FAST - STAGED)
def test_no_match_or_sampled_row_is_pruned_away(golden: Golden):
    planner = without_statistics(golden)
    rows = rows_by_file(golden, planner)
    file = rows["file"].to_numpy()
    for name in golden.indexed:
        predicates = list(filters(rows[name]))
        kept = rows.select(item.fill_null(value=False).alias(str(at)) for at, item in enumerate(predicates))
        assert kept.height == rows.height
        for predicate, keeps in zip(predicates, kept, strict=True):
            chosen = select(planner.blocks, parse_predicate(predicate, planner.snapshot.schema), ALL_WEIGHTS)
            for number in np.unique(file[keeps.to_numpy()]):
                assert chosen.opened[number], (predicate, planner.paths[number])
    weights = pl.Series(frame_weights(rows, golden.indexed))
    ends = [(0.0, 1e-9), (0.0, 0.003), (0.0, 0.05), (0.02, 0.021), (0.3, 0.6), (0.95, 1.0)]
    for pair in ends:
        expected = sample_to_weights(pair)
        chosen = select(planner.blocks, Unknown(), expected)
        inside = (weights >= expected.from_) & (weights <= expected.last)
        for number in rows.filter(inside)["file"].unique():
            assert chosen.opened[number], (pair, planner.paths[number])


@pytest.mark.parametrize("name", ["legacy/v050_num3_nulls", "qbeast-spark-0.7.1/lin_float"])
def test_cubes_close_files(name: str):
    golden = find(name)
    planner = without_statistics(golden)
    column = golden.expected[golden.indexed[0]].drop_nulls().sort()
    predicate = pl.col(column.name) <= pl.lit(column[len(column) // 8], dtype=column.dtype)
    chosen = select(planner.blocks, parse_predicate(predicate, planner.snapshot.schema), ALL_WEIGHTS)
    assert 0 < chosen.opened.sum() < len(planner.paths)

"""Answers of frames, without a table: samples drawn here, by weights that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from qbeast_core.plan.weights import sample_to_weights
from qbeast_core.sampling.confidence import Interval, interval_of
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sampling.recognise import Aggregates, recognise
from qbeast_core.sampling.sums import WEIGHT, RowSums


def recognised(exprs: Mapping[str, pl.Expr], rows: pl.DataFrame, key: Sequence[str] = ()) -> Aggregates:
    return recognise(exprs, lambda item: rows.select(item).dtypes[0], key)


def exact(expr: pl.Expr, rows: pl.DataFrame, key: Sequence[str] = ()) -> list[float]:
    """What an aggregate is of all rows."""
    weights = np.arange(rows.height, dtype=np.int32) // 2
    if key:
        weights = (rows.select(key).hash_rows() % 2**31).cast(pl.Int32).to_numpy()
    return intervals({"it": expr}, rows, weights, 1.0, key=key)["it"].value.tolist()


def sample_of(
    exprs: Mapping[str, pl.Expr],
    rows: pl.DataFrame,
    weights: np.ndarray,
    fraction: float,
    *,
    by: Sequence[str] = (),
    where: pl.Expr | None = None,
    known: bool = True,
    whole: pl.DataFrame | None = None,
    part: bool = False,
    summed: bool = False,
    key: Sequence[str] = (),
) -> KeySample:
    """A sample of keys: rows of one weight are in it together, and it holds each weight with this probability.

    With `part`, some of the keys may stand for all, as in `estimate`; `summed`: rows are added up by key as they are
    read, as tasks do.
    """
    aggregates = recognised(exprs, rows, key)
    centres = {name: rows.select(item).item() or 0.0 for name, item in aggregates.centres.items()}
    quantiles = tuple(item.values for item in aggregates.quantiles)
    groups = {name: pl.col(name) for name in by}
    shown = tuple(aggregates.shown.values())
    sums = RowSums(aggregates.totals, quantiles, groups, where, (), centres, aggregates.key, shown)
    inside = weights < fraction * 2**32 - 2**31
    drawn = rows.with_columns(pl.Series(WEIGHT, weights, pl.Int32)).filter(pl.Series(inside))
    rest = (rows.clear() if whole is None else whole).with_columns(pl.lit(0, pl.Int32).alias(WEIGHT))
    sampled = sums.of(drawn, sizes=known)
    return KeySample.of(
        aggregates,
        by,
        sampled.by_key(by) if summed else sampled,
        sums.of(rest, sizes=False),
        probability=fraction,
        known_rows=rows.height if known else None,
        filtered=where is not None,
        weights=sample_to_weights(fraction) if part else None,
    )


def intervals(
    exprs: Mapping[str, pl.Expr],
    rows: pl.DataFrame,
    weights: np.ndarray,
    fraction: float,
    *,
    factor: float = 1.96,
    by: Sequence[str] = (),
    where: pl.Expr | None = None,
    known: bool = True,
    part: bool = False,
    summed: bool = False,
    key: Sequence[str] = (),
) -> dict[str, Interval]:
    """The intervals of a sample."""
    drawn = sample_of(
        exprs, rows, weights, fraction, by=by, where=where, known=known, part=part, summed=summed, key=key
    )
    return {item.name: interval_of(drawn, item, factor) for item in recognised(exprs, rows, key).answers}

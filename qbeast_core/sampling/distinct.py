"""Count the distinct keys of a sample: each sampled key adds one, and keys of rows that are not sampled are certain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from qbeast_core.sampling.aggregates import TOTAL
from qbeast_core.sampling.sums import MAX, SHOWN, WEIGHT, Sums
from qbeast_core.spec.own_column import own_column
from qbeast_core.support.joins import join_equal

# Prefix of the columns of keys that rows outside of the sample show.
_CERTAIN: Final = own_column("certain")


def count_keys(sampled: Sums, whole: Sums, by: Sequence[str], numbers: Collection[int]) -> tuple[Sums, Sums]:
    """Add distinct keys to the totals with these numbers. Keys of both parts count in `whole` alone, without error."""
    if not numbers:
        return sampled, whole
    shown = {f"{TOTAL}{number}": f"{SHOWN}{index}" for index, number in enumerate(numbers)}
    keys = _uncertain(sampled.keys, whole.keys, [*shown.values()])
    schema = sampled.entries.collect_schema()
    values = {name: pl.lit(0) for name in schema if name.startswith(TOTAL)}
    values |= {total: pl.col(name) for total, name in shown.items()}
    casts = [value.cast(schema[name]).alias(name) for name, value in values.items()]
    one_each = keys.lazy().filter(pl.any_horizontal(shown.values())).select(WEIGHT, *by, *casts)
    entries = pl.concat([sampled.entries, one_each.select(schema.names())])
    return (
        replace(sampled, groups=_with_counts(sampled.groups, keys, by, shown), entries=entries),
        replace(whole, groups=_with_counts(whole.groups, whole.keys, by, shown)),
    )


def _uncertain(sampled: pl.DataFrame, whole: pl.DataFrame, shown: Sequence[str]) -> pl.DataFrame:
    """Return the sampled keys; those that also occur in `whole` are not shown."""
    on = [name for name in whole.columns if name != WEIGHT and name not in shown]
    certain = whole.select(*on, *(pl.col(name).alias(f"{_CERTAIN}{name}") for name in shown))
    is_certain = {name: pl.col(f"{_CERTAIN}{name}").fill_null(value=False) for name in shown}
    joined = join_equal(sampled, certain, on, "left", nulls_equal=True)
    return joined.with_columns(pl.col(name) & ~flag for name, flag in is_certain.items())


def _with_counts(
    groups: pl.DataFrame, keys: pl.DataFrame, by: Sequence[str], shown: Mapping[str, str]
) -> pl.DataFrame:
    """Return groups with the numbers of their keys."""
    exprs = [pl.col(name).sum().alias(total) for total, name in shown.items()]
    others = groups.drop(shown)
    if by:
        counted = join_equal(others, keys.group_by(by).agg(exprs), by, "left", nulls_equal=True)
    else:
        counted = others.hstack(keys.select(exprs))
    maxima = [pl.lit(1).alias(f"{MAX}{total.removeprefix(TOTAL)}") for total in shown]
    return counted.with_columns(pl.col([*shown]).fill_null(0), *maxima)

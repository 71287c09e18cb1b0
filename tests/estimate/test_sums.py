"""Sums by key and group are those of a group_by, however rows come in batches."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from qbeast_core.estimate.aggregates import TOTAL
from qbeast_core.estimate.batch import RowSums
from qbeast_core.estimate.sums import _MOST_PARTS, WEIGHT, KeySizes, KeySums, Sums, common_groups

SUM = [f"{TOTAL}{at}" for at in range(2)]


def rows(seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    count, keys = int(random.integers(0, 80)), int(random.integers(1, 100))
    kinds = pl.Series("kind", random.choice(["a", "b", "c"], count), pl.String)
    return pl.DataFrame(
        {
            WEIGHT: pl.Series(random.integers(-keys, keys, count), dtype=pl.Int32),
            "kind": kinds.set(pl.Series(random.random(count) < 0.2), None),
            "cents": pl.Series(random.integers(0, 10**6, count)).cast(pl.Decimal(12, 2)),
        }
    )


@pytest.mark.parametrize("by", [(), ("kind",)])
def test_they_are_those_of_a_group_by(by: tuple[str, ...]) -> None:
    asked = RowSums((pl.lit(1), pl.col("cents")), (), by, pl.col("cents") > 2000, None, {})
    for seed in range(40):
        batches = [rows(100 * seed + at) for at in range(seed % 3 + 1)]
        batches_summed = [asked.of(one, sizes=True) for one in batches]
        rows_together = Sums.together(batches_summed, by)
        keys_together = Sums.together([one.by_key(by) for one in batches_summed], by)
        every = pl.concat(batches)
        kept = every.filter(pl.col("cents") > 2000)
        expected = kept.group_by(WEIGHT, *by).agg(
            pl.len().cast(pl.Float64).alias(SUM[0]), pl.col("cents").sum().cast(pl.Float64).alias(SUM[1])
        )
        for found in (rows_together, keys_together):
            groups, _ = common_groups([found], by)
            added = KeySums.of(found.entries, groups, by, found.scales)
            keys = pl.DataFrame(
                {WEIGHT: added.weight, SUM[0]: added.totals[:, 0], SUM[1]: added.totals[:, 1]}
            ).with_columns(groups[name].gather(added.group) for name in by)
            assert_frame_equal(keys.select(expected.columns), expected, check_row_order=False)
            assert found.totals().sum(axis=0).tolist() == [kept.height, float(kept["cents"].sum() or 0)]
            most = kept.select(pl.lit(1).max(), pl.col("cents").max().cast(pl.Float64).fill_null(0.0)).row(0)
            assert found.extremes()[1].max(axis=0, initial=0.0).tolist() == [
                most[0] * min(kept.height, 1),
                most[1],
            ]
            sizes, counted = every.group_by(WEIGHT).len().sort(WEIGHT), found.sizes.counted()
            more = sizes.filter(pl.col("len") > 1)
            assert counted.weight.tolist() == more[WEIGHT].to_list()
            assert counted.rows.tolist() == more["len"].to_list()
            assert counted.singles == sizes.height - more.height
            assert counted.largest == (sizes["len"].max() or 0)
            for one in (1, 2, 3):
                assert counted.power(one) == float((sizes["len"] ** one).sum())


def test_many_parts_are_what_they_are_together() -> None:
    asked = RowSums((pl.lit(1), pl.col("cents")), (), ("kind",), None, None, {})
    batches = [rows(seed) for seed in range(100)]
    parts, one = [asked.of(batch, sizes=True) for batch in batches], asked.of(pl.concat(batches), sizes=True)
    many = Sums.together(parts, ["kind"])
    assert len(parts) > _MOST_PARTS
    assert_frame_equal(many.entries.collect(), one.entries.collect())
    assert_frame_equal(many.groups, one.groups, check_row_order=False)
    assert many.size_bytes == pytest.approx(one.size_bytes, rel=0.5)


def test_sizes_are_found_again() -> None:
    sizes = KeySizes(np.array([5, -3, 5, 9, 5, 9], np.int32)).counted()
    assert sizes.looked_up(np.array([9, 5, -3, 5], np.int32)).tolist() == [2, 3, 1, 3]

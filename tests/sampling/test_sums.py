"""Sums by key and group are those of a group_by, however rows come in batches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from qbeast_core.sampling.recognise import TOTAL
from qbeast_core.sampling.sums import WEIGHT, KeySizes, KeySums, Parts, RowSums, Sums, common_groups
from qbeast_core.support.sizing import sizing
from tests.helpers.small_files import resized

SUM = [f"{TOTAL}{at}" for at in range(2)]


def named(by: Iterable[str]) -> dict[str, pl.Expr]:
    return {name: pl.col(name) for name in by}


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
def test_sums_equal_group_by(by: tuple[str, ...]) -> None:
    request = RowSums((pl.lit(1), pl.col("cents")), (), named(by), pl.col("cents") > 2000, (), {})
    for seed in range(12):
        batches = [rows(100 * seed + at) for at in range(seed % 3 + 1)]
        batches_summed = [request.of(item, sizes=True) for item in batches]
        rows_together = Sums.concat(batches_summed, by)
        keys_together = Sums.concat([item.by_key(by) for item in batches_summed], by)
        everything = pl.concat(batches)
        kept = everything.filter(pl.col("cents") > 2000)
        expected = kept.group_by(WEIGHT, *by).agg(
            pl.len().cast(pl.Float64).alias(SUM[0]), pl.col("cents").sum().cast(pl.Float64).alias(SUM[1])
        )
        for actual in (rows_together, keys_together):
            groups, _ = common_groups([actual], by)
            added = KeySums.of(actual.entries, groups, by, actual.scales)
            keys = pl.DataFrame(
                {WEIGHT: added.weight, SUM[0]: added.totals[:, 0], SUM[1]: added.totals[:, 1]}
            ).with_columns(groups[name].gather(added.group) for name in by)
            assert_frame_equal(keys.select(expected.columns), expected, check_row_order=False)
            assert actual.totals().sum(axis=0).tolist() == [kept.height, float(kept["cents"].sum() or 0)]
            most = kept.select(pl.lit(1).max(), pl.col("cents").max().cast(pl.Float64).fill_null(0.0)).row(0)
            assert actual.extremes()[1].max(axis=0, initial=0.0).tolist() == [
                most[0] * min(kept.height, 1),
                most[1],
            ]
            sizes, counted = everything.group_by(WEIGHT).len().sort(WEIGHT), actual.sizes.counted()
            more = sizes.filter(pl.col("len") > 1)
            assert counted.weight.tolist() == more[WEIGHT].to_list()
            assert counted.rows.tolist() == more["len"].to_list()
            assert counted.singles == sizes.height - more.height
            assert counted.largest == (sizes["len"].max() or 0)
            for item in (1, 2, 3):
                assert counted.power(item) == float((sizes["len"] ** item).sum())


def test_merged_parts_equal_the_whole() -> None:
    request = RowSums((pl.lit(1), pl.col("cents")), (), named(["kind"]), None, (), {})
    batches = [rows(seed) for seed in range(100)]
    parts, item = (
        [request.of(batch, sizes=True) for batch in batches],
        request.of(pl.concat(batches), sizes=True),
    )
    many = Sums.concat(parts, ["kind"])
    assert len(parts) > sizing().max_query_parts
    assert_frame_equal(many.entries.collect(), item.entries.collect())
    assert_frame_equal(many.groups, item.groups, check_row_order=False)
    assert many.size_bytes == pytest.approx(item.size_bytes, rel=0.5)


def test_key_sizes_are_looked_up() -> None:
    sizes = KeySizes(np.array([5, -3, 5, 9, 5, 9], np.int32)).counted()
    assert sizes.rows_of(np.array([9, 5, -3, 5], np.int32)).tolist() == [2, 3, 1, 3]


KINDS = {
    "float": pl.Series([0.0, -0.0, float("nan"), None, 1.5, -float("nan"), 0.0], dtype=pl.Float64),
    "short float": pl.Series([0.0, -0.0, float("nan"), None, 1.5, -1.5, 0.0], dtype=pl.Float32),
    "text": pl.Series(["b", "a", None, "b", "", "aa", "a"]),
    "category": pl.Series(["b", "a", None, "b", "c", "aa", "a"], dtype=pl.Categorical),
    "enum": pl.Series(["b", "a", None, "b", "b", "c", "a"], dtype=pl.Enum(["c", "b", "a"])),
    "bytes": pl.Series([b"b", b"a", None, b"b", b"", b"\x00", b"a"]),
    "truth": pl.Series([True, False, None, True, False, None, True]),
    "money": pl.Series([1, 2, None, 2, 1, 3, 3]).cast(pl.Decimal(9, 2)),
    "day": pl.Series([1, 2, None, 2, 1, 3, 3]).cast(pl.Date),
    "nothing": pl.Series([None] * 7, dtype=pl.Int8),
}


@pytest.mark.parametrize("first", list(KINDS))
@pytest.mark.parametrize("second", ["float", "text"])
def test_groups_equal_polars_for_any_type(first: str, second: str) -> None:
    random, by = np.random.default_rng(5), ["first", "second"]
    request = RowSums((pl.lit(1), pl.col("x")), (), named(by), None, (), {})
    batches: list[pl.DataFrame] = []
    for count in (60, 0, 3):
        columns = {
            name: KINDS[kind].gather(random.integers(0, 7, count))
            for name, kind in zip(by, (first, second), strict=True)
        }
        weights = pl.Series(random.integers(0, 20, count), dtype=pl.Int32)
        batches.append(pl.DataFrame({WEIGHT: weights, **columns, "x": np.arange(count)}))
    parts = [request.of(batch, sizes=True) for batch in batches]
    groups, numbers = common_groups(parts, by)
    everything = pl.concat(batches)
    assert groups.height == everything.group_by(by).len().height
    for part, actual in zip(parts, numbers, strict=True):
        assert_frame_equal(part.groups.select(by), groups[actual].select(by), abs_tol=0)
    expected = everything.group_by(by).agg(pl.col("x").sum())
    for part in (Sums.concat(parts, by), parts[2]):  # which lacks groups
        sums = KeySums.of(part.entries, groups, by, part.scales)
        assert (np.diff(sums.group) >= 0).all()
        added = np.bincount(sums.group, sums.totals[:, 1], minlength=groups.height)
        kept = expected if part is not parts[2] else batches[2].group_by(by).agg(pl.col("x").sum())
        found_sums = groups.select(by).with_columns(x=pl.Series(added, dtype=pl.Float64).cast(pl.Int64))
        met = found_sums.join(kept, on=by, how="left", nulls_equal=True)
        assert met["x"].to_list() == met["x_right"].fill_null(0).to_list()


@pytest.mark.parametrize("by", [(), ("kind",), ("cents",)])
@resized(min_merged_groups=50)
def test_groups_of_many_batches_use_little_memory(by: tuple[str, ...]) -> None:
    request = RowSums((pl.lit(1), pl.col("cents")), (), named(by), None, (), {})
    batches = [rows(seed).with_columns(pl.col("cents") % 500) for seed in range(60)]
    parts, sums = Parts(by), [request.of(item, sizes=True) for item in batches]
    groups = pl.concat([item.groups for item in sums]).select(by).n_unique() if by else 1
    for item in sums:
        parts.add(item)
        rows_held = sum(part.groups.height for part in parts.sums)
        assert rows_held <= max(50, 2 * groups) + item.groups.height or not by
        assert parts.size_bytes >= sum(part.size_bytes for part in parts.sums)
    once, actual = Sums.concat(sums, by), Sums.concat(parts.sums, by)
    assert_frame_equal(actual.groups, once.groups, check_row_order=False)
    assert_frame_equal(actual.entries.collect(), once.entries.collect())
    assert len(parts.sums) == len(sums)


def test_empty_sums_add_nothing() -> None:
    for by in ((), ("kind",)):
        request = RowSums((pl.lit(1), pl.col("cents")), (pl.col("cents"),), named(by), None, (), {})
        some = request.of(rows(7), sizes=True)
        none = request.of(rows(7).clear(), sizes=True)
        assert none.totals().sum() == 0.0 == float(np.abs(none.extremes()[0][:, 1]).sum())
        assert none.entries.collect().height == none.rows.height == none.size_bytes == 0
        both = Sums.concat([some, none], by)
        assert_frame_equal(both.groups, some.groups, check_row_order=False)
        assert both.entries.collect().equals(some.entries.collect())
        assert none.sizes.counted().largest == 0

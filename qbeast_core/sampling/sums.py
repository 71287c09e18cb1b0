"""Exact totals per group, and sums per key, which are the units of variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.sampling.key_rows import KeySizes, among, repeats_in, run_starts
from qbeast_core.sampling.recognise import TOTAL
from qbeast_core.space.values import F64Array, I32Array, I64Array
from qbeast_core.support.joins import join_equal, own_column
from qbeast_core.support.sizing import sizing

# The column that identifies keys: rows of equal weight are in a sample concat.
WEIGHT: Final = own_column("key_weight")

# Prefix of the columns of values for quantiles.
VALUE: Final = own_column("value")

# The column with the number of a group.
GROUP: Final = own_column("group")

# Prefixes of the columns of a key, and of whether a row with the key counts for a total of distinct keys.
KEY: Final = own_column("key_value")
SHOWN: Final = own_column("shown")

# Prefixes of the columns of the minimum and maximum that a row adds to a total.
_MIN: Final = own_column("least")
MAX: Final = own_column("most")

_ROW: Final = own_column("row")


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """Totals of each key in each group; this object owns the array of totals."""

    weight: I32Array
    # Number of the group, ascending, shape (entries,).
    group: I64Array
    # Shape (entries, totals), column by column in memory.
    totals: F64Array

    @staticmethod
    def of(
        entries: pl.LazyFrame, groups: pl.DataFrame, by: Sequence[str], scales: Sequence[float]
    ) -> KeySums:
        """Sum rows by key."""
        names = [f"{TOTAL}{index}" for index in range(len(scales))]
        floats = pl.col(names).cast(pl.Float64).fill_null(0.0)
        rows = entries.select(WEIGHT, *by, floats).collect()
        numbers = np.zeros(rows.height, np.int64)
        if by:  # one list per group: a join of numbers to rows is three times slower
            lists = rows.group_by(by).agg(pl.all()).sort(by, nulls_last=True)
            is_complete = lists.height == groups.height  # and in the same order
            numbers = np.arange(groups.height) if is_complete else numbers_of(lists, groups, by)
            numbers = np.repeat(numbers, lists[WEIGHT].list.len().to_numpy())
            rows = lists.select(pl.col(WEIGHT, *names).explode())
        sums = np.empty((rows.height, len(names)), order="F")
        for index, (name, scale) in enumerate(zip(names, scales, strict=True)):
            np.multiply(rows[name].to_numpy(), scale, out=sums[:, index])
        return KeySums(rows[WEIGHT].to_numpy(), numbers, sums).merged()

    def merged(self) -> KeySums:
        """Return each key once per group. Most keys have one row and stay in place: faster than a full sort."""
        repeats = _repeats(self.weight)
        if not len(repeats):
            return self
        code = (self.weight[repeats].astype(np.int64) << 32) | self.group[repeats]
        order = np.argsort(code, kind="stable")
        starts = run_starts(code[order])
        self.totals[repeats[order[starts]]] = np.add.reduceat(self.totals[repeats[order]], starts, axis=0)
        first = np.zeros(len(repeats), np.bool_)
        first[order[starts]] = True
        return self if first.all() else self._without(repeats[~first])

    def _without(self, dropped: I64Array) -> KeySums:
        """Return the other entries in order."""
        mask = np.ones(len(self.weight), np.bool_)
        mask[dropped] = False
        kept = np.flatnonzero(mask)
        totals = self.totals[: len(kept)]  # in place: new memory costs more
        for index in range(totals.shape[1]):
            totals[:, index] = self.totals[kept, index]
        return KeySums(self.weight[kept], self.group[kept], totals)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The sums of some rows; it can be pickled."""

    # One row per group: its columns, exact totals in units of `scales`, and the minimum and maximum that one row
    # adds to each total. One row without group columns.
    groups: pl.DataFrame
    # Units of the totals: decimals are summed as integers.
    scales: tuple[float, ...]
    # `WEIGHT`, the columns of groups and exact totals, of rows or of keys; empty if keys do not matter. A query over
    # rows in memory: selecting some keys costs little.
    entries: pl.LazyFrame
    # Approximate memory of all entries; the rows in memory need at most as much.
    entries_bytes: int
    # Empty if row counts of keys are not needed.
    sizes: KeySizes
    # `WEIGHT`, the columns of groups, and values of rows for quantiles.
    rows: pl.DataFrame
    # Distinct keys of each group: `WEIGHT`, the columns of groups, `KEY` and `SHOWN`; no columns if they do not count.
    keys: pl.DataFrame = field(default_factory=pl.DataFrame)

    @staticmethod
    def concat(parts: Sequence[Sums], by: Sequence[str]) -> Sums:
        """Join sums; a key may be in several."""
        if len(parts) == 1:
            return parts[0]
        return Sums(
            groups=_merged(pl.concat([part.groups for part in parts]), by),
            scales=parts[0].scales,
            entries=_one_query([part.entries for part in parts]),
            entries_bytes=sum(part.entries_bytes for part in parts),
            sizes=KeySizes.concat([part.sizes for part in parts]),
            rows=pl.concat([part.rows for part in parts]),
            keys=merged_keys(pl.concat([part.keys for part in parts]).lazy()),
        )

    def by_key(self, by: Sequence[str]) -> Sums:
        """Return sums with one entry per key and group, which is smaller if keys have many rows."""
        names = self.entries.collect_schema().names()
        totals = [name for name in names if name.startswith(TOTAL)]
        entries = self.entries.group_by(WEIGHT, *by).agg(pl.col(totals).sum()).select(names).collect()
        return replace(
            self,
            entries=entries.lazy(),
            entries_bytes=int(entries.estimated_size()),
            sizes=self.sizes.by_key(),
        )

    @property
    def size_bytes(self) -> int:
        """Memory of the sums of keys."""
        frames = int(self.rows.estimated_size() + self.keys.estimated_size())
        return self.entries_bytes + frames + self.sizes.size_bytes

    def totals(self) -> F64Array:
        """Return the totals of each group, shape (groups, totals)."""
        return self._floats(TOTAL)

    def extremes(self) -> tuple[F64Array, F64Array]:
        """Return the minimum and maximum that a row adds to each total, shape (groups, totals)."""
        return self._floats(_MIN), self._floats(MAX)

    def _floats(self, kind: str) -> F64Array:
        """Return columns of groups, 0.0 for nulls; one by one, because a query is slower for few groups."""
        totals = np.empty((self.groups.height, len(self.scales)))
        for index, scale in enumerate(self.scales):
            column = self.groups[f"{kind}{index}"]
            totals[:, index] = column.cast(pl.Float64).to_numpy() * scale
            if column.null_count():
                totals[column.is_null().to_numpy(), index] = 0.0
        return totals


class Parts:
    """Collects sums of batches; groups and distinct keys need about twice the memory of the final ones."""

    def __init__(self, by: Sequence[str]) -> None:
        self.sums: list[Sums] = []
        self._by = by
        # Rows of groups and distinct keys, and their memory.
        self._rows = self._merged_rows = 0
        self._merged_bytes = self._entries_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Memory in bytes."""
        return self._merged_bytes + self._entries_bytes

    def add(self, sums: Sums) -> None:
        """Add the sums of a batch."""
        self.sums.append(sums)
        self._rows += sums.groups.height + sums.keys.height
        merged_bytes = int(sums.groups.estimated_size())
        self._merged_bytes += merged_bytes + int(sums.keys.estimated_size())
        self._entries_bytes += sums.size_bytes - int(sums.keys.estimated_size())
        if self._rows > max(sizing().min_merged_groups, 2 * self._merged_rows):
            self._merge()

    def _merge(self) -> None:
        groups = _merged(pl.concat([part.groups for part in self.sums]), self._by)
        keys = merged_keys(pl.concat([part.keys for part in self.sums]).lazy())
        self.sums = [replace(part, groups=part.groups.clear(), keys=part.keys.clear()) for part in self.sums]
        self.sums[0] = replace(self.sums[0], groups=groups, keys=keys)
        self._rows = self._merged_rows = groups.height + keys.height
        self._merged_bytes = int(groups.estimated_size() + keys.estimated_size())


def totals_of(rows: pl.LazyFrame, by: Sequence[str], summed: Sequence[str]) -> pl.DataFrame:
    """Return totals of groups, with the minimum and maximum that a row adds.

    >>> rows = pl.LazyFrame({"kind": ["a", "a"], f"{TOTAL}0": [1, 1], f"{TOTAL}1": [3, 4]})
    >>> totals_of(rows, ["kind"], [f"{TOTAL}0", f"{TOTAL}1"]).rows()
    [('a', 2, 7, 1, 1, 3, 4)]
    """
    exprs = [pl.col(summed).sum(), pl.lit(1).alias(f"{_MIN}0"), pl.lit(1).alias(f"{MAX}0")]
    for index, name in enumerate(summed[1:], start=1):
        added = pl.col(name).fill_null(0)
        exprs += [added.min().alias(f"{_MIN}{index}"), added.max().alias(f"{MAX}{index}")]
    return (rows.group_by(by).agg(exprs) if by else rows.select(exprs)).collect()


def _one_query(parts: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Return one query over all parts; many parts are collected first, because a query over them is slow."""
    return (
        pl.concat(parts)
        if len(parts) <= sizing().max_query_parts
        else pl.concat(pl.collect_all(parts)).lazy()
    )


def _merged(groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Merge totals of parts."""
    exprs = [pl.col(f"^{TOTAL}.*$").sum(), pl.col(f"^{_MIN}.*$").min(), pl.col(f"^{MAX}.*$").max()]
    return (groups.group_by(by).agg(exprs) if by else groups.select(exprs)).select(groups.columns)


def merged_keys(keys: pl.LazyFrame) -> pl.DataFrame:
    """Return each key once per group.

    >>> keys = pl.LazyFrame({f"{KEY}0": ["a", None, "a"], f"{SHOWN}0": [False, True, True]})
    >>> merged_keys(keys).sort(f"{KEY}0").rows()
    [(None, True), ('a', True)]
    """
    names = keys.collect_schema().names()
    if not names:
        return pl.DataFrame()
    shown = [name for name in names if name.startswith(SHOWN)]
    each = [name for name in names if name not in shown]
    return keys.group_by(each).agg(pl.col(shown).any()).select(names).collect()


def numbers_of(rows: pl.DataFrame, groups: pl.DataFrame, by: Sequence[str]) -> I64Array:
    """Return the number of each row's group.

    >>> rows, groups = pl.DataFrame({"kind": ["a", None, "a"]}), pl.DataFrame({"kind": ["a", None]})
    >>> numbers_of(rows, groups, ["kind"])
    array([0, 1, 0])
    """
    if not rows.height or not by:
        return np.zeros(rows.height, np.int64)
    numbers = groups.select(*by, pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW))
    joined = join_equal(rows.select(by), numbers, by, "left", nulls_equal=True, maintain_order="left")
    return joined[_ROW].to_numpy()


def common_groups(parts: Sequence[Sums], by: Sequence[str]) -> tuple[pl.DataFrame, list[I64Array]]:
    """Return all groups in order, and for each part the numbers of its groups."""
    if not by:
        return pl.DataFrame({GROUP: [0]}), [np.zeros(1, np.int64) for _ in parts]
    # Frames instead of a query, which takes longer for a few groups.
    rows = pl.concat([part.groups.select(by) for part in parts]).with_row_index(_ROW)
    ordered = rows.sort(by, nulls_last=True).with_columns(pl.struct(by).rle_id().alias(GROUP))
    number = ordered[GROUP].to_numpy().astype(np.int64)
    numbers = np.empty_like(number)
    numbers[ordered[_ROW].to_numpy()] = number
    groups = ordered[run_starts(number)].select(GROUP, *by)
    return groups, np.split(numbers, np.cumsum([part.groups.height for part in parts])[:-1])


def _repeats(weight: I32Array) -> I64Array:
    """Return the entries whose keys occur more than once."""
    repeated = repeats_in(pl.Series(weight).sort(multithreaded=False).to_numpy())  # twice as fast as NumPy
    return among(weight, repeated[run_starts(repeated)])[0]

"""Per-group totals, which are exact, and per-key sums, the units of variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.sampling.aggregates import TOTAL
from qbeast_core.sampling.runs import run_starts
from qbeast_core.space.arrays import F64Array, I32Array, I64Array
from qbeast_core.spec.own_column import own_column

# The column that identifies keys: rows of equal weight are in a sample together, whatever their keys.
WEIGHT: Final = own_column("key_weight")

# Prefix of the columns of values for quantiles.
VALUE: Final = own_column("value")

# The column with the number of a group.
GROUP: Final = own_column("group")

# Prefixes of the columns of the least and the largest value that a row adds to a total.
_MIN: Final = own_column("least")
_MAX: Final = own_column("most")

_ROW: Final = own_column("row")

# Maximum number of frames of a query: with a thousand it takes half a second, with five thousand 17.
_MAX_PARTS: Final = 64

# From this many groups on, parts are added up as they arrive: each of them may have all groups.
_MANY_GROUPS: Final = 1 << 16

# Up to this many rows per key on average, keys are repeated and sorted: `argsort` takes three times as long.
_FEW_REPEAT: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """Totals of each key in each group; no other object uses the array of totals."""

    weight: I32Array
    # Number of the group, ascending, shape (entries,).
    group: I64Array
    # Shape (entries, totals), column by column in memory.
    totals: F64Array

    @staticmethod
    def of(
        entries: pl.LazyFrame, groups: pl.DataFrame, by: Sequence[str], scales: Sequence[float]
    ) -> KeySums:
        """Add up rows."""
        names = [f"{TOTAL}{at}" for at in range(len(scales))]
        floats = pl.col(names).cast(pl.Float64).fill_null(0.0)
        rows = entries.select(WEIGHT, *by, floats).collect()
        numbers = np.zeros(rows.height, np.int64)
        if by:  # one list per group: to join the number to each row takes three times as long
            lists = rows.group_by(by).agg(pl.all()).sort(by, nulls_last=True)
            every = lists.height == groups.height  # and in the same order
            numbers = np.arange(groups.height) if every else numbers_of(lists, groups, by)
            numbers = np.repeat(numbers, lists[WEIGHT].list.len().to_numpy())
            rows = lists.select(pl.col(WEIGHT, *names).explode())
        sums = np.empty((rows.height, len(names)), order="F")
        for at, (name, scale) in enumerate(zip(names, scales, strict=True)):
            np.multiply(rows[name].to_numpy(), scale, out=sums[:, at])
        return KeySums(rows[WEIGHT].to_numpy(), numbers, sums).added_up()

    def added_up(self) -> KeySums:
        """Return each key once per group. Most keys have one row and stay in place: a full sort takes longer."""
        again = _repeats(self.weight)
        if not len(again):
            return self
        code = (self.weight[again].astype(np.int64) << 32) | self.group[again]
        order = np.argsort(code, kind="stable")
        starts = run_starts(code[order])
        self.totals[again[order[starts]]] = np.add.reduceat(self.totals[again[order]], starts, axis=0)
        first = np.zeros(len(again), np.bool_)
        first[order[starts]] = True
        return self if first.all() else self._without(again[~first])

    def _without(self, left_out: I64Array) -> KeySums:
        """Return the other entries, in their order."""
        mask = np.ones(len(self.weight), np.bool_)
        mask[left_out] = False
        stays = np.flatnonzero(mask)
        totals = self.totals[: len(stays)]  # in place: new memory costs more
        for at in range(totals.shape[1]):
            totals[:, at] = self.totals[stays, at]
        return KeySums(self.weight[stays], self.group[stays], totals)


@dataclass(frozen=True, slots=True, eq=False)
class KeySizes:
    """Rows of each key, including those that a filter leaves out."""

    # Shape (entries,); ascending in each part.
    weight: I32Array
    # Number of rows of each entry; None: one each.
    rows: I64Array | None = None

    @staticmethod
    def together(parts: Sequence[KeySizes]) -> KeySizes:
        """Concatenate parts; a key may be in several."""
        weights = np.concatenate([one.weight for one in parts])
        if all(one.rows is None for one in parts):
            return KeySizes(weights)
        rows = [np.ones(len(one.weight), np.int64) if one.rows is None else one.rows for one in parts]
        return KeySizes(weights, np.concatenate(rows))

    @property
    def size_bytes(self) -> int:
        """Memory in bytes."""
        return self.weight.nbytes + (0 if self.rows is None else self.rows.nbytes)

    def by_key(self) -> KeySizes:
        """Return each key once, ascending."""
        return KeySizes(*self._each())

    def _each(self) -> tuple[I32Array, I64Array]:
        """Return each key once, ascending, and all its rows."""
        if self.rows is None:
            return np.unique(self.weight, return_counts=True)
        order = np.argsort(self.weight, kind="stable")
        ordered = self.weight[order]
        starts = run_starts(ordered)
        return ordered[starts], np.add.reduceat(self.rows[order], starts)

    def counted(self) -> CountedKeys:
        """Count the rows of each key."""
        rows = self.rows
        if rows is not None and rows.sum() > _FEW_REPEAT * len(rows):
            keys, counts = self._each()
            more = counts > 1
            return CountedKeys(keys[more], counts[more], int((~more).sum()))
        weights = self.weight if rows is None else np.repeat(self.weight, rows)
        repeated = _repeated(np.sort(weights, kind="stable"))  # a stable sort merges sorted parts
        starts = run_starts(repeated)
        counts = np.diff(starts, append=len(repeated)) + 1  # the first row of a key is not a repeat
        return CountedKeys(repeated[starts], counts, len(weights) - int(counts.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class CountedKeys:
    """Rows of each key."""

    # Keys of several rows, each once, ascending, shape (keys,).
    weight: I32Array
    rows: I64Array
    singles: int

    @property
    def largest(self) -> int:
        """Rows of the heaviest key; 0 without keys."""
        return int(self.rows.max(initial=min(self.singles, 1)))

    def power(self, exponent: int) -> float:
        """Return the sum of the rows of all keys, each to this power."""
        return self.singles + float((self.rows.astype(np.float64) ** exponent).sum())

    def looked_up(self, weight: I32Array) -> F64Array:
        """Return the rows of keys that are among these, shape (entries,)."""
        found = np.ones(len(weight))
        entries, place = _among(weight, self.weight)
        found[entries] = self.rows[place]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The sums of some rows; it pickles."""

    # One row a group: its columns, exact totals in units of `scales`, and the least and the largest that one
    # row adds to each. Without columns of groups, one row.
    groups: pl.DataFrame
    # Units of the totals: decimals are summed as integers.
    scales: tuple[float, ...]
    # `WEIGHT`, the columns of groups and exact totals, of rows or of keys; empty if keys do not matter. A query over
    # rows in memory: selecting some keys costs little.
    entries: pl.LazyFrame
    # Memory that all of them take, about; the rows in memory take no more.
    entries_bytes: int
    # Without keys where they are not needed.
    sizes: KeySizes
    # `WEIGHT`, the columns of groups, and values of rows for quantiles.
    rows: pl.DataFrame

    @staticmethod
    def together(parts: Sequence[Sums], by: Sequence[str]) -> Sums:
        """Join sums; a key may be in several."""
        if len(parts) == 1:
            return parts[0]
        return Sums(
            groups=_added(pl.concat([one.groups for one in parts]), by),
            scales=parts[0].scales,
            entries=_one_query([one.entries for one in parts]),
            entries_bytes=sum(one.entries_bytes for one in parts),
            sizes=KeySizes.together([one.sizes for one in parts]),
            rows=pl.concat([one.rows for one in parts]),
        )

    def without_rows(self, by: Sequence[str]) -> Sums:
        """Return the sums of no rows, with the same columns."""
        return Sums(
            groups=self.groups.clear(0 if by else 1),  # without columns all rows are a group, even none
            scales=self.scales,
            entries=pl.LazyFrame(schema=self.entries.collect_schema()),
            entries_bytes=0,
            sizes=KeySizes(np.zeros(0, np.int32)),
            rows=self.rows.clear(),
        )

    def by_key(self, by: Sequence[str]) -> Sums:
        """Return the same with one entry for each key of a group, which are fewer where keys have many rows."""
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
        return self.entries_bytes + int(self.rows.estimated_size()) + self.sizes.size_bytes

    def totals(self) -> F64Array:
        """Return the totals of each group, shape (groups, totals)."""
        return self._floats(TOTAL)

    def extremes(self) -> tuple[F64Array, F64Array]:
        """Return the least and the largest that a row adds to each total, shape (groups, totals)."""
        return self._floats(_MIN), self._floats(_MAX)

    def _floats(self, kind: str) -> F64Array:
        """Return columns of groups, 0.0 for nulls; one by one, since a query takes longer for a few groups."""
        found = np.empty((self.groups.height, len(self.scales)))
        for at, scale in enumerate(self.scales):
            one = self.groups[f"{kind}{at}"]
            found[:, at] = one.cast(pl.Float64).to_numpy() * scale
            if one.null_count():
                found[one.is_null().to_numpy(), at] = 0.0
        return found


class Parts:
    """Sums of batches as they arrive: their groups take about twice the memory of all groups."""

    def __init__(self, by: Sequence[str]) -> None:
        self.sums: list[Sums] = []
        self._by = by
        self._groups = self._added_up = 0
        self._groups_bytes = self._keys_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Memory in bytes."""
        return self._groups_bytes + self._keys_bytes

    def add(self, sums: Sums) -> None:
        """Add the sums of a batch."""
        self.sums.append(sums)
        self._groups += sums.groups.height
        self._groups_bytes += int(sums.groups.estimated_size())
        self._keys_bytes += sums.size_bytes
        if self._by and self._groups > max(_MANY_GROUPS, 2 * self._added_up):
            self._add_up()

    def _add_up(self) -> None:
        groups = _added(pl.concat([one.groups for one in self.sums]), self._by)
        self.sums = [replace(one, groups=one.groups.clear()) for one in self.sums]
        self.sums[0] = replace(self.sums[0], groups=groups)
        self._groups = self._added_up = groups.height
        self._groups_bytes = int(groups.estimated_size())


def totals_of(rows: pl.LazyFrame, by: Sequence[str], summed: Sequence[str]) -> pl.DataFrame:
    """Return totals of groups, with the extremes of what rows add.

    >>> rows = pl.LazyFrame({"kind": ["a", "a"], f"{TOTAL}0": [1, 1], f"{TOTAL}1": [3, 4]})
    >>> totals_of(rows, ["kind"], [f"{TOTAL}0", f"{TOTAL}1"]).rows()
    [('a', 2, 7, 1, 1, 3, 4)]
    """
    found = [pl.col(summed).sum(), pl.lit(1).alias(f"{_MIN}0"), pl.lit(1).alias(f"{_MAX}0")]
    for at, name in enumerate(summed[1:], start=1):
        added = pl.col(name).fill_null(0)
        found += [added.min().alias(f"{_MIN}{at}"), added.max().alias(f"{_MAX}{at}")]
    return (rows.group_by(by).agg(found) if by else rows.select(found)).collect()


def _one_query(parts: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Return one query over all parts; many parts are collected first, since a query over them is slow."""
    return pl.concat(parts) if len(parts) <= _MAX_PARTS else pl.concat(pl.collect_all(parts)).lazy()


def _added(groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Add up totals of parts."""
    found = [pl.col(f"^{TOTAL}.*$").sum(), pl.col(f"^{_MIN}.*$").min(), pl.col(f"^{_MAX}.*$").max()]
    return (groups.group_by(by).agg(found) if by else groups.select(found)).select(groups.columns)


def numbers_of(rows: pl.DataFrame, groups: pl.DataFrame, by: Sequence[str]) -> I64Array:
    """Return the number of each row's group.

    >>> rows, groups = pl.DataFrame({"kind": ["a", None, "a"]}), pl.DataFrame({"kind": ["a", None]})
    >>> numbers_of(rows, groups, ["kind"])
    array([0, 1, 0])
    """
    if not rows.height or not by:
        return np.zeros(rows.height, np.int64)
    numbers = groups.select(*by, pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW))
    found = rows.select(by).join(numbers, on=by, how="left", nulls_equal=True, maintain_order="left")
    return found[_ROW].to_numpy()


def common_groups(parts: Sequence[Sums], by: Sequence[str]) -> tuple[pl.DataFrame, list[I64Array]]:
    """Return all groups in order, and for each part the numbers of its groups among them."""
    if not by:
        return pl.DataFrame({GROUP: [0]}), [np.zeros(1, np.int64) for _ in parts]
    # Frames instead of a query, which takes longer for a few groups.
    found = pl.concat([one.groups.select(by) for one in parts]).with_row_index(_ROW)
    ordered = found.sort(by, nulls_last=True).with_columns(pl.struct(by).rle_id().alias(GROUP))
    number = ordered[GROUP].to_numpy().astype(np.int64)
    numbers = np.empty_like(number)
    numbers[ordered[_ROW].to_numpy()] = number
    every = ordered[run_starts(number)].select(GROUP, *by)
    return every, np.split(numbers, np.cumsum([one.groups.height for one in parts])[:-1])


def _repeats(weight: I32Array) -> I64Array:
    """Return the entries of keys that occur more than once."""
    repeated = _repeated(pl.Series(weight).sort(multithreaded=False).to_numpy())  # twice as fast as NumPy's
    return _among(weight, repeated[run_starts(repeated)])[0]


def _repeated(ordered: I32Array) -> I32Array:
    """Return each value of a sorted array as often as it repeats."""
    again: I32Array = ordered[1:][ordered[1:] == ordered[:-1]]
    return again


def _among(weight: I32Array, some: I32Array) -> tuple[I64Array, I64Array]:
    """Return the entries whose weights are among some sorted ones, and their places there.

    Few weights repeat, so most entries are ruled out by their upper halves, which costs a tenth of looking them up.
    """
    halves = np.zeros(1 << 16, np.bool_)
    halves[(some >> 16) + (1 << 15)] = True
    entries = np.flatnonzero(halves[(weight >> 16) + (1 << 15)])
    place = np.searchsorted(some, weight[entries])
    here = some[np.minimum(place, len(some) - 1)] == weight[entries] if len(some) else entries > 0
    return entries[here], place[here]

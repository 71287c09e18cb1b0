"""Sum batches of rows by group and by key, which is the unit of variance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.sampling.recognise import TOTAL
from qbeast_core.space.values import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.support.frames import join_equal, own_column
from qbeast_core.support.sizing import sizing

# Up to this many rows per key on average, keys are repeated and sorted: `argsort` is three times slower.
_MAX_MEAN_ROWS: Final = 2

# A difference with a smaller probability than this is a deviation.
MIN_CHANCE: Final = 0.001

# An unseen key with fewer rows than this share of the standard error of the row count does not shift an answer.
MIN_SHIFT: Final = 0.25

# The same for a sample of a given size, which may be much smaller than that of a promise.
MIN_SHIFT_OF_SAMPLE: Final = 0.1

_MAX_ERRORS: Final = NormalDist().inv_cdf(1 - MIN_CHANCE / 2)


# The squares that a sample explains have an error of their own. A difference of fewer errors is not a deviation.
_SQUARES_ERRORS: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupRuns:
    """Positions of the members of each group in an array that is sorted by group."""

    # Number of the group of each run, ascending, shape (runs,).
    group: I64Array
    starts: I64Array
    size: int

    @staticmethod
    def of(groups: I64Array) -> GroupRuns:
        """Find the runs of sorted group numbers.

        >>> runs = GroupRuns.of(np.array([0, 0, 2]))
        >>> runs.sums(np.array([1.0, 2.0, 3.0]), 3), runs.largest(np.array([1.0, 2.0, 3.0]), 3)
        (array([3., 0., 3.]), array([2., 0., 3.]))
        >>> runs.spread(np.array([5.0, 6.0, 7.0]))
        array([5., 5., 7.])
        """
        starts = _run_starts(groups)
        return GroupRuns(groups[starts], starts, len(groups))

    def sums(self, values: F64Array | BoolArray, groups: int) -> F64Array:
        """Return the sum of each of `groups` groups; 0.0 without members."""
        result = np.zeros(groups)
        if self.size:
            result[self.group] = np.add.reduceat(values, self.starts, dtype=np.float64)
        return result

    def largest(self, values: F64Array, groups: int) -> F64Array:
        """Return the maximum of each group for values of at least 0; 0.0 without members."""
        result = np.zeros(groups)
        if self.size:
            result[self.group] = np.maximum.reduceat(values, self.starts)
        return result

    def spread(self, group_values: F64Array) -> F64Array:
        """Return the value of the group of each member."""
        return np.repeat(group_values[self.group], np.diff(np.append(self.starts, self.size)))


def _run_starts(ordered: I32Array | I64Array) -> I64Array:
    """Return the first position of each distinct value in a sorted array."""
    is_start = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_start[1:])
    return np.flatnonzero(is_start)


@dataclass(frozen=True, slots=True, eq=False)
class KeySizes:
    """Rows of each key, including rows that a filter drops."""

    # Shape (entries,); ascending in each part.
    weight: I32Array
    # Number of rows of each entry; None for one each.
    rows: I64Array | None = None

    @staticmethod
    def concat(parts: Sequence[KeySizes]) -> KeySizes:
        """Concatenate parts; a key may be in several."""
        weights = np.concatenate([part.weight for part in parts])
        if all(part.rows is None for part in parts):
            return KeySizes(weights)
        rows = [np.ones(len(part.weight), np.int64) if part.rows is None else part.rows for part in parts]
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
        starts = _run_starts(ordered)
        return ordered[starts], np.add.reduceat(self.rows[order], starts)

    def counted(self) -> CountedKeys:
        """Count the rows of each key."""
        rows = self.rows
        if rows is not None and rows.sum() > _MAX_MEAN_ROWS * len(rows):
            keys, counts = self._each()
            is_repeated = counts > 1
            return CountedKeys(keys[is_repeated], counts[is_repeated], int((~is_repeated).sum()))
        weights = self.weight if rows is None else np.repeat(self.weight, rows)
        repeated = _repeats_in(np.sort(weights, kind="stable"))  # a stable sort merges sorted parts
        starts = _run_starts(repeated)
        counts = np.diff(starts, append=len(repeated)) + 1  # the first row of a key is not a repeat
        return CountedKeys(repeated[starts], counts, len(weights) - int(counts.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class CountedKeys:
    """Rows of each key."""

    # Distinct keys with several rows, ascending, shape (keys,).
    weight: I32Array
    rows: I64Array
    singles: int

    @property
    def largest(self) -> int:
        """Rows of the heaviest key; 0 without keys."""
        return int(self.rows.max(initial=min(self.singles, 1)))

    def power(self, exponent: int) -> float:
        """Return the sum of the row counts of all keys, raised to a power."""
        return self.singles + float((self.rows.astype(np.float64) ** exponent).sum())

    def rows_of(self, weight: I32Array) -> F64Array:
        """Return the number of rows of each key, shape (entries,); other keys count as one row."""
        rows = np.ones(len(weight))
        entries, position = _among(weight, self.weight)
        rows[entries] = self.rows[position]
        return rows


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often keys repeat in the rows that samples are drawn from, by the tags of their files."""

    rows: float
    # Sum of `m_k * (m_k - 1)` over the keys, where m_k is the number of rows of a key, and its standard error.
    excess: float
    error: float = 0.0
    min_shift: float = MIN_SHIFT

    def among(self, rows: float) -> Repeats:
        """Return the repeats in a part of the rows: keys are assumed to match a filter as often as others."""
        share = min(rows / self.rows, 1.0) if self.rows else 1.0
        return replace(self, rows=rows, excess=self.excess * share**2, error=self.error * share**2)


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Row counts of a sample of keys, and tests whether the sample fits the whole table."""

    # Number of rows of the sampled keys, and the sum of the squared row counts of keys.
    rows: float
    squares: float
    # Probability of a key to be in the sample, in (0, 1].
    probability: float
    # Sum of `(n_k * (n_k - 1)) ** 2`.
    excess_squares: float = 0.0

    @staticmethod
    def of(sizes: CountedKeys, probability: float) -> SeenRows:
        """Return the row counts of the keys of a sample."""
        rows, squares, cubes, fourths = map(sizes.power, (1, 2, 3, 4))
        return SeenRows(rows, squares, probability, fourths - 2 * cubes + squares)

    @property
    def is_all(self) -> bool:
        """Whether the sample holds all keys, or none."""
        return self.probability in (0.0, 1.0)

    def differs(self, bounds: tuple[int, int] | None, repeats: Repeats | None) -> bool:
        """Return whether the number of rows, or how often keys repeat, is not as the log has it; None: unknown."""
        deviates = bounds is not None and self.deviates(*bounds)
        return deviates or (repeats is not None and self.lacks_keys(repeats))

    def lacks_keys(self, repeats: Repeats) -> bool:
        """Return whether an unseen key may hold enough rows to shift an answer.

        >>> seen = SeenRows(rows=1_000, squares=1_000, probability=0.1)
        >>> [seen.lacks_keys(Repeats(10_000, excess)) for excess in (400, 500**2)]
        [False, True]
        """
        if self.is_all:
            return False
        p, matching = self.probability, repeats.among(self.rows / self.probability)
        unexplained = matching.excess - (self.squares - self.rows) / p
        row_error = math.sqrt((1 - p) * self.squares) / p
        error = math.hypot(math.sqrt((1 - p) * self.excess_squares) / p, matching.error)
        return unexplained > _SQUARES_ERRORS * error and unexplained > (repeats.min_shift * row_error) ** 2

    def deviates(self, min_rows: float, max_rows: float | None = None) -> bool:
        """Return whether the number of sampled rows differs from the expected number by more than chance explains.

        >>> SeenRows(rows=980, squares=980, probability=0.1).deviates(10_000)
        False
        >>> SeenRows(rows=700, squares=700, probability=0.1).deviates(10_000)
        True
        >>> SeenRows(rows=700, squares=300_000, probability=0.1).deviates(10_000)  # one key has 500 of them
        False
        """
        p = self.probability
        if self.is_all:
            return False
        missing = p * min_rows - self.rows
        excess = self.rows - p * (min_rows if max_rows is None else max_rows)
        difference = max(missing, excess)
        # Each key has at least one row, also if no key was sampled.
        expected = p * min_rows if missing > excess else 0.0
        return difference > _MAX_ERRORS * math.sqrt((1 - p) * max(self.squares, expected))


def _repeats_in(ordered: I32Array) -> I32Array:
    """Return the repeats of values in a sorted array."""
    repeats: I32Array = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeats


def _among(weight: I32Array, values: I32Array) -> tuple[I64Array, I64Array]:
    """Return the entries whose weights are in a sorted array, and their positions there.

    Few weights match, so a test of their upper halves excludes most entries at a tenth of the cost of a search.
    """
    halves = np.zeros(1 << 16, np.bool_)
    halves[(values >> 16) + (1 << 15)] = True
    entries = np.flatnonzero(halves[(weight >> 16) + (1 << 15)])
    position = np.searchsorted(values, weight[entries])
    is_member = (
        values[np.minimum(position, len(values) - 1)] == weight[entries] if len(values) else entries > 0
    )
    return entries[is_member], position[is_member]


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
        starts = _run_starts(code[order])
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
            keys=_merged_keys(pl.concat([part.keys for part in parts]).lazy()),
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
        keys = _merged_keys(pl.concat([part.keys for part in self.sums]).lazy())
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


def _merged_keys(keys: pl.LazyFrame) -> pl.DataFrame:
    """Return each key once per group.

    >>> keys = pl.LazyFrame({f"{KEY}0": ["a", None, "a"], f"{SHOWN}0": [False, True, True]})
    >>> _merged_keys(keys).sort(f"{KEY}0").rows()
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
    groups = ordered[_run_starts(number)].select(GROUP, *by)
    return groups, np.split(numbers, np.cumsum([part.groups.height for part in parts])[:-1])


def _repeats(weight: I32Array) -> I64Array:
    """Return the entries whose keys occur more than once."""
    repeated = _repeats_in(pl.Series(weight).sort(multithreaded=False).to_numpy())  # twice as fast as NumPy
    return _among(weight, repeated[_run_starts(repeated)])[0]


# Approximate memory of a value: a 128-bit integer, or the view of a string.
_VALUE_BYTES: Final = 16

# The column with the number of matches of a key.
_MATCHES: Final = own_column("matches")

# How a row with or without a match is joined, as in Polars.
JoinHow: TypeAlias = Literal["left", "inner", "semi", "anti"]

# Sums of a billion longer decimals may not fit 128 bits; they are summed as floats, like integers of 128 bits.
_MAX_EXACT_DIGITS: Final = 29
_SHORT: Final = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Lookup:
    """A frame that is joined to the rows."""

    frame: pl.DataFrame
    on: tuple[str, ...]
    how: JoinHow = "left"

    @cached_property
    def repeated(self) -> pl.DataFrame | None:
        """The keys with several matches, and their number; None if a row never becomes several rows."""
        if self.how in ("semi", "anti"):
            return None
        counts = self.frame.lazy().group_by(self.on).agg(pl.len().cast(pl.Int64).alias(_MATCHES))
        repeated = counts.filter(pl.col(_MATCHES) > 1).collect()
        return repeated if repeated.height else None


@dataclass(frozen=True, slots=True, eq=False)
class RowSums:
    """The expressions that sum a batch of rows; it can be pickled."""

    # Summed over rows, see `Aggregates.totals`.
    totals: tuple[pl.Expr, ...]
    quantiles: tuple[pl.Expr, ...]
    # Group expressions by column name.
    groups: Mapping[str, pl.Expr]
    condition: pl.Expr | None
    # Joined in this order.
    lookups: Sequence[Lookup]
    # Values of `Aggregates.centres`.
    centres: Mapping[str, float]
    # See `Aggregates.key` and `Aggregates.shown`.
    key: tuple[str, ...] = ()
    shown: tuple[pl.Expr, ...] = ()

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of groups."""
        return tuple(self.groups)

    def kept(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows that meet the condition, with the joined columns."""
        for lookup in self.lookups:
            rows = join_equal(rows, lookup.frame.lazy(), lookup.on, lookup.how)
        return rows if self.condition is None else rows.filter(self.condition)

    def pieces(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Split a batch, so that the joined rows of each piece need a bounded amount of memory."""
        matches = np.ones(frame.height, np.int64)
        row_bytes = frame.estimated_size() / max(frame.height, 1)
        for lookup in self.lookups:
            if lookup.repeated is not None:
                joined = join_equal(
                    frame.select(lookup.on), lookup.repeated, lookup.on, "left", maintain_order="left"
                )
                matches *= joined[_MATCHES].fill_null(1).to_numpy()
                row_bytes += lookup.frame.estimated_size() / lookup.frame.height
        max_rows = max(int(sizing().batch_bytes / max(row_bytes, 1.0)), 1)
        starts = _run_starts((np.cumsum(matches) - 1) // max_rows).tolist()
        if len(starts) <= 1:
            yield frame
            return
        for start, end in pairwise([*starts, frame.height]):
            yield frame[start:end]

    def of(self, frame: pl.DataFrame, *, sizes: bool) -> Sums:
        """Sum up a batch."""
        totals = [expr.alias(f"{TOTAL}{index}") for index, expr in enumerate(self.totals)]
        values = [expr.alias(f"{VALUE}{index}") for index, expr in enumerate(self.quantiles)]
        names = [expr.meta.output_name() for expr in totals]
        centres = [pl.lit(number).alias(name) for name, number in self.centres.items()]
        has_weights = WEIGHT in frame.columns
        key = [] if has_weights else [pl.lit(0, pl.Int32).alias(WEIGHT)]
        groups_of = [expr.alias(name) for name, expr in self.groups.items()]
        summed = self.kept(frame.lazy()).with_columns(*centres, *key)
        summed = summed.with_columns(*totals, *values, *groups_of, *self._key_columns)
        types = summed.select(names).collect_schema()
        # A query instead of rows: only some keys need them, and new memory costs more than computing them again.
        entries = summed.select(WEIGHT, *self.by, *(_exact(name, types[name]) for name in names))
        groups = totals_of(entries, self.by, names)
        entries_bytes = int(groups[names[0]].sum()) * _VALUE_BYTES * len(entries.collect_schema())
        if not has_weights:
            entries, entries_bytes = pl.LazyFrame(schema=entries.collect_schema()), 0
        elif frame.estimated_size() > entries_bytes:
            collected = entries.collect()
            entries, entries_bytes = collected.lazy(), int(collected.estimated_size())
        no_rows = pl.DataFrame(schema=entries.select(WEIGHT, *self.by).collect_schema())
        value_rows = summed.select(WEIGHT, *self.by, *(expr.meta.output_name() for expr in values))
        # Polars sorts weights twice as fast as NumPy.
        weights = frame[WEIGHT].sort() if sizes and has_weights else pl.Series(dtype=pl.Int32)
        return Sums(
            groups=groups,
            scales=tuple(_scale(types[name]) for name in names),
            entries=entries,
            entries_bytes=entries_bytes,
            sizes=KeySizes(weights.to_numpy()),
            rows=value_rows.collect() if values else no_rows,
            keys=self._keys(summed) if self.key else pl.DataFrame(),
        )

    @property
    def _key_columns(self) -> list[pl.Expr]:
        """The columns of the key, and whether a row shows it."""
        key = [pl.col(name).alias(f"{KEY}{index}") for index, name in enumerate(self.key)]
        return [*key, *(expr.alias(f"{SHOWN}{index}") for index, expr in enumerate(self.shown))]

    def _keys(self, rows: pl.LazyFrame) -> pl.DataFrame:
        """Return the distinct keys of each group."""
        names = [expr.meta.output_name() for expr in self._key_columns]
        shown = pl.any_horizontal(f"{SHOWN}{index}" for index in range(len(self.shown)))
        return _merged_keys(rows.select(WEIGHT, *self.by, *names).filter(shown))


def _exact(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return values in a type whose sums do not overflow, and are exact except for floats."""
    values = pl.col(name)
    if isinstance(dtype, _SHORT):
        return values.cast(pl.Int64)
    if isinstance(dtype, pl.Decimal):  # decimals take five times as long to sum by key
        is_long = dtype.precision > _MAX_EXACT_DIGITS
        return values.to_physical().cast(pl.Float64 if is_long else pl.Int128)
    return values.cast(pl.Int128 if dtype.is_integer() and dtype != pl.Int128() else pl.Float64)


def _scale(dtype: pl.DataType) -> float:
    """Return the unit of `_exact` values."""
    return 10.0**-dtype.scale if isinstance(dtype, pl.Decimal) else 1.0

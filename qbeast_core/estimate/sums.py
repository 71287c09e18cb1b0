"""What rows come to: exact sums of each group, and sums of each key, by which answers vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.estimate.aggregates import TOTAL
from qbeast_core.estimate.runs import run_starts
from qbeast_core.space.arrays import F64Array, I32Array, I64Array

__all__ = ["GROUP", "VALUE", "WEIGHT", "KeySizes", "KeySums", "Sums", "common_groups", "grouped"]

WEIGHT: Final = "__qbeast_key_weight"
"""The column that tells keys apart: rows with one weight are in a sample together, whatever their keys."""

VALUE: Final = "__qbeast_value_"
"""What the columns of values are called that quantiles are of, with a number after it."""

GROUP: Final = "__qbeast_group"
"""The column with the number of a group."""

_ROW: Final = "__qbeast_row"

_FEW_REPEAT: Final = 2
"""Rows of a key, on average, up to which keys are repeated and sorted: finding an order takes three times as long."""


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """Totals of the rows of each key, of each group by itself; it owns its arrays.

    Attributes
    ----------
    weight : I32Array
        Of the key, shape (entries,).
    group : I64Array
        Number of the group, shape (entries,).
    totals : F64Array
        Shape (entries, totals), column by column in memory.
    """

    weight: I32Array
    group: I64Array
    totals: F64Array

    def added_up(self) -> KeySums:
        """Return each key once in a group; most keys have one row, and stay where they are."""
        again = _repeats(self.weight)
        if not len(again):
            return self
        code = (self.weight[again].astype(np.int64) << 32) | self.group[again]
        order = np.argsort(code, kind="stable")
        starts = run_starts(code[order])
        self.totals[again[order[starts]]] = np.add.reduceat(self.totals[again[order]], starts, axis=0)
        others = np.ones(len(again), np.bool_)
        others[order[starts]] = False
        return self._without(again[others])

    def _without(self, left_out: I64Array) -> KeySums:
        """Return all entries but some, into whose places the last ones move: nothing else is copied."""
        size = len(self.weight) - len(left_out)
        stays = np.ones(len(left_out), np.bool_)
        stays[left_out[left_out >= size] - size] = False
        places, moved = left_out[left_out < size], size + np.flatnonzero(stays)
        for array in (self.weight, self.group, self.totals):
            array[places] = array[moved]
        return KeySums(self.weight[:size], self.group[:size], self.totals[:size])

    def by_group(self) -> KeySums:
        """Return the same in the order of groups."""
        if len(self.group) == 0 or self.group.max() == self.group.min():
            return self
        few = self.group.astype(
            np.min_scalar_type(int(self.group.max()))
        )  # short numbers are sorted by their digits
        order = np.argsort(few, kind="stable")
        totals = np.empty_like(self.totals, order="F")
        for at in range(totals.shape[1]):
            np.take(self.totals[:, at], order, out=totals[:, at], mode="clip")  # which looks at no bounds
        return KeySums(self.weight[order], self.group[order], totals)

    def renumbered(self, numbers: I64Array) -> KeySums:
        """Return the same with other numbers of groups, `numbers[old]`."""
        return KeySums(self.weight, numbers[self.group], self.totals)


@dataclass(frozen=True, slots=True, eq=False)
class KeySizes:
    """Rows of each key, those included that a filter leaves out.

    Attributes
    ----------
    weight : I32Array
        Each once, ascending, shape (keys,).
    rows : I64Array
        Shape (keys,).
    """

    weight: I32Array
    rows: I64Array

    @staticmethod
    def of(weights: I32Array, rows: I64Array | None = None) -> KeySizes:
        """Count rows.

        Parameters
        ----------
        weights : I32Array
            In any order.
        rows : I64Array, optional
            That each stands for; one by default.
        """
        if rows is not None and rows.sum() <= _FEW_REPEAT * len(rows):
            weights, rows = np.repeat(weights, rows), None
        if rows is None:
            ordered = np.sort(weights)
            starts = run_starts(ordered)
            return KeySizes(ordered[starts], np.diff(np.append(starts, len(ordered))))
        order = np.argsort(weights, kind="stable")
        starts = run_starts(weights[order])
        sums = np.add.reduceat(rows[order], starts) if len(starts) else rows
        return KeySizes(weights[order][starts], sums)

    def looked_up(self, weight: I32Array) -> F64Array:
        """Return the rows of keys that are among these, shape (entries,)."""
        found = np.ones(len(weight))
        more = self.rows > 1
        entries, place = _among(weight, self.weight[more])
        found[entries] = self.rows[more][place]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What some rows come to; it pickles.

    Attributes
    ----------
    groups : polars.DataFrame
        One row a group: its columns, and exact totals in units of `scales`. Without columns of groups, one row.
    scales : tuple of float
        Units of the totals: decimals are summed as integers.
    keys : KeySums
        Without entries where keys are not told apart. A group's number is its row of `groups`.
    sizes : KeySizes
        Without keys where they are not needed.
    rows : polars.DataFrame
        `WEIGHT`, `GROUP`, and values of rows for quantiles.
    """

    groups: pl.DataFrame
    scales: tuple[float, ...]
    keys: KeySums
    sizes: KeySizes
    rows: pl.DataFrame

    @staticmethod
    def together(parts: Sequence[Sums], by: Sequence[str], *, overlap: bool = False) -> Sums:
        """Put sums together.

        Parameters
        ----------
        parts : sequence of Sums
            Of one question, at least one.
        by : sequence of str
            The columns of groups.
        overlap : bool
            Whether a key may be in several.
        """
        if len(parts) == 1:
            return parts[0]
        names = [f"{TOTAL}{at}" for at in range(len(parts[0].scales))]
        groups, number = grouped(pl.concat([one.groups for one in parts]), by, names)
        numbers = np.split(number, np.cumsum([one.groups.height for one in parts])[:-1])
        keys = [one.keys.renumbered(new) for one, new in zip(parts, numbers, strict=True)]
        every = KeySums(
            np.concatenate([one.weight for one in keys]),
            np.concatenate([one.group for one in keys]),
            np.asfortranarray(np.concatenate([one.totals for one in keys])),
        )
        weights = np.concatenate([one.sizes.weight for one in parts])
        rows = np.concatenate([one.sizes.rows for one in parts])
        return Sums(
            groups=groups,
            scales=parts[0].scales,
            keys=every.added_up() if overlap else every,
            sizes=KeySizes.of(weights, rows),
            rows=pl.concat([_renumbered(one.rows, new) for one, new in zip(parts, numbers, strict=True)]),
        )

    @property
    def size_bytes(self) -> int:
        """Memory that what is held for each key takes."""
        held = (self.keys.weight, self.keys.group, self.keys.totals, self.sizes.weight, self.sizes.rows)
        return sum(one.nbytes for one in held) + int(self.rows.estimated_size())

    def totals(self) -> F64Array:
        """Return the totals of each group, shape (groups, totals)."""
        names = [f"{TOTAL}{at}" for at in range(len(self.scales))]
        found: F64Array = self.groups.select(pl.col(names).cast(pl.Float64)).to_numpy(writable=True)
        found *= np.array(self.scales)
        return found


def grouped(frame: pl.DataFrame, by: Sequence[str], summed: Sequence[str]) -> tuple[pl.DataFrame, I64Array]:
    """Find groups.

    Parameters
    ----------
    frame : polars.DataFrame
        Rows.
    by : sequence of str
        Columns of groups; none: all rows are one group.
    summed : sequence of str
        Columns that are summed.

    Returns
    -------
    polars.DataFrame
        One row a group, with sums.
    I64Array
        The number of each row's group, shape (rows,).

    Examples
    --------
    >>> rows = pl.DataFrame({"kind": ["a", "a"], "x": [1, 2]})
    >>> grouped(rows, ["kind"], ["x"])[0].rows(), grouped(rows, ["kind"], ["x"])[1]
    ([('a', 3)], array([0, 0]))
    """
    if not by:
        return frame.select(pl.col(summed).sum()), np.zeros(frame.height, np.int64)
    found = (
        frame.select(*by, *summed).with_row_index(_ROW).group_by(by).agg(pl.col(summed).sum(), pl.col(_ROW))
    )
    rows = found[_ROW]
    number = np.empty(frame.height, np.int64)
    number[rows.explode().to_numpy()] = np.repeat(np.arange(found.height), rows.list.len().to_numpy())
    return found.drop(_ROW), number


def common_groups(parts: Sequence[Sums], by: Sequence[str]) -> tuple[pl.DataFrame, list[I64Array]]:
    """Return all groups in order, and for each part the numbers of its groups among them.

    Parameters
    ----------
    parts : sequence of Sums
        Of one question.
    by : sequence of str
        The columns of groups.
    """
    if not by:
        return pl.DataFrame({GROUP: [0]}), [np.zeros(1, np.int64) for _ in parts]
    groups, number = grouped(pl.concat([one.groups.select(by) for one in parts]), by, ())
    ordered = groups.with_row_index(_ROW).sort(by, nulls_last=True)
    rank = np.empty(groups.height, np.int64)
    rank[ordered[_ROW].to_numpy()] = np.arange(groups.height)
    cuts = np.cumsum([one.groups.height for one in parts])[:-1]
    return ordered.drop(_ROW).with_row_index(GROUP), np.split(rank[number], cuts)


def _renumbered(rows: pl.DataFrame, numbers: I64Array) -> pl.DataFrame:
    return rows.with_columns(pl.Series(GROUP, numbers[rows[GROUP].to_numpy()], pl.Int64))


def _repeats(weight: I32Array) -> I64Array:
    """Return the entries of keys of which there is more than one."""
    ordered = np.sort(weight)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return _among(weight, repeated[run_starts(repeated)])[0]


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

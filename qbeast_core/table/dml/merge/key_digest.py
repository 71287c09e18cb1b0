"""Digest of the keys of a merge source: row count, hash sum, and the values or their minimum and maximum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.plan.nodes import Node, Nothing, Operand, Unknown, all_of, compare, is_in
from qbeast_core.support.sizing import sizing
from qbeast_core.table.dml.merge.merge_rules import MergeRules
from qbeast_core.table.read.tasks import RowFilter
from qbeast_core.tree.grid import frame_weights


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """The values of one column without nulls."""

    # All distinct values in ascending order, or the minimum and the maximum.
    values: pl.Series
    # Whether `values` holds all distinct values.
    exact: bool

    @staticmethod
    def of(values: pl.Series, *, exact: bool = True) -> KeyColumn:
        """Return a column with all distinct values if they are few, else with their minimum and maximum."""
        different = values.drop_nulls().unique().sort()
        if exact and len(different) <= sizing().listed_keys:
            return KeyColumn(different, exact=True)
        ends = different.gather([0, len(different) - 1])
        return KeyColumn(ends.unique(maintain_order=True), exact=False)


@dataclass(frozen=True, slots=True, eq=False)
class KeyDigest:
    """Digest of the keys of some rows."""

    rows: int
    # Sum of the key hashes.
    hash_sum: int
    # One per column to match by.
    columns: tuple[KeyColumn, ...]

    def check(self, rows: int, hash_sum: int, *, advice: str) -> None:
        """Raise if a second read returned other rows."""
        if (rows, hash_sum) != (self.rows, self.hash_sum):
            msg = (
                f"the source changed while it was merged: {self.rows:,} rows were counted, then {rows:,} were read, or "
                f"their keys differed. It is read twice: {advice}"
            )
            raise InputChangedError(msg, rows_before=self.rows, rows_after=rows)


def digest_of(rules: MergeRules, rows: pl.DataFrame) -> KeyDigest:
    """Return the digest of the keys of some rows."""
    names = rules.clauses.keys
    keys = rules.fit_keys(rows)
    columns = tuple(KeyColumn.of(keys[name]) for name in names)
    return KeyDigest(keys.height, int(key_hashes(keys, names).sum(dtype=np.int64)), columns)


def merge_digests(digests: Sequence[KeyDigest]) -> KeyDigest:
    """Return the digest of all parts."""
    columns = [
        KeyColumn.of(pl.concat([part.values for part in parts]), exact=all(part.exact for part in parts))
        for parts in zip(*(digest.columns for digest in digests), strict=True)
    ]
    return KeyDigest(
        sum(digest.rows for digest in digests), sum(digest.hash_sum for digest in digests), tuple(columns)
    )


def key_hashes(rows: pl.DataFrame, names: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return a hash of each row's key. Equal keys have equal hashes in all processes on all machines.

    >>> hashes = key_hashes(pl.DataFrame({"a": [0.0, -0.0], "b": [True, True]}), ["a", "b"])
    >>> bool(hashes[0] == hashes[1])
    True
    """
    plain = rows.select(_hashable(name, rows.schema[name]) for name in names)
    return frame_weights(plain, list(names)).view(np.uint32)


def key_filter(rules: MergeRules, keep: RowFilter, digest: KeyDigest) -> RowFilter:
    """Return a filter that skips keys without a possible match."""
    tests = [_can_match(name, keys) for name, keys in zip(rules.clauses.keys, digest.columns, strict=True)]
    predicate = pl.all_horizontal(tests)
    return RowFilter(keep.columns, keep.schema, keep.indexed, keep.weights, predicate, compares_values=True)


def key_nodes(rules: MergeRules, digest: KeyDigest) -> list[Node]:
    """Return a condition per key column that selects files with possible matches."""
    return [
        _node(Operand(name, rules.schema[name]), keys)
        for name, keys in zip(rules.clauses.keys, digest.columns, strict=True)
    ]


def _can_match(name: str, keys: KeyColumn) -> pl.Expr:
    column, values = pl.col(name), keys.values
    if not len(values):
        return pl.lit(value=False)
    if values.dtype.is_float():  # a range does not contain NaN
        return column.is_not_null()
    if keys.exact:
        return column.is_in(values.implode())
    return column.is_between(pl.lit(values[0], values.dtype), pl.lit(values[-1], values.dtype))


def _node(operand: Operand, keys: KeyColumn) -> Node:
    values = keys.values
    if not len(values):
        return Nothing()
    if keys.exact:
        return is_in(operand, values, nulls_equal=False)
    if values.dtype.is_float() and values.is_nan().any():
        return Unknown()
    return all_of([compare(operand, ">=", values[:1]), compare(operand, "<=", values[-1:])])


def _hashable(name: str, dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.Boolean():
        return pl.col(name).cast(pl.Int8)
    return pl.col(name).bin.encode("hex") if dtype == pl.Binary() else pl.col(name)

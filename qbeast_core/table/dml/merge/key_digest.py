"""A digest of the keys of a merge's source: their number, and their values or the ends of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.query.filters.atoms import compare, is_in
from qbeast_core.query.filters.nodes import Node, Nothing, Operand, Unknown, all_of
from qbeast_core.table.dml.merge.rules import MergeRules
from qbeast_core.table.read.scan_task import RowFilter
from qbeast_core.tree.space.columns import frame_weights

_MAX_VALUES: Final = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """The values of one column, nulls aside."""

    # All of them, each once, ascending; or the least and the greatest.
    values: pl.Series
    # Whether it is all of them.
    exact: bool

    @staticmethod
    def of(values: pl.Series, *, exact: bool = True) -> KeyColumn:
        """Keep all values as long as they are few."""
        different = values.drop_nulls().unique().sort()
        if exact and len(different) <= _MAX_VALUES:
            return KeyColumn(different, exact=True)
        ends = different.gather([0, len(different) - 1])
        return KeyColumn(ends.unique(maintain_order=True), exact=False)


@dataclass(frozen=True, slots=True, eq=False)
class KeyDigest:
    """A digest of keys."""

    rows: int
    # Sum of the hashes of their keys.
    hash_sum: int
    # One for each column to match by.
    columns: tuple[KeyColumn, ...]

    def check(self, rows: int, hash_sum: int, *, advice: str) -> None:
        """Raise unless the rows that came later are those of the digest."""
        if (rows, hash_sum) != (self.rows, self.hash_sum):
            msg = (
                f"the source changed while it was merged: {self.rows:,} rows were counted, then {rows:,} arrived, or "
                f"their keys differed. Nothing was changed. It is read twice: {advice}"
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
    """Return a number for each row, the same for rows with equal keys: on every machine, of every process.

    >>> hashes = key_hashes(pl.DataFrame({"a": [0.0, -0.0], "b": [True, True]}), ["a", "b"])
    >>> bool(hashes[0] == hashes[1])
    True
    """
    plain = rows.select(_hashable(name, rows.schema[name]) for name in names)
    return frame_weights(plain, list(names)).view(np.uint32)


def key_filter(rules: MergeRules, keep: RowFilter, digest: KeyDigest) -> RowFilter:
    """Return a read of keys without those that surely match nothing."""
    tests = [_can_match(name, keys) for name, keys in zip(rules.clauses.keys, digest.columns, strict=True)]
    predicate = pl.all_horizontal(tests)
    return RowFilter(keep.columns, keep.schema, keep.indexed, keep.weights, predicate, compares_values=True)


def key_nodes(rules: MergeRules, digest: KeyDigest) -> list[Node]:
    """Return what the source has of each key, for the choice of files."""
    return [
        _node(Operand(name, rules.schema[name]), keys)
        for name, keys in zip(rules.clauses.keys, digest.columns, strict=True)
    ]


def _can_match(name: str, keys: KeyColumn) -> pl.Expr:
    column, values = pl.col(name), keys.values
    if not len(values):
        return pl.lit(value=False)
    if values.dtype.is_float():  # NaN has no place in a range
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

"""What the driver knows of the keys of a merge's source: how many rows there are, and which values, or their ends."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from qbeast_core.table.dml.merge_rules import MergeRules
from qbeast_core.tree.columns import frame_weights
from qbeast_spark_bridge.worker.transport import gathered, longs_as_decimals

__all__ = ["DIGESTS", "KeyColumn", "KeyDigest", "digest_keys", "key_hashes", "merge_digests"]

DIGESTS: Final = "digest binary"
"""Columns of what `digest_keys` yields."""

_DIGESTS_SCHEMA: Final = pa.schema([("digest", pa.binary())])
_MOST_VALUES: Final = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """The values of one column, nulls aside.

    Attributes
    ----------
    values : polars.Series
        All of them, each once, ascending; or the least and the greatest.
    exact : bool
        Whether it is all of them.
    """

    values: pl.Series
    exact: bool

    @staticmethod
    def of(values: pl.Series, *, exact: bool = True) -> KeyColumn:
        """Keep all values as long as they are few."""
        known = values.drop_nulls().unique().sort()
        if exact and len(known) <= _MOST_VALUES:
            return KeyColumn(known, exact=True)
        return KeyColumn(known.gather([0, len(known) - 1]).unique(maintain_order=True), exact=False)


@dataclass(frozen=True, slots=True, eq=False)
class KeyDigest:
    """What is known of the keys.

    Attributes
    ----------
    rows : int
        How many rows there are.
    hash_sum : int
        Sum of the hashes of their keys.
    columns : tuple of KeyColumn
        One for each column to match by.
    """

    rows: int
    hash_sum: int
    columns: tuple[KeyColumn, ...]


def digest_keys(
    argument: tuple[MergeRules, Sequence[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the digest of a partition's keys, in a worker; nothing for no rows.

    Parameters
    ----------
    argument : tuple
        What to do, names of the columns, and which are decimals sent as whole numbers.
    batches : iterator of pyarrow.RecordBatch
        The columns to match by.
    """
    rules, names, decimals = argument
    found: KeyDigest | None = None
    for table in gathered(batches, names):
        keys = rules.fit_keys(pl.DataFrame(longs_as_decimals(table, decimals)))
        columns = tuple(KeyColumn.of(keys[name]) for name in rules.clauses.keys)
        one = KeyDigest(keys.height, int(key_hashes(keys, rules.clauses.keys).sum(dtype=np.int64)), columns)
        found = one if found is None else merge_digests([found, one])
    if found is not None:
        yield pa.record_batch([[pickle.dumps(found)]], schema=_DIGESTS_SCHEMA)


def merge_digests(digests: Sequence[KeyDigest]) -> KeyDigest:
    """Return what is known of the keys of all parts.

    Parameters
    ----------
    digests : sequence of KeyDigest
        At least one.
    """
    columns = [
        KeyColumn.of(pl.concat([one.values for one in parts]), exact=all(one.exact for one in parts))
        for parts in zip(*(digest.columns for digest in digests), strict=True)
    ]
    return KeyDigest(
        sum(digest.rows for digest in digests), sum(digest.hash_sum for digest in digests), tuple(columns)
    )


def key_hashes(rows: pl.DataFrame, names: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return a number for each row, the same for rows with equal keys: on every machine, of every process.

    Parameters
    ----------
    rows : polars.DataFrame
        With the columns, of the table's types.
    names : sequence of str
        Columns to match by.

    Examples
    --------
    >>> found = key_hashes(pl.DataFrame({"a": [0.0, -0.0], "b": [True, True]}), ["a", "b"])
    >>> bool(found[0] == found[1])
    True
    """
    plain = rows.select(_hashable(name, rows.schema[name]) for name in names)
    return frame_weights(plain, list(names)).view(np.uint32)


def _hashable(name: str, dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.Boolean():
        return pl.col(name).cast(pl.Int8)
    return pl.col(name).bin.encode("hex") if dtype == pl.Binary() else pl.col(name)

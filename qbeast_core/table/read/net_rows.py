"""Differences between removed and added rows: equal rows cancel out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.support.joins import own_column

# -1: the rows were removed; 1: they were added.
SignedRows: TypeAlias = tuple[int, pl.DataFrame]

# Rows whose hashes are in memory at the same time.
ROWS_AT_ONCE: Final = 1 << 23

_KEY: Final = [own_column("first hash"), own_column("second hash")]
_REMOVED, _ADDED = own_column("removed"), own_column("added")
_SURPLUS: Final = own_column("surplus")
_SIGN: Final = own_column("sign")


def net_rows(
    read: Callable[[], Iterator[SignedRows]], *, max_rows: int, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[SignedRows]:
    """Yield removed and added rows without pairs of equal rows.

    `read` yields the same rows at each call: it is called twice for each part of the rows, which are divided by their
    hash so that the hashes of `rows_at_once` rows fit in memory. Rows are equal if two hashes of 64 bits are.
    """
    parts = max(-(-max_rows // rows_at_once), 1)
    for part in range(parts):
        counts = _counts(read, part, parts)
        if counts.height:
            yield from _differing(read, counts, part, parts)


def _hashed(rows: pl.DataFrame, part: int, parts: int) -> pl.DataFrame:
    """Return the rows of a part, with their hashes."""
    row = pl.struct(pl.all())
    hashed = rows.with_columns(row.hash(1).alias(_KEY[0]), row.hash(2).alias(_KEY[1]))
    return hashed if parts == 1 else hashed.filter(pl.col(_KEY[0]) % parts == part)


def _counts(read: Callable[[], Iterator[SignedRows]], part: int, parts: int) -> pl.DataFrame:
    """Return the hashes that are not removed as often as they are added, with both counts."""
    counts = pl.DataFrame(
        schema={**dict.fromkeys(_KEY, pl.UInt64()), _REMOVED: pl.Int64(), _ADDED: pl.Int64()}
    )
    for sign, rows in read():
        keys = _hashed(rows, part, parts).select(
            *_KEY,
            pl.lit(int(sign < 0), pl.Int64).alias(_REMOVED),
            pl.lit(int(sign > 0), pl.Int64).alias(_ADDED),
        )
        counts = pl.concat([counts, keys]).group_by(_KEY).sum()
    return counts.filter(pl.col(_REMOVED) != pl.col(_ADDED))


def _differing(
    read: Callable[[], Iterator[SignedRows]], counts: pl.DataFrame, part: int, parts: int
) -> Iterator[SignedRows]:
    """Yield the rows that are left over."""
    surplus = counts.with_columns((pl.col(_ADDED) - pl.col(_REMOVED)).alias(_SURPLUS))
    several: list[pl.DataFrame] = []
    for sign, rows in read():
        found = _hashed(rows, part, parts).join(surplus, on=_KEY, how="inner", maintain_order="left")
        found = found.filter(pl.col(_SURPLUS) * sign > 0)
        # Most rows left over have no equal row on the other side: all of them are returned at once.
        alone = found.filter(pl.min_horizontal(_REMOVED, _ADDED) == 0)
        if alone.height:
            yield sign, alone.select(rows.columns)
        several.append(
            found.filter(pl.min_horizontal(_REMOVED, _ADDED) > 0).with_columns(pl.lit(sign).alias(_SIGN))
        )
    left = pl.concat(several)
    left = left.filter(pl.int_range(pl.len()).over(_KEY) < pl.col(_SURPLUS).abs())
    for sign in (-1, 1):
        rows = left.filter(pl.col(_SIGN) == sign)
        if rows.height:
            yield sign, rows.drop(*_KEY, _REMOVED, _ADDED, _SURPLUS, _SIGN)

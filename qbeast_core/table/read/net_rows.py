"""Differences between removed and added rows: equal rows cancel out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.support.frames import own_column

# -1: the rows were removed; 1: they were added.
SignedRows: TypeAlias = tuple[int, pl.DataFrame]

# Rows whose hashes are in memory at the same time.
ROWS_AT_ONCE: Final = 1 << 23

_KEY: Final = [own_column("first hash"), own_column("second hash")]
_SIGN, _SURPLUS, _PLACE = own_column("sign"), own_column("surplus"), own_column("place")


def net_rows(
    read: Callable[[], Iterator[SignedRows]], *, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[SignedRows]:
    """Yield removed and added rows without pairs of equal rows.

    `read` yields the same rows in the same order at each call: it is called twice for each part of the rows, which are
    divided by their hash so that the hashes of about `rows_at_once` rows are in memory. Rows are equal if two hashes of
    64 bits are.
    """
    part, parts = 0, 1
    while part < parts:
        places, parts = _left_over(read, part, parts, rows_at_once)
        if len(places):
            yield from _rows_at(read, places)
        part += 1


def _left_over(
    read: Callable[[], Iterator[SignedRows]], part: int, parts: int, rows_at_once: int
) -> tuple[pl.Series, int]:
    """Return the places of the rows of a part without an equal row of the other sign, ascending, and the parts.

    The first part counts the rows, whatever the log claims: when there are too many, it is halved.
    """
    hashed, end = list[pl.DataFrame](), 0
    for sign, rows in read():
        places = pl.int_range(end, end + rows.height, eager=True)
        end += rows.height
        keys = pl.DataFrame({_KEY[0]: rows.hash_rows(1), _KEY[1]: rows.hash_rows(2), _PLACE: places})
        keys = keys.with_columns(pl.lit(sign, pl.Int8).alias(_SIGN))
        while end > parts * rows_at_once:
            parts *= 2
            hashed = [before.filter(pl.col(_KEY[0]) % parts == part) for before in hashed]
        hashed.append(keys.filter(pl.col(_KEY[0]) % parts == part))
    if not hashed:
        return pl.Series(dtype=pl.Int64()), parts
    keys = pl.concat(hashed)
    hashed.clear()
    surplus = keys.group_by(_KEY).agg(pl.col(_SIGN).cast(pl.Int64).sum().alias(_SURPLUS))
    surplus = surplus.filter(pl.col(_SURPLUS) != 0)
    found = keys.join(surplus, on=_KEY).filter(pl.col(_SIGN) * pl.col(_SURPLUS) > 0)
    return found.filter(pl.int_range(pl.len()).over(_KEY) < pl.col(_SURPLUS).abs())[_PLACE].sort(), parts


def _rows_at(read: Callable[[], Iterator[SignedRows]], places: pl.Series) -> Iterator[SignedRows]:
    """Yield the rows at some places."""
    wanted, end = places.to_numpy(), 0
    for sign, rows in read():
        first, end = end, end + rows.height
        here = wanted[slice(*np.searchsorted(wanted, (first, end)))]
        if len(here):
            yield sign, rows[here - first]

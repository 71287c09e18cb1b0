"""The rows of a table's heavy keys, as far as their files list them: estimates draw them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.drawn import Stretch
from qbeast_core.query.select import Selection
from qbeast_core.table.read.reader import Reader
from qbeast_core.tree.heavy_keys import HEAVY_SHARE, HeavyKeys
from qbeast_core.tree.key_tag import parse_heavy

__all__ = ["heavy_rows"]

_MOST_KEYS: Final = HEAVY_SHARE
"""Of which rows are drawn: of each, a page is read of every file that lists it."""


def heavy_rows(reader: Reader, opened: Selection, *, rows: int) -> Mapping[int, Sequence[Stretch]]:
    """Return by number of file the rows of keys that have at least 1/256 of the rows that are asked for.

    Parameters
    ----------
    reader : Reader
        Of the version.
    opened : Selection
        What a read of them opens.
    rows : int
        How many these are, about.
    """
    files, records = reader.snapshot.files, opened.table.num_records
    lists = pl.Series(opened.opened & (opened.pages_total > 0)) & (files["keys"].str.count_matches(":") == 2)
    listed: dict[int, HeavyKeys] = {}
    for number in lists.fill_null(value=False).arg_true().to_list():
        found = parse_heavy(files["keys"][number], int(records[number]))
        if found is not None:
            listed[number] = found
    if not listed:
        return {}
    keys, key = np.unique(np.concatenate([one.weights for one in listed.values()]), return_inverse=True)
    counts = np.bincount(key, np.concatenate([one.rows for one in listed.values()]))
    chosen = np.argsort(-counts, kind="stable")[:_MOST_KEYS]
    heavy = keys[chosen[counts[chosen] * HEAVY_SHARE >= rows]]
    drawn: dict[int, list[Stretch]] = {}
    for number, one in listed.items():
        places = np.flatnonzero(np.isin(one.weights, heavy) & (one.firsts >= 0))
        if len(places):
            path = reader.paths[number]
            pairs = zip(one.firsts[places].tolist(), one.rows[places].tolist(), strict=True)
            drawn[number] = [Stretch.of(first, count, path=path) for first, count in pairs]
    return drawn

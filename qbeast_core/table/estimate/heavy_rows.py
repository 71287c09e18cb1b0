"""The rows of heavy keys, as far as files list them: estimates draw them one by one.

A heavy key would be in a sample with all of its rows or none, and decide every answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.plan.drawn import FileDraw, Stretch
from qbeast_core.query.plan.select import Selection
from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.table.index.key_counts import count_keys
from qbeast_core.table.read.reader import Reader
from qbeast_core.tree.keys.heavy_keys import HeavyKeys, heaviest
from qbeast_core.tree.keys.key_tag import OLD_VERSION, parse_heavy


@dataclass(frozen=True, slots=True)
class HeavyRows:
    """The heavy keys that the tags of files list."""

    # By number of file: rows that can be drawn one by one, and the rows of keys that fit in a page. These are read
    # whole, since each round would read the page again.
    files: Mapping[int, FileDraw]
    # Least sum over the other keys of their squared row counts, from the tags of files without a list. Infinite if
    # the rows of a listed key have no random order; 0.0 if every file has a list, or none has a tag.
    others: float

    def rows_apart(self, deleted: Mapping[int, I64Array]) -> int:
        """Return the number of rows that are read whole."""
        found = 0
        for number, of in self.files.items():
            for one in of.apart:
                gone = np.searchsorted(deleted.get(number, _NONE), [one.first, one.first + one.rows])
                found += one.rows - int(gone[1] - gone[0])
        return found


_NONE: Final = np.zeros(0, np.int64)


def heavy_rows(reader: Reader, opened: Selection, *, rows: int) -> HeavyRows:
    """Return the rows of the keys that are heavy among the opened rows."""
    tags, records = reader.snapshot.files["keys"], opened.table.num_records
    listed: dict[int, HeavyKeys] = {}
    for number in (pl.Series(opened.opened) & (tags.str.count_matches(":") == 2)).arg_true().to_list():
        found = parse_heavy(tags[number], int(records[number]))
        if found is not None:
            listed[number] = found
    others = _squares_without_list(reader.snapshot.files, pl.Series(opened.opened))
    if not listed:
        return HeavyRows({}, others)
    heavy = _heaviest(listed.values(), rows)
    files: dict[int, FileDraw] = {}
    for number, one in listed.items():
        is_heavy = np.isin(one.weights, heavy)
        ordered = is_heavy & (one.firsts >= 0) & (opened.pages_total[number] > 0)
        if (is_heavy & ~ordered).any():
            others = math.inf
        pairs = zip(one.firsts[ordered].tolist(), one.rows[ordered].tolist(), strict=True)
        if ordered.any():
            path, page_rows = reader.paths[number], int(opened.table.pages.page_rows[number])
            stretches = [Stretch.of(first, count, path=path) for first, count in pairs]
            files[number] = FileDraw(
                one_by_one=tuple(one for one in stretches if one.rows > page_rows),
                apart=tuple(one for one in stretches if one.rows <= page_rows),
            )
    return HeavyRows(files, others)


def _heaviest(listed: Iterable[HeavyKeys], rows: int) -> I32Array:
    """Return the weights of keys that are heavy among a number of rows."""
    every = list(listed)
    keys, key = np.unique(np.concatenate([one.weights for one in every]), return_inverse=True)
    counts = np.bincount(key, np.concatenate([one.rows for one in every])).astype(np.int64)
    heavy: I32Array = keys[heaviest(counts, rows)]
    return heavy


def _squares_without_list(files: pl.DataFrame, opened: pl.Series) -> float:
    """Return the least that the sum of the squares of all keys' rows can be, if some files have no list; else 0.0."""
    without = opened & files["keys"].str.starts_with(OLD_VERSION).fill_null(value=False)
    if not without.any():
        return 0.0
    old = files.select("keys", "num_records").filter(without)
    known = count_keys(old).total
    return known.squares + int(old["num_records"].sum()) - known.rows

"""Find the rows of listed heavy keys, which estimates draw one by one.

Otherwise a sample would hold all rows of a heavy key or none, which would dominate the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
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

    # Rows that can be drawn one by one, and rows of keys that fit in a page, by number of the file. The latter are
    # read separately, because each round would read their page again.
    files: Mapping[int, FileDraw]
    # Weights of keys whose rows are read separately, ascending: their rows lie in many places, or are needed together.
    keys: I32Array
    # Minimum sum of the squared row counts of the other keys, from the tags of files without a list; 0.0 if all files
    # have a list, or none has a tag.
    others: float

    def rows_apart(self, deleted: Mapping[int, I64Array]) -> int:
        """Return the number of rows that are read separately."""
        rows = 0
        for number, file_draw in self.files.items():
            for stretch in file_draw.apart:
                deleted_range = np.searchsorted(
                    deleted.get(number, _NO_ROWS), [stretch.first, stretch.first + stretch.rows]
                )
                rows += stretch.rows - int(deleted_range[1] - deleted_range[0])
        return rows


_NO_ROWS: Final = np.zeros(0, np.int64)
_NO_KEYS: Final = np.zeros(0, np.int32)

# Each key is sampled with all of its rows.
NO_HEAVY_ROWS: Final = HeavyRows({}, _NO_KEYS, 0.0)


def heavy_rows(reader: Reader, opened: Selection, *, rows: int, whole_keys: bool = False) -> HeavyRows:
    """Return the rows of the keys that are heavy among the opened rows. `whole_keys`: draw no row by itself."""
    tags, records = reader.snapshot.files["keys"], opened.table.num_records
    listed: dict[int, HeavyKeys] = {}
    for number in (pl.Series(opened.opened) & _has_list(tags)).arg_true().to_list():
        heavy_keys = parse_heavy(tags[number], int(records[number]))
        if heavy_keys is not None:
            listed[number] = heavy_keys
    others = _squares_without_list(reader.snapshot.files, pl.Series(opened.opened))
    if not listed:
        return HeavyRows({}, _NO_KEYS, others)
    heavy = np.sort(_heaviest(listed.values(), rows))
    places = {number: np.isin(keys.weights, heavy) for number, keys in listed.items()}
    can_draw = {number: (listed[number].firsts >= 0) & (opened.pages_total[number] > 0) for number in listed}
    apart = [listed[number].weights[is_heavy & ~can_draw[number]] for number, is_heavy in places.items()]
    keys = heavy if whole_keys else np.unique(np.concatenate(apart))
    files: dict[int, FileDraw] = {}
    for number, of_file in listed.items():
        drawn = places[number] & ~np.isin(of_file.weights, keys)
        if drawn.any():
            pairs = zip(of_file.firsts[drawn].tolist(), of_file.rows[drawn].tolist(), strict=True)
            stretches = [Stretch.of(first, count, path=reader.paths[number]) for first, count in pairs]
            is_long = [_pages_of(opened, number, stretch) > 1 for stretch in stretches]
            files[number] = FileDraw(
                one_by_one=tuple(compress(stretches, is_long)),
                apart=tuple(s for s, several in zip(stretches, is_long, strict=True) if not several),
            )
    return HeavyRows(files, keys, others)


def rows_without_list(reader: Reader, opened: Selection) -> int:
    """Return the number of opened rows in files without a list of heavy keys."""
    return int(opened.rows_opened[~_has_list(reader.snapshot.files["keys"]).to_numpy()].sum())


def _has_list(tags: pl.Series) -> pl.Series:
    return (tags.str.count_matches(":") == 2).fill_null(value=False)


def _pages_of(opened: Selection, file: int, stretch: Stretch) -> float:
    """Return the rows of a stretch, as a number of the file's pages there."""
    pages = opened.table.pages
    first = pages.pages_with(file, stretch.first, stretch.first + 1).start
    return stretch.rows / int(pages.rows[first])


def _heaviest(listed: Iterable[HeavyKeys], rows: int) -> I32Array:
    """Return the weights of keys that are heavy among a number of rows."""
    files = list(listed)
    keys, key = np.unique(
        np.concatenate([keys_of_file.weights for keys_of_file in files]), return_inverse=True
    )
    counts = np.bincount(key, np.concatenate([keys_of_file.rows for keys_of_file in files])).astype(np.int64)
    heavy: I32Array = keys[heaviest(counts, rows)]
    return heavy


def _squares_without_list(files: pl.DataFrame, opened: pl.Series) -> float:
    """Return the minimum sum of the squared row counts of all keys if some files have no list, else 0.0."""
    no_list = opened & files["keys"].str.starts_with(OLD_VERSION).fill_null(value=False)
    if not no_list.any():
        return 0.0
    old = files.select("keys", "num_records").filter(no_list)
    total = count_keys(old).total
    return total.squares + int(old["num_records"].sum()) - total.rows

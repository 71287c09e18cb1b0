"""Find the rows of listed heavy keys, which estimates draw one by one.

Otherwise a sample would hold all rows of a heavy key or none, which would dominate the answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.plan.select import Selection
from qbeast_core.plan.weights import FileDraw, Stretch
from qbeast_core.sampling.sums import Repeats
from qbeast_core.space.values import I32Array, distinct
from qbeast_core.table.index.counts import count_other_keys
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.snapshot.hidden_rows import HiddenRows
from qbeast_core.tree.keys import MAX_COUNTERS, HeavyKeys, heaviest, parse_heavy


@dataclass(frozen=True, slots=True)
class HeavyRows:
    """The heavy keys that the tags of files list."""

    # Rows that can be drawn one by one, and rows of keys that fit in a page, by number of the file. The latter are
    # read separately, because each round would read their page again.
    files: Mapping[int, FileDraw]
    # Weights of keys whose rows are read separately, ascending: their rows lie in many places, or are needed together.
    keys: I32Array
    # The keys among these, by number of the file; samples draw all other keys as a whole.
    listed: Mapping[int, HeavyKeys]

    def rows_apart(self, hidden: HiddenRows) -> int:
        """Return the number of rows that are read separately."""
        rows, deleted = 0, hidden.of(number for number, draw in self.files.items() if draw.apart)
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
NO_HEAVY_ROWS: Final = HeavyRows({}, _NO_KEYS, {})


def heavy_rows(planner: Planner, opened: Selection, *, rows: int, whole_keys: bool = False) -> HeavyRows:
    """Return the rows of the keys that are heavy among the opened rows. `whole_keys`: draw no row by itself."""
    tags, records = planner.snapshot.files["keys"], opened.table.num_records
    listed: dict[int, HeavyKeys] = {}
    for number in (pl.Series(opened.opened) & _has_list(tags)).arg_true().to_list():
        heavy_keys = parse_heavy(tags[number], int(records[number]))
        if heavy_keys is not None:
            listed[number] = heavy_keys
    if not listed:
        return NO_HEAVY_ROWS
    heavy = np.sort(_heaviest(listed.values(), rows))
    places = {number: np.isin(keys.weights, heavy) for number, keys in listed.items()}
    can_draw = {number: (listed[number].firsts >= 0) & (opened.pages_total[number] > 0) for number in listed}
    apart = [listed[number].weights[is_heavy & ~can_draw[number]] for number, is_heavy in places.items()]
    keys = heavy if whole_keys else distinct(np.concatenate(apart))
    files: dict[int, FileDraw] = {}
    for number, of_file in listed.items():
        drawn = places[number] & ~np.isin(of_file.weights, keys)
        if drawn.any():
            pairs = zip(of_file.firsts[drawn].tolist(), of_file.rows[drawn].tolist(), strict=True)
            stretches = [Stretch.of(first, count, path=planner.paths[number]) for first, count in pairs]
            is_long = [_pages_of(opened, number, stretch) > 1 for stretch in stretches]
            files[number] = FileDraw(
                one_by_one=tuple(compress(stretches, is_long)),
                apart=tuple(s for s, several in zip(stretches, is_long, strict=True) if not several),
            )
    return HeavyRows(
        files, keys, {number: listed[number].select(is_heavy) for number, is_heavy in places.items()}
    )


def repeats_of(planner: Planner, opened: Selection, heavy: HeavyRows, *, min_shift: float) -> Repeats | None:
    """Return how often the other keys repeat in the opened rows; rows of files without tags count as single keys."""
    numbers = np.flatnonzero(opened.opened)
    files = planner.snapshot.files.select("keys", "num_records")[numbers]
    counts = count_other_keys(files, [heavy.listed.get(number) for number in numbers.tolist()])
    rows = float(files["num_records"].sum())
    if not rows or counts.uncounted:
        return None
    deleted = int(planner.hidden_rows.counts[numbers].sum())
    # A filter of the index opens some cubes, whose keys are there with all rows, and deletes hit keys in proportion.
    share, kept = min(float(opened.rows_opened[numbers].sum()) / rows, 1.0), 1 - deleted / rows
    squares = counts.total.squares
    error = squares * math.sqrt(2 / MAX_COUNTERS) if len(numbers) > 1 else 0.0
    excess, scale = squares - counts.total.rows, share * kept**2
    return Repeats(share * rows * kept, scale * excess, scale * error, min_shift)


def rows_without_list(planner: Planner, opened: Selection) -> int:
    """Return the number of opened rows in files without a list of heavy keys."""
    return int(opened.rows_opened[~_has_list(planner.snapshot.files["keys"]).to_numpy()].sum())


def _has_list(tags: pl.Series) -> pl.Series:
    return (tags.str.count_matches(":") == 2).fill_null(value=False)


def _pages_of(opened: Selection, file: int, stretch: Stretch) -> float:
    """Return the rows of a stretch, as a number of the file's pages there."""
    pages = opened.table.pages
    first = pages.pages_with(file, stretch.first, stretch.first + 1).start
    return stretch.rows / int(pages.rows(np.array([first]))[0])


def _heaviest(listed: Iterable[HeavyKeys], rows: int) -> I32Array:
    """Return the weights of keys that are heavy among a number of rows."""
    files = list(listed)
    keys, key = np.unique(
        np.concatenate([keys_of_file.weights for keys_of_file in files]), return_inverse=True
    )
    counts = np.bincount(key, np.concatenate([keys_of_file.rows for keys_of_file in files])).astype(np.int64)
    heavy: I32Array = keys[heaviest(counts, rows)]
    return heavy

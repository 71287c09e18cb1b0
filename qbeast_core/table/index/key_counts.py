"""Count how often index keys repeat in live files. Counts of older versions are reused."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from qbeast_core.space.arrays import U64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.keys.key_tag import parse_keys
from qbeast_core.tree.keys.key_total import KeyTotal

_CACHED_TABLES: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """How often index keys repeat in some files."""

    total: KeyTotal
    # Number of files without a key sketch, and number of their rows in the log.
    unknown_files: int = 0
    unknown_rows: int = 0
    # Whether the log does not count the rows of some of these files.
    uncounted: bool = False

    def copy(self) -> KeyCounts:
        """Return a copy that can be changed."""
        return KeyCounts(self.total.copy(), self.unknown_files, self.unknown_rows, self.uncounted)

    @property
    def design_effect(self) -> float | None:
        """The design effect, at least 1.0. None if files have no key sketch."""
        return None if self.unknown_files else self.total.design_effect()

    @property
    def lower_bound(self) -> float:
        """Lower bound of the design effect. It is exact if all files have a key sketch."""
        return 1.0 if self.uncounted else self.total.design_effect(unknown_rows=self.unknown_rows)


_BY_VERSION: Final[WeakKeyDictionary[Snapshot, KeyCounts]] = WeakKeyDictionary()


def counts_of(snapshot: Snapshot) -> KeyCounts:
    """Return how often index keys repeat in a version. The result is cached: copy it before you add to it."""
    counts = _BY_VERSION.get(snapshot)
    if counts is None:
        counts = _BY_VERSION[snapshot] = count_keys(snapshot.files)
    return counts


def count_keys(files: pl.DataFrame) -> KeyCounts:
    """Return how often index keys repeat in live files. Deleted rows are counted.

    The last counts of some tables are cached. If files were only added since, only these are counted.
    """
    tags = files.select("keys", "num_records")
    if files.height < sizing().min_cached_files:
        return _counted(tags, KeyCounts(KeyTotal()))
    cached = _CACHE.largest_subset_of(hashes := _file_hashes(tags))
    counts = KeyCounts(KeyTotal())
    if cached is not None:
        counts = cached.counts.copy()
        tags = tags.filter(pl.Series(~np.isin(hashes, cached.hashes), dtype=pl.Boolean))
    counts = _counted(tags, counts)
    _CACHE.replace(cached, _CachedCounts(hashes, counts.copy()))
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class _CachedCounts:
    """Counts of some files, and a hash of each file."""

    hashes: U64Array
    counts: KeyCounts


class _CountsCache:
    """The last counts of some tables. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[_CachedCounts] = deque(maxlen=_CACHED_TABLES)

    def largest_subset_of(self, hashes: U64Array) -> _CachedCounts | None:
        with self._lock:
            items = list(self._items)
        subsets = [item for item in items if _is_subset(item.hashes, hashes)]
        return max(subsets, key=lambda item: len(item.hashes), default=None)

    def replace(self, old: _CachedCounts | None, new: _CachedCounts) -> None:
        with self._lock:
            others = [item for item in self._items if item is not old]
            self._items.clear()
            self._items.extend([*others, new])


_CACHE: Final = _CountsCache()


def _is_subset(hashes: U64Array, others: U64Array) -> bool:
    # The first hash is a cheap test: most other tables fail it.
    if len(hashes) > len(others) or not np.isin(hashes[:1], others).all():
        return False
    return bool(np.isin(hashes, others).all())


def _file_hashes(tags: pl.DataFrame) -> U64Array:
    """Return a different hash for each file, from its tags. Files with equal tags are numbered."""
    hashes: U64Array = tags.select(pl.struct("keys", "num_records").hash()).to_series().to_numpy()
    if len(np.unique(hashes)) < len(hashes):  # rare: sketches of many keys differ
        numbered = pl.DataFrame({"hash": hashes}).with_columns(
            pl.int_range(pl.len()).over("hash").alias("number")
        )
        hashes = numbered.select(pl.struct("hash", "number").hash()).to_series().to_numpy()
    return hashes


def _counted(tags: pl.DataFrame, counts: KeyCounts) -> KeyCounts:
    """Add files to counts. Changes `counts.total`."""
    total, unknown_files, unknown_rows = counts.total, counts.unknown_files, counts.unknown_rows
    uncounted = counts.uncounted
    for text, records in tags.iter_rows():
        sketch = parse_keys(text)
        if sketch is not None and records in {None, sketch.rows}:
            total.add(sketch)
            continue
        unknown_files += 1
        unknown_rows += records or 0
        uncounted = uncounted or records is None
    return KeyCounts(total, unknown_files, unknown_rows, uncounted)

"""Count how often index keys repeat in live files; files counted for an older version are not counted again."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from qbeast_core.space.arrays import U64Array
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.keys.key_tag import parse_keys
from qbeast_core.tree.keys.key_total import KeyTotal

_KEPT_TABLES: Final = 8

# Files from which on looking up what is known takes less time than counting.
_WORTH_KEEPING: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """How often index keys repeat in some files."""

    total: KeyTotal
    # Files that do not tell, and the rows that the log knows of in them.
    unknown_files: int = 0
    unknown_rows: int = 0
    # Whether of some file not even the rows are known.
    uncounted: bool = False

    def copy(self) -> KeyCounts:
        """Return the same counts, to count on without these."""
        return KeyCounts(self.total.copy(), self.unknown_files, self.unknown_rows, self.uncounted)

    @property
    def design_effect(self) -> float | None:
        """The design effect, 1.0 or more; None where files do not tell."""
        return None if self.unknown_files else self.total.design_effect()

    @property
    def lower_bound(self) -> float:
        """The least that the design effect can be; the design effect itself where all files tell."""
        return 1.0 if self.uncounted else self.total.design_effect(unknown_rows=self.unknown_rows)


_BY_VERSION: Final[WeakKeyDictionary[Snapshot, KeyCounts]] = WeakKeyDictionary()


def counts_of(snapshot: Snapshot) -> KeyCounts:
    """Return how often index keys repeat in a version, counted once; copy it before you add to it."""
    counts = _BY_VERSION.get(snapshot)
    if counts is None:
        counts = _BY_VERSION[snapshot] = count_keys(snapshot.files)
    return counts


def count_keys(files: pl.DataFrame) -> KeyCounts:
    """Return how often index keys repeat in live files. Rows that a deletion vector hides are counted.

    The last counts of some tables are kept: where files only came since, these alone are counted.
    """
    said = files.select("keys", "num_records")
    if files.height < _WORTH_KEEPING:
        return _counted(said, KeyCounts(KeyTotal()))
    known = _KNOWN.largest_part_of(marks := _marks(said))
    counts = KeyCounts(KeyTotal())
    if known is not None:
        counts = known.counts.copy()
        said = said.filter(pl.Series(~np.isin(marks, known.marks), dtype=pl.Boolean))
    counts = _counted(said, counts)
    _KNOWN.keep(_Known(marks, counts.copy()), instead_of=known)
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What some files say, each of them told by a mark."""

    marks: U64Array
    counts: KeyCounts


class _KnownCounts:
    """The last counts of some tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[_Known] = deque(maxlen=_KEPT_TABLES)

    def largest_part_of(self, marks: U64Array) -> _Known | None:
        with self._lock:
            kept = list(self._kept)
        parts = [one for one in kept if len(one.marks) <= len(marks) and _is_part(one.marks, marks)]
        return max(parts, key=lambda one: len(one.marks), default=None)

    def keep(self, known: _Known, *, instead_of: _Known | None) -> None:
        with self._lock:
            others = [one for one in self._kept if one is not instead_of]
            self._kept.clear()
            self._kept.extend([*others, known])


_KNOWN: Final = _KnownCounts()


def _is_part(marks: U64Array, of: U64Array) -> bool:
    return bool(np.isin(marks[:1], of).all() and np.isin(marks, of).all())


def _marks(said: pl.DataFrame) -> U64Array:
    """Return a number for what each file says, others for files that say the same."""
    marks: U64Array = said.select(pl.struct("keys", "num_records").hash()).to_series().to_numpy()
    if len(np.unique(marks)) < len(marks):  # few files say the same: their sketches are of many keys
        numbered = pl.DataFrame({"said": marks}).with_columns(
            pl.int_range(pl.len()).over("said").alias("again")
        )
        marks = numbered.select(pl.struct("said", "again").hash()).to_series().to_numpy()
    return marks


def _counted(said: pl.DataFrame, counts: KeyCounts) -> KeyCounts:
    """Count files on top of others, whose total is changed."""
    total, unknown_files, unknown_rows = counts.total, counts.unknown_files, counts.unknown_rows
    uncounted = counts.uncounted
    for text, records in said.iter_rows():
        sketch = parse_keys(text)
        if sketch is not None and records in {None, sketch.rows}:
            total.add(sketch)
            continue
        unknown_files += 1
        unknown_rows += records or 0
        uncounted = uncounted or records is None
    return KeyCounts(total, unknown_files, unknown_rows, uncounted)

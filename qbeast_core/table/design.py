"""The design effect of the rows in some files, from what their tags say about repeating index keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.tree.key_sketch import KeySketch
from qbeast_core.tree.key_tag import KEYS_TAG, parse_keys
from qbeast_core.tree.key_total import KeyTotal

__all__ = ["KeyCounts", "count_keys", "keys_of_write", "table_design_effect", "with_write"]


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """How often index keys repeat in some files.

    Attributes
    ----------
    total : KeyTotal
        Of the files that tell.
    unknown_files, unknown_rows : int
        Files that do not tell, and the rows that the log knows of in them.
    uncounted : bool
        Whether of some file not even the rows are known.
    """

    total: KeyTotal
    unknown_files: int = 0
    unknown_rows: int = 0
    uncounted: bool = False

    @property
    def design_effect(self) -> float | None:
        """The design effect, 1.0 or more; None where files do not tell."""
        return None if self.unknown_files else self.total.design_effect()

    @property
    def lower_bound(self) -> float:
        """The least that the design effect can be; the design effect itself where all files tell."""
        return 1.0 if self.uncounted else self.total.design_effect(unknown_rows=self.unknown_rows)


def count_keys(files: pl.DataFrame) -> KeyCounts:
    """Return how often index keys repeat in live files. Rows that a deletion vector hides are counted.

    Parameters
    ----------
    files : polars.DataFrame
        Columns `keys` and `num_records`, as of `Snapshot.files`.
    """
    total, unknown_files, unknown_rows, uncounted = KeyTotal(), 0, 0, False
    for text, records in files.select("keys", "num_records").iter_rows():
        sketch = parse_keys(text)
        if sketch is not None and records in {None, sketch.rows}:
            total.add(sketch)
            continue
        unknown_files += 1
        unknown_rows += records or 0
        uncounted = uncounted or records is None
    return KeyCounts(total, unknown_files, unknown_rows, uncounted)


def keys_of_write(adds: Iterable[AddFile], design_effect: float | None = None) -> KeySketch:
    """Return how often index keys repeat in the files of one write.

    Parameters
    ----------
    adds : iterable of AddFile
        Files written here, whose tags tell.
    design_effect : float, optional
        Of all their rows, where whoever placed them knows it better than the files tell.
    """
    total = KeyTotal()
    for add in adds:
        sketch = parse_keys((add.tags or {}).get(KEYS_TAG))
        if sketch is not None:
            total.add(sketch)
    return total.joined(None if design_effect is None else design_effect * total.rows)


def with_write(
    files: pl.DataFrame | None, adds: Iterable[AddFile], keys: KeySketch
) -> tuple[float, KeyCounts]:
    """Return what is known of a table that holds a write, after the lower bound of the rest of it.

    Parameters
    ----------
    files : polars.DataFrame or None
        Live files of the table, those of the write among them or not; None: there are no others.
    adds : iterable of AddFile
        The files of the write.
    keys : KeySketch
        Of its rows.
    """
    if files is None:
        files = pl.DataFrame(schema={"path": pl.String, "keys": pl.String, "num_records": pl.Int64})
    written = [add.path for add in adds]
    counts = count_keys(files.filter(~pl.col("path").is_in(written)))
    before = counts.lower_bound
    counts.total.add(keys)
    return before, counts


def table_design_effect(snapshot: Snapshot) -> float | None:
    """Return the design effect of a table; None where a live file does not tell how often its keys repeat.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    """
    return count_keys(snapshot.files).design_effect

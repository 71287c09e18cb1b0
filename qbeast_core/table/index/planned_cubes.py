"""The cubes of the files that a plan file lists, which an append needs: made once, and kept beside the plan file.

Appended rows depend on a few numbers of each cube: the lowest weight and the thresholds of its blocks, and their rows.
They are summed over the files in parts. The blocks of newer files are added in memory.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import polars as pl

from qbeast_core.plan.nodes import Unknown
from qbeast_core.table.snapshot.log_files import PlanUnusable
from qbeast_core.table.snapshot.snapshot import Snapshot

_PARTITION: Final = "partition"
_BOUNDS: Final = ("min_weight", "max_weight", "rows")
_HIGHEST: Final = "highest"
_COUNT: Final = "count"
_MERGED_ROWS: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class PlannedCubes:
    """The cubes of the live files of a version with a plan file."""

    snapshot: Snapshot
    # Number of cubes of each revision, beside the roots of partitions, of the files that the plan file lists.
    counts: dict[int, int]

    def count(self, revision_id: int, *, enough: int) -> int:
        """Return the number of cubes of a revision, beside the roots of partitions; perhaps too few above `enough`."""
        known = self.counts.get(revision_id, 0)
        if known > enough:
            return known
        cubes = self.blocks(revision_id).select(_PARTITION, "cube").unique()
        return cubes.height - cubes[_PARTITION].n_unique()

    def blocks(self, revision_id: int) -> pl.DataFrame:
        """Return one or two blocks for each cube of a revision that set the same bounds as all of its blocks.

        Columns: `partition` (a struct, or null), `cube`, `min_weight`, `max_weight`, `rows`.
        """
        is_one = pl.col("revision") == revision_id
        newer = _cubes_of(self.snapshot.with_files(self.snapshot.listed)).filter(is_one)
        cubes = _merged([_planned(self.snapshot).filter(is_one), newer])
        # A leaf is valid if one of its blocks has the maximum threshold.
        higher = cubes.filter(pl.col(_HIGHEST) > pl.col("max_weight"))
        tops = higher.with_columns(max_weight=_HIGHEST, rows=pl.lit(0, pl.Int64))
        return pl.concat([cubes, tops]).select(_PARTITION, "cube", *_BOUNDS)


_LOADED: Final[WeakKeyDictionary[Snapshot, PlannedCubes]] = WeakKeyDictionary()


def planned_cubes(snapshot: Snapshot) -> PlannedCubes | None:
    """Return the cubes of a version with a plan file. None: it has none, or a damaged one."""
    if snapshot.planned is None:
        return None
    found = _LOADED.get(snapshot)
    if found is None:
        with suppress(PlanUnusable):
            counts = snapshot.planned.kept(_name("counts", snapshot), lambda: _counts(_planned(snapshot)))
            found = _LOADED[snapshot] = PlannedCubes(snapshot, dict(counts.iter_rows()))
    return found


def _planned(snapshot: Snapshot) -> pl.DataFrame:
    """Return the cubes of the files that the plan file lists."""
    if snapshot.planned is None:
        raise PlanUnusable(snapshot.uri)
    return snapshot.planned.kept(_name("cubes", snapshot), lambda: _sum(snapshot.without_newer()))


def _name(kind: str, snapshot: Snapshot) -> str:
    gone = b"" if snapshot.planned is None else snapshot.planned.gone.tobytes()
    return f"{kind}-{hashlib.blake2b(gone, digest_size=8).hexdigest()}"


def _sum(snapshot: Snapshot) -> pl.DataFrame:
    """Sum the blocks of all files in parts."""
    parts: list[pl.DataFrame] = []
    for part in snapshot.parts(Unknown()):
        parts.append(_cubes_of(part))
        if sum(frame.height for frame in parts[1:]) > max(parts[0].height, _MERGED_ROWS):
            parts = [_merged(parts)]
    return _merged(parts)


def _counts(cubes: pl.DataFrame) -> pl.DataFrame:
    return cubes.group_by("revision").agg(
        pl.len().cast(pl.Int64).alias(_COUNT) - pl.col(_PARTITION).n_unique()
    )


def _cubes_of(snapshot: Snapshot) -> pl.DataFrame:
    """Return the cubes of the files of a part, by revision and partition."""
    blocks, files = snapshot.blocks.binding, snapshot.files
    partition = files[_PARTITION] if _PARTITION in files.columns else pl.Series([None] * files.height)
    return _merged(
        [
            blocks.select(
                "revision",
                partition.rename(_PARTITION).gather(blocks["file"]),
                "cube",
                *_BOUNDS,
                pl.col("max_weight").alias(_HIGHEST),
            )
        ]
    )


def _merged(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return (
        pl.concat(parts)
        .group_by("revision", _PARTITION, "cube")
        .agg(pl.col("min_weight", "max_weight").min(), pl.col("rows").sum(), pl.col(_HIGHEST).max())
    )

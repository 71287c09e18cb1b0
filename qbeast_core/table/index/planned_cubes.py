"""The cubes of the files that a plan file lists, which an append needs: made once, and kept beside the plan file.

Appended rows depend on a few numbers of each cube: the lowest weight and the thresholds of its blocks, and their rows.
They are summed over the files in parts. The blocks of newer files are added in memory.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from qbeast_core.plan.nodes import Unknown
from qbeast_core.support.process import new_id
from qbeast_core.table.snapshot.log_files import PlanUnusable
from qbeast_core.table.snapshot.snapshot import Snapshot

_PARTITION: Final = "partition"
_BOUNDS: Final = ("min_weight", "max_weight", "rows")
_HIGHEST: Final = "highest"
_COUNT: Final = "count"
_MERGED_ROWS: Final = 1 << 20


class CubeFacts(BaseModel):
    """The number of cubes of each revision, beside the roots of partitions, and the digest of their file."""

    model_config = ConfigDict(frozen=True)

    counts: dict[int, int]
    digest: str


@dataclass(frozen=True, eq=False)
class PlannedCubes:
    """The cubes of the live files of a version with a plan file."""

    snapshot: Snapshot
    facts: CubeFacts
    folder: Path
    name: str

    def count(self, revision_id: int, *, enough: int) -> int:
        """Return the number of cubes of a revision, beside the roots of partitions; perhaps too few above `enough`."""
        known = self.facts.counts.get(revision_id, 0)
        if known > enough:
            return known
        cubes = self.blocks(revision_id).select(_PARTITION, "cube").unique()
        return cubes.height - cubes[_PARTITION].n_unique()

    def blocks(self, revision_id: int) -> pl.DataFrame:
        """Return one or two blocks for each cube of a revision that set the same bounds as all of its blocks.

        Columns: `partition` (a struct, or null), `cube`, `min_weight`, `max_weight`, `rows`.
        """
        text = (self.folder / f"{self.name}.parquet").read_bytes()
        if _digest(text) != self.facts.digest:
            raise PlanUnusable(self.folder)
        stored = pl.read_parquet(io.BytesIO(text)).filter(pl.col("revision") == revision_id)
        newer = _cubes_of(self.snapshot.with_files(self.snapshot.listed))
        cubes = _merged([stored, newer.filter(pl.col("revision") == revision_id)])
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
        with suppress(PlanUnusable, OSError, ValidationError):
            found = _LOADED[snapshot] = _found_or_made(snapshot)
    return found


def _found_or_made(snapshot: Snapshot) -> PlannedCubes:
    planned = snapshot.planned
    if planned is None:
        raise PlanUnusable(snapshot.uri)
    gone = hashlib.blake2b(planned.gone.tobytes(), digest_size=8).hexdigest()
    folder, name = planned.plan.folder, f"cubes-{gone}"
    path = folder / f"{name}.json"
    if not path.exists():
        _make(snapshot, folder, name)
    facts = CubeFacts.model_validate_json(path.read_bytes())
    return PlannedCubes(snapshot, facts, folder, name)


def _make(snapshot: Snapshot, folder: Path, name: str) -> None:
    """Sum the blocks of all files that the plan file lists."""
    parts: list[pl.DataFrame] = []
    for part in snapshot.without_newer().parts(Unknown()):
        parts.append(_cubes_of(part))
        if sum(frame.height for frame in parts[1:]) > max(parts[0].height, _MERGED_ROWS):
            parts = [_merged(parts)]
    cubes = _merged(parts)
    body = io.BytesIO()
    cubes.write_parquet(body, compression="lz4")
    by_revision = cubes.group_by("revision").agg(pl.len().alias(_COUNT) - pl.col(_PARTITION).n_unique())
    facts = CubeFacts(counts=dict(by_revision.iter_rows()), digest=_digest(body.getvalue()))
    for suffix, data in (("parquet", body.getvalue()), ("json", facts.model_dump_json().encode())):
        temporary = folder / f"{new_id()}.tmp"
        temporary.write_bytes(data)
        temporary.replace(folder / f"{name}.{suffix}")


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


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()

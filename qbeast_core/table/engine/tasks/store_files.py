"""Write data files: of sorted rows, and by a task of rows without an index, which keep their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import orjson
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.replay import FileIndex
from qbeast_core.space.values import I32Array
from qbeast_core.support.process import new_id
from qbeast_core.table.data.files import FileSettings, arrange_rows, delete_data_files, store_file
from qbeast_core.table.data.frames import FrameLike
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.tree.files import rows_per_file


def settings_for(
    target: FileTarget,
    rows: pl.DataFrame,
    indexed: tuple[str, ...],
    *,
    size_bytes: int | None = None,
) -> FileSettings:
    """Choose the settings of files for such rows; see `FileSettings.of`."""
    return FileSettings.of(
        rows,
        indexed,
        target.configuration,
        dialect=target.dialect,
        columns=target.columns,
        clustered_by=target.clustered_by,
        size_bytes=size_bytes,
        is_scattered=bool(target.sample_by),
        importance=target.importance,
        table_rows=max(target.table_rows, rows.height),
        time_ms=target.time_ms,
    )


def store_arranged(
    target: FileTarget,
    rows: pl.DataFrame,
    weights: I32Array | None,
    settings: FileSettings,
    *,
    path: str,
    index: FileIndex | None = None,
) -> AddFile:
    """Write a file, which repeats its index; see `arrange_rows`. Return it without blocks."""
    arranged = arrange_rows(lambda: rows, weights, settings, index)
    return store_file(arranged, put=target.store.put, path=path, settings=settings, index=index)[0]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlainTask:
    """Writes rows to files of one partition each. Picklable."""

    target: FileTarget
    # Maximum size of the rows in memory that wait for their file.
    max_bytes: int

    def write(self, batches: Iterable[FrameLike]) -> list[AddFile]:
        """Write all rows. If that fails, the written files are deleted."""
        files = _Files(self.target)
        try:
            for batch in batches:
                files.add(self.target.shape.fit(batch), max_bytes=self.max_bytes)
            for key in list(files.waiting):
                files.write(key)
        except BaseException:  # also after an interrupt or a panic of Rust
            delete_data_files(self.target.store, files.adds)
            raise
        return files.adds


def rows_of(adds: Iterable[AddFile]) -> int:
    """Return the number of rows of new files."""
    return sum(int(orjson.loads(add.stats or "{}")["numRecords"]) for add in adds)


@dataclass(slots=True, eq=False)
class _Files:
    target: FileTarget
    adds: list[AddFile] = field(default_factory=list[AddFile])
    # Rows that wait for their file, by the values of the partition columns.
    waiting: dict[tuple[object, ...], list[pl.DataFrame]] = field(
        default_factory=dict[tuple[object, ...], list[pl.DataFrame]]
    )

    def add(self, rows: pl.DataFrame, *, max_bytes: int) -> None:
        """Add rows. Write files that are full, then the largest ones until the others need at most `max_bytes`."""
        partitions = self.target.columns.partitions
        parts = rows.partition_by(partitions, maintain_order=True, as_dict=True) if partitions else {(): rows}
        for key, part in parts.items():
            held = self.waiting.setdefault(key, [])
            held.append(part)
            if sum(frame.height for frame in held) >= _rows_per_file(held):
                self.write(key)
        sizes = {key: _size_bytes(held) for key, held in self.waiting.items()}
        while sum(sizes.values()) > max_bytes:
            largest = max(sizes, key=sizes.__getitem__)
            self.write(largest)
            del sizes[largest]

    def write(self, key: tuple[object, ...]) -> None:
        """Write the waiting rows of a partition."""
        held = self.waiting.pop(key)
        rows = pl.concat(held)
        count = max(round(rows.height / _rows_per_file(held)), 1)
        for places in np.array_split(np.arange(rows.height), min(count, rows.height)) if rows.height else ():
            self.adds.append(_store(self.target, rows.slice(int(places[0]), len(places))))


def _size_bytes(frames: list[pl.DataFrame]) -> int:
    return sum(int(frame.estimated_size()) for frame in frames)


def _rows_per_file(frames: list[pl.DataFrame]) -> int:
    return rows_per_file(_size_bytes(frames) / max(sum(frame.height for frame in frames), 1))


def _store(target: FileTarget, rows: pl.DataFrame) -> AddFile:
    settings = settings_for(target, rows, ())
    return store_arranged(target, rows, None, settings, path=f"{new_id()}.parquet")

"""Read live files of a table, or some of their rows, as a source of rows, and estimate their size in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import polars as pl
from pyroaring import BitMap64

from qbeast_core.io.footer import Unreadable, read_footer
from qbeast_core.log.deletion_vectors import rows_in
from qbeast_core.log.rebase import dialect_of
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.space.values import I64Array
from qbeast_core.table.data.frames import has_any_width, within
from qbeast_core.table.data.scan import FileScan
from qbeast_core.table.engine.budget import guess_row_bytes
from qbeast_core.table.engine.file_target import FileTarget, RowShape
from qbeast_core.table.engine.tasks.added_rows import NO_ROWS, AddedRows
from qbeast_core.table.engine.tasks.row_change import MovedRows, RowChange, RowFunction
from qbeast_core.table.read.file_scans import file_at, scan_of_rows
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.read.scan_task import RowFilter, read_scans
from qbeast_core.table.snapshot.snapshot import Snapshot

_FOOTERS_AT_ONCE: Final = 16

_UNPACKED: Final = 4  # bytes in memory per byte stored, for files whose rows the log does not count


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FilesSource:
    """The changed rows of live files, then added rows."""

    snapshot: Snapshot
    # Indexes in the snapshot.
    files: I64Array
    change: RowChange | None = None
    added: AddedRows = NO_ROWS
    # Index of a file -> the only rows to read of it.
    only: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64])
    # Index of a file -> its changed rows, for files that were read already.
    changed: Mapping[int, pl.DataFrame] = field(default_factory=dict[int, pl.DataFrame])
    # Time of the new files, see `FileTarget`.
    time_ms: int | None = None

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self.snapshot.copied_schema.to_frame()

    @property
    def target(self) -> FileTarget:
        """Target of the files that replace these."""
        snapshot = self.snapshot
        return FileTarget.of(
            snapshot.location,
            RowShape(snapshot.schema_json, snapshot.copied_schema, merge=False),
            snapshot.metadata.configuration,
            clustered_by=snapshot.clustered_by,
            dialect=dialect_of(snapshot),
            columns=snapshot.columns,
            sample_by=snapshot.config.sample_by,
            importance=snapshot.config.importance,
            table_rows=snapshot.counted_rows,
            time_ms=self.time_ms,
        )

    def by_change(self) -> Iterator[tuple[RowFunction | None, I64Array]]:
        """Yield the files to read, grouped by the change of their rows."""
        paths, change, moved = self.snapshot.data_paths, self.change, list[MovedRows]()
        files = [file for file in self.files.tolist() if file not in self.changed]

        def function(file: int) -> RowFunction | None:
            found = None if change is None else change.of_file(paths[file])
            if found is None or change is None or file not in self.only:
                return found
            if not moved or moved[0].change is not found:  # the last one only: it may hold rows
                moved[:] = [MovedRows(found, self.snapshot.copied_schema, change.replaced)]
            return moved[0]

        # Lazy: the change of a file may load rows, which are freed with it.
        changes = map(function, files)
        for found, group in groupby(zip(changes, files, strict=True), key=itemgetter(0)):
            yield found, np.array([file for _, file in group], np.int64)

    def read(self) -> pl.DataFrame:
        """Return all rows. Each file is read once."""
        frames = [self.empty]
        for change, files in self.by_change():
            names = self.columns_of(change, self.empty.columns)
            empty = self.empty.select(names)
            rows = pl.concat([empty, *self._file_frames(files, names)], rechunk=False)
            frames.append(rows if change is None else change(rows))
        return pl.concat([*frames, *(rows.select(self.empty.columns) for rows in self._other_rows())])

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        names = list(self.empty.columns if columns is None else columns)
        for change, files in self.by_change():
            read = self.columns_of(change, names)
            for file in range(len(files)):
                for frame in self._file_frames(files[file : file + 1], read):
                    for part in within(frame, size_bytes):
                        yield (part if change is None else change(part)).select(names)
        for rows in self._other_rows():
            yield from within(rows.select(names), size_bytes)

    def columns_of(self, change: RowFunction | None, names: Sequence[str]) -> list[str]:
        """Return the columns to read for rows with these columns: a change needs the others too."""
        if isinstance(change, MovedRows):
            return change.read
        return list(names if change is None else self.empty.columns)

    def scans(self, files: Sequence[int], names: Sequence[str]) -> list[FileScan]:
        """Return the rows of some of the files, to read these columns."""
        return live_scans(self.snapshot, files, names, only=self.only)

    def _file_frames(self, files: I64Array, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the rows of some of the files in frames of bounded size."""
        keep = all_rows(Planner(self.snapshot), names)
        yield from read_scans(self.scans(files.tolist(), names), keep, self.snapshot.data_files)

    def _other_rows(self) -> Iterator[pl.DataFrame]:
        """Yield changed rows in memory and added rows."""
        yield from (self.changed[file] for file in self.files.tolist() if file in self.changed)
        yield from self.added.read()


def rows_and_bytes(source: FilesSource) -> tuple[I64Array, I64Array]:
    """Estimate the rows of the files of a source, and their bytes in memory."""
    snapshot, files = source.snapshot, source.files
    schema = snapshot.copied_schema
    row_bytes = guess_row_bytes(schema)
    guess = pl.col("size_bytes") * _UNPACKED // max(row_bytes, 1)
    counted = snapshot.files.select(pl.coalesce("num_records", guess).cast(pl.Int64)).to_series()
    rows: I64Array = counted.to_numpy()[files]
    sizes = rows * row_bytes
    if any(map(has_any_width, schema.dtypes())):
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            unpacked = list(pool.map(partial(_uncompressed_bytes, snapshot), files.tolist()))
        sizes = np.maximum(sizes, np.array(unpacked, np.int64))
    if source.only:
        read = np.array([len(source.only.get(file, ())) or -1 for file in files.tolist()])
        sizes = np.where(read >= 0, sizes * read // np.maximum(rows, 1), sizes)
        rows = np.where(read >= 0, read, rows)
    return rows, sizes


def live_scans(
    snapshot: Snapshot,
    numbers: Sequence[int],
    names: Sequence[str],
    *,
    only: Mapping[int, BitMap64] | None = None,
) -> list[FileScan]:
    """Return some live files as a whole, or the pages of only some of their rows, to read these columns."""
    row_ids = snapshot.row_ids(numbers) if needs_row_ids(snapshot, names) else {}
    scans: list[FileScan] = []
    hidden = snapshot.hidden_rows.of(number for number in numbers if only is None or number not in only)
    for number in numbers:
        rows = None if only is None else only.get(number)
        if rows is None:
            scan = replace(file_at(snapshot, number), hidden=hidden.get(number))
        else:
            scan = scan_of_rows(snapshot, number, rows_in(rows))
        scans.append(replace(scan, row_ids=row_ids.get(scan.path)))
    return scans


def needs_row_ids(snapshot: Snapshot, names: Sequence[str]) -> bool:
    """Return whether hidden columns of row tracking are among these columns."""
    return not set(snapshot.row_id_columns or ()).isdisjoint(names)


def all_rows(planner: Planner, names: Sequence[str]) -> RowFilter:
    """Return the filter that keeps all rows, with these columns."""
    return RowFilter(tuple(names), planner.snapshot.copied_schema, planner.hashed, ALL_WEIGHTS)


def _uncompressed_bytes(snapshot: Snapshot, file: int) -> int:
    """Return the uncompressed size of a file's values: long texts may be stored in a fraction of their size."""
    path, size = snapshot.data_paths[file], int(snapshot.files["size_bytes"][file])
    try:
        footer = read_footer(snapshot.store, path, size)
    except (Unreadable, FileNotFoundError):  # reading the rows will report it
        return size * _UNPACKED
    return sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))

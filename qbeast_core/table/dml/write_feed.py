"""Task that writes the change data feed of some files: their changed rows before and after, with the kind of change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from qbeast_core.io.encode import choose_dictionary, page_rows_within
from qbeast_core.io.footer import PageCuts
from qbeast_core.log.actions import CHANGE_FOLDER, CdcFile
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.protocol import Codec, codec_of
from qbeast_core.log.values import partition_values
from qbeast_core.space.values import sample_values
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.process import new_id
from qbeast_core.table.data.frames import within
from qbeast_core.table.data.scan import FileScan, TableFiles, encode_rows
from qbeast_core.table.data.schema import CHANGE_TYPE
from qbeast_core.table.engine.engine import FileTarget
from qbeast_core.table.engine.row_change import NO_ROWS, AddedRows, RowChange
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_core.tree.grid import frame_weights

_PAGE_ROWS: Final = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class FeedPart:
    """Files with rows that change, or rows to insert."""

    files: tuple[FileScan, ...] = ()
    added: AddedRows = NO_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class WriteFeed:
    """Writes the feed of a part. Picklable."""

    files: TableFiles = field(repr=False)
    # Reads all columns of at least the rows that change.
    keep: RowFilter
    change: RowChange | None
    target: FileTarget
    # Indexed columns of new rows.
    hashed: tuple[str, ...]
    # First part of the names of the files, to find the files of failed tasks.
    prefix: str
    # Approximate size in memory of the rows of a file.
    file_bytes: int

    def __call__(self, part: FeedPart) -> list[CdcFile]:
        """Write one file per partition, or several of about `file_bytes`."""
        written, waiting, size = list[CdcFile](), list[pl.DataFrame](), 0
        for rows in self._rows(part):
            waiting.append(rows.select(*self.target.columns.columns, CHANGE_TYPE))
            size += int(rows.estimated_size())
            if size >= self.file_bytes:
                written += self._store(pl.concat(waiting))
                waiting, size = [], 0
        if waiting:
            written += self._store(pl.concat(waiting))
        return written

    def _rows(self, part: FeedPart) -> Iterator[pl.DataFrame]:
        for scan in part.files:
            change = None if self.change is None else self.change.of_file(scan.path)
            if change is None:
                continue
            for frame in read_scans([scan], self.keep, self.files):
                for rows in within(frame, self.file_bytes):
                    images = change.images(rows)
                    yield from _typed(images.before, "update_preimage")
                    yield from _typed(self._new(images.after), "update_postimage")
                    yield from _typed(images.deleted, "delete")
        for frame in part.added.read():
            for rows in within(frame, self.file_bytes):
                yield from _typed(self._new(rows.select(*self.target.columns.columns)), "insert")

    def _new(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows with the values of the sample column, which is computed when files are written."""
        name = self.target.shape.sample_column
        if name is None:
            return rows
        return rows.with_columns(pl.Series(name, sample_values(frame_weights(rows, self.hashed))))

    def _store(self, rows: pl.DataFrame) -> Iterator[CdcFile]:
        columns = self.target.columns
        by_partition = [rows]
        if columns.partitions:
            by_partition = rows.partition_by(columns.partitions, maintain_order=True)
        for part in by_partition:
            values = partition_values(part, columns)
            # Not in a folder of the partition: deltalake cannot read a feed in folders with escaped characters.
            path = f"{CHANGE_FOLDER}/{self.prefix}.{new_id()}.parquet"
            data = _encoded(part, columns, codec_of(self.target.configuration))
            self.target.store.put(path, data)
            yield CdcFile(path=FilePath(path).encoded, size=len(data), partition_values=values)


def _typed(rows: pl.DataFrame, kind: str) -> Iterator[pl.DataFrame]:
    if rows.height:
        yield rows.with_columns(pl.lit(kind).alias(CHANGE_TYPE))


def _encoded(rows: pl.DataFrame, columns: StoredColumns, codec: Codec) -> bytes:
    """Return a Parquet file of rows with their kind of change."""
    rows = rows.select(columns.in_files(rows.columns))
    cuts = PageCuts((rows.height,), (page_rows_within(rows, _PAGE_ROWS),))
    dictionary = choose_dictionary(rows)
    return encode_rows(rows, columns, weights=None, cuts=cuts, dictionary=dictionary, codec=codec).data

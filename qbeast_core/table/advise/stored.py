"""Estimate the bytes of a table from some of its rows, encoded in the order that an index gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from qbeast_core.io.parquet.cuts import PageCuts
from qbeast_core.io.parquet.tail import parse_tail
from qbeast_core.io.parquet.write.encode import encode_data_file
from qbeast_core.space.arrays import F64Array, I32Array
from qbeast_core.spec.layout import WEIGHT_COLUMN
from qbeast_core.table.advise.simulated import Opened
from qbeast_core.table.data.data_files import FileSettings


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The size of the rows of a table."""

    # Bytes of a row in files that are read whole, and in files that are read by pages.
    in_files: float
    in_pages: float
    # Bytes of page directory, footer and dictionaries of a file that is read by pages.
    tail: float

    def extrapolated(self, thin: StoredRows, *, steps: float) -> StoredRows:
        """Return the size of more rows, if it changes as much per step as it did from `thin`.

        Rows of more rows are more alike: rows of one key, and rows of one page.
        """
        in_files, in_pages = (
            max(value + steps * (value - before), value / 2)
            for value, before in ((self.in_files, thin.in_files), (self.in_pages, thin.in_pages))
        )
        return StoredRows(in_files, in_pages, self.tail)

    def bytes_of(self, opened: Opened, *, rows: int) -> F64Array:
        """Return the bytes that filters open of a table with a number of rows, shape (filters,)."""
        in_rows = opened.in_files * self.in_files + opened.in_pages * self.in_pages
        return in_rows * rows + opened.paged_files * self.tail


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes rows as the files of a table would be."""

    settings: FileSettings

    @staticmethod
    def of(rows: pl.DataFrame, configuration: Mapping[str, str], *, size_bytes: float) -> Encoder:
        """Choose the encodings for a table of such rows and this size in memory."""
        settings = FileSettings.of(rows, (), configuration, dialect="documented", size_bytes=int(size_bytes))
        return Encoder(settings)

    def encode(
        self,
        rows: pl.DataFrame,
        weights: I32Array,
        *,
        indexed: Sequence[str],
        page_rows: int,
        file_rows: float,
        row_groups: int,
    ) -> StoredRows:
        """Return the size of rows in their order, for a table with `file_rows` rows and some row groups per file.

        Rows of a cube are in no order but that of their weights. So a page of some of the rows is like a page of all
        rows, as long as the sample has about as many rows in a cube as a page has.
        """
        encoded = encode_data_file(
            rows,
            weights=weights,
            cuts=PageCuts((rows.height,), (page_rows,)),
            statistics=indexed,
            dictionary=self.settings.dictionary,
            levels=self.settings.levels,
        )
        in_files = encoded.size_bytes / rows.height
        if not encoded.tail_bytes:  # its pages cannot be read alone
            return StoredRows(in_files, in_files, 0.0)
        tail = parse_tail(encoded.data[-encoded.tail_bytes :])
        leaves = tail.footer.leaves
        is_read = [leaf != WEIGHT_COLUMN for leaf in leaves]
        chunks = tail.footer.groups[0].chunks
        dictionaries = sum(chunk.data_start - chunk.start for chunk in chunks)
        footer = int.from_bytes(encoded.data[-8:-4], "little")
        directory = (encoded.tail_bytes - footer) * file_rows / rows.height
        return StoredRows(
            in_files=in_files,
            in_pages=float(tail.page_sizes[is_read].sum()) / rows.height,
            tail=directory + footer * row_groups + dictionaries,
        )

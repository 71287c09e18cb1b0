"""Reads the rows of a table's segments: opens and decodes the pages that a filter may match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.carbondata.columns import Column, columns_of_files
from qbeast_core.carbondata.files.data_file import Blocklet, DataFile, StoredBounds
from qbeast_core.carbondata.files.foreign_file import ForeignFile
from qbeast_core.carbondata.files.open_file import open_data_file
from qbeast_core.carbondata.metadata.deletes import read_deleted_rows
from qbeast_core.carbondata.metadata.open_table import Segment, TableSnapshot
from qbeast_core.carbondata.metadata.segments import LiveFile
from qbeast_core.carbondata.pages.dimensions import Dictionaries
from qbeast_core.carbondata.pages.statistics import old_bounds
from qbeast_core.carbondata.pruning import filtered_columns, may_match
from qbeast_core.carbondata.rows import read_rows
from qbeast_core.carbondata.stored_file import inside
from qbeast_core.carbondata.structs.index_file import BlockIndex
from qbeast_core.io.stores.store import map_files
from qbeast_core.query.filters.nodes import Node, Nothing, Unknown
from qbeast_core.query.filters.predicate import parse_predicate

# Pages of each column to decode at once: about a million rows.
PAGES_AT_ONCE: Final = 32

# Rows of a page, in most files.
PAGE_ROWS: Final = 32_000

ALL_BLOCKLETS: Final = range(1 << 62)

_ALL_ROWS: Final = 1 << 62
_MAX_OPEN_FILES: Final = 64
_OWN_KINDS: Final = ("columnar", "row", "carbon")


@dataclass(frozen=True, eq=False)  # no slots: it caches properties
class TableReader:
    """Reads the segments of a table, also from several threads; it pickles without open files."""

    snapshot: TableSnapshot
    segments: tuple[Segment, ...]
    dictionaries: Dictionaries

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.snapshot, self.segments, self.dictionaries)

    @property
    def files(self) -> list[LiveFile]:
        """Live data files in the order of segments."""
        return [file for segment in self.segments for file in segment.files]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The table's columns in the order of the user."""
        if self.snapshot.schema is not None or self.snapshot.columns:
            return self.snapshot.columns
        files = [file for file in self.files if file.kind.startswith(_OWN_KINDS)]
        columns = map_files(self.snapshot.stores.table, lambda file: self.open(file).columns, files)
        with inside(self.snapshot.uri, "*.carbondata"):
            return columns_of_files(columns)

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns in Polars types."""
        empty = pa.table({column.schema.name: pa.nulls(0, column.arrow_type) for column in self.columns})
        return pl.DataFrame(pl.from_arrow(empty)).schema

    @cached_property
    def open(self) -> Callable[[LiveFile], DataFile]:
        """Opens a data file, or returns it if it is open."""
        return lru_cache(_MAX_OPEN_FILES)(self._open)

    def _open(self, live: LiveFile) -> DataFile:
        if live.kind.startswith(_OWN_KINDS):
            return open_data_file(live.stored, live.kind, self.dictionaries)
        with inside(live.store.uri, live.path):
            return ForeignFile.open(live.stored, live.kind, self.columns)

    def node(self, predicate: pl.Expr | None) -> Node:
        """Return the understood part of a filter."""
        return Unknown() if predicate is None else parse_predicate(predicate, self.schema)

    def plan(self, node: Node) -> list[LiveFile]:
        """Return the files that may have a matching row, by index files: no data file is opened."""
        files = self.files
        names = filtered_columns(node)
        units: list[dict[str, Any]] = []
        file_of_unit: list[int] = []
        for number, file in enumerate(files):
            pairs = self._pairs(file.columns, names)
            for entry in file.entries if file.columns else ():
                units.append({name: (own, _entry_bounds(entry, own)) for name, own in pairs})
                file_of_unit.append(number)
        owners = np.array(file_of_unit, np.int64)
        opened = np.full(len(files), not isinstance(node, Nothing))
        opened[owners] = False
        opened[owners[may_match(node, units, self.schema)]] = True
        return list(compress(files, opened.tolist()))

    def chosen(self, file: DataFile, node: Node) -> Iterator[tuple[Blocklet, list[int]]]:
        """Yield the blocklets of a file that may have a matching row, with the pages that may."""
        pairs = self._pairs(file.columns, filtered_columns(node))
        units = [
            {name: (own, file.bounds(blocklet, own)) for name, own in pairs} for blocklet in file.blocklets
        ]
        for number in np.flatnonzero(may_match(node, units, self.schema)).tolist():
            blocklet = file.blocklets[number]
            pages = list(range(len(blocklet.page_rows)))
            if pairs and len(pages) > 1:
                bounds = [(name, own, file.page_bounds(blocklet, own)) for name, own in pairs]
                by_page = [{name: (own, stored[page]) for name, own, stored in bounds} for page in pages]
                pages = np.flatnonzero(may_match(node, by_page, self.schema)).tolist()
            if pages:
                yield blocklet, pages

    def rows(
        self,
        columns: Sequence[str] | None = None,
        predicate: pl.Expr | None = None,
        limit: int | None = None,
        _: int | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows that a filter keeps in frames of bounded size; at least one frame, perhaps empty.

        Polars calls it for a scan, with a size of frames that is not used.
        """
        columns = list(self.schema) if columns is None else columns
        node = self.node(predicate)
        left = _ALL_ROWS if limit is None else limit
        at_once = PAGES_AT_ONCE if limit is None else min(limit // PAGE_ROWS + 1, PAGES_AT_ONCE)
        for frame in self.file_rows(self.plan(node), columns, predicate, pages_at_once=at_once):
            part = frame.head(left)
            yield part
            left -= part.height
            if left <= 0:
                return
        yield pl.DataFrame(schema={name: self.schema[name] for name in columns})

    def file_rows(
        self,
        files: Sequence[LiveFile],
        columns: Sequence[str],
        predicate: pl.Expr | None = None,
        *,
        pages_at_once: int = PAGES_AT_ONCE,
        blocklets: range = ALL_BLOCKLETS,
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of some files that a filter keeps."""
        node = self.node(predicate)
        needed = dict.fromkeys([*columns, *([] if predicate is None else predicate.meta.root_names())])
        wanted = [column for column in self.columns if column.schema.name in needed]
        for live in files:
            file = self.open(live)
            pairs = self._match(file.columns, wanted)
            deleted = read_deleted_rows(live.store, live.deltas)
            for blocklet, pages in self.chosen(file, node):
                if blocklet.number not in blocklets:
                    continue
                for first in range(0, len(pages), pages_at_once):
                    some = pages[first : first + pages_at_once]
                    rows = read_rows(file, blocklet, some, pairs, deleted)
                    frame = pl.DataFrame(pl.from_arrow(rows))
                    frame = frame if predicate is None else frame.filter(predicate)
                    # A projection runs Polars' engine, which takes as long as decoding a page.
                    yield frame if frame.columns == [*columns] else frame.select(columns)

    def _match(
        self, of_file: Sequence[Column], wanted: Sequence[Column]
    ) -> list[tuple[Column, Column | None]]:
        """Return columns of the table with those of a file, None where the column was added after the file."""

        def key(column: Column) -> str:
            schema = column.schema
            return schema.column_id if self.snapshot.is_transactional else schema.name.lower()

        by_key = {key(column): column for column in of_file}
        return [(column, by_key.get(key(column))) for column in wanted]

    def _pairs(self, of_file: Sequence[Column], names: set[str]) -> list[tuple[str, Column]]:
        """Return the file's columns that a filter uses, with the table's names."""
        wanted = [column for column in self.columns if column.schema.name in names and not column.is_nested]
        return [(column.schema.name, own) for column, own in self._match(of_file, wanted) if own is not None]


def _entry_bounds(entry: BlockIndex, column: Column) -> StoredBounds:
    """Return the bounds of a column in an index entry; entries of CarbonData up to 1.1 name no blocklet."""
    stored = entry.min_max.bounds(column.number)
    return stored if entry.blocklet is not None else old_bounds(column, stored)

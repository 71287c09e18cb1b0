"""The rows of a table's segments: what a filter may match is opened, page by page, and decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.data_file import Blocklet, DataFile, StoredBounds
from qbeast_core.carbondata.deletes import read_deleted_rows
from qbeast_core.carbondata.dictionaries import Dictionaries
from qbeast_core.carbondata.file_columns import columns_of_files
from qbeast_core.carbondata.inside import inside
from qbeast_core.carbondata.open_file import open_data_file
from qbeast_core.carbondata.pages.statistics import old_bounds
from qbeast_core.carbondata.pruning import filtered_columns, may_match
from qbeast_core.carbondata.rows import DeletedByPage, match_columns, read_rows
from qbeast_core.carbondata.segments import LiveFile
from qbeast_core.carbondata.snapshot import Segment, TableSnapshot
from qbeast_core.carbondata.structs.index_file import BlockIndex
from qbeast_core.io.store import map_files
from qbeast_core.query.nodes import Node, Nothing, Unknown
from qbeast_core.query.predicate import parse_predicate

# Pages of each column that are decoded at once: about a million rows.
PAGES_AT_ONCE: Final = 32

# Rows of a page, in most files.
PAGE_ROWS: Final = 32_000

# Behind the last blocklet of any file.
ALL_BLOCKLETS: Final = 1 << 62

_KEPT_FILES: Final = 64
_OWN_KINDS: Final = ("columnar", "row", "carbon")


@dataclass(frozen=True, slots=True, eq=False)
class FilePlan:
    """A data file in a read."""

    live: LiveFile
    # Whether it may hold a row that is wanted, as far as its index entries tell.
    opened: bool


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class TableReader:
    """Reads the segments of a table; several threads may."""

    snapshot: TableSnapshot
    segments: tuple[Segment, ...]
    dictionaries: Dictionaries
    _opened: dict[tuple[str, str], DataFile] = field(
        default_factory=dict[tuple[str, str], DataFile], repr=False
    )
    _lock: Any = field(default_factory=Lock, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was asked for; files are opened again."""
        return {"snapshot": self.snapshot, "segments": self.segments, "dictionaries": self.dictionaries}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opened={}, _lock=Lock())

    @property
    def files(self) -> list[LiveFile]:
        """All live data files, in the order of segments."""
        return [file for segment in self.segments for file in segment.files]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The table's columns, in the order of the user."""
        if self.snapshot.schema is not None or self.snapshot.columns:
            return self.snapshot.columns
        files = [file for file in self.files if file.kind.startswith(_OWN_KINDS)]
        found = map_files(self.snapshot.stores.table, lambda file: self.open(file).columns, files)
        with inside(self.snapshot.uri, "*.carbondata"):
            return columns_of_files(found)

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns in types of Polars."""
        empty = pa.table({one.schema.name: pa.nulls(0, one.arrow_type) for one in self.columns})
        return pl.DataFrame(pl.from_arrow(empty)).schema

    def open(self, live: LiveFile) -> DataFile:
        """Open a data file, or return it if it is open."""
        key = (live.store.uri, live.path)
        with self._lock:
            known = self._opened.get(key)
        if known is not None:
            return known
        if live.kind.startswith(_OWN_KINDS):
            found = open_data_file(live.stored, live.kind, self.dictionaries)
        else:
            found = _open_foreign(live, self.columns)
        with self._lock:
            while len(self._opened) >= _KEPT_FILES:
                self._opened.pop(next(iter(self._opened)))
            self._opened[key] = found
        return found

    def node(self, predicate: pl.Expr | None) -> Node:
        """Return what is understood of a filter."""
        return Unknown() if predicate is None else parse_predicate(predicate, self.schema)

    def plan(self, node: Node) -> list[FilePlan]:
        """Tell which files may hold a row, by index files alone: no data file is opened."""
        files = self.files
        names = filtered_columns(node)
        units: list[dict[str, Any]] = []
        owner: list[int] = []
        for number, file in enumerate(files):
            pairs = self._pairs(file.columns, names)
            for entry in file.entries if file.columns else ():
                units.append({name: (own, _entry_bounds(entry, own)) for name, own in pairs})
                owner.append(number)
        opened = np.full(len(files), not isinstance(node, Nothing))
        told = np.unique(np.array(owner, np.int64))
        opened[told] = False
        opened[np.array(owner, np.int64)[may_match(node, units, self.schema)]] = True
        return [FilePlan(file, bool(one)) for file, one in zip(files, opened, strict=True)]

    def chosen(self, file: DataFile, node: Node) -> Iterator[tuple[Blocklet, list[int]]]:
        """Yield the blocklets of a file that may hold a row, and the pages of each that may."""
        pairs = self._pairs(file.columns, filtered_columns(node))
        units = [
            {name: (own, b.bounds[own.number] if own.number < len(b.bounds) else None) for name, own in pairs}
            for b in file.blocklets
        ]
        for blocklet in np.flatnonzero(may_match(node, units, self.schema)).tolist():
            found = file.blocklets[blocklet]
            pages = list(range(len(found.page_rows)))
            if pairs and len(pages) > 1:
                of_pages = file.page_bounds(found, [own for _, own in pairs])
                by_page = [
                    {name: (own, of_pages[at][page]) for at, (name, own) in enumerate(pairs)}
                    for page in pages
                ]
                pages = np.flatnonzero(may_match(node, by_page, self.schema)).tolist()
            if pages:
                yield found, pages

    def rows(
        self, columns: Sequence[str], predicate: pl.Expr | None = None, limit: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows that a filter keeps, in frames of bounded size; at least one, perhaps without rows."""
        node = self.node(predicate)
        left = limit
        at_once = PAGES_AT_ONCE if limit is None else min(limit // PAGE_ROWS + 1, PAGES_AT_ONCE)
        files = [one.live for one in self.plan(node) if one.opened]
        for frame in self.file_rows(files, columns, predicate, pages_at_once=at_once):
            part = frame if left is None else frame.head(left)
            yield part
            if left is not None:
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
        blocklets: tuple[int, int] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of some files that a filter keeps."""
        first_blocklet, behind = blocklets or (0, ALL_BLOCKLETS)
        node = self.node(predicate)
        needed = dict.fromkeys([*columns, *([] if predicate is None else predicate.meta.root_names())])
        wanted = [column for column in self.columns if column.schema.name in needed]
        for live in files:
            file = self.open(live)
            pairs = list(zip(wanted, match_columns(file.columns, wanted, by_name=self._by_name), strict=True))
            deleted = self.deleted(live)
            for blocklet, pages in self.chosen(file, node):
                if not first_blocklet <= blocklet.number < behind:
                    continue
                for first in range(0, len(pages), pages_at_once):
                    some = pages[first : first + pages_at_once]
                    frame = _frame(read_rows(file, blocklet, some, pairs, deleted))
                    kept = frame if predicate is None else frame.filter(predicate)
                    # A choice of columns runs Polars' engine, which takes as long as decoding a page.
                    yield kept if kept.columns == [*columns] else kept.select(columns)

    def deleted(self, live: LiveFile) -> DeletedByPage:
        """Return the rows of a file that are gone."""
        return read_deleted_rows(live.store, live.deltas)

    @property
    def _by_name(self) -> bool:
        return not self.snapshot.is_transactional

    def _pairs(self, of_file: Sequence[Column], names: set[str]) -> list[tuple[str, Column]]:
        """Return the file's columns that a filter asks about, with the table's names."""
        wanted = [column for column in self.columns if column.schema.name in names and not column.is_nested]
        found = match_columns(of_file, wanted, by_name=self._by_name)
        return [(one.schema.name, own) for one, own in zip(wanted, found, strict=True) if own is not None]


def _open_foreign(live: LiveFile, columns: Sequence[Column]) -> DataFile:
    from qbeast_core.carbondata.foreign_file import ForeignFile  # noqa: PLC0415 - for added segments alone

    with inside(live.store.uri, live.path):
        return ForeignFile.open(live.stored, live.kind, columns)


def _entry_bounds(entry: BlockIndex, column: Column) -> StoredBounds:
    """Return what an index entry tells of a column; entries of CarbonData up to 1.1 name no blocklet."""
    stored = entry.index.min_max.bounds(column.number)
    return stored if entry.blocklet is not None else old_bounds(column, stored)


def _frame(table: Any) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))

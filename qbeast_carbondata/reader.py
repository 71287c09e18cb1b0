"""Reads the rows of a table's segments, whole or in tasks for any process: the pages that a filter may match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import compress, pairwise
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_carbondata.columns import Column, columns_of_files
from qbeast_carbondata.damage import damaged
from qbeast_carbondata.files.data_file import Blocklet, DataFile, StoredBounds
from qbeast_carbondata.files.foreign_file import ForeignFile
from qbeast_carbondata.files.open_file import open_data_file
from qbeast_carbondata.metadata.open_table import Segment, TableSnapshot
from qbeast_carbondata.metadata.segments import LiveFile, read_deleted_rows
from qbeast_carbondata.pages.page import Dictionaries, decode_bounds, default_value, old_bounds
from qbeast_carbondata.stored_file import inside
from qbeast_carbondata.structs import BlockIndex
from qbeast_core.io.store import map_files
from qbeast_core.plan.bounds import Statistics, evaluate
from qbeast_core.plan.nodes import And, Atom, Node, Nothing, Or, Unknown, column_of, named_columns
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.space.values import BoolArray, I64Array

# Pages of each column to decode at once: about a million rows.
PAGES_AT_ONCE: Final = 32

# Rows of a page, in most files.
PAGE_ROWS: Final = 32_000

ALL_BLOCKLETS: Final = range(1 << 62)

_ALL_ROWS: Final = 1 << 62
_MAX_OPEN_FILES: Final = 64
_OWN_KINDS: Final = ("columnar", "row", "carbon")

# A blocklet or page: by the table's name of a column, the file's column and its stored bounds.
Unit = Mapping[str, tuple[Column, StoredBounds]]

# By blocklet and page, the deleted rows of the page.
DeletedByPage = Mapping[tuple[int, int], I64Array]


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
        names = _filtered_columns(node)
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
        opened[owners[_may_match(node, units, self.schema)]] = True
        return list(compress(files, opened.tolist()))

    def chosen(self, file: DataFile, node: Node) -> Iterator[tuple[Blocklet, list[int]]]:
        """Yield the blocklets of a file that may have a matching row, with the pages that may."""
        pairs = self._pairs(file.columns, _filtered_columns(node))
        units = [
            {name: (own, file.bounds(blocklet, own)) for name, own in pairs} for blocklet in file.blocklets
        ]
        for number in np.flatnonzero(_may_match(node, units, self.schema)).tolist():
            blocklet = file.blocklets[number]
            pages = list(range(len(blocklet.page_rows)))
            if pairs and len(pages) > 1:
                bounds = [(name, own, file.page_bounds(blocklet, own)) for name, own in pairs]
                by_page = [{name: (own, stored[page]) for name, own, stored in bounds} for page in pages]
                pages = np.flatnonzero(_may_match(node, by_page, self.schema)).tolist()
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
        needed = dict.fromkeys([*columns, *named_columns(predicate)])
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
                    rows = _read_rows(file, blocklet, some, pairs, deleted)
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


def _filtered_columns(node: Node) -> set[str]:
    """Return the columns in the understood part of a filter."""
    if isinstance(node, And | Or):
        return {name for child in node.children for name in _filtered_columns(child)}
    return {column_of(node)} if isinstance(node, Atom) else set()


def _may_match(node: Node, units: Sequence[Unit], schema: pl.Schema) -> BoolArray:
    """Return which units can have a row that a filter keeps."""
    names = sorted(_filtered_columns(node) & set(schema))
    if not names:  # most reads have no filter, and each statement of Polars costs as much as decoding a page
        return evaluate(node, len(units), lambda _: np.ones(len(units), np.bool_))
    bounds = {
        name: [decode_bounds(*unit[name]) if name in unit else None for unit in units] for name in names
    }
    files = pl.DataFrame({"num_records": [0] * len(units)})
    for at, side in enumerate(("min", "max")):
        columns = [
            _series(name, [pair and pair[at] for pair in bounds[name]], schema[name]) for name in names
        ]
        files = files.with_columns(pl.DataFrame(columns).to_struct(side))
    rows = np.zeros(len(units), np.int64)
    no, yes = (pl.repeat(value=value, n=len(units), dtype=pl.Boolean, eager=True) for value in (False, True))
    # Bounds of doubles ignore NaN, like those of other writers of Parquet.
    exact, floats = Statistics(files, no, rows, no), Statistics(files, yes, rows, no)

    def of_atom(atom: Atom) -> BoolArray:
        return (floats if schema[column_of(atom)].is_float() else exact).may_match(atom)

    return evaluate(node, len(units), of_atom)


def _series(name: str, values: list[object], dtype: pl.DataType) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=dtype, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return pl.Series(name, [None] * len(values), dtype=dtype)


def _read_rows(
    file: DataFile,
    blocklet: Blocklet,
    pages: Sequence[int],
    wanted: Sequence[tuple[Column, Column | None]],
    deleted: DeletedByPage,
) -> Any:
    """Return the rows of some pages of a blocklet that are not deleted, in the table's columns."""
    stored = [own for _, own in wanted if own is not None]
    arrays = iter(file.read(blocklet, stored, pages))
    rows = sum(blocklet.page_rows[page] for page in pages)
    with file.file.inside(f"blocklet {blocklet.number}"):
        columns = [
            _constant(column, rows) if own is None else _as_type(next(arrays), column)
            for column, own in wanted
        ]
        mask = _not_deleted(blocklet, pages, deleted)
    names = [column.schema.name for column, _ in wanted]
    # Without columns, the number of rows counts.
    table = pa.table(columns, names=names) if names else pa.table({"": pa.nulls(rows)})
    return table if mask is None else table.filter(pa.array(mask))


def _constant(column: Column, rows: int) -> Any:
    """Return a column of its default value, null if it has none."""
    value = default_value(column)
    return pa.nulls(rows, column.arrow_type) if value is None else pa.repeat(value, rows)


def _as_type(array: Any, column: Column) -> Any:
    """Return values in the table's type, which may be wider than the file's."""
    kind = column.arrow_type
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    # The table's type cannot hold a value, or there is no cast between the types.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        damaged(f"column {column.schema.name!r} of type {array.type} is {kind} in the table: {error}")


def _not_deleted(blocklet: Blocklet, pages: Sequence[int], deleted: DeletedByPage) -> BoolArray | None:
    """Return which rows of the pages are not deleted; None if all are."""
    if not any((blocklet.number, page) in deleted for page in pages):
        return None
    masks: list[BoolArray] = []
    for page in pages:
        count = blocklet.page_rows[page]
        mask = np.ones(count, np.bool_)
        rows = deleted.get((blocklet.number, page), np.empty(0, np.int64))
        if len(rows) and rows[-1] >= count:
            damaged(f"row {int(rows[-1])} of page {page} was deleted, and it has {count}")
        mask[rows] = False
        masks.append(mask)
    return np.concatenate(masks)


@dataclass(frozen=True, slots=True, eq=False)
class CarbonTask:
    """Rows of one data file; it pickles without the rest of the table."""

    # Reader of a table with this file only.
    reader: TableReader
    columns: tuple[str, ...]
    # None keeps all rows.
    predicate: pl.Expr | None
    # Numbers of the blocklets to read.
    blocklets: range

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, in frames of bounded size."""
        return self.reader.file_rows(
            self.reader.files, self.columns, self.predicate, blocklets=self.blocklets
        )


def carbon_tasks(
    reader: TableReader, columns: Sequence[str], predicate: pl.Expr | None, *, task_bytes: int
) -> list[CarbonTask]:
    """Cut a read into tasks; files that index entries rule out have none."""
    # Every task carries the table's columns, not its loads.
    snapshot = replace(reader.snapshot, columns=reader.columns, loads=(), updates=())
    loads = {file: segment.load for segment in reader.segments for file in segment.files}
    tasks: list[CarbonTask] = []
    for file in reader.plan(reader.node(predicate)):
        segment = Segment(loads[file], (replace(file, entries=(), columns=()),))
        alone = TableReader(snapshot, (segment,), reader.dictionaries)
        parts = _parts(file, task_bytes)
        tasks += [CarbonTask(alone, tuple(columns), predicate, part) for part in parts]
    return tasks


def _parts(live: LiveFile, task_bytes: int) -> list[range]:
    """Return ranges of blocklets of about `task_bytes`; the last has no end, since entries may not list all."""
    count = sum(entry.blocklet is not None for entry in live.entries)
    pieces = min(max(live.size_bytes // task_bytes, 1), max(count, 1))
    begins = [count * piece // pieces for piece in range(pieces)]
    return [range(first, behind) for first, behind in pairwise([*begins, ALL_BLOCKLETS.stop])]

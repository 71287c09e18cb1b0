"""Sources of rows: frames, queries and readers in batches, and live files of a table."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa
from pyroaring import BitMap64

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.io.footer import Unreadable, read_footer
from qbeast_core.log.columns import sample_column_of
from qbeast_core.log.deletion_vectors import rows_in
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.rules import Identity, with_high_water_marks
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.table_config import SAMPLE_COLUMN
from qbeast_core.support.process import now_ms
from qbeast_core.table.data.files import FileTarget, RowShape
from qbeast_core.table.data.frames import (
    ArrowStream,
    FrameLike,
    batches_within,
    has_any_width,
    is_pandas,
    little_read_ahead,
    opened,
    reading_rows,
    slices_within,
    takes_slices,
    to_frame,
    within,
)
from qbeast_core.table.data.rules import with_numbers
from qbeast_core.table.data.scan import FileScan
from qbeast_core.table.engine.engine import Source, guess_row_bytes
from qbeast_core.table.engine.row_change import NO_ROWS, AddedRows, MoveChange, RowChange, RowFunction
from qbeast_core.table.read.planner import Planner, file_at, scan_of_rows
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_core.table.snapshot.snapshot import Snapshot, with_schema


@runtime_checkable
class ArrowDataset(Protocol):
    """A ``pyarrow.dataset.Dataset``."""

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of the rows."""
        ...

    def scanner(self, **options: Any) -> Any:
        """Return a scanner."""
        ...


# Input of a write: tables of rows, or sources of batches.
RowsLike: TypeAlias = FrameLike | ArrowDataset | Iterator[FrameLike]

_NO_COLUMNS: Final[frozenset[str]] = frozenset()
_HEAD_ROWS: Final = 16
# Size of the batches of rows that can be read once. They are cut again where they are stored.
_BATCH_BYTES: Final = 16 << 20
_SLICE_BATCHES: Final = 4  # batches per slice: a slice of a row group reads the row group up to it


@runtime_checkable
class NumberingSource(Protocol):
    """A source that numbers its rows."""

    @property
    def drawn(self) -> tuple[Identity, ...]:
        """Identity columns whose numbers it draws."""
        ...

    @property
    def reserved(self) -> int | None:
        """How many numbers it uses up. None: one for each row."""
        ...

    def numbered(self, drawn: tuple[Identity, ...]) -> Source:
        """Return the rows with numbers in identity columns."""
        ...


class FrameSource:
    """Rows in memory. Converted to a frame at the first use."""

    reserved = None

    def __init__(self, data: FrameLike, drawn: tuple[Identity, ...] = ()) -> None:
        self._data, self.drawn = data, drawn

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        return to_frame(self._data)

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self.frame.clear()

    @property
    def required(self) -> frozenset[str]:
        """The columns whose fields in Arrow allow no nulls."""
        return _required(self._data)

    def numbered(self, drawn: tuple[Identity, ...]) -> FrameSource:
        """See `NumberingSource`."""
        return FrameSource(with_numbers(self.frame, drawn), drawn)

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        yield from within(self.frame if columns is None else self.frame.select(columns), size_bytes)


@contextmanager
def open_source(data: RowsLike) -> Generator[Source]:
    """Yield the source of some rows, and close what it opened: DuckDB runs no other query before that."""
    source = _source_of(data)
    try:
        yield source
    finally:
        if isinstance(source, OneShotSource):
            source.close()


def _source_of(data: RowsLike) -> Source:
    rows = cast("object", data)  # callers without a type checker pass anything
    if isinstance(rows, pl.LazyFrame):
        return _Query(rows)
    if isinstance(rows, pl.DataFrame | pa.Table | pa.RecordBatch) or is_pandas(rows):
        return FrameSource(cast("FrameLike", rows))
    if isinstance(rows, ArrowStream) and not isinstance(rows, pl.Series):
        reader = opened(rows)
        return OneShotSource(_arrow_batches(reader), reader)
    if isinstance(rows, ArrowDataset):
        return _Dataset(rows)
    if isinstance(rows, Iterator):
        return OneShotSource(rows)
    return FrameSource(cast("FrameLike", rows))  # raises at the first use if the type is not supported


def required_columns(source: Source) -> frozenset[str]:
    """Return the columns that allow no nulls, as fields of Arrow declare them; those of a query allow them."""
    return source.required if isinstance(source, FrameSource | OneShotSource | _Dataset) else _NO_COLUMNS


def _required(data: object) -> frozenset[str]:
    schema = None if isinstance(data, pl.DataFrame | pl.LazyFrame) else getattr(data, "schema", None)
    if not hasattr(schema, "__arrow_c_schema__"):
        return _NO_COLUMNS
    return frozenset(field.name for field in pa.schema(schema) if not field.nullable)


def drain(frames: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames and remove them from the list."""
    while frames:
        yield frames.pop(0)


class _Query:
    """The rows of a LazyFrame. Each read runs the query."""

    def __init__(self, lazy: pl.LazyFrame) -> None:
        self._lazy = lazy

    @property
    def empty(self) -> pl.DataFrame:
        with reading_rows():
            return to_frame(pl.DataFrame(schema=self._lazy.collect_schema()))

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        query = self._lazy if columns is None else self._lazy.select(columns)
        with reading_rows():
            if takes_slices(query):
                for frame in slices_within(query, size_bytes=_SLICE_BATCHES * size_bytes):
                    yield from within(to_frame(frame), size_bytes)
                return
            with little_read_ahead():
                yield from map(to_frame, batches_within(query, size_bytes=size_bytes))


class _Dataset:
    """The rows of a pyarrow Dataset."""

    def __init__(self, dataset: ArrowDataset) -> None:
        self._dataset = dataset

    @property
    def empty(self) -> pl.DataFrame:
        return to_frame(_no_rows(self._dataset.schema))

    @property
    def required(self) -> frozenset[str]:
        return _required(self._dataset)

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        names = list(self.empty.columns if columns is None else columns)
        # Limit the readahead: by default pyarrow reads 16 batches of 4 files, whatever their size.
        with reading_rows():
            rows = self._batch_rows(names, size_bytes)
            scanner = self._dataset.scanner(
                columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1
            )
            reader = scanner.to_reader()
        for batch in _arrow_batches(reader):
            yield from within(to_frame(batch), size_bytes)

    def _batch_rows(self, names: list[str], size_bytes: int) -> int:
        """Return the number of rows of about this size, from the types and the first rows."""
        schema = self.empty.select(names).schema
        rows = max(size_bytes // max(guess_row_bytes(schema), 1), 1)
        if not any(map(has_any_width, schema.dtypes())):
            return rows
        scanner = self._dataset.scanner(
            columns=names, batch_size=_HEAD_ROWS, batch_readahead=1, fragment_readahead=1
        )
        head = to_frame(scanner.head(_HEAD_ROWS))
        return min(max(size_bytes * head.height // max(int(head.estimated_size()), 1), 1), rows)


class OneShotSource:
    """Rows of a reader, a cursor or an iterator, which can be read only once."""

    reserved = None

    def __init__(
        self,
        frames: Iterator[FrameLike],
        reader: pa.RecordBatchReader | None = None,
        drawn: tuple[Identity, ...] = (),
    ) -> None:
        self._frames, self._reader, self.drawn = frames, reader, drawn
        self._first: pl.DataFrame | None = None
        self._required = _NO_COLUMNS

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        if self._first is None:
            first = next(self._frames, None)
            if first is None:
                msg = "the iterator returned no frame: its columns are unknown. Return an empty frame."
                raise InvalidInputError(msg, argument="df")
            self._first, self._required = to_frame(first), _required(first)
        return self._first.clear()

    @property
    def required(self) -> frozenset[str]:
        """The columns whose fields allow no nulls in the first frame."""
        return self._required if self.empty.width else _NO_COLUMNS

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        schema = self.empty.schema
        first, self._first = self._first, self.empty
        for frame in chain([] if first is None else [first], map(to_frame, self._frames)):
            _refuse_other_columns(frame.schema, schema)
            yield from within(frame if columns is None else frame.select(columns), size_bytes)

    def numbered(self, drawn: tuple[Identity, ...]) -> OneShotSource:
        """See `NumberingSource`."""
        rows = _NumberedBatches(self, drawn)
        return OneShotSource(chain([rows.empty], rows.batches(None, size_bytes=_BATCH_BYTES)), drawn=drawn)

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()


@dataclass(frozen=True, slots=True, eq=False)
class _NumberedBatches:
    """Rows in batches, with numbers. Each read counts from the first row."""

    source: Source
    drawn: tuple[Identity, ...]
    reserved: int | None = None

    def numbered(self, drawn: tuple[Identity, ...]) -> Source:
        """See `NumberingSource`."""
        return replace(self, drawn=drawn)

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return with_numbers(self.source.empty, self.drawn)

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        drawn, read = [identity.column for identity in self.drawn], None
        if columns is not None:
            read = [name for name in columns if name not in drawn] or self.source.empty.columns[:1]
        first_row = 0
        for rows in self.source.batches(read, size_bytes=size_bytes):
            frame = with_numbers(rows, self.drawn, first_row)
            yield frame if columns is None else frame.select(columns)
            first_row += rows.height


def numbered_source(source: Source, drawn: tuple[Identity, ...]) -> Source:
    """Return the rows with numbers in identity columns."""
    if not drawn:
        return source
    return source.numbered(drawn) if isinstance(source, NumberingSource) else _NumberedBatches(source, drawn)


def marked_table(source: Source, table: Snapshot, rows: int) -> Snapshot:
    """Return the table after its identity columns drew the numbers of a source with this number of rows."""
    if not isinstance(source, NumberingSource) or not source.drawn:
        return table
    count = rows if source.reserved is None else source.reserved
    return with_schema(table, with_high_water_marks(table.schema_json, source.drawn, count))


def _arrow_batches(reader: Any) -> Iterator[FrameLike]:
    """Yield a table without rows, then the batches of a reader: the reader may have no batch."""
    yield _no_rows(reader.schema)
    with reading_rows():
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _no_rows(schema: Any) -> pa.Table:
    """Return a table without rows. `empty_table` of pyarrow fails for types that it cannot make from objects."""
    return pa.Table.from_batches([], schema=schema)


def _refuse_other_columns(schema: pl.Schema, first: pl.Schema) -> None:
    if schema == first:
        return
    names = [name for name in {**first, **schema} if schema.get(name) != first.get(name)]
    problems = [
        f"column {name!r} is {schema.get(name, 'missing')} and was {first.get(name, 'missing')}"
        for name in names
    ] or ["the columns are in another order"]
    msg = f"the iterator returned frames with different columns: {'; '.join(problems)}. Cast or fill them."
    raise SchemaMismatchError(msg, problems=problems)


_FOOTERS_AT_ONCE: Final = 16

_UNPACKED: Final = 4  # bytes in memory per byte stored, for files whose rows the log does not count


def target_of(
    table: Snapshot, shape: RowShape, dialect: BlocksDialect, *, table_rows: int, time_ms: int | None = None
) -> FileTarget:
    """Return the target of new files of a table, by default with the time of now."""
    prefixes, columns, location = ("delta.", SAMPLE_COLUMN), table.columns, table.location
    configuration = table.metadata.configuration
    sample_column = sample_column_of(configuration, shape.schema, columns)
    return FileTarget(
        # New files are below the root, also of a table with absolute paths.
        location=replace(location, trusts_absolute=False) if location.trusts_absolute else location,
        shape=replace(shape, sample_column=sample_column, partitions=columns.partitions),
        configuration={key: text for key, text in configuration.items() if key.startswith(prefixes)},
        dialect=dialect,
        columns=columns,
        clustered_by=table.clustered_by,
        sample_by=table.config.sample_by,
        importance=table.config.importance,
        table_rows=table_rows,
        time_ms=now_ms() if time_ms is None else time_ms,
    )


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
    # Index of a file -> some columns of these rows, which were read already.
    moved: Mapping[int, pl.DataFrame] = field(default_factory=dict[int, pl.DataFrame])
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
        shape = RowShape(snapshot.schema_json, snapshot.copied_schema, merge=False)
        dialect, rows = dialect_of(snapshot), snapshot.counted_rows
        return target_of(snapshot, shape, dialect, table_rows=rows, time_ms=self.time_ms)

    def by_change(self) -> Iterator[tuple[RowFunction | None, I64Array]]:
        """Yield the files to read, grouped by the change of their rows."""
        paths, change, moved = self.snapshot.data_paths, self.change, list[MoveChange]()
        files = [file for file in self.files.tolist() if file not in self.changed]

        def function(file: int) -> RowFunction | None:
            found = None if change is None else change.of_file(paths[file])
            if found is None or change is None or file not in self.only:
                return found
            if not moved or moved[0].change is not found:  # the last one only: it may hold rows
                moved[:] = [MoveChange(found, self.snapshot.copied_schema, change.replaced)]
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
        if isinstance(change, MoveChange):
            return change.read
        return list(names if change is None else self.empty.columns)

    def scans(self, files: Sequence[int], names: Sequence[str]) -> list[FileScan]:
        """Return the rows of some of the files, to read these columns."""
        return live_scans(self.snapshot, files, names, only=self.only)

    def _file_frames(self, files: I64Array, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the rows of some of the files in frames of bounded size."""
        numbers = files.tolist()
        moved = [self.moved[file] for file in numbers if file in self.moved and file in self.only]
        if len(moved) == len(numbers) and all(set(names).issubset(rows.columns) for rows in moved):
            yield from (rows.select(names) for rows in moved)
            return
        keep = all_rows(Planner(self.snapshot), names)
        yield from read_scans(self.scans(numbers, names), keep, self.snapshot.data_files)

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

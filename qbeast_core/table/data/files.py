"""New data files: their target, the shape of their rows, how they are encoded, and their entries in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.encode import (
    EncodedFile,
    choose_dictionary,
    choose_larger_dictionaries,
    choose_uncompressed,
    outer_texts,
    page_rows_within,
    place_values,
    refuse_huge_values,
    used_values,
)
from qbeast_core.io.footer import cuts_of
from qbeast_core.io.location import Location
from qbeast_core.io.store import Store
from qbeast_core.log.actions import STATS_COLUMNS, AddFile, CdcFile, file_stats, leaves_of, stats_columns
from qbeast_core.log.columns import StoredColumns, without_values
from qbeast_core.log.protocol import Codec, codec_of
from qbeast_core.log.rebase import hidden_columns
from qbeast_core.log.replay import RULES, RULES_TAG, dump_copy
from qbeast_core.log.schema import statistics_schema
from qbeast_core.log.values import folder_of, partition_values
from qbeast_core.space.values import I32Array, U32Array, sample_values
from qbeast_core.spec.blocks import Block, BlocksDialect, FilePath, Layout, dump_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import Progress, ProgressCallback, new_id
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.data.rules import RowRules
from qbeast_core.table.data.scan import encode_rows
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.tree.files import RowNumbers
from qbeast_core.tree.grid import grid_columns, thread_pool
from qbeast_core.tree.keys import KEYS_TAG, dump_keys, keys_of_file
from qbeast_core.tree.pages import FileShape, Grain, arrange
from qbeast_core.tree.summary import with_stored_values

if TYPE_CHECKING:
    from qbeast_core.tree.files import IndexPlan


SentT = TypeVar("SentT")

_UNKNOWN_TAIL: Final = 8  # until the file is encoded

_TRIED_ROWS: Final = 1 << 14


# Of zstd. From this level on it finds what rising floats of 16 significant bits share: a third of the bytes.
_SAMPLE_LEVEL: Final = 12


@dataclass(frozen=True, slots=True)
class RowShape:
    """Schema that rows are converted to, as Delta schema and as Polars schema. `merge`: columns may be missing."""

    schema_json: str
    schema: pl.Schema
    merge: bool
    # Column whose values are computed when files are written: rows need not have it.
    sample_column: str | None = None
    # Rules of the table for new rows. None: it has none, or the rows are in the table already.
    rules: RowRules | None = field(default=None, repr=False)
    # Partition columns, whose values become the values that Delta stores: the empty text becomes null.
    partitions: tuple[str, ...] = ()

    def fit(self, rows: FrameLike) -> pl.DataFrame:
        """Return the rows with the columns and types of the table. Raise if they break a rule of the table."""
        frame = without_values(to_frame(rows), self.sample_column)
        if self.rules is None:
            return self._stored(fit_frame(frame, self.schema_json, self.schema, merge=self.merge))
        rules = self.rules.on_new(frame.columns)
        computed = {column.name for column in rules.generated}
        types = pl.Schema({name: dtype for name, dtype in self.schema.items() if name not in computed})
        fitted = fit_frame(rules.fill(frame), self.schema_json, types, merge=self.merge)
        if computed:
            fitted = fit_frame(rules.compute(fitted), self.schema_json, self.schema, merge=self.merge)
        fitted = self._stored(fitted)
        rules.check(fitted)
        return fitted

    def _stored(self, fitted: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as Delta stores them, where a partition column may have more nulls."""
        rows = with_stored_values(fitted, self.partitions)
        return fit_frame(rows, self.schema_json, self.schema, merge=self.merge) if self.partitions else rows

    def of_columns(self, names: Sequence[str]) -> RowShape:
        """Return the shape of some columns, and of columns that they are computed from. It checks no rules."""
        needed, rules = set(names), self.rules
        if rules is not None:
            needed |= rules.sources_of(names)
            rules = rules.for_columns(names)
        schema = pl.Schema({name: dtype for name, dtype in self.schema.items() if name in needed})
        # Rows may have none of the columns, and have another column then, which counts them.
        return replace(
            self, schema=schema, merge=self.merge or rules is not None, rules=rules, sample_column=None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Target of the new files of a table. Picklable."""

    # Location of the table.
    location: Location
    shape: RowShape
    # The ``delta.`` properties of the table, and the name of its sample column.
    configuration: Mapping[str, str]
    # Dialect of the table: qbeast-spark may read files without the schema of the table.
    dialect: BlocksDialect
    # How files store the columns.
    columns: StoredColumns
    # Paths of columns that need statistics because the table is clustered by them.
    clustered_by: tuple[tuple[str, ...], ...] = ()
    # Sampling key. Empty: the weight of a row is the hash of the indexed columns.
    sample_by: tuple[str, ...] = ()
    # How much narrower than others the pages of an indexed column are, by name in files; 1 if it is missing.
    importance: Mapping[str, float] = field(default_factory=dict[str, float])
    # Rows of the table before the write, as far as they are counted.
    table_rows: int = 0
    # Modification time of the files. Optimize keeps files of one time together: they divide one space.
    time_ms: int

    @property
    def store(self) -> Store:
        """Store of the table's folder."""
        return self.location.store

    @property
    def hides_weights(self) -> bool:
        """Whether files have the hidden column of weights; a sample column replaces it."""
        return self.dialect != "qbeast-spark" and self.shape.sample_column is None


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What all files of a write share: their target, and what is chosen by their rows."""

    target: FileTarget
    dictionary: list[str]
    # Levels of zstd of columns that need another one; 0: uncompressed.
    levels: dict[str, int]
    codec: Codec
    # Columns with statistics of their pages, and leaves with statistics in the log.
    statistics: tuple[str, ...]
    stats_columns: list[tuple[str, ...]]
    # Whether the rows have the hidden columns of row tracking.
    row_ids: bool
    grain: Grain

    @staticmethod
    def of(
        target: FileTarget, frame: pl.DataFrame, indexed: tuple[str, ...], *, size_bytes: int | None = None
    ) -> FileSettings:
        """Choose the settings of files for such rows, which have `size_bytes` in memory."""
        columns, configuration = target.columns, target.configuration
        sample_column = target.shape.sample_column
        refuse_huge_values(frame)
        table_rows = max(target.table_rows, frame.height)
        frame = _in_files(frame, columns)
        indexed = tuple(columns.in_files(indexed))
        hidden = hidden_columns(configuration).intersection(frame.columns)
        visible = {name: dtype for name, dtype in frame.schema.items() if name not in hidden}
        listed = stats_columns(statistics_schema(columns.special_types, pl.Schema(visible)), configuration)
        computed = () if sample_column is None else (sample_column,)
        # A table that names columns may hide the values of others.
        bounded = computed if STATS_COLUMNS in configuration else (*indexed, *computed)
        needed = [*target.clustered_by, *((name,) for name in bounded)]
        known = {leaf for leaf, _ in leaves_of(visible)}
        listed += [leaf for leaf in dict.fromkeys(needed) if leaf not in listed and leaf in known]
        frame = frame.drop(computed) if computed else frame  # its values are not known yet
        codec, grain = codec_of(configuration), Grain.of(table_rows)
        dictionary, levels = choose_encodings(frame, codec, grain, size_bytes=size_bytes)
        levels |= dict.fromkeys(computed, _SAMPLE_LEVEL)
        statistics = (*indexed, *computed)
        return FileSettings(target, dictionary, levels, codec, statistics, listed, bool(hidden), grain)


def _in_files(frame: pl.DataFrame, columns: StoredColumns) -> pl.DataFrame:
    """Return the columns that files have. A query to select all would cost as much as a step of a small write."""
    names = columns.in_files(frame.columns)
    return frame if len(names) == frame.width else frame.select(names)


def choose_encodings(
    frame: pl.DataFrame, codec: Codec, grain: Grain, *, size_bytes: float | None = None
) -> tuple[list[str], dict[str, int]]:
    """Return the columns with a dictionary, and those to leave uncompressed; of many rows, some are encoded to see."""
    dictionary, levels = choose_dictionary(frame), dict[str, int]()
    large = (frame.estimated_size() if size_bytes is None else size_bytes) > sizing().min_trial_bytes
    if large and codec != "none":
        page_rows = round(grain.page_rows)
        sample = _like_pages(frame, page_rows)
        dictionary += choose_larger_dictionaries(
            sample, page_rows=page_rows, dictionary=dictionary, codec=codec
        )
        stored = choose_uncompressed(sample, page_rows=page_rows, dictionary=dictionary, codec=codec)
        levels |= dict.fromkeys(stored, 0)
    return dictionary, levels


def _like_pages(frame: pl.DataFrame, page_rows: int) -> pl.DataFrame:
    """Return some random rows, each page in the order of the input, as pages of files will hold them."""
    some = min(_TRIED_ROWS, frame.height)
    numbers = np.random.default_rng(0).choice(frame.height, some, replace=False)
    numbers = numbers[np.lexsort((numbers, np.arange(some) // page_rows))]
    rows, order = np.unique(numbers, return_inverse=True)
    return RowTaker(frame).take(rows)[pl.Series(order)]


@dataclass(slots=True, eq=False)
class NewFile:
    """A file in the making: its rows, in the order of the input, their weights and their blocks."""

    rows: pl.DataFrame
    # None: rows without an index or samples, whose file has no tags.
    weights: I32Array | None = None
    # Its number may change at the commit. None: the file is not indexed.
    revision: Revision | None = None
    # In the order of the file. Their thresholds may change too.
    blocks: tuple[Block, ...] = ()
    # Values of columns of codes, by name.
    values: dict[str, pl.Series] = field(default_factory=dict[str, pl.Series])
    # Cells of the rows, one array per dimension, if they are known.
    cells: Sequence[U32Array] = ()


def store_file(file: NewFile, settings: FileSettings, *, operation: str = "") -> AddFile:
    """Write a file with a new name, which begins with the id of an operation. Return it with its blocks."""
    return _send_file(file, settings, f"{operation}{new_id()}.parquet", settings.target.store.put)[0]


def _send_file(
    file: NewFile, settings: FileSettings, path: str, put: Callable[[str, bytes], SentT]
) -> tuple[AddFile, SentT]:
    """Order and encode the rows, and `put` the file, which repeats its index. Return it and what `put` returns."""
    rows, weights, shape, cells = _arranged(file, settings)
    target, revision = settings.target, file.revision
    columns, hides_weights = target.columns, target.hides_weights and weights is not None
    partition = partition_values(rows, columns)
    rows = _in_files(rows, columns)
    path = path if columns.mode != "none" else f"{folder_of(partition)}{path}"
    keys, layout, metadata = "", None, dict[str, str]()
    if weights is not None:
        keys = dump_keys(*keys_of_file(weights, is_scattered=bool(target.sample_by))) if len(weights) else ""
        layout = shape.layout(cells, tail_bytes=_UNKNOWN_TAIL, hidden_weights=hides_weights)
        metadata = {} if revision is None else dump_copy(revision, file.blocks, layout, columns)
    encoded = encode_rows(
        rows,
        columns,
        weights=shape.row_weights() if hides_weights else None,
        cuts=cuts_of(shape.band_rows, shape.page_rows),
        statistics=settings.statistics,
        dictionary=settings.dictionary,
        levels=settings.levels,
        codec=settings.codec,
        values=file.values,
        metadata=metadata,
    )
    add = AddFile(
        path=FilePath(path).encoded,
        size=len(encoded.data),
        modification_time=target.time_ms,
        stats=file_stats(
            rows,
            columns=settings.stats_columns,
            few={**outer_texts(rows), **file.values},
            named=columns.stored_leaf,
        ),
        tags=None if weights is None else _tags(keys, layout, encoded),
        partition_values=partition,
        has_hidden_weights=hides_weights,
        has_row_ids=settings.row_ids,
        blocks=None if revision is None else file.blocks,
    )
    return add, put(path, encoded.data)


def _arranged(
    file: NewFile, settings: FileSettings
) -> tuple[pl.DataFrame, I32Array | None, FileShape, list[U32Array]]:
    """Return rows, weights, shape and cells in the order of the file; without weights, rows keep their order.

    Cells are one array per dimension. Without an index there are none: the file has bands, but no order within them.
    If nothing else holds the rows, each of their columns is freed once it is in order.
    """
    rows, file.rows = file.rows, file.rows.clear()
    weights, revision, target = file.weights, file.revision, settings.target
    if weights is None or not rows.height:
        shape = FileShape.plain(settings.grain.page_rows_of(rows.height), rows.height)
        return rows, weights, _within(shape, rows), []
    cells = list(file.cells) or ([] if revision is None else grid_columns(rows, revision))
    names = [] if revision is None else map(target.columns.stored_name, revision.columns)
    importance = [target.importance.get(name, 1.0) for name in names]
    grain = settings.grain.limited(page_rows_within(rows, round(settings.grain.page_rows)))
    placed = arrange(weights, cells, grain, importance=importance, is_scattered=bool(target.sample_by))
    shape, order = placed.shape, placed.order
    weights, columns = weights.take(order), rows.get_columns()[::-1]
    # The type by which Polars takes rows: converted once, and not for each column.
    places = pl.Series(order.astype(np.uint32))
    del rows
    # By brackets: `gather` is a query, which costs more than to take some thousand values.
    rows = pl.DataFrame([columns.pop()[places] for _ in range(len(columns))])
    if target.shape.sample_column is not None:
        rows = rows.with_columns(pl.Series(target.shape.sample_column, sample_values(weights)))
    return rows, weights, _within(shape, rows), [column.take(order) for column in cells]


def _tags(keys: str, layout: Layout | None, file: EncodedFile) -> dict[str, str]:
    """Return the tags of a file that do not depend on its blocks."""
    tags = {RULES_TAG: RULES, KEYS_TAG: keys}
    if file.tail_bytes and layout is not None:
        known = replace(layout, tail_bytes=file.tail_bytes, directory_bytes=file.directory_bytes)
        tags["qbeast.layout"] = dump_layout(known)
    return tags


def _within(shape: FileShape, rows: pl.DataFrame) -> FileShape:
    """Return the shape with fewer rows per page where values are large."""
    page_rows, first = int(shape.page_rows[0]), 0
    for count in shape.band_rows.tolist():
        page_rows = page_rows_within(rows.slice(first, count), page_rows)
        first += count
    return shape.with_page_rows(page_rows)


def write_data_files(
    source: CodedRows,
    plan: IndexPlan,
    *,
    settings: FileSettings,
    writers: int = 1,
    progress: ProgressCallback | None = None,
) -> list[AddFile]:
    """Write every file of the plan and return the adds for a commit.

    Files are encoded by `writers` at a time, while as many others are on their way to the store, so memory beyond the
    source is that of some files. If one fails, the written ones are deleted as far as the store allows.
    """
    store, done = settings.target.store, 0
    paths = [f"{new_id()}.parquet" for _ in range(plan.file_count)]
    with (
        thread_pool(writers, rows=source.height, calls=plan.file_count) as senders,
        thread_pool(writers, rows=source.height, calls=plan.file_count) as pool,
    ):
        send = _Sender(store, senders, most=writers)
        write = partial(_write_one, source, plan, put=send, settings=settings)
        # The smallest file last: then all writers end at about the same time.
        largest_first = np.argsort(-np.diff(plan.packed.file_starts), kind="stable").tolist()
        jobs = {number: pool.submit(write, number, paths[number]) for number in largest_first}
        try:
            for job in as_completed(jobs.values()):
                job.result()[1].result()
                done += 1
                if progress is not None:
                    progress(Progress("write", done, plan.file_count, source.height))
        except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
            for job in jobs.values():
                job.cancel()
            pool.shutdown(wait=True)
            senders.shutdown(wait=True)
            delete_files(store, send.paths)
            raise
    return [jobs[number].result()[0] for number in range(plan.file_count)]


def delete_data_files(store: Store, files: Iterable[AddFile | CdcFile]) -> None:
    """Delete files that no commit names, as far as the store allows."""
    delete_files(store, [FilePath.of_log(file.path).text for file in files])


def delete_files_named(store: Store, folder: str, prefix: str) -> None:
    """Delete the files of a folder whose names begin with a prefix, as far as the store allows.

    This includes files of workers that ended without a report.
    """
    delete_files(store, [path for path in store.list(folder) if FilePath(path).name.startswith(prefix)])


class _Sender:
    """Stores files while others are encoded: encoding waits for the store only when too many are on their way."""

    def __init__(self, store: Store, senders: Executor, *, most: int) -> None:
        self._store, self._senders = store, senders
        self._room = BoundedSemaphore(most)
        self.paths: list[str] = []

    def __call__(self, path: str, data: bytes) -> Future[None]:
        self._room.acquire()
        self.paths.append(path)
        sent = self._senders.submit(self._store.put, path, data)
        sent.add_done_callback(lambda _: self._room.release())
        return sent


def _write_one(
    source: CodedRows, plan: IndexPlan, number: int, path: str, *, put: _Sender, settings: FileSettings
) -> tuple[AddFile, Future[None]]:
    (numbers, weights, blocks), values = plan.file(number), dict[str, pl.Series]()
    cells = plan.cells_of(number)
    file = NewFile(source.take(numbers, values), weights, plan.revision, blocks, values, cells)
    return _send_file(file, settings, path, put)


def delete_files(store: Store, paths: Iterable[str]) -> None:
    """Delete files that nothing names, as far as the store allows."""
    for path in paths:
        with suppress(StorageError):  # what cannot be deleted stays an orphan that vacuum removes
            store.delete(path)


class CodedRows:
    """Rows to write to files, with columns of few values as codes, which are gathered and encoded faster."""

    def __init__(self, frame: pl.DataFrame, settings: FileSettings) -> None:
        self.height = frame.height
        self._names = frame.columns
        self._codes: dict[str, pl.Series] = {}
        self._values: dict[str, pl.Series] = {}
        # Pages of indexed columns need bounds of their values, which codes do not have. Few rows are taken at once.
        # Files are named by the values of their partition columns.
        kept = {*settings.statistics, *settings.target.columns.partitions}
        names = set(settings.dictionary).difference(kept).intersection(frame.columns)
        for name in names if frame.height > sizing().chunk_rows else ():
            column = frame[name]
            coded = place_values(column, column.gather_every(max(frame.height // _TRIED_ROWS, 1)))
            if coded is not None:
                self._codes[name], self._values[name] = coded
        self._others = RowTaker(frame.drop(self._codes) if self._codes else frame)

    def take(self, rows: RowNumbers, used: dict[str, pl.Series]) -> pl.DataFrame:
        """Return some rows, given in ascending order, with columns of codes; add the values of these to `used`."""
        taken = self._others.take(rows)
        if not self._codes:
            return taken
        columns: list[pl.Series] = []
        for name, column in self._codes.items():
            codes, values = used_values(column[pl.Series(rows)], self._values[name])
            if len(values):
                used[name] = values
            columns.append((codes if len(values) else values.clear(len(codes))).alias(name))
        return taken.hstack(columns).select(self._names)


class RowTaker:
    """A frame to take rows from, many times and by several threads.

    Random access to a large frame waits for memory at every value, and the longer where the frame came in
    chunks, as frames read from files do. So rows are taken in ascending order, chunk by chunk. A small frame is taken
    from at once.

    >>> joined = pl.concat([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [3]})], rechunk=False)
    >>> RowTaker(joined).take(np.array([0, 2], np.uint32))["a"].to_list()
    [1, 3]
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        lengths = {tuple(column.chunk_lengths()) for column in frame.get_columns()}
        self._frame = frame.rechunk() if len(lengths) > 1 else frame
        whole = next(iter(lengths)) if len(lengths) == 1 else (frame.height,)
        self._bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole, dtype=np.int64)])

    def take(self, rows: RowNumbers) -> pl.DataFrame:
        """Return some rows, given in ascending order."""
        if self._frame.height <= sizing().chunk_rows:  # they are in the caches as they are
            return self._frame[pl.Series(rows)]
        cuts = np.searchsorted(rows, self._bounds)
        parts = [
            (start, stop - start, pl.Series(rows[first:last] - rows.dtype.type(start)))
            for (start, stop), (first, last) in zip(
                pairwise(self._bounds.tolist()), pairwise(cuts.tolist()), strict=True
            )
            if first < last
        ]
        if not parts:
            return self._frame.clear()
        return pl.DataFrame([_take(column, parts) for column in self._frame.get_columns()])


def _take(column: pl.Series, parts: list[tuple[int, int, pl.Series]]) -> pl.Series:
    # By brackets: `gather` is a query, which costs more than to take some thousand values.
    return pl.concat([column.slice(start, length)[rows] for start, length, rows in parts], rechunk=True)

"""One data file: how it is encoded, and what the log says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.encode import (
    choose_dictionary,
    choose_uncompressed,
    page_rows_within,
    place_values,
    refuse_huge_values,
    used_values,
)
from qbeast_core.io.footer import cuts_of
from qbeast_core.io.store import Store
from qbeast_core.log.actions import STATS_COLUMNS, AddFile, CdcFile, file_stats, leaves_of, stats_columns
from qbeast_core.log.columns import PLAIN, StoredColumns, sample_column_of
from qbeast_core.log.protocol import Codec, codec_of
from qbeast_core.log.rebase import hidden_columns
from qbeast_core.log.replay import RULES, RULES_TAG, FileIndex, dump_copy
from qbeast_core.log.schema import statistics_schema
from qbeast_core.log.values import folder_of, partition_values
from qbeast_core.space.values import I32Array, U32Array, sample_values
from qbeast_core.spec.blocks import BlocksDialect, FilePath, Layout, dump_layout
from qbeast_core.support.process import Progress, ProgressCallback, new_id
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.scan import encode_rows
from qbeast_core.tree.files import RowNumbers
from qbeast_core.tree.grid import grid_columns, thread_pool
from qbeast_core.tree.keys import KEYS_TAG, dump_keys, keys_of_file
from qbeast_core.tree.pages import FileShape, Grain, arrange

if TYPE_CHECKING:
    from qbeast_core.tree.files import IndexPlan


SentT = TypeVar("SentT")

_UNKNOWN_TAIL: Final = 8  # until the file is encoded

_TRIED_ROWS: Final = 1 << 14


# Of zstd. From this level on it finds what rising floats of 16 significant bits share: a third of the bytes.
_SAMPLE_LEVEL: Final = 12


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What all files of a write share."""

    dictionary: list[str]
    # Levels of zstd of columns that need another one; 0: uncompressed.
    levels: dict[str, int]
    codec: Codec
    statistics: tuple[str, ...]
    stats_columns: list[tuple[str, ...]]
    # Column to compute from the weights. Files of tables with one have no hidden weights.
    sample_column: str | None
    hidden_weights: bool
    # How files store the columns.
    columns: StoredColumns
    # Whether the rows have the hidden columns of row tracking.
    row_ids: bool
    # Whether rows of a key are scattered, because the table has a sampling key.
    is_scattered: bool
    grain: Grain
    # How much narrower than others the pages of an indexed column are, by name; 1 if it is missing.
    importance: Mapping[str, float]
    # Modification time of the files.
    time_ms: int

    @staticmethod
    def of(
        frame: pl.DataFrame,
        indexed: tuple[str, ...],
        configuration: Mapping[str, str],
        *,
        dialect: BlocksDialect,
        columns: StoredColumns = PLAIN,
        clustered_by: Sequence[tuple[str, ...]] = (),
        size_bytes: int | None = None,
        is_scattered: bool = False,
        importance: Mapping[str, float] = MappingProxyType({}),
        table_rows: int = 0,
        time_ms: int = 0,
    ) -> FileSettings:
        """Derive the settings from the rows and the table; of many rows, some are encoded to see what shrinks."""
        sample_column = sample_column_of(configuration, frame.schema, columns)
        refuse_huge_values(frame)
        frame = frame.select(columns.in_files(frame.columns))
        indexed = tuple(columns.in_files(indexed))
        hidden = hidden_columns(configuration).intersection(frame.columns)
        visible = {name: dtype for name, dtype in frame.schema.items() if name not in hidden}
        listed = stats_columns(statistics_schema(columns.special_types, pl.Schema(visible)), configuration)
        computed = () if sample_column is None else (sample_column,)
        # A table that names columns may hide the values of others.
        bounded = computed if STATS_COLUMNS in configuration else (*indexed, *computed)
        needed = [*clustered_by, *((name,) for name in bounded)]
        known = {leaf for leaf, _ in leaves_of(visible)}
        listed += [leaf for leaf in dict.fromkeys(needed) if leaf not in listed and leaf in known]
        frame = frame.drop(computed)  # its values are not known yet
        dictionary, codec = choose_dictionary(frame), codec_of(configuration)
        levels, grain = dict.fromkeys(computed, _SAMPLE_LEVEL), Grain.of(table_rows)
        large = (frame.estimated_size() if size_bytes is None else size_bytes) > sizing().min_trial_bytes
        if large and codec != "none":
            page_rows = round(grain.page_rows)
            sample = _like_pages(frame, page_rows)
            stored = choose_uncompressed(sample, page_rows=page_rows, dictionary=dictionary, codec=codec)
            levels |= dict.fromkeys(stored, 0)
        return FileSettings(
            dictionary,
            levels,
            codec,
            (*indexed, *computed),
            listed,
            sample_column,
            hidden_weights=dialect != "qbeast-spark" and sample_column is None,
            columns=columns,
            row_ids=bool(hidden),
            is_scattered=is_scattered,
            grain=grain,
            importance=importance,
            time_ms=time_ms,
        )


def _like_pages(frame: pl.DataFrame, page_rows: int) -> pl.DataFrame:
    """Return some random rows, each page in the order of the input, as pages of files will hold them."""
    some = min(_TRIED_ROWS, frame.height)
    numbers = np.random.default_rng(0).choice(frame.height, some, replace=False)
    numbers = numbers[np.lexsort((numbers, np.arange(some) // page_rows))]
    rows, order = np.unique(numbers, return_inverse=True)
    return RowSource(frame).take(rows)[pl.Series(order)]


@dataclass(frozen=True, slots=True, eq=False)
class ArrangedRows:
    """The rows of a file, in its order."""

    rows: pl.DataFrame
    # None: rows without an index or samples, whose file has no tags.
    weights: I32Array | None
    shape: FileShape
    # Cells of the rows, one array per dimension. Empty: the file has bands, but no order within them.
    cells: list[U32Array]


def arrange_rows(
    take: Callable[[], pl.DataFrame],
    weights: I32Array | None,
    settings: FileSettings,
    index: FileIndex | None = None,
) -> ArrangedRows:
    """Put the rows of a file in order; without weights they keep their order.

    If nothing else holds the rows that `take` returns, each of their columns is freed once it is in order.
    """
    rows = take()
    if weights is None or not rows.height:
        shape = FileShape.plain(settings.grain.page_rows_of(rows.height), rows.height)
        return ArrangedRows(rows, weights, _within(shape, rows), [])
    revision = None if index is None else index.revision
    cells = [] if revision is None else grid_columns(rows, revision)
    names = [] if revision is None else map(settings.columns.stored_name, revision.columns)
    importance = [settings.importance.get(name, 1.0) for name in names]
    grain = settings.grain.limited(page_rows_within(rows, round(settings.grain.page_rows)))
    placed = arrange(weights, cells, grain, importance=importance, is_scattered=settings.is_scattered)
    weights, columns = weights[placed.order], rows.get_columns()[::-1]
    # The type by which Polars takes rows: converted once, and not for each column.
    places = pl.Series(placed.order.astype(np.uint32))
    del rows
    # By brackets: `gather` is a query, which costs more than to take some thousand values.
    rows = pl.DataFrame([columns.pop()[places] for _ in range(len(columns))])
    if settings.sample_column is not None:
        rows = rows.with_columns(pl.Series(settings.sample_column, sample_values(weights)))
    return ArrangedRows(
        rows, weights, _within(placed.shape, rows), [column[placed.order] for column in cells]
    )


def store_file(
    arranged: ArrangedRows,
    *,
    put: Callable[[str, bytes], SentT],
    path: str,
    settings: FileSettings,
    values: Mapping[str, pl.Series] | None = None,
    index: FileIndex | None = None,
) -> tuple[AddFile, SentT]:
    """Encode rows and `put` the file, which repeats its index. Return it without blocks, and what `put` returns."""
    rows, weights, shape, columns = arranged.rows, arranged.weights, arranged.shape, settings.columns
    partition = partition_values(rows, columns)
    rows = rows.select(columns.in_files(rows.columns))
    path = path if columns.mode != "none" else f"{folder_of(partition)}{path}"
    keys, layout, metadata = "", None, dict[str, str]()
    if weights is not None:
        keys = dump_keys(*keys_of_file(weights, is_scattered=settings.is_scattered)) if len(weights) else ""
        layout = shape.layout(
            arranged.cells, tail_bytes=_UNKNOWN_TAIL, hidden_weights=settings.hidden_weights
        )
        metadata = {} if index is None else dump_copy(index, layout, columns)
    encoded = encode_rows(
        rows,
        columns,
        weights=shape.row_weights() if settings.hidden_weights and weights is not None else None,
        cuts=cuts_of(shape.band_rows, shape.page_rows),
        statistics=settings.statistics,
        dictionary=settings.dictionary,
        levels=settings.levels,
        codec=settings.codec,
        values=values,
        metadata=metadata,
    )
    add = AddFile(
        path=FilePath(path).encoded,
        size=encoded.size_bytes,
        modification_time=settings.time_ms,
        stats=file_stats(rows, columns=settings.stats_columns, few=values, named=columns.stored_leaf),
        tags=None if weights is None else _tags(keys, layout, tail_bytes=encoded.tail_bytes),
        partition_values=partition,
        has_hidden_weights=settings.hidden_weights and weights is not None,
        has_row_ids=settings.row_ids,
    )
    return add, put(path, encoded.data)


def _tags(keys: str, layout: Layout | None, *, tail_bytes: int) -> dict[str, str]:
    """Return the tags of a file that do not depend on its blocks."""
    tags = {RULES_TAG: RULES, KEYS_TAG: keys}
    if tail_bytes and layout is not None:
        tags["qbeast.layout"] = dump_layout(replace(layout, tail_bytes=tail_bytes))
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
    store: Store,
    settings: FileSettings,
    writers: int = 1,
    progress: ProgressCallback | None = None,
) -> list[AddFile]:
    """Write every file of the plan and return the adds for a commit.

    Files are encoded by `writers` at a time, while as many others are on their way to the store, so memory beyond the
    source is that of some files. If one fails, the written ones are deleted as far as the store allows.
    """
    paths = [f"{new_id()}.parquet" for _ in range(plan.file_count)]
    done = 0
    with (
        thread_pool(writers, rows=source.height, calls=plan.file_count) as senders,
        thread_pool(writers, rows=source.height, calls=plan.file_count) as pool,
    ):
        send = _Sender(store, senders, most=writers)
        write = partial(_write_one, source, plan, put=send, settings=settings)
        jobs = [pool.submit(write, number, path) for number, path in enumerate(paths)]
        try:
            for job in as_completed(jobs):
                job.result()[1].result()
                done += 1
                if progress is not None:
                    progress(Progress("write", done, plan.file_count, source.height))
        except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
            for job in jobs:
                job.cancel()
            pool.shutdown(wait=True)
            senders.shutdown(wait=True)
            delete_files(store, send.paths)
            raise
    return [job.result()[0] for job in jobs]


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
    file = plan.file(number)
    index, values = FileIndex(plan.revision, file.blocks), dict[str, pl.Series]()
    arranged = arrange_rows(lambda: source.take(file.rows, values), file.weights, settings, index)
    add, sent = store_file(arranged, put=put, path=path, settings=settings, values=values, index=index)
    return add.model_copy(update={"blocks": file.blocks}), sent


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
        kept = {*settings.statistics, *settings.columns.partitions}
        names = set(settings.dictionary).difference(kept).intersection(frame.columns)
        for name in names if frame.height > sizing().chunk_rows else ():
            column = frame[name]
            coded = place_values(column, column.gather_every(max(frame.height // _TRIED_ROWS, 1)))
            if coded is not None:
                self._codes[name], self._values[name] = coded
        self._others = RowSource(frame.drop(self._codes))

    def take(self, rows: RowNumbers, used: dict[str, pl.Series]) -> pl.DataFrame:
        """Return some rows, given in ascending order, with columns of codes; add the values of these to `used`."""
        taken = self._others.take(rows)
        columns: list[pl.Series] = []
        for name, column in self._codes.items():
            codes, values = used_values(column[pl.Series(rows)], self._values[name])
            if len(values):
                used[name] = values
            columns.append((codes if len(values) else values.clear(len(codes))).alias(name))
        return taken.hstack(columns).select(self._names)


class RowSource:
    """A frame to take rows from, many times and by several threads.

    Random access to a large frame waits for memory at every value, and the longer where the frame came in
    chunks, as frames read from files do. So rows are taken in ascending order, chunk by chunk. A small frame is taken
    from at once.

    >>> joined = pl.concat([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [3]})], rechunk=False)
    >>> RowSource(joined).take(np.array([0, 2], np.uint32))["a"].to_list()
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

"""A CarbonData table, opened: what it holds, its rows, and the plan of a read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast

import polars as pl

from qbeast_carbondata.columns import Column
from qbeast_carbondata.files.data_file import open_dictionaries
from qbeast_carbondata.metadata.json_files import Load
from qbeast_carbondata.metadata.open_table import Segment, TableSnapshot, load_segment, load_table
from qbeast_carbondata.metadata.segments import LiveFile, Stores
from qbeast_carbondata.reader import TableReader
from qbeast_carbondata.structs import TableSchema
from qbeast_core.errors import (
    DamagedFileError,
    InvalidInputError,
    StorageError,
    UnsupportedTableError,
    hints_keywords,
    hints_methods,
    invalid_argument,
)
from qbeast_core.io.location import open_store
from qbeast_core.io.store import checked_options, map_files
from qbeast_core.plan.nodes import Node, Nothing
from qbeast_core.support.frames import html_of
from qbeast_core.support.text import did_you_mean, in_lines
from qbeast_core.table.data.expressions import Predicate, filter_of
from qbeast_core.table.read.scan import lazy_frame, pushed_down

_FILES: Final = {
    "segment": pl.String,
    "path": pl.String,
    "opened": pl.Boolean,
    **{f"{unit}_{part}": pl.Int64 for unit in ("blocklets", "pages", "rows") for part in ("opened", "total")},
}


@dataclass(frozen=True, eq=False, repr=False)  # no slots: cached properties
class CarbonPlan:
    """The plan of a read of a CarbonData table; `files` reads footers and page headers.

    Attributes
    ----------
    reader : TableReader
        The reader of the table.
    predicate : polars.Expr or None
        The part of the filter that the reader applies.
    columns : tuple of str
        Columns to decode.
    """

    reader: TableReader
    predicate: pl.Expr | None
    columns: tuple[str, ...]

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row per live data file.

        `segment`, `path`, `opened`, `blocklets_opened`, `blocklets_total`, `pages_opened`, `pages_total`,
        `rows_opened`, `rows_total`. For files without index entries, the counts are read from the footer.
        """
        node = self.reader.node(self.predicate)
        opened = set(self.reader.plan(node))
        rows = [self._row(live, node if live in opened else Nothing()) for live in self.reader.files]
        return pl.DataFrame(rows, schema=_FILES, orient="row")

    @property
    def blocklets_opened(self) -> int:
        """Number of blocklets with pages to read."""
        return int(self.files["blocklets_opened"].sum())

    @property
    def blocklets_total(self) -> int:
        """Number of blocklets of all live files."""
        return int(self.files["blocklets_total"].sum())

    @property
    def pages_opened(self) -> int:
        """Number of pages to read, per column."""
        return int(self.files["pages_opened"].sum())

    @property
    def pages_total(self) -> int:
        """Number of pages of all live files, per column."""
        return int(self.files["pages_total"].sum())

    @property
    def rows_opened(self) -> int:
        """Number of rows in the pages to read, matching or not."""
        return int(self.files["rows_opened"].sum())

    @property
    def rows_total(self) -> int:
        """Number of rows of all live files, including deleted ones."""
        return int(self.files["rows_total"].sum())

    def _row(self, live: LiveFile, node: Node) -> tuple[Any, ...]:
        entries = [entry.blocklet for entry in live.entries if entry.blocklet is not None]
        if isinstance(node, Nothing) and entries:
            pages = sum(entry.pages for entry in entries)
            return live.segment, live.path, False, 0, len(entries), 0, pages, 0, live.rows
        file = self.reader.open(live)
        pages = sum(len(blocklet.page_rows) for blocklet in file.blocklets)
        total = sum(blocklet.rows for blocklet in file.blocklets)
        chosen = list(self.reader.chosen(file, node))
        rows = sum(blocklet.page_rows[page] for blocklet, numbers in chosen for page in numbers)
        opened = sum(len(numbers) for _, numbers in chosen)
        counts = (len(chosen), len(file.blocklets), opened, pages, rows, total)
        return (live.segment, live.path, bool(chosen), *counts)

    def __repr__(self) -> str:
        return in_lines([self._title, *(f"  {name:<9}  {fact}" for name, fact in self._facts().items())])

    def _repr_html_(self) -> str:
        return html_of(self._title, {name: escape(fact) for name, fact in self._facts().items()})

    @property
    def _title(self) -> str:
        return f"Plan of CarbonData table {self.reader.snapshot.uri}"

    def _facts(self) -> dict[str, str]:
        files = self.files
        share = self.rows_opened / self.rows_total if self.rows_total else 0.0
        return {
            "filter": "none" if self.predicate is None else str(self.predicate),
            "files": f"{int(files['opened'].sum()):,} of {files.height:,} opened",
            "blocklets": f"{self.blocklets_opened:,} of {self.blocklets_total:,}",
            "pages": f"{self.pages_opened:,} of {self.pages_total:,}",
            "rows": f"{self.rows_opened:,} of {self.rows_total:,} ({share:.2%})",
        }


# What to do about a segment that cannot be read.
OnUnreadable: TypeAlias = Literal["error", "skip-segment"]

_Schema: TypeAlias = dict[str, pl.DataType | type[pl.DataType]]
_UNREADABLE: Final = (UnsupportedTableError, DamagedFileError, StorageError)
_LEFT_OUT: Final[_Schema] = {"segment": pl.String, "path": pl.String, "reason": pl.String}
_SEGMENTS: Final[_Schema] = {
    "segment": pl.String,
    "status": pl.String,
    "live": pl.Boolean,
    "format": pl.String,
    "loaded": pl.Datetime("ms", "UTC"),
    "files": pl.Int64,
    "rows": pl.Int64,
    "deleted_rows": pl.Int64,
    "merged_into": pl.String,
}
_FILE_COLUMNS: Final[_Schema] = {
    "segment": pl.String,
    "path": pl.String,
    "format": pl.String,
    "version": pl.String,
    "writer": pl.String,
    "bytes": pl.Int64,
    "rows": pl.Int64,
    "deleted_rows": pl.Int64,
    "blocklets": pl.Int64,
    "pages": pl.Int64,
    "problem": pl.String,
}


@hints_methods
@dataclass(frozen=True, eq=False, repr=False)  # no slots: cached properties
class CarbonTable:
    """A CarbonData table at the time it was opened; returned by `qbeast.open_carbondata`.

    Attributes
    ----------
    reader : TableReader
        The reader of its segments.
    left_out : polars.DataFrame
        Segments that cannot be read, if `on_unreadable` is ``"skip-segment"``: `segment`, `path`, `reason`.
    """

    reader: TableReader
    left_out: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_LEFT_OUT))

    if not TYPE_CHECKING:  # type checkers report unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            known = [member for member in dir(type(self)) if not member.startswith("_")]
            scan = f" Use scan().{name}(...)." if name in dir(pl.LazyFrame) else did_you_mean([name], known)
            msg = f"a table of CarbonData has no attribute {name!r}.{'' if name.startswith('_') else scan}"
            raise AttributeError(msg, name=name, obj=self)

    @property
    def uri(self) -> str:
        """The path or address of the table."""
        return self.reader.snapshot.uri

    @property
    def schema(self) -> pl.Schema:
        """The columns, in the user's order."""
        return self.reader.schema

    @property
    def properties(self) -> dict[str, str]:
        """Table properties, as stored."""
        return dict(self.reader.snapshot.properties)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Versions of the format of the live data files: ``"V1"``, ``"V2"``, ``"V3"``, ``"row"``, ``"parquet"``."""
        return tuple(sorted(set(self.files()["version"].drop_nulls().to_list())))

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """Columns with a global dictionary."""
        return tuple(column.schema.name for column in self.reader.columns if column.has_global_dictionary)

    @property
    def indexes(self) -> dict[str, tuple[str, ...]]:
        """The `sort`, `bucket` and `partition` columns."""
        schema = self.reader.snapshot.schema or TableSchema()
        return {
            "sort": self.sort_columns,
            "bucket": tuple(column.name for column in schema.bucketing.columns),
            "partition": tuple(column.name for column in schema.partitioning.columns),
        }

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns by which each load was sorted, in order."""
        text = self.properties.get("sort_columns")
        if text is not None:
            names = {column.schema.name.lower(): column.schema.name for column in self.reader.columns}
            return tuple(names[name] for name in map(str.strip, text.lower().split(",")) if name in names)
        schemas = [column.schema for column in self._stored_columns]
        return tuple(schema.name for schema in schemas if schema.properties.get("sort_columns") == "true")

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The columns that are dimensions, in stored order."""
        return tuple(column.schema.name for column in self._stored_columns if column.schema.is_dimension)

    @property
    def _stored_columns(self) -> list[Column]:
        return sorted(self.reader.columns, key=lambda column: column.number)

    @cached_property
    def segments(self) -> pl.DataFrame:
        """All segments, oldest first.

        `segment`, `status`, `live` (whether it is read), `format`, `loaded`, `files`, `rows` (not deleted),
        `deleted_rows`, `merged_into`.
        """
        live = {segment.load.name: segment for segment in self.reader.segments}
        loads = self.reader.snapshot.loads or [segment.load for segment in self.reader.segments]
        rows = [
            _segment_row(load, live.get(load.name)) for load in sorted(loads, key=lambda load: load.order)
        ]
        return pl.DataFrame(rows, schema=_SEGMENTS, orient="row")

    def files(self) -> pl.DataFrame:
        """Return the live data files; reads the footer of each.

        Returns
        -------
        polars.DataFrame
            `segment`, `path`, `format`, `version`, `writer`, `bytes`, `rows`, `deleted_rows`, `blocklets`, `pages`,
            and `problem`: why the file cannot be read, or null.
        """
        store = self.reader.snapshot.stores.table
        rows = map_files(store, partial(_file_row, self.reader), self.reader.files)
        return pl.DataFrame(rows, schema=_FILE_COLUMNS, orient="row")

    @property
    def unreadable(self) -> pl.DataFrame:
        """Files and dictionaries that cannot be read: `segment`, `path`, `reason`. Reads footers and headers only."""
        files = self.files().filter(pl.col("problem").is_not_null())
        rows = files.select("segment", "path", pl.col("problem").alias("reason"))
        return pl.concat([self.left_out, rows, *self._missing_dictionaries()])

    def scan(self, where: Predicate | None = None, *, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """Scan lazily; see `qbeast.scan_carbondata`."""
        condition = filter_of(where, self.schema)
        lazy = lazy_frame(self.reader.rows, self.schema)
        if condition is not None:
            lazy = lazy.filter(condition)
        return lazy if columns is None else lazy.select(columns)

    def read(self, where: Predicate | None = None, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read into memory; see `qbeast.read_carbondata`."""
        return self.scan(where, columns=columns).collect()

    def explain(self, where: Predicate | None = None, *, columns: Sequence[str] | None = None) -> CarbonPlan:
        """Plan a read. Reads index files, footers and page headers, but no rows.

        Parameters
        ----------
        where : polars.Expr or str, optional
            Rows to keep.
        columns : sequence of str, optional
            Columns to return.
        """
        predicate, names = pushed_down(self.schema, filter_of(where, self.schema), columns)
        return CarbonPlan(self.reader, predicate, tuple(names))

    def _missing_dictionaries(self) -> Iterator[pl.DataFrame]:
        for column in self.reader.columns:
            if column.has_global_dictionary:
                try:
                    self.reader.dictionaries.members(column)
                except _UNREADABLE as error:
                    yield pl.DataFrame([("", error.path, str(error))], schema=_LEFT_OUT, orient="row")

    def __repr__(self) -> str:
        lines = [self._title]
        for name, facts in self._facts().items():
            lines += [f"  {'' if number else name:<8}  {fact}" for number, fact in enumerate(facts)]
        width = max((len(name) for name in self.schema), default=0)
        lines += ["  columns", *(f"    {name:<{width}}  {dtype}" for name, dtype in self.schema.items())]
        return in_lines(lines)

    def _repr_html_(self) -> str:
        facts = {name: "<br>".join(map(escape, texts)) for name, texts in self._facts().items() if texts}
        columns = {"column": [*self.schema], "type": [str(dtype) for dtype in self.schema.dtypes()]}
        return html_of(self._title, facts, pl.DataFrame(columns))

    @property
    def _title(self) -> str:
        kind = "table" if self.reader.snapshot.is_transactional else "folder of data files"
        return f"CarbonData {kind} {self.uri}"

    def _facts(self) -> dict[str, list[str]]:
        segments = self.segments
        live = segments.filter("live")
        rows = live["rows"].sum() if live.height and not live["rows"].null_count() else None
        counted = "not counted yet" if rows is None else f"{rows:,}"
        arranged = [f"{kind}: {', '.join(names)}" for kind, names in self.indexes.items() if names]
        arranged += [f"global dictionary: {', '.join(self.dictionaries)}"] if self.dictionaries else []
        return {
            "rows": [f"{counted} in {len(self.reader.files):,} file(s)"],
            "segments": [f"{live.height:,} live of {segments.height:,}"],
            "arranged": arranged,
            "left out": [f"segment {row['segment']}: {row['reason']}" for row in self.left_out.to_dicts()],
        }


@hints_keywords
def open_carbondata(
    path: str | os.PathLike[str],
    *,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> CarbonTable:
    """Open an Apache CarbonData table without a JVM, to inspect and read it.

    Parameters
    ----------
    path : str or path-like
        Folder or address of a table (with ``Metadata/schema``), or of ``*.carbondata`` files of an SDK writer.
    segments : sequence of str, optional
        Ids of the live segments to read; all by default.
    on_unreadable : {"error", "skip-segment"}, default "error"
        What to do if a segment cannot be read. ``"skip-segment"`` first reads every segment once, and leaves out
        segments that fail; `CarbonTable.left_out` lists them.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`.
    external_paths : mapping of str to path, optional
        Present locations of folders outside the table (added segments), by their paths in the table's metadata.
    allow_absolute_paths : bool, default False
        Open such folders at the paths in the table's metadata. Only for tables whose writers you trust.
    writer_settings : mapping of str to str, optional
        Values of ``carbon.timegranularity`` and ``carbon.cutOffTimestamp`` (UTC if it has no zone) in the
        ``carbon.properties`` of the cluster that wrote the table. Timestamps of CarbonData up to 1.1 depend on them,
        and no file records them. By default, timestamps are seconds since 1970.

    Returns
    -------
    CarbonTable
        The table at this moment: later loads are not visible.

    Raises
    ------
    TableNotFoundError
        There is neither a CarbonData table nor a data file.
    DamagedFileError, StorageError
        A metadata file is damaged or missing.
    UnsupportedTableError
        The table has folders outside that may not be opened, is a secondary index of another table, is encrypted, or
        the valid version of its table status is unknown.
    InvalidInputError
        An option is invalid.

    Examples
    --------
    >>> table = qbeast.open_carbondata("carbon/orders")  # doctest: +SKIP
    >>> table.explain("price > 100")  # doctest: +SKIP
    """
    if cast("str", on_unreadable) not in ("error", "skip-segment"):
        what, known = 'must be "error" or "skip-segment"', ("error", "skip-segment")
        invalid_argument("on_unreadable", what, value=on_unreadable, known=known)
    stores = Stores(
        open_store(path, storage_options),
        checked_options(storage_options),
        {old: os.fspath(new) for old, new in (external_paths or {}).items()},
        allow_absolute_paths=allow_absolute_paths,
    )
    snapshot = load_table(stores)
    loads = _selected_loads(snapshot, segments)
    reader = TableReader(snapshot, (), open_dictionaries(stores.table, writer_settings))
    if on_unreadable == "error":
        live = map_files(stores.table, partial(load_segment, snapshot), loads)
        return CarbonTable(replace(reader, segments=tuple(live)))
    results = [_read_to_end(reader, load) for load in loads]
    kept = tuple(result for result in results if isinstance(result, Segment))
    left = [result for result in results if not isinstance(result, Segment)]
    return CarbonTable(replace(reader, segments=kept), pl.DataFrame(left, schema=_LEFT_OUT, orient="row"))


def _selected_loads(snapshot: TableSnapshot, segments: Sequence[str] | None) -> list[Load | None]:
    """Return the loads to read."""
    if not snapshot.is_transactional:
        if segments is not None:
            msg = f"{snapshot.uri!r} is a folder of data files and has no segments"
            raise InvalidInputError(msg, argument="segments")
        return [None]
    live = {
        load.name: load for load in sorted(snapshot.loads, key=lambda load: load.order) if load.is_visible
    }
    if segments is None:
        return list(live.values())
    unknown = [name for name in segments if name not in live]
    if isinstance(segments, str) or unknown:
        msg = f"no live segment(s) {unknown or segments!r}; {snapshot.uri!r} has {list(live)}."
        raise InvalidInputError(msg, argument="segments")
    return [live[name] for name in dict.fromkeys(segments)]


def _read_to_end(reader: TableReader, load: Load | None) -> Segment | tuple[str, str, str]:
    """Read a segment once; return it, or its name, path and the reason why it cannot be read."""
    name = "" if load is None else load.name
    try:
        segment = load_segment(reader.snapshot, load)
        alone = replace(reader, segments=(segment,))
        for _ in alone.file_rows(segment.files, list(alone.schema)):
            pass
    except _UNREADABLE as error:
        return name, error.path, str(error)
    return segment


def _segment_row(load: Load, live: Segment | None) -> tuple[Any, ...]:
    counts: tuple[int | None, ...] = (None, None, None)
    if live is not None:
        counts = len(live.files), live.rows, sum(file.deleted_rows for file in live.files)
    facts = (load.name, load.status, live is not None, load.kind, load.start_ms or load.end_ms)
    return (*facts, *counts, load.merged_into)


def _file_row(reader: TableReader, live: LiveFile) -> tuple[Any, ...]:
    place = (live.segment, live.path, live.kind)
    try:
        file = reader.open(live)
    except _UNREADABLE as error:
        return (*place, None, None, None, live.rows, live.deleted_rows, None, None, str(error))
    rows = sum(blocklet.rows for blocklet in file.blocklets)
    pages = sum(len(blocklet.page_rows) for blocklet in file.blocklets)
    writer, size = file.writer or None, file.file.size_bytes
    return (*place, file.version, writer, size, rows, live.deleted_rows, len(file.blocklets), pages, None)

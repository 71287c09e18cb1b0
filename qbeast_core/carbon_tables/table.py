"""A CarbonData table, opened: what it is, what it holds, and its rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from typing import Any, Final, Literal, TypeAlias, cast

import polars as pl

from qbeast_core.carbon_tables.explain import CarbonPlan
from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.files.dictionaries import open_dictionaries
from qbeast_core.carbondata.metadata.json_files import Load
from qbeast_core.carbondata.metadata.open_table import load_segment, load_table
from qbeast_core.carbondata.metadata.segments import Stores
from qbeast_core.carbondata.metadata.snapshot import Segment, TableSnapshot
from qbeast_core.carbondata.reader import TableReader
from qbeast_core.errors import (
    DamagedFileError,
    InvalidInputError,
    StorageError,
    UnsupportedTableError,
    invalid_argument,
)
from qbeast_core.io.stores.store import checked_options, map_files, open_store
from qbeast_core.support.html import html_of
from qbeast_core.support.plain_text import in_lines
from qbeast_core.table.data.expressions import Predicate, filter_of
from qbeast_core.table.read.scan import lazy_frame, pushed_down

# What to do about a segment that cannot be read.
OnUnreadable: TypeAlias = Literal["error", "skip-segment"]

_Schema: TypeAlias = dict[str, pl.DataType | type[pl.DataType]]
_UNREADABLE: Final = (UnsupportedTableError, DamagedFileError, StorageError)
_LEFT: Final[_Schema] = {"segment": pl.String, "path": pl.String, "reason": pl.String}
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
_FILES: Final[_Schema] = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """How a table is opened, as `qbeast.open_carbondata` documents it."""

    segments: Sequence[str] | None = None
    on_unreadable: OnUnreadable = "error"
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None
    allow_absolute_paths: bool = False
    writer_settings: Mapping[str, str] | None = None


@dataclass(frozen=True, eq=False, repr=False)  # no slots: what is derived is kept
class CarbonTable:
    """A CarbonData table at the moment it was opened; made by `qbeast.open_carbondata`.

    Attributes
    ----------
    reader : TableReader
        Of its segments.
    left_out : polars.DataFrame
        Segments that cannot be read and were left out because that was asked for: `segment`, `path`, `reason`.
    """

    reader: TableReader
    left_out: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_LEFT))

    @property
    def uri(self) -> str:
        """Where it lies."""
        return self.reader.snapshot.uri

    @property
    def schema(self) -> pl.Schema:
        """Its columns, in the order of the user."""
        return self.reader.schema

    @property
    def properties(self) -> dict[str, str]:
        """Table properties, as stored."""
        return dict(self.reader.snapshot.properties)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Versions of the format among its live data files: ``"V1"``, ``"V2"``, ``"V3"``, ``"row"``, ``"parquet"``."""
        return tuple(sorted(set(self.files()["version"].drop_nulls().to_list())))

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """Columns that have a global dictionary."""
        return tuple(one.schema.name for one in self.reader.columns if one.has_global_dictionary)

    @property
    def indexes(self) -> dict[str, tuple[str, ...]]:
        """How rows are arranged: `sort`, `bucket` and `partition` columns, by name."""
        return {
            "sort": self.sort_columns,
            "bucket": _names(self.reader.snapshot, "bucketing"),
            "partition": _names(self.reader.snapshot, "partitioning"),
        }

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns that each load was sorted by, in their order."""
        told = self.properties.get("sort_columns")
        known = {one.schema.name.lower(): one.schema.name for one in self.reader.columns}
        if told is not None:
            return tuple(known[name] for name in map(str.strip, told.lower().split(",")) if name in known)
        marked = [one for one in self._stored_columns if one.schema.properties.get("sort_columns") == "true"]
        return tuple(known[one.schema.name.lower()] for one in marked if one.schema.name.lower() in known)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The columns that are dimensions, in the order they are stored."""
        shown = {one.schema.name for one in self.reader.columns}
        return tuple(
            one.schema.name
            for one in self._stored_columns
            if one.schema.is_dimension and one.schema.name in shown
        )

    @property
    def _stored_columns(self) -> list[Column]:
        return sorted(self.reader.columns, key=lambda one: one.number)

    @cached_property
    def segments(self) -> pl.DataFrame:
        """All segments, oldest first.

        `segment`, `status`, `live` (whether it is read), `format`, `loaded`, `files`, `rows` (left), `deleted_rows`,
        `merged_into`.
        """
        live = {one.load.name: one for one in self.reader.segments}
        loads = self.reader.snapshot.loads or [one.load for one in self.reader.segments]
        rows = [_segment_row(load, live.get(load.name)) for load in sorted(loads, key=lambda one: one.order)]
        return pl.DataFrame(rows, schema=_SEGMENTS, orient="row")

    def files(self) -> pl.DataFrame:
        """Look at the live data files: their last bytes are read.

        Returns
        -------
        polars.DataFrame
            `segment`, `path`, `format`, `version`, `writer`, `bytes`, `rows`, `deleted_rows`, `blocklets`, `pages`,
            and `problem`: why the file cannot be read, or null.
        """
        store = self.reader.snapshot.stores.table
        found = map_files(store, partial(_file_row, self.reader), self.reader.files)
        return pl.DataFrame(found, schema=_FILES, orient="row")

    @property
    def unreadable(self) -> pl.DataFrame:
        """What cannot be read, as far as footers, headers and dictionaries tell: `segment`, `path`, `reason`."""
        told = self.files().filter(pl.col("problem").is_not_null())
        listed = told.select("segment", "path", pl.col("problem").alias("reason"))
        return pl.concat([self.left_out, listed, *self._missing_dictionaries()])

    def scan(self, where: Predicate | None = None, *, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """Scan lazily; see `qbeast.scan_carbondata`."""
        condition = filter_of(where, self.schema)
        lazy = lazy_frame(partial(_rows, self.reader), self.schema)
        if condition is not None:
            lazy = lazy.filter(condition)
        return lazy if columns is None else lazy.select(columns)

    def read(self, where: Predicate | None = None, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read into memory; see `qbeast.read_carbondata`."""
        return self.scan(where, columns=columns).collect()

    def explain(self, where: Predicate | None = None, *, columns: Sequence[str] | None = None) -> CarbonPlan:
        """Plan a read: index files, footers and page headers are read, no rows.

        Parameters
        ----------
        where : polars.Expr or str, optional
            Rows to keep.
        columns : sequence of str, optional
            Columns to return.
        """
        asked = filter_of(where, self.schema)
        given, wanted = pushed_down(self.schema, asked, columns)
        return CarbonPlan(self.reader, given, tuple(wanted))

    def _missing_dictionaries(self) -> Iterator[pl.DataFrame]:
        for column in self.reader.columns:
            if column.has_global_dictionary:
                try:
                    self.reader.dictionaries.members(column)
                except _UNREADABLE as error:
                    yield pl.DataFrame([("", error.path, str(error))], schema=_LEFT, orient="row")

    def __repr__(self) -> str:
        lines = [self._title]
        for name, told in self._facts().items():
            lines += [f"  {'' if number else name:<8}  {fact}" for number, fact in enumerate(told)]
        width = max((len(name) for name in self.schema), default=0)
        lines += ["  columns", *(f"    {name:<{width}}  {dtype}" for name, dtype in self.schema.items())]
        return in_lines(lines)

    def _repr_html_(self) -> str:
        facts = {name: "<br>".join(map(escape, told)) for name, told in self._facts().items() if told}
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
            "left out": [f"segment {one['segment']}: {one['reason']}" for one in self.left_out.to_dicts()],
        }


def open_carbon_table(path: str | os.PathLike[str], options: OpenOptions) -> CarbonTable:
    """Open a table; see `qbeast.open_carbondata` for the options and what is raised."""
    if cast("str", options.on_unreadable) not in ("error", "skip-segment"):
        what, known = 'must be "error" or "skip-segment"', ("error", "skip-segment")
        invalid_argument("on_unreadable", what, "nothing was read", value=options.on_unreadable, known=known)
    stores = Stores(
        open_store(path, options.storage_options),
        checked_options(options.storage_options),
        {old: os.fspath(new) for old, new in (options.external_paths or {}).items()},
        allow_absolute_paths=options.allow_absolute_paths,
    )
    snapshot = load_table(stores)
    loads = _wanted(snapshot, options.segments)
    dictionaries = open_dictionaries(stores.table, options.writer_settings)
    reader = TableReader(snapshot, (), dictionaries)
    if options.on_unreadable == "error":
        segments = map_files(stores.table, partial(load_segment, snapshot), loads)
        return CarbonTable(replace(reader, segments=tuple(segments)))
    found = [_tried(reader, load) for load in loads]
    kept = tuple(one for one in found if isinstance(one, Segment))
    left = [one for one in found if not isinstance(one, Segment)]
    return CarbonTable(replace(reader, segments=kept), pl.DataFrame(left, schema=_LEFT, orient="row"))


def _wanted(snapshot: TableSnapshot, segments: Sequence[str] | None) -> list[Load | None]:
    """Return the loads to read."""
    if not snapshot.is_transactional:
        if segments is not None:
            msg = f"{snapshot.uri!r} is a folder of data files and has no segments; nothing was read"
            raise InvalidInputError(msg, argument="segments")
        return [None]
    live = {load.name: load for load in sorted(snapshot.loads, key=lambda one: one.order) if load.is_visible}
    if segments is None:
        return list(live.values())
    unknown = [name for name in segments if name not in live]
    if isinstance(segments, str) or unknown:
        msg = f"no live segment(s) {unknown or segments!r}; {snapshot.uri!r} has {list(live)}. Nothing was read."
        raise InvalidInputError(msg, argument="segments")
    return [live[name] for name in dict.fromkeys(segments)]


def _tried(reader: TableReader, load: Load | None) -> Segment | tuple[str, str, str]:
    """Return a segment that was read to its end once, or why it cannot be."""
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
    started = load.start_ms or load.end_ms
    files = None if live is None else len(live.files)
    rows = None if live is None else live.rows
    gone = None if live is None else sum(one.deleted_rows for one in live.files)
    return load.name, load.status, live is not None, load.kind, started, files, rows, gone, load.merged_into


def _file_row(reader: TableReader, live: Any) -> tuple[Any, ...]:
    try:
        file = reader.open(live)
        stored = live.stored
    except _UNREADABLE as error:
        return (
            live.segment,
            live.path,
            live.kind,
            None,
            None,
            None,
            live.rows,
            live.deleted_rows,
            None,
            None,
            str(error),
        )
    pages = sum(len(blocklet.page_rows) for blocklet in file.blocklets)
    rows = sum(blocklet.rows for blocklet in file.blocklets)
    told = (
        file.version,
        file.writer or None,
        stored.size_bytes,
        rows,
        live.deleted_rows,
        len(file.blocklets),
        pages,
    )
    return (live.segment, live.path, live.kind, *told, None)


def _names(snapshot: TableSnapshot, kind: Literal["bucketing", "partitioning"]) -> tuple[str, ...]:
    found = None if snapshot.schema is None else getattr(snapshot.schema, kind)
    return () if found is None else tuple(one.name for one in found.columns)


def _rows(
    reader: TableReader,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _: int | None,
) -> Iterator[pl.DataFrame]:
    """Read as Polars asks for rows."""
    return reader.rows(list(reader.schema) if with_columns is None else with_columns, predicate, n_rows)

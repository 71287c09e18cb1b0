"""The public functions for CarbonData tables: open, read, and import in one commit or one per load."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, Unpack

import polars as pl

from qbeast_carbondata.metadata.open_table import Segment, replayed_loads
from qbeast_carbondata.reader import PAGE_ROWS, PAGES_AT_ONCE
from qbeast_carbondata.tables.table import CarbonTable, OnUnreadable, open_carbondata
from qbeast_core.api.keywords import CommitKeywords
from qbeast_core.errors import InvalidColumnsError, changed_before, changing, hints_keywords, invalid_argument
from qbeast_core.io.location import Location
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.process import Resources, callback_of, shows_progress
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.data.frames import within
from qbeast_core.table.data.schema import lost_columns
from qbeast_core.table.engine.engine import Engine, Source
from qbeast_core.table.engine.local import local_engine
from qbeast_core.table.write.options import Mode, WriteOptions, metadata_of
from qbeast_core.table.write.write import WriteResult, write_rows

# The present rows in one commit, or one commit per load in the table's history.
WhichSegments: TypeAlias = Literal["current", "history"]

# Makes the source of an engine from some segments of a table.
SourceOf: TypeAlias = Callable[[CarbonTable, tuple[Segment, ...]], Source]

_MAX_DIMENSIONS: Final = 3
_VALUE_BYTES: Final = 16  # approximate memory of a value
_PREFIX: Final = "carbondata."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ImportResult(WriteResult):
    """Result of `qbeast.import_carbondata`: that of its last commit, with the rows, files and bytes of all commits.

    Attributes
    ----------
    commits : int
        Number of commits.
    segments : tuple of str
        Ids of the imported segments, in the order of commits.
    left_out : tuple of dict
        Segments that could not be read, if `on_unreadable` is ``"skip-segment"``: `segment`, `path`, `reason`.
    """

    commits: int
    segments: tuple[str, ...]
    left_out: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _CarbonSource:
    """Rows of some segments of a table, in batches; a `qbeast_core.table.engine.engine.Source`."""

    table: CarbonTable
    segments: tuple[Segment, ...]

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self.table.schema.to_frame()

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        names = list(self.table.schema if columns is None else columns)
        files = [file for segment in self.segments for file in segment.files]
        # At least one page, even if it is larger than a batch; more pages if there are few columns.
        pages = size_bytes // (PAGE_ROWS * _VALUE_BYTES * len(names))
        for frame in self.table.reader.file_rows(
            files, names, pages_at_once=min(max(pages, 1), PAGES_AT_ONCE)
        ):
            yield from within(frame, size_bytes)


def import_table(
    table: CarbonTable,
    path: str | os.PathLike[str] | Location,
    options: WriteOptions,
    *,
    segments: WhichSegments,
    engine: Engine,
    source_of: SourceOf = _CarbonSource,
) -> ImportResult:
    """Write the rows of a CarbonData table; see `qbeast.import_carbondata`."""
    if segments not in ("current", "history"):
        what, known = 'must be "current" or "history"', ("current", "history")
        invalid_argument("segments", what, value=segments, known=known)
    options = replace(
        options,
        columns_if_none=_default_columns(table) if options.columns is None else None,
        properties=_properties(table),
        field_metadata=_field_metadata(table),
    )
    done: list[tuple[tuple[Segment, ...], WriteResult]] = []
    for number, group in enumerate(_commits(table, segments)):
        commit = replace(options, commit_metadata={**_facts(table, group), **options.commit_metadata})
        if number and not options.dry_run:  # the first commit created the table
            commit = replace(
                commit, mode="append", columns=None, cube_size=None, schema_mode=None, dialect=None
            )
        source = source_of(table, group)
        with changed_before(lambda: any(result.committed for _, result in done)):
            result = write_rows(source, path, commit, engine=engine)
        done.append((group, result))
        if result.skipped:
            break
    return _combined_result(table, done)


def _default_columns(table: CarbonTable) -> list[str]:
    """Return the default columns to index: the sort columns, or the first dimensions."""
    lost = lost_columns(list(table.schema), table.schema)
    indexable = [name for name in table.schema if name not in lost]
    if not indexable:
        msg = f"no column of {table.uri!r} can be indexed"
        raise InvalidColumnsError(msg)
    sorted_by = [name for name in table.sort_columns if name in indexable]
    dimensions = [name for name in table.dimensions if name in indexable]
    return sorted_by or (dimensions or indexable)[:_MAX_DIMENSIONS]


def _commits(table: CarbonTable, segments: WhichSegments) -> list[tuple[Segment, ...]]:
    """Return the segments of each commit."""
    if segments == "current" or not table.reader.snapshot.is_transactional:
        return [table.reader.segments]
    replayed = replayed_loads(table.reader.snapshot, table.reader.segments)
    return [(segment,) for segment in replayed] or [()]


def _facts(table: CarbonTable, group: Sequence[Segment]) -> dict[str, str]:
    """Return the commit metadata that names the source of the rows."""
    facts = {f"{_PREFIX}source": table.uri}
    loads = [segment.load for segment in group if segment.load.name]
    if loads:
        facts[f"{_PREFIX}segments"] = ",".join(load.name for load in loads)
    if len(loads) == 1:
        times = {"loadStart": loads[0].start_ms, "loadEnd": loads[0].end_ms}
        facts |= {f"{_PREFIX}{name}": _iso(ms) for name, ms in times.items() if ms is not None}
    return facts


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _properties(table: CarbonTable) -> dict[str, str]:
    """Return the table properties with our prefix, so that no engine acts on them."""
    return {f"{_PREFIX}{name}": value for name, value in sorted(table.properties.items())}


def _field_metadata(table: CarbonTable) -> dict[str, Mapping[str, Any]]:
    """Return the properties of columns: the comment under Spark's key, the others with our prefix."""
    metadata: dict[str, Mapping[str, Any]] = {}
    for column in table.reader.columns:
        properties = column.schema.properties
        facts = {f"{_PREFIX}{name}": value for name, value in sorted(properties.items()) if name != "comment"}
        if column.has_global_dictionary:
            facts[f"{_PREFIX}dictionary"] = "global"
        if properties.get("comment"):
            facts["comment"] = properties["comment"]
        if facts:
            metadata[column.schema.name] = facts
    return metadata


def _combined_result(table: CarbonTable, done: list[tuple[tuple[Segment, ...], WriteResult]]) -> ImportResult:
    """Return the result of all commits."""
    results = [result for _, result in done]
    values = {field.name: getattr(results[-1], field.name) for field in fields(WriteResult)}
    for name in ("rows", "files", "bytes", "attempts", "staged_files"):
        values[name] = sum(getattr(result, name) for result in results)
    values["committed"] = any(result.committed for result in results)
    values["new_revision"] = any(result.new_revision for result in results)
    return ImportResult(
        **values,
        commits=sum(result.committed for result in results),
        segments=tuple(segment.load.name for group, _ in done for segment in group if segment.load.name),
        left_out=tuple(table.left_out.to_dicts()),
    )


__all__ = ["import_carbondata", "open_carbondata", "read_carbondata", "scan_carbondata"]


@hints_keywords
def scan_carbondata(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> pl.LazyFrame:
    """Scan a CarbonData table lazily: only blocklets and pages that the columns, filters and limits need are decoded.

    Parameters
    ----------
    where : polars.Expr or str, optional
        Rows to keep. A text is SQL, as for `read_table`.
    columns : sequence of str, optional
        Columns to return, in order; all by default.
    path, segments, on_unreadable, storage_options, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.

    Returns
    -------
    polars.LazyFrame
        The live rows, in no particular order.

    Raises
    ------
    The same errors as `open_carbondata`; InvalidInputError if `where` is not a condition on the rows; on collect,
    UnsupportedTableError and DamagedFileError for the content of data files, with the file and the position.

    Examples
    --------
    >>> qbeast.scan_carbondata("carbon/orders", where="id < 3").collect()  # doctest: +SKIP
    """
    return open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    ).scan(where, columns=columns)


@hints_keywords
def read_carbondata(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Read a CarbonData table into memory.

    Parameters
    ----------
    where, columns
        As for `scan_carbondata`.
    path, segments, on_unreadable, storage_options, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.

    Returns
    -------
    polars.DataFrame
        Rows in no particular order.

    Raises
    ------
    The same errors as `scan_carbondata`.

    Examples
    --------
    >>> qbeast.read_carbondata("carbon/orders", where="price > 100")  # doctest: +SKIP
    """
    return open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    ).read(where, columns=columns)


@changing
@shows_progress("importing")
def import_carbondata(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    segments: WhichSegments = "current",
    mode: Mode = "error",
    cube_size: int | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
    dialect: BlocksDialect | None = None,
    dry_run: bool = False,
    resources: Resources | None = None,
    **keywords: Unpack[CommitKeywords],
) -> ImportResult:
    """Write the rows of a CarbonData table to a qbeast table; the CarbonData table is not changed.

    Parameters
    ----------
    path : str or path-like
        The CarbonData table.
    target : str or path-like
        The table to create.
    columns : sequence of str, optional
        Columns to index, as for `write_table`. By default the indexed columns of a table that is overwritten, else the
        sort columns of the CarbonData table, or its first three dimensions that can be indexed.
    segments : {"current", "history"}, default "current"
        ``"current"``: the present rows in one commit. ``"history"``: one commit per load, oldest first, with the
        load's id and time in the commit's metadata, so time travel reaches each load. Compacted loads are replayed
        one by one if their files exist and none of their rows was changed. Rows that are deleted now are in no
        version. After an error, the earlier commits stay.
    mode, cube_size, dialect, dry_run, resources
        As for `write_table`. A dry run of a history plans each load like the first.
    **keywords
        See `CommitKeywords`.
    on_unreadable, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.
    storage_options : mapping of str to str, optional
        For object stores, of both tables.

    Returns
    -------
    ImportResult
        The result of the last commit, with the rows, files and bytes of all commits, and the segments imported and left
        out.

    Raises
    ------
    The same errors as `open_carbondata`, `scan_carbondata` and `write_table`.

    Examples
    --------
    >>> qbeast.import_carbondata("carbon/orders", "orders", segments="history")  # doctest: +SKIP
    """
    opened = open_carbondata(
        path,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    with local_engine(resources) as local:
        options = WriteOptions(
            columns=columns,
            mode=mode,
            cube_size=cube_size,
            storage_options=storage_options,
            commit_metadata=metadata_of(keywords.get("commit_metadata")),
            dialect=dialect,
            dry_run=dry_run,
            progress=local.report_progress(callback_of(keywords.get("progress"))),
        )
        return local.report(import_table(opened, target, options, segments=segments, engine=local))

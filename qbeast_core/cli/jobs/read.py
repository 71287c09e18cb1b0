"""Rows of a table: on the screen, as JSON, or into a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.files import FileFormat, OutputFile
from qbeast_core.cli.filters import evaluated, parse_where
from qbeast_core.cli.grid import frame_grid, grid, size_text, type_text
from qbeast_core.cli.jobs.opening import open_table, warnings_told
from qbeast_core.cli.screen import faint
from qbeast_core.errors import InvalidInputError

__all__ = ["ReadRequest", "sample_table", "show_table"]

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Which rows and columns, and where to: the options of the command."""

    sample: float | tuple[float, float] | None = None
    where: str | None = None
    select: Sequence[str] | None = None
    limit: int | None = None
    version: int | str | None = None
    output: str | None = None
    file_format: FileFormat | None = None
    overwrite: bool = False
    allow_absolute_paths: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def show_table(path: str, wanted: ReadRequest, *, schema: bool, count: bool) -> Answer:
    """Show a table and some rows, or its columns, or how many rows there are."""
    table = _open(path, wanted)
    if schema:
        return _columns(table)
    rows = _rows(table, wanted)
    if count:
        return _counted(table, rows, wanted)
    if wanted.output is not None:
        return _into_file(table, rows, wanted)
    return _on_screen(table, rows, wanted, ())


def sample_table(path: str, wanted: ReadRequest) -> Answer:
    """Draw a sample: show some of it and say how many rows it has, or write it to a file."""
    table = _open(path, wanted)
    rows = _rows(table, wanted)
    if wanted.output is not None:
        return _into_file(table, rows, wanted)
    number = _count(rows, wanted)
    total = _total(table)
    said = f"{number:,} rows in the sample" + (
        f", {number / total:.2%} of {total:,}" if total and wanted.where is None else ""
    )
    return _on_screen(table, rows, wanted, (faint(said),), rows_in_all=number)


def _open(path: str, wanted: ReadRequest) -> qbeast.Table:
    return open_table(
        path, wanted.storage_options, wanted.version, allow_absolute_paths=wanted.allow_absolute_paths
    )


def _rows(table: qbeast.Table, wanted: ReadRequest) -> pl.LazyFrame:
    """Return the rows that are wanted, all of them, not read yet."""
    condition = parse_where(wanted.where, table.schema)
    unknown = [name for name in wanted.select or () if name not in table.schema]
    if unknown:
        msg = f"no such column(s): {unknown}; the table has {list(table.schema)}"
        raise InvalidInputError(msg, argument="select")
    rows = table.scan(sample=wanted.sample)
    kept = rows if condition is None else rows.filter(condition)
    return kept if wanted.select is None else kept.select(wanted.select)


def _on_screen(
    table: qbeast.Table,
    rows: pl.LazyFrame,
    wanted: ReadRequest,
    remarks: Sequence[Any],
    *,
    rows_in_all: int | None = None,
) -> Answer:
    limit = _SHOWN if wanted.limit is None else wanted.limit
    with progress_bar("reading"), warnings_told(), evaluated(wanted.where):
        found = rows.head(limit).collect()
    data = {
        **_facts(table),
        "rows": found.to_dicts(),
        **({} if rows_in_all is None else {"rows_in_all": rows_in_all}),
    }
    if not remarks and found.height == limit:
        remarks = (
            faint(f"the first {limit:,} rows found; --limit shows more, --output writes them to a file"),
        )
    return Answer(parts=(repr(table), "", *frame_grid(found), *remarks), data=data)


def _counted(table: qbeast.Table, rows: pl.LazyFrame, wanted: ReadRequest) -> Answer:
    number = _count(rows, wanted)
    return Answer(parts=(f"{number:,} rows",), data={**_facts(table), "count": number})


def _count(rows: pl.LazyFrame, wanted: ReadRequest) -> int:
    with progress_bar("counting"), warnings_told(), evaluated(wanted.where):
        return int(rows.select(pl.len()).collect().item())


def _into_file(table: qbeast.Table, rows: pl.LazyFrame, wanted: ReadRequest) -> Answer:
    name = wanted.output or "-"
    file = OutputFile(name, file_format=wanted.file_format, overwrite=wanted.overwrite)
    kept = rows if wanted.limit is None else rows.head(wanted.limit)
    with progress_bar("writing"), warnings_told(), evaluated(wanted.where):
        size = file.write(kept)
    if size is None:
        return Answer(parts=(), data={})
    number = file.count()
    return Answer(
        parts=(f"{name}: {number:,} rows, {size_text(size)}",),
        data={**_facts(table), "output": name, "format": file.file_format, "rows": number, "bytes": size},
    )


def _columns(table: qbeast.Table) -> Answer:
    indexed = table.indexed_columns
    places = {name: f"{at}." for at, name in enumerate(indexed, start=1)}
    listed = [(name, type_text(dtype), places.get(name)) for name, dtype in table.schema.items()]
    data = {
        **_facts(table),
        "columns": [{"name": name, "type": dtype, "indexed": name in indexed} for name, dtype, _ in listed],
    }
    return Answer(parts=(repr(table), "", grid(("column", "type", "indexed"), listed)), data=data)


def _facts(table: qbeast.Table) -> dict[str, Any]:
    return {
        "table": table.uri,
        "version": table.version,
        "indexed_columns": list(table.indexed_columns),
        "rows_total": _total(table),
    }


def _total(table: qbeast.Table) -> int:
    return table.explain(sample=0.0).rows_total

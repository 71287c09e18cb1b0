"""Rows of a table, on the screen, as JSON, or into a file; and what a read would open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import click
import polars as pl

import qbeast
from qbeast_core.cli.answer import Answer, Part, Settings
from qbeast_core.cli.files import FileFormat, OutputFile
from qbeast_core.cli.grid import frame_grid, grid, size_text, type_text
from qbeast_core.cli.jobs.opening import on_table, working
from qbeast_core.cli.screen import remark
from qbeast_core.errors import InvalidInputError
from qbeast_core.query.fractions import Sample
from qbeast_core.runtime import ProgressCallback
from qbeast_core.table.data.expressions import evaluating, filter_of
from qbeast_core.table.read.reader import different_names
from qbeast_core.table.read.scan import SAMPLING_WEIGHT

_SHOWN: Final = 10
_OUTCOME: Final = "nothing was read"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """Which rows and columns, and where to: the options of the command."""

    sample: Sample | None
    where: str | None
    select: Sequence[str] | None
    limit: int | None
    output: str | None
    file_format: FileFormat | None
    overwrite: bool
    rows: int | None = None
    expand: bool = False


def _requested(**options: Any) -> _Request:
    """Understand the options; rows of a format go to the standard output where no file is named."""
    if options["output"] is None and options["file_format"] is not None:
        options["output"] = "-"
    settings = click.get_current_context().find_object(Settings)
    if options["output"] == "-" and settings is not None and settings.json:
        msg = "rows and --json cannot share the standard output: name a file with --output"
        raise click.UsageError(msg, click.get_current_context())
    return _Request(**options)


def show(table: str, **options: Any) -> Answer:
    """Show a table and some rows, or its columns, or how many rows there are; a table of CarbonData as well."""
    try:
        return _show(table, **options)
    except qbeast.TableNotFoundError as error:
        carbon = _carbon_table(table, error, options)
    return _show_carbon(carbon, **options)


@on_table("reading")
def _show(
    table: qbeast.Table, _progress: ProgressCallback | None, *, schema: bool, count: bool, **options: Any
) -> Answer:
    wanted = _requested(**options)
    _refuse_output(wanted, schema=schema, count=count)
    if schema:
        return _columns(table)
    return _shown(table, _rows(table, wanted), wanted, _facts(table), count=count)


def _refuse_output(wanted: _Request, *, schema: bool, count: bool) -> None:
    if wanted.output is not None and (schema or count):
        option = "--schema" if schema else "--count"
        msg = f"{option} prints no rows, which --output and --format are for; nothing was read. Leave one of them out."
        raise InvalidInputError(msg, argument="output")


def _shown(
    table: qbeast.Table | qbeast.CarbonTable,
    rows: pl.LazyFrame,
    wanted: _Request,
    facts: Mapping[str, Any],
    *,
    count: bool,
) -> Answer:
    if count:
        number = _count(rows, wanted)
        return Answer(parts=(f"{number:,} rows",), data={**facts, "count": number})
    if wanted.output is not None:
        return _into_file(rows, wanted, wanted.output, facts)
    return _on_screen(table, rows, wanted, facts)


def _carbon_table(
    path: str, error: qbeast.TableNotFoundError, options: Mapping[str, Any]
) -> qbeast.CarbonTable:
    """Open a table of CarbonData where there is no other; raise the error if there is none either."""
    try:
        found = qbeast.open_carbondata(
            path,
            storage_options=options["storage_options"],
            allow_absolute_paths=options["allow_absolute_paths"],
        )
    except qbeast.TableNotFoundError:
        raise error from None
    given = {name: options.get(name) for name in ("sample", "rows", "expand", "version")}
    refused = [name for name, value in given.items() if value is not None and value is not False]
    if refused:
        msg = f"{path!r} is a table of CarbonData, which has no {refused[0]}; import it with qbeast import-carbondata"
        raise InvalidInputError(msg, argument=refused[0])
    return found


def _show_carbon(table: qbeast.CarbonTable, **options: Any) -> Answer:
    names = [one.name for one in fields(_Request)]
    wanted = _requested(**{name: options[name] for name in names})
    _refuse_output(wanted, schema=options["schema"], count=options["count"])
    facts = {"table": table.uri, "carbondata": True, "segments": table.segments.to_dicts()}
    if options["schema"]:
        listed = [(name, type_text(dtype)) for name, dtype in table.schema.items()]
        data = {**facts, "columns": [{"name": name, "type": dtype} for name, dtype in listed]}
        return Answer(parts=(repr(table), "", grid(("column", "type"), listed)), data=data)
    with working("reading"):
        return _shown(table, _rows(table, wanted), wanted, facts, count=options["count"])


@on_table("reading")
def sample(table: qbeast.Table, _progress: ProgressCallback | None, **options: Any) -> Answer:
    """Draw a sample: show some of it and say how many rows it has, or write it to a file."""
    wanted = _requested(**options)
    rows = _rows(table, wanted)
    if wanted.output is not None:
        return _into_file(rows, wanted, wanted.output, _facts(table))
    return _on_screen(table, rows, wanted, _facts(table), rows_in_all=_count(rows, wanted))


@on_table("reading")
def sql(
    table: qbeast.Table,
    _progress: ProgressCallback | None,
    *,
    query: str,
    sample: Sample | None,
    **options: Any,
) -> Answer:
    """Show what a query gives, or write it to a file."""
    wanted = _requested(sample=sample, where=None, select=None, **options)
    rows, facts = table.sql(query, sample=sample), {"query": query}
    with evaluating(query, "query", _OUTCOME):
        if wanted.output is not None:
            return _into_file(rows, wanted, wanted.output, facts)
        found = (rows if wanted.limit is None else rows.head(wanted.limit)).collect()
    return Answer(parts=tuple(frame_grid(found)), data={**facts, "rows": found.to_dicts()})


@on_table("planning")
def explain(
    table: qbeast.Table,
    _progress: ProgressCallback | None,
    *,
    where: str | None,
    sample: Sample | None,
    select: Sequence[str] | None,
    list_files: bool,
) -> Answer:
    """Plan a read without reading rows."""
    plan = table.explain(where, columns=select, sample=sample)
    files = plan.files
    facts = {
        "where": where,
        "unused_conditions": plan.unused_conditions,
        "sample": sample,
        "columns": list(plan.columns),
        "files_opened": int(files["opened"].sum()),
        "files_total": files.height,
        "rows_opened": plan.rows_opened,
        "rows_total": plan.rows_total,
        "bytes_opened": plan.bytes_opened,
        "bytes_total": plan.bytes_total,
        "share": plan.share,
        "design_effect": plan.design_effect,
        "design_effect_scope": plan.design_effect_scope,
        "files": files.to_dicts(),
    }
    parts: list[Part] = [repr(plan)]
    if list_files:
        listed = [
            (
                one["path"],
                "yes" if one["opened"] else f"no: {one['reason']}",
                f"{one['pages_opened']} of {one['pages_total']}" if one["pages_total"] else "",
                size_text(one["bytes_opened"]),
            )
            for one in files.iter_rows(named=True)
        ]
        parts += ["", grid(("file", "opened", "pages", "bytes"), listed, right=("pages", "bytes"))]
    return Answer(parts=tuple(parts), data=facts)


def _rows(table: qbeast.Table | qbeast.CarbonTable, wanted: _Request) -> pl.LazyFrame:
    """Return the rows that are wanted, all of them, not read yet."""
    names = None if wanted.select is None else different_names(wanted.select, list(table.schema))
    if isinstance(table, qbeast.Table):
        kept = table.scan(where=wanted.where, sample=wanted.sample, rows=wanted.rows, expand=wanted.expand)
    else:
        condition = filter_of(wanted.where, table.schema)
        kept = table.scan() if condition is None else table.scan().filter(condition)
    return kept if names is None else kept.select(*names, *([SAMPLING_WEIGHT] if wanted.expand else []))


def _on_screen(
    table: qbeast.Table | qbeast.CarbonTable,
    rows: pl.LazyFrame,
    wanted: _Request,
    facts: Mapping[str, Any],
    *,
    rows_in_all: int | None = None,
) -> Answer:
    limit = _SHOWN if wanted.limit is None else wanted.limit
    with evaluating(wanted.where, outcome=_OUTCOME):
        found = rows.head(limit).collect()
    data: dict[str, Any] = {**facts, "rows": found.to_dicts()}
    remarks: list[str] = []
    if rows_in_all is not None:
        data["rows_in_all"] = rows_in_all
        total = data["rows_total"] if wanted.where is None else 0
        share = f", {rows_in_all / total:.2%} of {total:,}" if total else ""
        remarks.append(f"{rows_in_all:,} rows in the sample{share}")
    elif found.height == limit:
        remarks.append(f"the first {limit:,} rows found; --limit shows more, --output writes them to a file")
    return Answer(parts=(repr(table), "", *frame_grid(found), *map(remark, remarks)), data=data)


def _count(rows: pl.LazyFrame, wanted: _Request) -> int:
    with evaluating(wanted.where, outcome=_OUTCOME):
        return int(rows.select(pl.len()).collect().item())


def _into_file(rows: pl.LazyFrame, wanted: _Request, name: str, facts: Mapping[str, Any]) -> Answer:
    file = OutputFile(name, file_format=wanted.file_format, overwrite=wanted.overwrite)
    kept = rows if wanted.limit is None else rows.head(wanted.limit)
    with evaluating(wanted.where, outcome=_OUTCOME):
        size = file.write(kept)
    if size is None:
        return Answer(parts=())
    number = file.count()
    return Answer(
        parts=(f"{name}: {number:,} rows, {size_text(size)}",),
        data={**facts, "output": name, "format": file.file_format, "rows": number, "bytes": size},
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
    rows = table.explain(sample=0.0).rows_total
    return {"indexed_columns": list(table.indexed_columns), "rows_total": rows}

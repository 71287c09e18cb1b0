"""`qbeast show`, `sample`, `export`, `sql` and `explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.answer import Answer, Part, Settings, facts_of
from qbeast_core.cli.options import (
    absolute_paths_option,
    as_fraction,
    choice_option,
    command,
    flag,
    names_option,
    on_table,
    opening_options,
    option,
    sample_by_option,
    sample_option,
    select_option,
    table_argument,
    together,
    version_option,
    where_option,
    working,
)

if TYPE_CHECKING:
    import polars as pl

    import qbeast
    from qbeast_core.cli.output_file import FileFormat
    from qbeast_core.plan.weights import Sample

_SHOWN: Final = 10
_FORMATS: Final = ("parquet", "csv", "jsonl", "arrow")  # as in output_file.py, which loads Polars


def _limit(by_default: str) -> Callable[[Any], Any]:
    return option(
        "-n --limit", f"Maximum number of rows; by default {by_default}.", "ROWS", type=click.IntRange(min=0)
    )


_output_options = together(
    version_option,
    absolute_paths_option,
    option(
        "-o --output",
        "File to write the rows to (.parquet, .csv, .jsonl, .arrow); - is the standard output.",
        "FILE",
        type=click.Path(),
    ),
    choice_option(
        "--format file_format",
        "Format of the output file, if its name has no ending. Without --output, print rows in this format.",
        _FORMATS,
        optional=True,
    ),
    flag("--overwrite", "Replace the output file if it exists."),
)

_rows_options = together(
    where_option, select_option, _limit("10, and all of them with --output or --format"), _output_options
)

_expand_option: Final = flag(
    "--expand", "Add a column sampling_weight: the number of rows that a sampled row represents."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShowRequest:
    """Which rows and columns, and where to: the options of the command."""

    sample: Sample | None
    sample_by: Sequence[str] | None = None
    where: str | None = None
    select: Sequence[str] | None = None
    limit: int | None
    output: str | None
    file_format: FileFormat | None
    overwrite: bool
    rows: int | None = None
    expand: bool = False


def _requested(**options: Any) -> _ShowRequest:
    """Return the options; rows of a format go to the standard output where no file is named."""
    if options["output"] is None and options["file_format"] is not None:
        options["output"] = "-"
    settings = click.get_current_context().find_object(Settings)
    if options["output"] == "-" and settings is not None and settings.json:
        msg = "rows and --json cannot share the standard output: name a file with --output"
        raise click.UsageError(msg, click.get_current_context())
    return _ShowRequest(**options)


@command(
    table_argument,
    sample_option,
    sample_by_option,
    option(
        "--rows",
        "Approximate number of sampled rows, or with --where of matching rows; replaces --sample.",
        "ROWS",
        type=click.IntRange(min=0),
    ),
    _expand_option,
    _rows_options,
    flag("--schema", "Print columns and types instead of rows."),
    flag("--count", "Print the number of rows instead of rows."),
)
def show(table: str, *, schema: bool, count: bool, **options: Any) -> Answer:
    """Show the properties of a table and some rows."""
    from qbeast_core.errors import InvalidInputError

    opening = opening_options(options)
    wanted = _requested(**options)
    if wanted.output is not None and (schema or count):
        name = "--schema" if schema else "--count"
        msg = f"{name} prints no rows, which --output and --format are for. Leave one of them out."
        raise InvalidInputError(msg, argument="output")
    with working("reading"):
        opened = _opened(table, wanted, opening)
        facts = _facts(opened)
        if schema:
            return _columns(opened, facts)
        rows = _rows(opened, wanted)
        if count:
            number = _count(rows, wanted)
            return Answer(parts=(f"{number:,} rows",), data={**facts, "count": number})
        if wanted.output is not None:
            return _into_file(rows, wanted, wanted.output, facts)
        return _on_screen(opened, rows, wanted, facts)


def _opened(path: str, wanted: _ShowRequest, opening: dict[str, Any]) -> qbeast.Table | qbeast.CarbonTable:
    """Open a table, or a table of CarbonData if there is no other; raise the first error if there is none."""
    import qbeast
    from qbeast_core.errors import InvalidInputError

    try:
        return qbeast.open_table(path, **opening)
    except qbeast.TableNotFoundError as error:
        unsupported = {"version": opening.pop("version"), **facts_of(wanted, "sample", "sample_by", "rows")}
        try:
            carbon_table = qbeast.open_carbondata(path, **opening)
        except qbeast.TableNotFoundError:
            raise error from None
    for name, value in {**unsupported, "expand": wanted.expand or None}.items():
        if value is not None:
            msg = f"{path!r} is a table of CarbonData, which has no {name}; import it with qbeast import-carbondata"
            raise InvalidInputError(msg, argument=name)
    return carbon_table


@on_table(
    "reading",
    click.argument("sample", metavar="FRACTION", callback=as_fraction),
    sample_by_option,
    _expand_option,
    _rows_options,
)
def sample(table: qbeast.Table, **options: Any) -> Answer:
    """Return a sample, which has the same rows each time.

    A larger FRACTION contains the rows of a smaller one. FRACTION is 0.01 or 1%, or 0.1:0.2 for the rows between two
    fractions.
    """
    wanted = _requested(**options)
    rows = _rows(table, wanted)
    if wanted.output is not None:
        return _into_file(rows, wanted, wanted.output, _facts(table))
    return _on_screen(table, rows, wanted, _facts(table), rows_in_all=_count(rows, wanted))


@command(
    table_argument,
    click.argument("output", metavar="TARGET", type=click.Path(allow_dash=True)),
    where_option,
    names_option("-c --columns --select select", "Columns, separated by commas; all by default."),
    sample_option,
    sample_by_option,
    option(
        "--rows", "Approximate number of sampled rows; replaces --sample.", "ROWS", type=click.IntRange(min=0)
    ),
    _expand_option,
    _limit("all of them"),
    version_option,
    absolute_paths_option,
    choice_option(
        "--format file_format", "Format of TARGET, if its name has no ending.", _FORMATS, optional=True
    ),
    flag("--force --overwrite overwrite", "Replace TARGET if it exists."),
)
def export(table: str, **options: Any) -> Answer:
    """Write rows of a table to a file, with bounded memory.

    TARGET is a file .parquet, .csv, .jsonl or .arrow, or - for the standard output (with --format). It is complete, or
    not there at all.
    """
    opening = opening_options(options)
    wanted = _requested(**options)
    with working("reading"):
        opened = _opened(table, wanted, opening)
        return _into_file(_rows(opened, wanted), wanted, str(wanted.output), _facts(opened))


@on_table(
    "reading",
    click.argument("query"),
    sample_option,
    sample_by_option,
    _limit("all of them"),
    _output_options,
)
def sql(table: qbeast.Table, *, query: str, **options: Any) -> Answer:
    """Query a table in SQL.

    The table is named self: "SELECT carrier, avg(arr_delay) FROM self WHERE dep_time < 700 GROUP BY carrier". Filters,
    columns and limits of QUERY reduce what is read. Expressions are those of --where; a QUERY with anything else, such
    as a window, runs in the SQL of Polars. It can read other files: do not run one from people who must not read them.
    """
    from qbeast_core.cli.tables import frame_table
    from qbeast_core.support.frames import shown_times
    from qbeast_core.table.data.expressions import evaluating

    wanted = _requested(**options)
    rows, facts = table.sql(query, sample=wanted.sample, sample_by=wanted.sample_by), {"query": query}
    with evaluating(query, "query"):
        if wanted.output is not None:
            return _into_file(rows, wanted, wanted.output, facts)
        frame = (rows if wanted.limit is None else rows.head(wanted.limit)).collect()
    return Answer(parts=tuple(frame_table(frame)), data={**facts, "rows": shown_times(frame).to_dicts()})


@on_table(
    "planning",
    where_option,
    sample_option,
    sample_by_option,
    select_option,
    version_option,
    absolute_paths_option,
    flag("--files list_files", "List the files as well."),
)
def explain(
    table: qbeast.Table,
    *,
    where: str | None,
    sample: Sample | None,
    sample_by: Sequence[str] | None,
    select: Sequence[str] | None,
    list_files: bool,
) -> Answer:
    """Show which files and bytes a read would open, and why."""
    from qbeast_core.cli.tables import size_text
    from qbeast_core.cli.tables import table as drawn

    plan = table.explain(where, columns=select, sample=sample, sample_by=sample_by)
    files = plan.files
    names = ("rows_opened", "rows_total", "bytes_opened", "bytes_total", "share", "design_effect")
    facts = {
        "where": where,
        "sample": sample,
        **facts_of(plan, "columns", "unused_conditions", *names, "design_effect_scope", "hint"),
        "files_opened": int(files["opened"].sum()),
        "files_total": files.height,
        "files": files.to_dicts(),
    }
    parts: list[Part] = [repr(plan)]
    if list_files:
        listed = [
            (
                file["path"],
                "yes" if file["opened"] else f"no: {file['reason']}",
                f"{file['pages_opened']} of {file['pages_total']}" if file["pages_total"] else "",
                size_text(file["bytes_opened"]),
            )
            for file in files.iter_rows(named=True)
        ]
        parts += ["", drawn(("file", "opened", "pages", "bytes"), listed, right=(2, 3))]
    return Answer(parts=tuple(parts), data=facts)


def _rows(table: qbeast.Table | qbeast.CarbonTable, wanted: _ShowRequest) -> pl.LazyFrame:
    """Return the rows that are wanted, all of them, not read yet."""
    import qbeast
    from qbeast_core.table.read.planner import different_names

    where, columns = wanted.where, wanted.select
    if isinstance(table, qbeast.Table):
        return table.scan(
            where,
            columns=columns,
            sample=wanted.sample,
            sample_by=wanted.sample_by,
            rows=wanted.rows,
            expand=wanted.expand,
        )
    names = None if columns is None else different_names(columns, list(table.schema))
    return table.scan(where, columns=names)


def _on_screen(
    table: qbeast.Table | qbeast.CarbonTable,
    rows: pl.LazyFrame,
    wanted: _ShowRequest,
    facts: Mapping[str, Any],
    *,
    rows_in_all: int | None = None,
) -> Answer:
    from qbeast_core.cli.tables import frame_table, remark
    from qbeast_core.support.frames import shown_times
    from qbeast_core.table.data.expressions import evaluating

    limit = _SHOWN if wanted.limit is None else wanted.limit
    with evaluating(wanted.where):
        frame = rows.head(limit).collect()
    data: dict[str, Any] = {**facts, "rows": shown_times(frame).to_dicts()}
    remarks: list[str] = []
    if rows_in_all is not None:
        data["rows_in_all"] = rows_in_all
        total = data["rows_total"] if wanted.where is None else 0
        share = f", {rows_in_all / total:.2%} of {total:,}" if total else ""
        remarks.append(f"{rows_in_all:,} rows in the sample{share}")
    elif frame.height == limit:
        remarks.append(f"the first {limit:,} rows; --limit shows more, --output writes them to a file")
    return Answer(parts=(repr(table), "", *frame_table(frame), *map(remark, remarks)), data=data)


def _count(rows: pl.LazyFrame, wanted: _ShowRequest) -> int:
    import polars as pl

    from qbeast_core.table.data.expressions import evaluating

    with evaluating(wanted.where):
        return int(rows.select(pl.len()).collect().item())


def _into_file(rows: pl.LazyFrame, wanted: _ShowRequest, name: str, facts: Mapping[str, Any]) -> Answer:
    from qbeast_core.cli.output_file import OutputFile
    from qbeast_core.cli.tables import size_text
    from qbeast_core.table.data.expressions import evaluating

    file = OutputFile(name, file_format=wanted.file_format, overwrite=wanted.overwrite)
    kept = rows if wanted.limit is None else rows.head(wanted.limit)
    with evaluating(wanted.where):
        size = file.write(kept)
    if size is None:
        return Answer(parts=())
    number = file.count()
    return Answer(
        parts=(f"{name}: {number:,} rows, {size_text(size)}",),
        data={**facts, "output": name, "format": file.file_format, "rows": number, "bytes": size},
    )


def _columns(table: qbeast.Table | qbeast.CarbonTable, facts: Mapping[str, Any]) -> Answer:
    from qbeast_core.cli.tables import table as drawn
    from qbeast_core.cli.tables import type_text

    indexed = facts.get("indexed_columns", [])
    listed = [
        (name, type_text(dtype), f"{indexed.index(name) + 1}." if name in indexed else None)
        for name, dtype in table.schema.items()
    ]
    columns = [{"name": name, "type": dtype, "indexed": place is not None} for name, dtype, place in listed]
    parts = (repr(table), "", drawn(("column", "type", "indexed"), listed))
    return Answer(parts=parts, data={**facts, "columns": columns})


def _facts(table: qbeast.Table | qbeast.CarbonTable) -> dict[str, Any]:
    import qbeast

    if isinstance(table, qbeast.CarbonTable):
        return {"table": table.uri, "carbondata": True, "segments": table.segments.to_dicts()}
    rows = table.explain().rows_total
    facts = {"table": table.uri, "version": table.version}
    key = {"sample_by": list(table.sample_by)} if table.sample_by else {}
    return {**facts, "indexed_columns": list(table.indexed_columns), **key, "rows_total": rows}

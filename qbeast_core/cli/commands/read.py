"""`qbeast show`, `sample`, `sql` and `explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.answer import Answer, Part, Settings, facts_of
from qbeast_core.cli.opening import on_table, working
from qbeast_core.cli.options import (
    absolute_paths_option,
    as_fraction,
    choice_option,
    command,
    sample_option,
    select_option,
    table_argument,
    together,
    version_option,
    where_option,
)

if TYPE_CHECKING:
    import polars as pl

    import qbeast
    from qbeast_core.cli.files import FileFormat
    from qbeast_core.query.plan.fractions import Sample
    from qbeast_core.support.runtime import ProgressCallback

_SHOWN: Final = 10
_OUTCOME: Final = "nothing was read"
_FORMATS: Final = ("parquet", "csv", "jsonl")


def _limit(by_default: str) -> Callable[[Any], Any]:
    return click.option(
        *("-n", "--limit"),
        metavar="ROWS",
        type=click.IntRange(min=0),
        help=f"Rows at most; by default {by_default}.",
    )


_output_options = together(
    version_option,
    absolute_paths_option,
    click.option(
        *("-o", "--output"),
        metavar="FILE",
        type=click.Path(),
        help="Write the rows to this file (.parquet, .csv, .jsonl); - is the standard output.",
    ),
    choice_option(
        "--format",
        "file_format",
        choices=_FORMATS,
        text="Format of the output, if its name has no ending; without --output the rows are printed so.",
        optional=True,
    ),
    click.option("--overwrite", is_flag=True, help="Replace the output file if there is one."),
)

_rows_options = together(
    where_option, select_option, _limit("10, and all of them with --output or --format"), _output_options
)

_expand_option: Final = click.option(
    "--expand",
    is_flag=True,
    help="Add a column sampling_weight: how many rows of the table each row of the sample stands for.",
)


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
    """Return the options; rows of a format go to the standard output where no file is named."""
    if options["output"] is None and options["file_format"] is not None:
        options["output"] = "-"
    settings = click.get_current_context().find_object(Settings)
    if options["output"] == "-" and settings is not None and settings.json:
        msg = "rows and --json cannot share the standard output: name a file with --output"
        raise click.UsageError(msg, click.get_current_context())
    return _Request(**options)


@command(
    table_argument,
    sample_option,
    click.option(
        "--rows",
        metavar="ROWS",
        type=click.IntRange(min=0),
        help="Instead of a fraction: the approximate number of rows of the sample; with --where, of matching rows.",
    ),
    _expand_option,
    _rows_options,
    click.option("--schema", is_flag=True, help="Print columns and types instead of rows."),
    click.option("--count", is_flag=True, help="Print the number of rows instead of rows."),
    short_help="Show what a table is, and rows of it.",
)
def show(table: str, *, schema: bool, count: bool, **options: Any) -> Answer:
    """Show what a table is and some of its rows."""
    from qbeast_core.errors import InvalidInputError

    reading = {name: options.pop(name) for name in ("storage_options", "allow_absolute_paths", "version")}
    wanted = _requested(**options)
    if wanted.output is not None and (schema or count):
        option = "--schema" if schema else "--count"
        msg = f"{option} prints no rows, which --output and --format are for; nothing was read. Leave one of them out."
        raise InvalidInputError(msg, argument="output")
    with working("reading"):
        opened = _opened(table, wanted, reading)
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


def _opened(path: str, wanted: _Request, reading: Mapping[str, Any]) -> qbeast.Table | qbeast.CarbonTable:
    """Open a table, or a table of CarbonData if there is no other; raise the first error if there is none."""
    import qbeast
    from qbeast_core.errors import InvalidInputError

    try:
        return qbeast.open_table(path, **reading)
    except qbeast.TableNotFoundError as error:
        version, rest = reading["version"], {name: reading[name] for name in reading if name != "version"}
        try:
            found = qbeast.open_carbondata(path, **rest)
        except qbeast.TableNotFoundError:
            raise error from None
    refused = {
        "version": version,
        "sample": wanted.sample,
        "rows": wanted.rows,
        "expand": wanted.expand or None,
    }
    for name, value in refused.items():
        if value is not None:
            msg = f"{path!r} is a table of CarbonData, which has no {name}; import it with qbeast import-carbondata"
            raise InvalidInputError(msg, argument=name)
    return found


@command(
    table_argument,
    click.argument("sample", metavar="FRACTION", callback=as_fraction),
    _expand_option,
    _rows_options,
    short_help="Draw a sample: always the same rows.",
)
@on_table("reading")
def sample(table: qbeast.Table, _progress: ProgressCallback | None, **options: Any) -> Answer:
    """Draw a sample: always the same rows, and a larger FRACTION contains them.

    FRACTION is 0.01 or 1%, or 0.1:0.2 for the rows between two fractions.
    """
    wanted = _requested(**options)
    rows = _rows(table, wanted)
    if wanted.output is not None:
        return _into_file(rows, wanted, wanted.output, _facts(table))
    return _on_screen(table, rows, wanted, _facts(table), rows_in_all=_count(rows, wanted))


@command(
    table_argument,
    click.argument("query"),
    sample_option,
    _limit("all of them"),
    _output_options,
    short_help="Query a table in SQL.",
)
@on_table("reading")
def sql(
    table: qbeast.Table,
    _progress: ProgressCallback | None,
    *,
    query: str,
    sample: Sample | None,
    **options: Any,
) -> Answer:
    """Query a table in SQL, as Polars understands it; the table is called self.

    QUERY is "SELECT carrier, avg(arr_delay) FROM self WHERE dep_time < 700 GROUP BY carrier": its filters, columns and
    limits decide what is read. It may name files of its own: take it only from people who may read them.
    """
    from qbeast_core.cli.tables import frame_table
    from qbeast_core.table.data.expressions import evaluating

    wanted = _requested(sample=sample, where=None, select=None, **options)
    rows, facts = table.sql(query, sample=sample), {"query": query}
    with evaluating(query, "query", _OUTCOME):
        if wanted.output is not None:
            return _into_file(rows, wanted, wanted.output, facts)
        found = (rows if wanted.limit is None else rows.head(wanted.limit)).collect()
    return Answer(parts=tuple(frame_table(found)), data={**facts, "rows": found.to_dicts()})


@command(
    table_argument,
    where_option,
    sample_option,
    select_option,
    version_option,
    absolute_paths_option,
    click.option("--files", "list_files", is_flag=True, help="List the files as well."),
    short_help="Show what a read would open, and why.",
)
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
    """Show what a read would open, to the byte, and why the rest stays closed."""
    from qbeast_core.cli.tables import size_text
    from qbeast_core.cli.tables import table as drawn

    plan = table.explain(where, columns=select, sample=sample)
    files = plan.files
    names = ("rows_opened", "rows_total", "bytes_opened", "bytes_total", "share", "design_effect")
    facts = {
        "where": where,
        "sample": sample,
        **facts_of(plan, "columns", "unused_conditions", *names, "design_effect_scope"),
        "files_opened": int(files["opened"].sum()),
        "files_total": files.height,
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
        parts += ["", drawn(("file", "opened", "pages", "bytes"), listed, right=(2, 3))]
    return Answer(parts=tuple(parts), data=facts)


def _rows(table: qbeast.Table | qbeast.CarbonTable, wanted: _Request) -> pl.LazyFrame:
    """Return the rows that are wanted, all of them, not read yet."""
    import qbeast
    from qbeast_core.table.data.expressions import filter_of
    from qbeast_core.table.read.reader import different_names
    from qbeast_core.table.read.scan import SAMPLING_WEIGHT

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
    from qbeast_core.cli.tables import frame_table, remark
    from qbeast_core.table.data.expressions import evaluating

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
    return Answer(parts=(repr(table), "", *frame_table(found), *map(remark, remarks)), data=data)


def _count(rows: pl.LazyFrame, wanted: _Request) -> int:
    import polars as pl

    from qbeast_core.table.data.expressions import evaluating

    with evaluating(wanted.where, outcome=_OUTCOME):
        return int(rows.select(pl.len()).collect().item())


def _into_file(rows: pl.LazyFrame, wanted: _Request, name: str, facts: Mapping[str, Any]) -> Answer:
    from qbeast_core.cli.files import OutputFile
    from qbeast_core.cli.tables import size_text
    from qbeast_core.table.data.expressions import evaluating

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
    rows = table.explain(sample=0.0).rows_total
    facts = {"table": table.uri, "version": table.version}
    return {**facts, "indexed_columns": list(table.indexed_columns), "rows_total": rows}

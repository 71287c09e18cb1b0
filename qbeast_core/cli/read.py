"""Commands that read rows: `show`, `sample`, `sql`, `estimate`, `explain`, `export`, `split`, `changes`, `diff`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.commands import (
    Answer,
    Part,
    Settings,
    absolute_paths_option,
    as_fraction,
    as_mapping,
    as_numbers,
    as_version,
    choice_option,
    command,
    facts_of,
    flag,
    in_shell,
    memory_option,
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
    from qbeast_core.cli.output import FileFormat, OutputFile
    from qbeast_core.plan.weights import Sample


_SHOWN: Final = 10
# Lines of a plan that name calls.
_CURES: Final = ("unused", "hint")
_FORMATS: Final = ("parquet", "csv", "jsonl", "arrow")  # as in output.py, which loads Polars


def _limit(by_default: str) -> Callable[[Any], Any]:
    return option(
        "-n --limit", f"Maximum number of rows; by default {by_default}.", "ROWS", type=click.IntRange(min=0)
    )


_file_options = together(
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

_output_options = together(version_option, absolute_paths_option, _file_options)

_rows_options = together(
    where_option, select_option, _limit("10, and all of them with --output or --format"), _output_options
)


def _as_shares(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Any] | None:
    """Collect ``name=share`` texts; a share is ``0.8`` or ``80%``, and the library refuses others."""
    values = as_mapping(ctx, parameter, texts) or {}
    return {name: as_fraction(ctx, parameter, text) for name, text in values.items()}


_expand_option: Final = flag(
    "--expand", "Add a column sampling_weight: the number of rows that a sampled row represents."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShowRequest:
    """Which rows and columns, and where to: the options of the command."""

    sample: Sample | None = None
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


def _as_query(ctx: click.Context, _parameter: click.Parameter, query: str) -> str:
    """Return a query, or raise if it was exchanged with the table."""
    table = str(ctx.params.get("table", ""))
    if table.upper().startswith("SELECT "):
        msg = f"the TABLE comes before the QUERY: write `{ctx.command_path} {quote(query)} {quote(table)}`"
        raise click.UsageError(msg, ctx)
    return query


@on_table(
    "reading",
    click.argument("query", callback=_as_query),
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
    from qbeast_core.cli.output import frame_table
    from qbeast_core.support.frames import shown_times
    from qbeast_core.table.data.expressions import evaluating

    wanted = _requested(**options)
    rows, facts = table.rows(sample=wanted.sample, sample_by=wanted.sample_by).sql(query), {"query": query}
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
    from qbeast_core.cli.output import size_text
    from qbeast_core.cli.output import table as drawn

    plan = table.rows(where, columns=select, sample=sample, sample_by=sample_by).explain()
    files = plan.files
    rows = ("rows_opened", "rows_total", "rows_in_files")
    names = (*rows, "bytes_opened", "bytes_total", "bytes_in_files", "share", "design_effect")
    facts = {
        "where": where,
        "sample": sample,
        **facts_of(plan, "columns", "unused_conditions", *names, "design_effect_scope"),
        "hint": None if plan.hint is None else in_shell(plan.hint),
        "files_opened": int(files["opened"].sum()),
        "files_total": files.height,
        "files": files.to_dicts(),
    }
    lines = repr(plan).split("\n")
    parts: list[Part] = [in_shell(line) if line.split()[0] in _CURES else line for line in lines]
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


@on_table(
    "reading",
    click.argument("shares", metavar="NAME=SHARE...", nargs=-1, required=True, callback=_as_shares),
    where_option,
    select_option,
    sample_by_option,
    option("--seed", "Another division of the rows.", type=int, default=0, show_default=True),
    version_option,
    absolute_paths_option,
    option(
        "-o --output folder",
        "Folder for the files; it is created if it does not exist.",
        "FOLDER",
        type=click.Path(),
        default=".",
    ),
    choice_option("--format file_format", "Format of the files, and the ending of their names.", _FORMATS),
    flag("--overwrite", "Replace files that exist."),
)
def split(
    table: qbeast.Table,
    *,
    shares: dict[str, float],
    where: str | None,
    select: Sequence[str] | None,
    sample_by: Sequence[str] | None,
    seed: int,
    folder: str,
    file_format: FileFormat,
    overwrite: bool,
) -> Answer:
    """Write disjoint random parts of the rows to files, such as train=0.8 test=0.2.

    A part has the same rows each time, also after appends. Rows with equal sampling keys are in one part. Each file is
    complete, or not there at all.
    """
    from qbeast_core.cli.output import size_text
    from qbeast_core.table.data.expressions import evaluating

    parts = table.rows(where, columns=select, sample_by=sample_by).split(shares, seed=seed)
    files = {name: _file_in(folder, name, file_format, overwrite=overwrite) for name in parts}
    written, lines = list[dict[str, Any]](), list[str]()
    for name, rows in parts.items():
        file: OutputFile = files[name]
        with evaluating(where):
            size = file.write(rows)
        written.append({"name": name, "output": file.name, "rows": file.count(), "bytes": size})
        lines.append(f"{file.name}: {written[-1]['rows']:,} rows, {size_text(size or 0)}")
    return Answer(parts=tuple(lines), data={"seed": seed, "parts": written})


def _file_in(folder: str, name: str, file_format: FileFormat, *, overwrite: bool) -> OutputFile:
    """Return the file of a part; its name is not a path, and its folder is made."""
    from qbeast_core.cli.output import OutputFile
    from qbeast_core.errors import InvalidInputError

    if Path(name).name != name:
        msg = f"{name!r} is the name of a part and of its file: it must not contain a folder. Give it to --output."
        raise InvalidInputError(msg, argument="shares")
    Path(folder).mkdir(parents=True, exist_ok=True)
    return OutputFile(
        str(Path(folder, f"{name}.{file_format}")), file_format=file_format, overwrite=overwrite
    )


@on_table(
    "reading",
    option(
        "--since",
        "Version after which the changes begin, or a time; by default the version before the last one.",
        "VERSION",
        callback=as_version,
    ),
    option(
        "--until --version version",
        "Last version of the changes, or a time; by default the newest version.",
        "VERSION",
        callback=as_version,
    ),
    where_option,
    select_option,
    _limit("10, and all of them with --output or --format"),
    absolute_paths_option,
    _file_options,
)
def changes(table: qbeast.Table, *, since: int | str | None, **options: Any) -> Answer:
    """Show the rows that commits inserted, deleted and updated.

    Rows have the columns of the table and _change_type (insert, delete, update_preimage, update_postimage),
    _commit_version and _commit_timestamp. Without a change data feed, they are computed from the files of the commits.
    """
    first = table.version - 1 if since is None else since
    return _rows_of_query(table, table.changes(first), _requested(**options), {"since": first})


@on_table(
    "reading",
    click.argument("other", metavar="VERSION", callback=as_version),
    names_option("--key", "Columns that identify a row, separated by commas.", required=True),
    where_option,
    select_option,
    _limit("10, and all of them with --output or --format"),
    _output_options,
)
def diff(table: qbeast.Table, *, other: int | str, key: Sequence[str], **options: Any) -> Answer:
    """Show the net changes from another VERSION to the newest one, by a key.

    VERSION is a number or a time. A row that changed several times is one update. Rows have the columns of the table
    and _change_type (insert, delete, update_preimage, update_postimage).
    """
    facts = {"other": other, "key": list(key)}
    return _rows_of_query(table, table.diff(other, key=key), _requested(**options), facts)


def _rows_of_query(
    table: qbeast.Table, rows: pl.LazyFrame, wanted: _ShowRequest, facts: Mapping[str, Any]
) -> Answer:
    """Return the rows of a query that match, and their columns, on the screen or in a file."""
    from qbeast_core.table.data.expressions import filter_of
    from qbeast_core.table.read.planner import different_names

    schema = rows.collect_schema()
    condition = filter_of(wanted.where, schema)
    rows = rows if condition is None else rows.filter(condition)
    rows = rows if wanted.select is None else rows.select(different_names(wanted.select, list(schema)))
    if wanted.output is not None:
        return _into_file(rows, wanted, wanted.output, facts)
    return _on_screen(table, rows, wanted, facts)


def _rows(table: qbeast.Table | qbeast.CarbonTable, wanted: _ShowRequest) -> pl.LazyFrame:
    """Return the rows that are wanted, all of them, not read yet."""
    import qbeast
    from qbeast_core.table.read.planner import different_names

    where, columns = wanted.where, wanted.select
    if isinstance(table, qbeast.Table):
        read = table.rows(
            where,
            columns=columns,
            sample=wanted.sample,
            sample_by=wanted.sample_by,
            rows=wanted.rows,
            expand=wanted.expand,
        )
        return read.lazy()
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
    from qbeast_core.cli.output import frame_table, remark
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
    from qbeast_core.cli.output import OutputFile, size_text
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
    from qbeast_core.cli.output import table as drawn
    from qbeast_core.cli.output import type_text

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
    rows = table.rows().explain().rows_total
    facts = {"table": table.uri, "version": table.version}
    key = {"sample_by": list(table.sample_by)} if table.sample_by else {}
    return {**facts, "indexed_columns": list(table.indexed_columns), **key, "rows_total": rows}


def _as_joins(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[str, list[str], str]] | dict[str, str] | None:
    """Return joins from texts such as ``plans:user`` and ``s3://shop/returns:user,day:anti``, or ``plans=path``."""
    if any(map(_NAMED.fullmatch, texts)):
        return as_mapping(ctx, parameter, texts)
    joins: list[tuple[str, list[str], str]] = []
    for text in texts:
        match = _JOIN.fullmatch(text)
        if match is None:
            msg = f"{text!r} is not TABLE:COLUMNS or TABLE:COLUMNS:HOW"
            raise click.BadParameter(msg, param=parameter)
        joins.append((match["table"], match["columns"].split(","), match["how"] or "left"))
    return joins or None


# A path may have colons, and the names of columns here have none.
_JOIN: Final = re.compile(r"(?P<table>.+?):(?P<columns>[^:/]+?)(:(?P<how>left|inner|semi|anti))?")

# A name and an aggregate: no aggregate begins with a name and a sign of equality.
_NAMED: Final = re.compile(r"\s*([^\W\d]\w*)\s*=(.*)", re.DOTALL)


@on_table(
    "estimating",
    click.argument("aggregates", metavar="AGGREGATE...", nargs=-1, required=True),
    option(
        "--per",
        'Value of a key, an SQL aggregate with a name: "spend=sum(price)"; AGGREGATE then uses these values. May be '
        "repeated.",
        "SQL",
        multiple=True,
    ),
    option(
        "--by",
        "Columns or expressions to group by, separated by commas: \"date_trunc('month', ts), carrier\".",
        "SQL",
        multiple=True,
    ),
    where_option,
    option(
        "--join",
        "A table with the same sampling key, the columns of the key, and optionally inner, semi or anti: "
        "returns:user:anti. For a query with JOIN, the table of a name in it: users=data/users. May be repeated.",
        "TABLE:COLUMNS[:HOW]",
        multiple=True,
        callback=_as_joins,
    ),
    option("--error", "Maximum error of an answer, as a fraction of it: 0.02 or 2%.", "FRACTION"),
    option(
        "--absolute",
        "Maximum error of one answer, in its unit; may be repeated.",
        "NAME=NUMBER",
        multiple=True,
        callback=as_numbers,
    ),
    option(
        "--confidence",
        "Probability that the error of an answer is not larger.",
        "FRACTION",
        default="95%",
        show_default=True,
    ),
    sample_option,
    sample_by_option,
    flag("--simultaneous", "Apply the confidence to all answers at once, not to each one."),
    option(
        "--max-fraction",
        "Read at most this fraction of the keys, even if the error is not reached.",
        "FRACTION",
        default="100%",
    ),
    option("--max-bytes", "Read at most this number of bytes of data files.", "BYTES", type=int),
    option(
        "--min-group-rows",
        "Groups that are estimated to have fewer rows need not reach the error.",
        "ROWS",
        type=int,
        default=0,
    ),
    memory_option,
    version_option,
    absolute_paths_option,
)
def estimate(
    table: qbeast.Table, *, aggregates: Sequence[str], per: Sequence[str], by: Sequence[str], **options: Any
) -> Answer:
    """Estimate aggregates with a maximum error.

    Reads the smallest sample that is sufficient. AGGREGATE is SQL such as "avg(dep_delay)" or "count(*) FILTER (WHERE
    distance > 1500)", optionally with a name: "delay=avg(dep_delay)". A single AGGREGATE can be a query: "SELECT
    carrier, avg(dep_delay) GROUP BY carrier ORDER BY 2 LIMIT 3", also with values per key: "SELECT median(spend) FROM
    (SELECT user, sum(price) AS spend FROM self GROUP BY user)".
    """
    from qbeast_core.cli.output import frame_table, remark
    from qbeast_core.support.frames import shown_times
    from qbeast_core.table.estimate.result import readable

    values = _named(per) if per else None
    read = {name: options.pop(name) for name in ("sample", "sample_by", "where") if name in options}
    answer = table.rows(**read).estimate(_named(aggregates), per=values, by=list(by) or None, **options)
    names = ("met", "complete", "confidence", "fraction", "rows_read", "bytes_opened", "bytes_total")
    facts = {
        **facts_of(answer, *names, "design_effect", "notes", "certain_order"),
        "rows": shown_times(answer.frame).to_dicts(),
    }
    shown = frame_table(readable(answer.frame, answer.names, answer.exact), schema=answer.frame.schema)
    parts = (*shown, *map(remark, (answer.summary, *filter(None, [answer.groups]), *answer.remarks)))
    return Answer(parts=parts, data=facts)


def _named(texts: Sequence[str]) -> list[str] | dict[str, str] | str:
    """Return aggregates by name where one is given before a sign of equality; else as they are, a query by itself."""
    from qbeast_core.errors import InvalidInputError

    matches = [_NAMED.fullmatch(text) for text in texts]
    if len(texts) == 1 and matches[0] is None:
        return texts[0]
    aggregates: dict[str, str] = {}
    for text, match in zip(texts, matches, strict=True):
        name, aggregate = (match[1], match[2]) if match else (text, text)
        if name in aggregates:
            msg = f"two aggregates are called {name!r}"
            raise InvalidInputError(msg, argument="aggregates")
        aggregates[name] = aggregate
    return aggregates if any(matches) else list(texts)

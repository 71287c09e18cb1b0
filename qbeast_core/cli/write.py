"""Commands that write rows: `suggest`, `write`, `append`, `copy`, `import-carbondata`, `merge`, `update`, `delete`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from qbeast_core.cli.commands import (
    Answer,
    absolute_paths_option,
    answer_of,
    choice_option,
    columns_of,
    columns_option,
    columns_or_none_options,
    command,
    dialect_option,
    facts_of,
    flag,
    importance_option,
    memory_option,
    names_option,
    on_table,
    option,
    pairs_option,
    resources_of,
    sample_by_option,
    sample_option,
    sampling_key_option,
    select_option,
    spill_dir_option,
    table_argument,
    together,
    version_option,
    where_option,
    with_hint,
    working,
    writing_options,
)
from qbeast_core.errors import changing

if TYPE_CHECKING:
    import polars as pl

    import qbeast
    from qbeast_core.plan.weights import Sample
    from qbeast_core.support.process import ProgressCallback
    from qbeast_core.table.dml.plan import ChangeResult
    from qbeast_core.table.write.options import Mode


_FORMATS: Final = ("parquet", "csv", "jsonl", "arrow", "delta")


def _transaction(_ctx: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    application, _, version = text.rpartition(":")
    if not application or not version.isdecimal():
        msg = f"{text!r} is not APPLICATION:VERSION"
        raise click.BadParameter(msg, param=parameter)
    return application, int(version)


def _listed(_ctx: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    return list(names) or None


_sources: Final = click.argument(
    "sources", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="SOURCE..."
)


def _as_target(ctx: click.Context, _parameter: click.Parameter, table: str) -> str:
    """Return the place of a table, or raise if it was exchanged with the file of rows."""
    source = next(iter(ctx.params.get("sources", ())), "")
    if Path(table).is_file() and (Path(source) / "_delta_log").is_dir():
        msg = f"the SOURCE comes before the TABLE: write `{ctx.command_path} {quote(table)} {quote(source)}`"
        raise click.UsageError(msg, ctx)
    return table


sources_and_table = together(_sources, click.argument("table", type=click.Path(), callback=_as_target))

_columns = columns_or_none_options(
    "Columns to index, separated by commas: name or name:kind, with kind linear, quantiles or hash. Required for a "
    "new table; an overwrite without it keeps the columns of the table."
)

reading_options = together(
    choice_option(
        "--format file_format",
        "Format of the sources, if their names have no known ending.",
        _FORMATS,
        optional=True,
    ),
    pairs_option(
        "--type types",
        "Delta type of a column of CSV or JSON: zip=string, paid=decimal(9,2) ...",
        "NAME=TYPE",
    ),
    option("--separator", "Separator of the fields of CSV; by default a comma, in .tsv a tab.", "CHARACTER"),
    option(
        "--date-format",
        "Format of dates and times of CSV and JSON that are not in ISO 8601, such as %d/%m/%Y, with --type day=date.",
        "FORMAT",
    ),
    option(
        "--null-value null_values",
        "Text for null in CSV, in addition to an empty field.",
        "TEXT",
        multiple=True,
    ),
)

txn_option: Final = option(
    "--txn",
    "Do nothing if this version of the application, or a later one, was applied before.",
    "APPLICATION:VERSION",
    callback=_transaction,
)

_writing = together(
    option(
        "--cube-size", "Target number of rows per cube; by default chosen from the data.", "ROWS", type=int
    ),
    choice_option(
        "--compression",
        "Compression of the files of a new table; by default zstd, the smallest.",
        ("zstd", "snappy", "none"),
        optional=True,
    ),
    importance_option,
    option("--register", "Name that the table gets in Unity Catalog.", "uc://CATALOG.SCHEMA.TABLE"),
    option("--column-stats", "Ranges or quantiles of columns, see docs/cli.md.", "JSON"),
    txn_option,
    writing_options,
)


@command(
    _sources,
    option("--where queries", "A filter of later queries; may be repeated.", "SQL", multiple=True),
    option("--most", "Maximum number of columns.", type=click.IntRange(1, 8), default=4, show_default=True),
    option(
        "--table-rows",
        "Number of rows of the table, if SOURCEs are a sample.  [default: rows of SOURCEs]",
        type=click.IntRange(min=1),
    ),
    reading_options,
    memory_option,
    spill_dir_option,
)
def suggest(
    sources: Sequence[str], *, queries: Sequence[str], most: int, table_rows: int | None, **options: Any
) -> Answer:
    """Propose columns to index and their importance, with reasons. Nothing is written.

    SOURCEs are as for `qbeast write`; their rows are held in memory. Each --where is a filter of later queries. Repeat
    one to give it more weight.
    """
    import qbeast
    from qbeast_core.cli.output import remark
    from qbeast_core.cli.output import table as drawn

    options["resources"] = resources_of(options)
    with working("reading"), rows_of_sources(sources, options) as rows:
        suggestion = qbeast.suggest_columns(rows, list(queries) or None, most=most, table_rows=table_rows)
    facts = {
        **facts_of(suggestion, "columns", "importance", "design_effect", "opened"),
        "reasons": suggestion.frame.to_dicts(),
    }
    reasons = drawn(("column", "why"), suggestion.frame.select("column", "reason").rows())
    effect = remark(f"design effect of samples {suggestion.design_effect:.2f}")
    importance = [f"--importance {name}={number:g}" for name, number in suggestion.importance.items()]
    proposed = " ".join([f"--columns {','.join(suggestion.columns)}", *importance])
    return Answer(parts=(proposed, reasons, effect), data=facts)


@command(
    sources_and_table,
    _columns,
    choice_option("--mode", "What to do if the table exists.", ("error", "overwrite", "ignore")),
    choice_option(
        "--schema-mode",
        "How --mode overwrite handles different columns.",
        ("merge", "overwrite"),
        optional=True,
    ),
    dialect_option("Dialect of the index of a new table: qbeast-spark is for readers on the JVM."),
    option(
        "--sample-column",
        "Name of a new column by which any engine reads samples: WHERE sample < 0.01.",
        "NAME",
    ),
    option(
        "--partition-by",
        "Column to partition a new table by, for queries that nearly always select one value; may be repeated.",
        "NAME",
        multiple=True,
        callback=_listed,
    ),
    sampling_key_option,
    flag(
        "--deletion-vectors",
        "Later deletes, updates and merges of a new table hide rows instead of rewriting files; see docs/readers.md.",
        default=None,
    ),
    flag("--change-feed", "A new table records the rows that later changes change.", default=None),
    option(
        "--where", "With --mode overwrite, replace only the rows that match; SOURCEs must match too.", "SQL"
    ),
    reading_options,
    _writing,
)
@changing
def write(sources: Sequence[str], table: str, **options: Any) -> Answer:
    """Write SOURCEs to a new table, or over the rows of one, in one commit.

    A SOURCE is a file, a folder or a pattern of Parquet, CSV, JSON lines or Arrow, a Delta table, or - for the standard
    input (with --format).
    """
    return _write(sources, table, **options)


@command(
    sources_and_table,
    _columns,
    choice_option(
        "--schema-mode", "merge: rows may lack columns (null) or have new columns.", ("merge",), optional=True
    ),
    reading_options,
    _writing,
)
@changing
def append(sources: Sequence[str], table: str, **options: Any) -> Answer:
    """Append SOURCEs to a table, in one commit.

    Columns of CSV and JSON are read with the types of the table. SOURCEs are as for `qbeast write`. If the table does
    not exist, it is created; this requires --columns.
    """
    return _write(sources, table, mode="append", **options)


@command(
    table_argument,
    click.argument("new", type=click.Path()),
    where_option,
    select_option,
    sample_option,
    sample_by_option,
    version_option,
    absolute_paths_option,
    writing_options,
)
@changing
def copy(
    table: str,
    new: str,
    *,
    where: str | None,
    select: Sequence[str] | None,
    sample: Sample | None,
    sample_by: Sequence[str] | None,
    **options: Any,
) -> Answer:
    """Write the rows of a TABLE, or some of them, to a NEW one with the same index.

    The new table has the columns to index, their importance, the sampling key, the partitions, deletion vectors and the
    change data feed of TABLE. It has neither its history nor its constraints and other properties.
    """
    import qbeast

    opening = {name: options.pop(name) for name in ("version", "allow_absolute_paths")}
    opening["storage_options"], resources = options["storage_options"], resources_of(options)
    if qbeast.table_exists(new, storage_options=options["storage_options"]):
        msg = f"a table is at {new!r} already: choose another name."
        raise qbeast.TableExistsError(msg, argument="new", path=new)
    with working("copying") as progress:
        old = qbeast.open_table(table, **opening, resources=resources)
        rows = old.rows(where, columns=select, sample=sample, sample_by=sample_by).lazy()
        kept = set(old.columns if select is None else select)
        key = old.sample_by if kept.issuperset(old.sample_by) else ()
        result = qbeast.write_table(
            rows,
            new,
            [name for name in old.indexed_columns if name in kept],
            sample_by=key or None,
            importance={name: number for name, number in old.importance.items() if name in kept},
            partition_by=[name for name in old.snapshot.metadata.partition_columns if name in kept] or None,
            deletion_vectors=old.properties.get("delta.enableDeletionVectors") == "true",
            change_feed=old.properties.get("delta.enableChangeDataFeed") == "true",
            resources=resources,
            progress=progress,
            **options,
        )
    return answer_of(result, table=new)


def _write(sources: Sequence[str], table: str, *, mode: Mode, **options: Any) -> Answer:
    import qbeast

    options["columns"] = columns_of(options["columns"], no_index=options.pop("no_index"))
    keeps = mode == "append" or options.get("where") is not None
    named = options["register"] or table  # its credentials may be those that a catalog lends
    expected = _types_of(named, options["columns"], options["storage_options"]) if keeps else {}
    options["resources"] = resources_of(options)
    with (
        working("writing") as progress,
        rows_of_sources(sources, options, expected=expected, progress=progress) as rows,
    ):
        result = qbeast.write_table(rows, table, **options, mode=mode, progress=progress)
    return answer_of(result, table=table)


def _types_of(
    table: str, columns: Sequence[str] | None, storage_options: Mapping[str, str] | None
) -> Mapping[str, pl.DataType]:
    """Return the types of columns for text that joins a table; none where the table is still to be made."""
    import qbeast

    try:
        return dict(qbeast.open_table(table, storage_options=storage_options).schema)
    except qbeast.TableNotFoundError:
        if columns is None:
            raise
        return {}


@contextmanager
def rows_of_sources(
    sources: Sequence[str],
    options: dict[str, Any],
    *,
    expected: Mapping[str, pl.DataType] | None = None,
    progress: ProgressCallback | None = None,
) -> Generator[pl.LazyFrame]:
    """Yield the rows of all sources, read by options that this removes; reports what Polars cannot read."""
    import polars as pl

    from qbeast_core.cli.sources import SourceOptions, Workspace, read_sources, types_by_name
    from qbeast_core.errors import InvalidInputError
    from qbeast_core.support.text import first_line

    reading = SourceOptions(
        types=types_by_name(options.pop("types") or {}),
        expected=expected or {},
        storage_options=options["storage_options"],
        progress=progress,
        **{name: options.pop(name) for name in ("date_format", "file_format", "null_values", "separator")},
    )
    try:
        with Workspace(options["resources"]) as workspace:
            yield read_sources(sources, reading, workspace)
    except (pl.exceptions.PolarsError, InvalidInputError) as error:
        cause = error.__cause__ if isinstance(error, InvalidInputError) else error
        if not isinstance(cause, pl.exceptions.PolarsError) or getattr(error, "argument", "df") != "df":
            raise
        msg = (
            f"the sources cannot be read as rows: {first_line(str(cause))}. Check --format, "
            "--separator, --null-value and --type."
        )
        raise InvalidInputError(msg, argument="sources") from error


@command(
    click.argument("source", type=click.Path()),
    table_argument,
    columns_option("Columns to index; by default the sort columns of SOURCE, or its first three dimensions."),
    choice_option(
        "--segments", "All current rows in one commit, or one commit per load.", ("current", "history")
    ),
    choice_option("--mode", "What to do if the table exists.", ("error", "append", "overwrite", "ignore")),
    option("--cube-size", "Target number of rows per cube.", "ROWS", type=int),
    choice_option(
        "--on-unreadable", "What to do with a segment that cannot be read.", ("error", "skip-segment")
    ),
    pairs_option(
        "--external-path external_paths",
        "New location of the folder OLD of an added segment; may be repeated.",
        "OLD=NEW",
    ),
    absolute_paths_option,
    pairs_option(
        "--writer-setting writer_settings",
        "carbon.timegranularity or carbon.cutOffTimestamp in the carbon.properties of SOURCE's writer.",
        "NAME=VALUE",
    ),
    dialect_option("Dialect of the index of the new table."),
    writing_options,
)
def import_carbondata(source: str, table: str, columns: Sequence[str] | None, **options: Any) -> Answer:
    """Write the rows of a CarbonData table to a new table.

    No JVM is needed. SOURCE is the folder of a CarbonData table, or of *.carbondata files; it is not changed.
    """
    import qbeast

    resources = resources_of(options)
    with working("importing") as progress:
        result = qbeast.import_carbondata(
            source, table, columns, progress=progress, resources=resources, **options
        )
    answer = answer_of(result, source=source, table=table)
    left_out = tuple(f"left out: {segment['reason']}" for segment in result.left_out)
    return replace(answer, parts=answer.parts + left_out)


_which_rows: Final = together(where_option, flag("--all all_rows", "All rows."))
_changing: Final = together(txn_option, writing_options)


@on_table("deleting", _which_rows, _changing, progress=True)
@changing
def delete(table: qbeast.Table, *, where: str | None, all_rows: bool, **options: Any) -> Answer:
    """Delete rows, in one commit. The index is kept."""
    return _answer(table.delete(_rows(where, all_rows=all_rows), **options))


@on_table(
    "updating",
    _which_rows,
    pairs_option(
        "--set assignments",
        "A column and its value in SQL: price=price*0.9, brand='other'; may be repeated.",
        "NAME=SQL",
    ),
    _changing,
    progress=True,
)
@changing
def update(
    table: qbeast.Table,
    *,
    where: str | None,
    all_rows: bool,
    assignments: Mapping[str, str] | None,
    **options: Any,
) -> Answer:
    """Set columns of some rows to new values, in one commit. The index is kept."""
    from qbeast_core.errors import InvalidInputError

    rows = _rows(where, all_rows=all_rows)
    if not assignments:
        msg = "give the values to set: --set NAME=SQL"
        raise InvalidInputError(msg, argument="assignments")
    return _answer(table.update(rows, assignments, **options))


@on_table(
    "merging",
    names_option("--on", "Columns to match rows by.", required=True),
    choice_option(
        "--when-matched", "What to do with rows of the table with a match.", ("update", "delete", "ignore")
    ),
    option("--matched-if", "Only rows that fulfil this condition.", "SQL"),
    option("--delete-if", "Delete matched rows that fulfil this condition.", "SQL"),
    pairs_option(
        "--set update",
        "New value of a column of a matched row; by default all columns are copied from the SOURCE.",
        "NAME=SQL",
    ),
    pairs_option(
        "--insert insert",
        "Value of a column of a new row; by default all columns are copied from the SOURCE.",
        "NAME=SQL",
    ),
    choice_option(
        "--when-not-matched", "What to do with rows of the SOURCE without a match.", ("insert", "ignore")
    ),
    option("--not-matched-if", "Only rows that fulfil this condition.", "SQL"),
    choice_option(
        "--duplicates", "What to do if rows of the SOURCE to insert have equal keys.", ("error", "insert")
    ),
    choice_option(
        "--when-not-matched-by-source",
        "What to do with rows of the table without a match.",
        ("ignore", "delete"),
    ),
    option("--not-matched-by-source-if", "Only rows that fulfil this condition.", "SQL"),
    choice_option(
        "--schema-mode",
        "merge: the SOURCE may lack columns (null in new rows) or have new columns.",
        ("merge",),
        optional=True,
    ),
    reading_options,
    _changing,
    arguments=sources_and_table,
    progress=True,
)
@changing
def merge(table: qbeast.Table, *, sources: Sequence[str], **options: Any) -> Answer:
    """Merge SOURCEs into a table, in one commit.

    By default matched rows are updated, and other rows are inserted. Columns of CSV and JSON are read with the types of
    the table. In conditions and values, plain names are columns of the table, and source.price is a column of the
    SOURCE.
    """
    given = dict(click.get_current_context().params)  # of the sources too
    options |= {"storage_options": given["storage_options"], "resources": resources_of(given)}
    with rows_of_sources(sources, options, expected=table.schema) as rows:
        del options["storage_options"], options["resources"]
        return _answer(table.merge(rows, **options))


def _rows(where: str | None, *, all_rows: bool) -> str | Literal[True]:
    from qbeast_core.errors import InvalidInputError

    if (where is None) is not all_rows:
        msg = "choose rows: --where SQL, or --all"
        raise InvalidInputError(msg, argument="where")
    return True if where is None else where


def _answer(result: ChangeResult) -> Answer:
    result = with_hint(result)
    return Answer(parts=tuple(repr(result).removeprefix("ChangeResult: ").split("\n")), data=result.to_dict())

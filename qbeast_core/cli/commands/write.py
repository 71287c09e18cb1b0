"""`qbeast suggest`, `write` and `append`."""

from __future__ import annotations

from typing import Final

import click

from qbeast_core.cli.commands.parameters import (
    as_mapping,
    columns_option,
    command,
    commit_metadata_option,
    dialect_option,
    dry_run_option,
    memory_option,
    spill_dir_option,
    table_argument,
    together,
)

_FORMATS: Final = ("parquet", "csv", "jsonl", "delta")


def _transaction(_ctx: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    application, _, version = text.rpartition(":")
    if not application or not version.isdecimal():
        msg = f"{text!r} is no APPLICATION:VERSION"
        raise click.BadParameter(msg, param=parameter)
    return application, int(version)


_sources: Final = click.argument(
    "sources", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="SOURCE..."
)
sources_and_table = together(_sources, table_argument)

_columns = columns_option(
    "Columns to index: name or name:kind with kind linear, quantiles or hash, with commas between. Needed for a "
    "new table; an overwrite keeps those of the table without."
)

reading_options = together(
    click.option(
        *("--format", "file_format"),
        type=click.Choice(_FORMATS),
        help="Of the sources, if their names do not tell.",
    ),
    click.option(
        *("--type", "types"),
        metavar="NAME=TYPE",
        multiple=True,
        callback=as_mapping,
        help="Type of a column of CSV or JSON, by Delta's names: zip=string, paid=decimal(9,2) ...",
    ),
    click.option("--separator", default=",", show_default=True, help="Between the fields of CSV."),
    click.option(
        *("--null-value", "null_values"),
        metavar="TEXT",
        multiple=True,
        help="Text that means null in CSV, besides an empty field.",
    ),
)

txn_option: Final = click.option(
    "--txn",
    metavar="APPLICATION:VERSION",
    callback=_transaction,
    help="Write nothing if the table holds this version of the application, or a later one.",
)

_writing = together(
    click.option(
        "--cube-size",
        metavar="ROWS",
        type=int,
        help="Rows a cube aims to hold; by default chosen from the data.",
    ),
    click.option("--column-stats", metavar="JSON", help="What is known beyond these rows, see docs/cli.md."),
    txn_option,
    commit_metadata_option,
    memory_option,
    spill_dir_option,
    dry_run_option,
)


suggest = command(
    "write.suggest",
    """Propose columns to index, with reasons; nothing is written.

    SOURCEs are as for `qbeast write`; their rows are held in memory. A WHERE is a condition that will be asked, each as
    often as it is given.
    """,
    _sources,
    click.option(
        "--where",
        "queries",
        metavar="SQL",
        multiple=True,
        help="A filter that will be asked; may be repeated.",
    ),
    click.option("--most", type=click.IntRange(1, 8), default=4, show_default=True, help="Columns at most."),
    click.option(
        "--table-rows",
        type=click.IntRange(min=1),
        help="Rows that the table will have, where SOURCEs are a sample.  [default: those of SOURCEs]",
    ),
    reading_options,
    memory_option,
    spill_dir_option,
    short_help="Propose columns to index.",
)

write = command(
    "write.write",
    """Write SOURCEs to a new table, organised by the indexed columns, in one commit.

    A SOURCE is a file, a folder or a pattern of Parquet, CSV or JSON lines, a Delta table, or - for the standard
    input (with --format).
    """,
    sources_and_table,
    _columns,
    click.option(
        "--mode",
        type=click.Choice(("error", "overwrite", "ignore")),
        default="error",
        show_default=True,
        help="What to do where there is a table.",
    ),
    click.option(
        "--schema-mode",
        type=click.Choice(("merge", "overwrite")),
        help="How --mode overwrite treats other columns.",
    ),
    dialect_option("How a new table spells its index: qbeast-spark is for readers on the JVM."),
    reading_options,
    _writing,
    short_help="Write files to a new table, in one commit.",
)

append = command(
    "write.append",
    """Append SOURCEs to a table, indexed as it is, in one commit.

    Columns of CSV and JSON are read with the types that the table has. SOURCEs are as for `qbeast write`. Where
    there is no table one is made if --columns are given.
    """,
    sources_and_table,
    _columns,
    click.option(
        "--schema-mode",
        type=click.Choice(("merge",)),
        help="merge: rows may lack columns (null) or bring new ones.",
    ),
    reading_options,
    _writing,
    short_help="Append files to a table, in one commit.",
)

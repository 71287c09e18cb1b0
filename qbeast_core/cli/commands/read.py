"""`qbeast show`, `sample`, `sql` and `explain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from qbeast_core.cli.commands.parameters import (
    absolute_paths_option,
    as_fraction,
    command,
    sample_option,
    select_option,
    table_argument,
    together,
    version_option,
    where_option,
)

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
    click.option(
        *("--format", "file_format"),
        type=click.Choice(_FORMATS),
        help="Format of the output, if its name has no ending; without --output the rows are printed so.",
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

show = command(
    "read.show",
    "Show what a table is and some of its rows.",
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

sample = command(
    "read.sample",
    """Draw a sample: always the same rows, and a larger FRACTION contains them.

    FRACTION is 0.01 or 1%, or 0.1:0.2 for the rows between two fractions.
    """,
    table_argument,
    click.argument("sample", metavar="FRACTION", callback=as_fraction),
    _expand_option,
    _rows_options,
    short_help="Draw a sample: always the same rows.",
)

sql = command(
    "read.sql",
    """Ask a table in SQL, as Polars understands it; the table is called self.

    QUERY is "SELECT carrier, avg(arr_delay) FROM self WHERE dep_time < 700 GROUP BY carrier": its filters, columns and
    limits decide what is read. It may name files of its own: take it from nobody whom you would not let read them.
    """,
    table_argument,
    click.argument("query"),
    sample_option,
    _limit("all of them"),
    _output_options,
    short_help="Ask a table in SQL.",
)

explain = command(
    "read.explain",
    "Tell what a read would open, to the byte, and why the rest stays closed.",
    table_argument,
    where_option,
    sample_option,
    select_option,
    version_option,
    absolute_paths_option,
    click.option("--files", "list_files", is_flag=True, help="List the files as well."),
    short_help="Show what a read would open, and why.",
)

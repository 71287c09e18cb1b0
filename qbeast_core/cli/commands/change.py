"""`qbeast delete`, `update` and `merge`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from qbeast_core.cli.commands.parameters import (
    as_mapping,
    as_names,
    command,
    commit_metadata_option,
    dry_run_option,
    memory_option,
    spill_dir_option,
    table_argument,
    together,
    where_option,
)
from qbeast_core.cli.commands.write import reading_options, sources_and_table, txn_option

_which_rows: Final = together(where_option, click.option("--all", "all_rows", is_flag=True, help="All rows."))
_changing: Final = together(
    txn_option, commit_metadata_option, memory_option, spill_dir_option, dry_run_option
)


def _values(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, metavar="NAME=SQL", multiple=True, callback=as_mapping, help=text)


delete = command(
    "change.delete",
    "Delete rows, in one commit; the index is kept.",
    table_argument,
    _which_rows,
    _changing,
    short_help="Delete rows, in one commit.",
)

update = command(
    "change.update",
    "Give columns of some rows other values, in one commit; the index is kept.",
    table_argument,
    _which_rows,
    _values("--set", "A column and its value in SQL: price=price*0.9, brand='other'; may be repeated."),
    _changing,
    short_help="Change values of rows, in one commit.",
)

merge = command(
    "change.merge",
    """Merge SOURCEs into a table, in one commit: replace the rows that it has, insert the others.

    Columns of CSV and JSON are read with the types that the table has. In conditions and values plain names are columns
    of the table, and source.price is a column of the SOURCE.
    """,
    sources_and_table,
    click.option(
        "--on", metavar="NAMES", multiple=True, required=True, callback=as_names, help="Columns to match by."
    ),
    click.option(
        "--when-matched",
        type=click.Choice(("update", "delete", "ignore")),
        default="update",
        show_default=True,
        help="What becomes of rows of the table with a match.",
    ),
    click.option("--matched-if", metavar="SQL", help="Only of those for which this holds."),
    click.option("--delete-if", metavar="SQL", help="Of rows with a match, those to delete instead."),
    _values("--set", "What a column of a match is set to; by default all, to those of the SOURCE."),
    _values("--insert", "What a column of a new row is set to; by default all, to those of the SOURCE."),
    click.option(
        "--when-not-matched",
        type=click.Choice(("insert", "ignore")),
        default="insert",
        show_default=True,
        help="What becomes of rows of the SOURCE without a match.",
    ),
    click.option("--not-matched-if", metavar="SQL", help="Only of those for which this holds."),
    click.option(
        "--when-not-matched-by-source",
        type=click.Choice(("ignore", "delete")),
        default="ignore",
        show_default=True,
        help="What becomes of rows of the table without a match.",
    ),
    click.option("--not-matched-by-source-if", metavar="SQL", help="Only of those for which this holds."),
    click.option(
        "--schema-mode",
        type=click.Choice(("merge",)),
        help="merge: the SOURCE may lack columns (null in new rows) or bring new ones.",
    ),
    reading_options,
    _changing,
    short_help="Merge files into a table, in one commit.",
)

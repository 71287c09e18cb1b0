"""`qbeast delete`, `update` and `merge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.commands.write import reading_options, rows_of_sources, sources_and_table, txn_option
from qbeast_core.cli.options import (
    choice_option,
    flag,
    names_option,
    on_table,
    option,
    pairs_option,
    together,
    where_option,
    writing_options,
)
from qbeast_core.errors import changing

if TYPE_CHECKING:
    import qbeast
    from qbeast_core.table.dml.plan import ChangeResult

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
    options["storage_options"] = click.get_current_context().params["storage_options"]  # of the sources too
    with rows_of_sources(sources, options, expected=table.schema) as rows:
        del options["storage_options"]
        return _answer(table.merge(rows, **options))


def _rows(where: str | None, *, all_rows: bool) -> str | Literal[True]:
    from qbeast_core.errors import InvalidInputError

    if (where is None) is not all_rows:
        msg = "choose rows: --where SQL, or --all"
        raise InvalidInputError(msg, argument="where")
    return True if where is None else where


def _answer(result: ChangeResult) -> Answer:
    return Answer(parts=(repr(result).removeprefix("ChangeResult: "),), data=result.to_dict())

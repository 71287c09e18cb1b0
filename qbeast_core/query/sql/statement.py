"""Reject statements that change a table, and name the call to use instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from qbeast_core.errors import InvalidInputError, invalid_argument

_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_CALLS: Final[Mapping[str, str]] = {
    "ALTER": "Table.add_columns()",
    "CREATE": "qbeast.write_table()",
    "DELETE": "Table.delete()",
    "DROP": "Table.delete()",
    "INSERT": "qbeast.write_table()",
    "MERGE": "Table.merge()",
    "TRUNCATE": "Table.delete()",
    "UPDATE": "Table.update()",
}


def refuse_statement(query: object) -> None:
    """Reject statements that change a table: Polars runs some of them as queries, without a change to the table.

    >>> refuse_statement("DELETE FROM self WHERE price < 1")
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `query` can only read, and DELETE is a change...
    """
    if not isinstance(query, str):
        invalid_argument("query", 'must be the text of a query, "SELECT ... FROM self"', value=query)
    first = (_FIRST_WORD.match(query) or [""] * 2)[1].upper()
    if first in _CALLS:
        what = f"`query` can only read, and {first} is a change. Use {_CALLS[first]}."
        raise InvalidInputError(what, argument="query")

"""Statements that are no questions: refused with the call that does what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from qbeast_core.errors import InvalidInputError, refuse
from qbeast_core.hints import Hint, Message, call, named

_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_CALLS: Final[Mapping[str, Hint]] = {
    "ALTER": call("Table.add_columns"),
    "CREATE": call("write_table"),
    "DELETE": call("Table.delete"),
    "DROP": call("Table.delete"),
    "INSERT": call("write_table"),
    "MERGE": call("Table.merge"),
    "TRUNCATE": call("Table.delete"),
    "UPDATE": call("Table.update"),
}


def refuse_statement(query: object) -> None:
    """Refuse what would change a table: Polars takes some of it for a question, and changes nothing.

    >>> refuse_statement("DELETE FROM self WHERE price < 1")
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `query` asks and changes nothing, and DELETE is a change...
    """
    if not isinstance(query, str):
        refuse(
            "query", 'must be the text of a query, "SELECT ... FROM self"', "nothing was read", given=query
        )
    first = (_FIRST_WORD.match(query) or [""] * 2)[1].upper()
    if first in _CALLS:
        what = f" asks and changes nothing, and {first} is a change; nothing was changed. "
        raise InvalidInputError(Message(named("query"), what, _CALLS[first], " does it."), argument="query")

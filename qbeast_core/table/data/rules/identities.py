"""Draw the numbers of identity columns. The place of a row among new rows decides its number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NoReturn

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.log.columns.declared_rules import Identity

_LARGEST: Final = 2**63 - 1


def with_numbers(rows: pl.DataFrame, identities: Sequence[Identity], first_row: int = 0) -> pl.DataFrame:
    """Return rows with numbers; `first_row` is the number of rows before these.

    >>> with_numbers(pl.DataFrame({"x": ["a", "b"]}), [Identity("id", 5, 10, 25, False)], 3)["id"].to_list()
    [65, 75]
    """
    places = np.arange(first_row, first_row + rows.height, dtype=np.int64)
    columns = list[pl.Series]()
    for identity in identities:
        refuse_exhausted(identity, first_row + rows.height)
        columns.append(pl.Series(identity.column, places * identity.step + identity.first))
    return rows.with_columns(columns)


def refuse_exhausted(identity: Identity, count: int) -> None:
    """Raise if a column has fewer numbers left than `count`."""
    if count and abs(identity.first + identity.step * (count - 1)) > _LARGEST:
        msg = f"the identity column {identity.column!r} has no {count:,} numbers left"
        raise InvalidInputError(msg, argument="df")


def drawn_for(
    identities: Sequence[Identity], columns: Collection[str], argument: str
) -> tuple[Identity, ...]:
    """Return the identity columns that new rows with these columns lack. Raise on columns that must be drawn."""
    for identity in identities:
        if identity.column in columns and not identity.allows_values:
            _refuse(identity.column, argument, "leave the column out")
    return tuple(identity for identity in identities if identity.column not in columns)


def refuse_new_numbers(identities: Sequence[Identity], columns: Collection[str], argument: str) -> None:
    """Raise if a change sets an identity column."""
    for identity in identities:
        if identity.column in columns:
            _refuse(identity.column, argument, "identity columns keep their values")


def _refuse(column: str, argument: str, cure: str) -> NoReturn:
    problem = f"`{argument}` sets the identity column {column!r}, whose numbers the table draws"
    msg = f"{problem}: {cure}"
    raise InvalidInputError(msg, argument=argument, value=column)

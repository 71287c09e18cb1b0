"""Frames and lists as tables for people: as many columns as fit, long values shortened."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import orjson
import polars as pl
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from qbeast_core.cli.screen import remark, width_of_screen
from qbeast_core.errors import InvalidInputError
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.plain_text import on_one_line, visible

_LONGEST: Final = 40
_GAP: Final = 2

# Spells a number of bytes: `8.09 MB`.
size_text: Final = partial(decimal, precision=2)


def frame_grid(rows: pl.DataFrame) -> list[Any]:
    """Return a table of rows under names and types, and a remark where columns do not fit on the screen."""
    cells = [[_cell(value) for value in column] for column in rows.iter_columns()]
    heads = [[on_one_line(name), type_text(dtype)] for name, dtype in rows.schema.items()]
    widths = [max(map(len, [*head, *column])) + _GAP for head, column in zip(heads, cells, strict=True)]
    shown = _fitting(widths)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for (name, dtype), of_schema in zip(heads[:shown], rows.dtypes[:shown], strict=True):
        header = Text.assemble(name, "\n", (dtype, "dim not bold"))
        table.add_column(header, justify="right" if of_schema.is_numeric() else "left", no_wrap=True)
    for row in zip(*cells[:shown], strict=True):
        table.add_row(*row)
    others = rows.columns[shown:]
    note = f"and {len(others)} more column(s), see --select: {', '.join(others)}"
    return [table, remark(note)] if others else [table]


def grid(heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """Return a small table; the columns named in `right` hold numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else on_one_line(str(cell)) for cell in row))
    return table


def type_text(dtype: pl.DataType) -> str:
    """Return Delta's name of a type, which ``--type`` takes; of nested types only what they are.

    >>> type_text(pl.Int64()), type_text(pl.List(pl.String))
    ('long', 'array')
    """
    try:
        found = orjson.loads(schema_to_delta(pl.Schema({"x": dtype})))["fields"][0]["type"]
    except InvalidInputError:  # a type that no table has
        return str(dtype)
    return found if isinstance(found, str) else str(found["type"])


def _fitting(widths: Sequence[int]) -> int:
    screen = width_of_screen()
    if screen is None:
        return len(widths)
    total = 0
    for number, width in enumerate(widths):
        total += width
        if total - _GAP > screen:
            return max(number, 1)
    return len(widths)


def _cell(value: object) -> str:
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case float():
            text = f"{value:.6g}"
        case datetime():
            text = value.isoformat(sep=" ")
        case bytes():
            text = value.hex()
        case pl.Series():
            text = str(value.to_list())
        case _:
            text = str(value)
    return _short(visible(text))


def _short(text: str) -> str:
    whole = " ".join(text.split("\n"))
    return whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…"

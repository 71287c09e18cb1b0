"""HTML for notebooks: facts as a small table, a share as a bar, frames as Polars prints them, texts without quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Final

import polars as pl

# Of a text in a frame. The default of 30 is too short for reasons and types.
_MAX_CELL_CHARACTERS: Final = 120
_TEXT_CELL: Final = re.compile(
    r"<td>&quot;((?:(?!</td>).)*?)(?:&quot;)?</td>", re.DOTALL
)  # long texts end by … alone


def html_of(title: str, facts: Mapping[str, str], *frames: pl.DataFrame) -> str:
    """Return HTML of a title, facts and frames; the colours are those of the page, light or dark.

    >>> html_of("a < b", {}), "<td" in html_of("a < b", {"rows": "3"})
    ('<div><b>a &lt; b</b></div>', True)
    """
    left = ' style="text-align:left"'
    lines = [f"<tr><th{left}>{escape(name)}</th><td{left}>{fact}</td></tr>" for name, fact in facts.items()]
    table = f"<table>{''.join(lines)}</table>" if lines else ""
    return f"<div><b>{escape(title)}</b>{table}{''.join(_frame_html(frame) for frame in frames if len(frame))}</div>"


def bar(share: float) -> str:
    """Return HTML of a share in [0, 1] as a bar, with the number beside it.

    >>> bar(0.25).endswith("25.00%")
    True
    """
    outer = "display:inline-block;width:8em;height:.7em;border:1px solid currentColor;margin-right:.5em"
    inner = f"display:block;width:{min(share, 1.0):.2%};height:100%;background:currentColor;opacity:.6"
    return f'<span style="{outer}"><span style="{inner}"></span></span>{share:.2%}'


def _frame_html(frame: pl.DataFrame) -> str:
    draw: Callable[[], str] = getattr(frame, "_repr_html_")  # noqa: B009 -- the method that notebooks call
    with pl.Config(
        fmt_str_lengths=_MAX_CELL_CHARACTERS, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True
    ):
        return _TEXT_CELL.sub(r"<td>\1</td>", draw())

"""Draw answers on the terminal with rich; in a pipe the same without colours, cut nowhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from qbeast_core.plain_text import on_one_line, visible

_UNLIMITED: Final = 100_000


def draw(parts: Sequence[Any]) -> None:
    """Print texts and tables one below the other."""
    console = Console(width=width_of_screen() or _UNLIMITED, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        for part in parts:
            shown = visible(part) if isinstance(part, str) else part
            console.print(shown, soft_wrap=isinstance(part, str | Text))
    for line in drawn.get().splitlines():
        click.echo(line.rstrip())  # rich fills lines up with blanks


def remark(text: str) -> Text:
    """Return a text beside the answer, shown faintly."""
    return Text(on_one_line(text), style="dim")


def width_of_screen() -> int | None:
    """Return the columns of the terminal that the standard output is; None: it is none."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None

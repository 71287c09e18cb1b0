"""What a command is asked and has to say: for people, for machines, and as an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import click

from qbeast_core.plain_text import visible

# Text, or something that rich can draw.
Part: TypeAlias = Any


@dataclass(slots=True)
class Settings:
    """What every command is told; filled in while the command line is read."""

    # One JSON document on the standard output instead of text.
    json: bool = False
    # Show where errors come from.
    traceback: bool = False
    # The one that was asked for: messages name its options.
    command: click.Command | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of a command."""

    # Printed one below the other; what is in texts is shown, not obeyed by the terminal.
    parts: tuple[Part, ...]
    # The same for `--json`: text, numbers, times, lists and mappings of them.
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    exit_code: int = 0


def print_answer(answer: Answer, settings: Settings) -> None:
    """Print an answer to the standard output, the way it was asked for."""
    if settings.json:
        from qbeast_core.as_json import to_json  # noqa: PLC0415 - loaded where JSON is asked for

        click.echo(to_json(answer.data))
    elif all(isinstance(part, str) for part in answer.parts):
        for part in answer.parts:
            click.echo(visible(part))
    else:
        from qbeast_core.cli.screen import draw  # noqa: PLC0415 - rich is loaded where something is drawn

        draw(answer.parts)

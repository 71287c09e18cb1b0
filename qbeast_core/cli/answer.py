"""Settings of a command, and its answer: for people, for machines, and as an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from qbeast_core.support.text import visible

if TYPE_CHECKING:
    from qbeast_core.results import Result

# Text, or something that rich can draw.
Part: TypeAlias = Any

_IN_HEAD: Final = ("version", "committed", "dry_run")


@dataclass(slots=True)
class Settings:
    """What all commands share; filled in while the command line is read."""

    # One JSON document on the standard output instead of text.
    json: bool = False
    # Show where errors come from.
    traceback: bool = False
    # The requested command: errors name its options.
    command: click.Command | None = None
    # Names of all commands.
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of a command."""

    # Printed one below the other; control characters in texts are shown, the terminal does not obey them.
    parts: tuple[Part, ...]
    # The same for `--json`: text, numbers, times, lists and mappings of them.
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    exit_code: int = 0


def facts_of(value: object, *names: str) -> dict[str, Any]:
    """Return attributes of a value by name."""
    return {name: getattr(value, name) for name in names}


def answer_of(result: Result, **data: object) -> Answer:
    """Return the answer of an operation: what became of the table, and a line for each other fact."""
    if result.dry_run:
        head = "a dry run; nothing was changed"
    elif result.committed:
        head = f"version {result.version}"
    else:
        head = f"there was nothing to do: version {result.version} stays as it is"
    lines = [line for line in repr(result).split("\n")[1:] if line.split()[0] not in _IN_HEAD]
    return Answer(parts=(head, *lines), data={**data, **result.to_dict()})


def print_answer(answer: Answer, settings: Settings) -> None:
    """Print an answer to the standard output, in the requested form."""
    if settings.json:
        from qbeast_core.support.frames import to_json  # noqa: PLC0415 - slow to import, for this option only

        click.echo(to_json(answer.data))
    elif all(isinstance(part, str) for part in answer.parts):
        for part in answer.parts:
            click.echo(visible(part))
    else:
        from qbeast_core.cli.tables import draw  # noqa: PLC0415 - rich is loaded where something is drawn

        draw(answer.parts)

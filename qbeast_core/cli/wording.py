"""Messages of the library in the words of the command line: made of their hints, no text is searched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import click

from qbeast_core.hints import Hint, Message

_COMMANDS: Final[Mapping[str, str]] = {
    "Table.add_columns": "add-columns",
    "Table.check": "check",
    "Table.delete": "delete",
    "Table.files": "explain --files",
    "Table.history": "history",
    "Table.merge": "merge",
    "Table.optimize": "optimize",
    "Table.repair": "repair",
    "Table.restore": "restore",
    "Table.switch_dialect": "switch-dialect",
    "Table.update": "update",
    "Table.vacuum": "vacuum",
    "convert_table": "convert",
    "import_carbondata": "import-carbondata",
    "suggest_columns": "suggest",
    "upgrade_table": "upgrade",
    "write_table": "write",
}
# What parameters of commands are called where Python calls them otherwise.
_PARAMETERS: Final[Mapping[str, str]] = {
    "columns": "select",
    "df": "sources",
    "source": "sources",
    "update": "set",
}

# How parameters are spelled where no command is known.
_OPTIONS: Final[Mapping[str, str]] = {"files": "--file", "memory_bytes": "--memory", "where": "--where"}


def one_line(text: str) -> str:
    r"""Return a text without line breaks.

    >>> one_line("too many\n  rows ")
    'too many rows'
    """
    return " ".join(text.split())


def spoken(problem: BaseException | str, command: click.Command | None = None) -> str:
    """Return a message in one line, its hints spelled as options and commands.

    >>> spoken(ValueError(Message("Replace it with ", Hint({"mode": "overwrite"}), ".")))
    'Replace it with --mode overwrite.'
    """
    message = problem.args[0] if isinstance(problem, BaseException) and problem.args else problem
    if not isinstance(message, Message):
        return one_line(str(problem))
    return one_line(message.spelled(lambda hint: _in_shell(hint, command)))


def hint_facts(hint: Hint | None, command: click.Command | None = None) -> dict[str, object] | None:
    """Return a hint for machines.

    >>> hint_facts(Hint({"mode": None}, given="apend", known=("append",)))
    {'argument': '--mode', 'value': 'apend', 'alternatives': ['append'], 'text': '--mode'}
    """
    if hint is None:
        return None
    return {
        "argument": None if hint.argument is None else _parameter(hint.argument, command),
        "value": hint.value,
        "alternatives": list(hint.alternatives),
        "text": _in_shell(hint, command),
    }


def _in_shell(hint: Hint, command: click.Command | None = None) -> str:
    """Return a hint as options, or as a command.

    >>> _in_shell(Hint({"columns": ["a", "b:quantiles"]})), _in_shell(Hint({"full": True, "retention_hours": 1.5}))
    ('--columns a,b:quantiles', '--full --retention-hours 1.5')
    >>> _in_shell(Hint({"columns": ["day", ...]}, "write_table", "old", "scan_delta"))
    '`qbeast write old new --columns day,...`'
    """
    about = None if hint.call else command
    spelled = [_option(name, value, about) for name, value in hint.arguments.items()]
    if not hint.call:
        return (", " if None in hint.arguments.values() else " ").join(spelled)
    if hint.call not in _COMMANDS:
        return f"{hint} in Python"
    return f"`{' '.join(['qbeast', _COMMANDS[hint.call], *_places(hint), *spelled])}`"


def _places(hint: Hint) -> Iterator[str]:
    if hint.rows:
        yield "SOURCE"
    if hint.path is not None:
        yield hint.path
    if hint.scan is not None:
        yield "new"


def _option(name: str, value: object, command: click.Command | None) -> str:
    option = _parameter(name, command)
    match value:
        case None | True:
            return option
        case tuple():
            *first, last = (_option(name, one, command) for one in value)
            return f"{', '.join(first)} or {last}"
        case "append" if name == "mode":
            return "`qbeast append`"  # a command of its own
        case Mapping():
            return " ".join(f"{option} {key}={one}" for key, one in value.items())
        case _:
            return f"{option} {_text(value)}"


def _text(value: object) -> str:
    match value:
        case list():
            return ",".join("..." if one is ... else str(one) for one in value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _parameter(name: str, command: click.Command | None) -> str:
    """Return how a parameter is spelled: as the command has it, or as options usually are."""
    called = _PARAMETERS.get(name, name)
    named = {} if command is None else {one.name: one for one in command.params}
    found = named.get(name) or named.get(called)
    if found is None or command is None:
        return _OPTIONS.get(name) or _OPTIONS.get(called) or f"--{name.replace('_', '-')}"
    return (
        max(found.opts, key=len)
        if isinstance(found, click.Option)
        else found.make_metavar(click.Context(command))
    )

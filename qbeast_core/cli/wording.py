"""Messages of the library in the words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qbeast_core.hints import Hint, Message

__all__ = ["one_line", "spoken"]

_COMMANDS: Final[Mapping[str, str]] = {
    "Table.files": "explain --files",
    "Table.repair": "repair",
    "convert_table": "convert",
    "upgrade_table": "upgrade",
    "write_table": "write",
}
_RENAMED: Final[Mapping[str, str]] = {
    "--files": "--file",
    "--predicate": "--where",
    "--mode append": "`qbeast append`",
}


def one_line(text: str) -> str:
    r"""Return a text without line breaks.

    Examples
    --------
    >>> one_line("too many\n  rows ")
    'too many rows'
    """
    return " ".join(text.split())


def spoken(problem: BaseException | str) -> str:
    """Return a message in one line, its hints spelled as options and commands.

    Examples
    --------
    >>> spoken(ValueError(Message("Replace it with ", Hint({"mode": "overwrite"}), ".")))
    'Replace it with --mode overwrite.'
    """
    message = problem.args[0] if isinstance(problem, BaseException) and problem.args else problem
    return one_line(message.spelled(_in_shell) if isinstance(message, Message) else str(problem))


def _in_shell(hint: Hint) -> str:
    """Return a hint as options, or as a command.

    Examples
    --------
    >>> _in_shell(Hint({"columns": ["a", "b:quantiles"]})), _in_shell(Hint({"full": True, "retention_hours": 1.5}))
    ('--columns a,b:quantiles', '--full --retention-hours 1.5')
    >>> _in_shell(Hint({"columns": ["day", ...]}, "write_table", "old", "scan_delta"))
    '`qbeast write old new --columns day,...`'
    """
    named = [f"--{name.replace('_', '-')}" for name in hint.arguments]
    options = [_option(name, value) for name, value in zip(named, hint.arguments.values(), strict=True)]
    if not hint.call:
        return (", " if None in hint.arguments.values() else " ").join(options)
    if hint.call not in _COMMANDS:
        return f"{hint} in Python"
    paths = [*([] if hint.path is None else [hint.path]), *([] if hint.scan is None else ["new"])]
    return f"`{' '.join(['qbeast', _COMMANDS[hint.call], *paths, *options])}`"


def _option(name: str, value: object) -> str:
    match value:
        case None | True:
            text = name
        case tuple():
            *first, last = (_option(name, one) for one in value)
            return f"{', '.join(first)} or {last}"
        case list():
            text = f"{name} {','.join('...' if one is ... else str(one) for one in value)}"
        case float():
            text = f"{name} {value:g}"
        case _:
            text = f"{name} {value}"
    return _RENAMED.get(text, text)

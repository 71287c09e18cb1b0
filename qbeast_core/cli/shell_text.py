"""Messages of the library as they help in a shell: calls become commands, arguments become options."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Container
from shlex import quote
from typing import Final

import click

from qbeast_core.cli.options import option_of

_VALUE: Final = r"""True|-?\d[\d.]*|"[^"]*"|'[^']*'|\[[^\[\]]*\]"""
_ARGUMENT: Final = re.compile(rf"(?<![\w.])(\w+)=({_VALUE})(?![\w(])")
_QUOTED: Final = re.compile(r"`(\w+)`")
_METHOD: Final = re.compile(rf"`?\bTable\.(\w+)(?:\(((?:\w+=(?:{_VALUE})(?:, )?)*)\))?`?")
_PATH: Final = r"""('[^']*'|"[^"]*")"""
_CALLS: Final[list[tuple[re.Pattern[str], str]]] = [
    (
        re.compile(rf"qbeast\.write_table\(pl\.scan_\w+\({_PATH}\), new, columns=\[\.\.\.\]\)"),
        "write {} NEW -c NAMES",
    ),
    (re.compile(rf"qbeast\.write_table\(rows, {_PATH}, columns=\[\.\.\.\]\)"), "write SOURCE {} -c NAMES"),
    (re.compile(rf"qbeast\.convert_table\({_PATH}, columns=\[\.\.\.\]\)"), "convert {} -c NAMES"),
    (re.compile(r"qbeast\.suggest_columns\(rows\)()"), "suggest SOURCE"),
]


def in_shell(message: str, command: click.Command | None, commands: Container[str]) -> str:
    """Return a message with the commands and options of the shell for calls and arguments of Python.

    >>> in_shell("Table.history() lists them, or qbeast.convert_table('t 1', columns=[...])", None, ["history"])
    "`qbeast history TABLE` lists them, or `qbeast convert 't 1' -c NAMES`"
    """
    for call, text in _CALLS:
        for match in reversed([*call.finditer(message)]):
            shown = f"`qbeast {text.format(_shown(match[1]))}`"
            message = message[: match.start()] + shown + message[match.end() :]
    message = _METHOD.sub(lambda match: _command_of(match, commands), message)
    message = _ARGUMENT.sub(_option(command), message)
    return _QUOTED.sub(lambda match: _option_of(match[1], command) or match[0], message)


def _command_of(match: re.Match[str], commands: Container[str]) -> str:
    name = match[1].replace("_", "-")
    if name not in commands:
        return match[0]
    options = [f"--{key.replace('_', '-')}{_value(text)}" for key, text in _ARGUMENT.findall(match[2] or "")]
    return f"`{' '.join(['qbeast', name, 'TABLE', *options])}`"


def _option(command: click.Command | None) -> Callable[[re.Match[str]], str]:
    def replaced(match: re.Match[str]) -> str:
        option = _option_of(match[1], command)
        return match[0] if option is None else f"{option}{_value(match[2])}"

    return replaced


def _option_of(argument: str, command: click.Command | None) -> str | None:
    option = option_of(argument, command)
    return option if option is not None and option.startswith("-") else None


def _value(text: str) -> str:
    """Return the value of an option, after a blank; empty for a flag."""
    if text == "True":
        return ""
    return f" {_shown(text)}"


def _shown(text: str) -> str:
    if not text or text[0] not in "['\"":
        return text
    value = literal_eval(text)
    names = ["NAMES" if item is ... else str(item) for item in value] if isinstance(value, list) else [value]
    return quote(",".join(names))

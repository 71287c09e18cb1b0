"""How a command ends: exit codes, errors, interruptions."""

from __future__ import annotations

import os
import re
import sys
import traceback
from ast import literal_eval
from collections.abc import Callable, Container, Generator
from contextlib import contextmanager
from shlex import quote
from typing import Final

import click

from qbeast_core.cli.answer import Settings
from qbeast_core.cli.options import option_of
from qbeast_core.errors import QbeastError
from qbeast_core.support.text import did_you_mean, for_people, usual_arguments

# `qbeast check` found faults.
FAULTS: Final = 1

# The exit code of every error code; docs/cli.md explains them.
EXIT_CODES: Final = {
    "usage": 2,
    "invalid-input": 2,
    "invalid-columns": 2,
    "schema-mismatch": 3,
    "constraint-violation": 3,
    "input-changed": 3,
    "table-not-found": 4,
    "version-not-found": 4,
    "table-exists": 5,
    "not-a-qbeast-table": 6,
    "unsupported-table": 7,
    "invalid-metadata": 8,
    "damaged-file": 8,
    "commit-conflict": 9,
    "commit-unknown": 10,
    "missing-dependency": 11,
    "storage": 12,
    "qbeast": 13,
    "session-lost": 14,
    "internal": 70,
    "interrupted": 130,
    "broken-pipe": 141,
}

_STILL_TRUE: Final = "nothing of an unfinished commit is visible"
_CLI_MODULES: Final = ("click", "rich")
_OF_COMMANDS: Final = ("--traceback", "--storage-option")

_VALUE: Final = r"""True|-?\d[\d.]*|"[^"]*"|'[^']*'|\[[^\[\]]*\]|\{"[^{}]*\}"""
_ARGUMENT: Final = re.compile(rf"(?<![\w.])(\w+)=({_VALUE})(?![\w(])")
_QUOTED: Final = re.compile(r"`(\w+)`")
_METHOD: Final = re.compile(rf"`?\bTable\.(\w+)(?:\(((?:\w+=(?:{_VALUE})(?:, )?)*)\))?`?")
_PATH: Final = r"""('[^']*'|"[^"]*")"""
_CALLS: Final[list[tuple[re.Pattern[str], str]]] = [
    (
        re.compile(
            rf"qbeast\.write_table\((?:pl\.scan_\w+|qbeast\.scan_table)\({_PATH}\), new, columns=\[[^\[\]]*\]\)"
        ),
        "write {} NEW -c NAMES",
    ),
    (re.compile(rf"qbeast\.write_table\(rows, {_PATH}, columns=\[\.\.\.\]\)"), "write SOURCE {} -c NAMES"),
    (re.compile(rf"qbeast\.convert_table\({_PATH}, columns=\[\.\.\.\]\)"), "convert {} -c NAMES"),
    (re.compile(r'qbeast\.write_table\(rows, path, mode="append"\)()'), "append SOURCE TABLE"),
    (re.compile(r"qbeast\.write_table\(rows, path, columns=\[\.\.\.\]\)()"), "write SOURCE NEW -c NAMES"),
    (re.compile(r"qbeast\.drop_table\(path, confirm=True\)()"), "drop TABLE --yes"),
    (
        re.compile(
            r'qbeast\.scan_table\(path, columns=\["([^"]*)"\]\)\.select\(pl\.col\("\1"\)'
            r"\.drop_nulls\(\)\.n_unique\(\)\)\.collect\(\)"
        ),
        """sql TABLE 'SELECT count(DISTINCT "{}") FROM self'""",
    ),
    (re.compile(r"polars\.SQLContext and qbeast\.scan_table()"), "export TABLE FILE"),
    (re.compile(r"Table\.delete\(True\)()"), "delete TABLE --all"),
    (re.compile(r"Table\.files\(\)()"), "explain TABLE --files"),
    (re.compile(r"qbeast\.suggest_columns\(rows\)()"), "suggest SOURCE"),
    (re.compile(r"Table\.set_importance\(\{[^{}]*\}\)()"), "reindex TABLE --importance NAME=NUMBER"),
]


def exit_code_of(error: QbeastError) -> int:
    """Return the exit code of the error's code, else of the nearest base class.

    >>> exit_code_of(QbeastError("unknown"))
    13
    """
    codes = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return next(EXIT_CODES[code] for code in codes if code in EXIT_CODES)


@contextmanager
def reported(settings: Settings) -> Generator[None]:
    """Turn any error inside into a line on the standard error and an exit code, by click's `Exit`.

    It catches everything: a panic of a library written in Rust is not an ``Exception``. With ``--json`` the standard
    output gets a document about the error.
    """
    try:
        yield
    except (SystemExit, click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        raise  # click ended the command itself, such as after `--help`
    except BaseException as error:
        if settings.traceback:
            shown = "\n".join(map(for_people, "".join(traceback.format_exception(error)).split("\n")))
            click.echo(shown, err=True, nl=False)
        code, exit_code, original = _described(error)
        text = original
        if isinstance(error, QbeastError):
            text = _in_shell(original, settings.command, settings.commands)
        message = for_people(text)
        if isinstance(error, BrokenPipeError):
            # The reader is gone: without this, the interpreter's last flush fails on the broken pipe again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            click.echo(f"{click.style('error:', fg='red')} {message}", err=True)
            facts = _facts(error, settings)
            option = str(facts.get("argument") or "")
            if option not in original:
                click.echo(f"{'option' if option.startswith('-') else 'argument'}: {option}", err=True)
            if settings.json:
                from qbeast_core.support.frames import to_json  # noqa: PLC0415 - slow to import, for this option only

                outcome = {"code": code, "message": message, "exit_code": exit_code}
                click.echo(to_json({"error": {**outcome, **facts}}))
        raise click.exceptions.Exit(exit_code) from error


def _facts(error: BaseException, settings: Settings) -> dict[str, object]:
    """Return attributes of an error of the library; its argument is named as the command line does."""
    if not isinstance(error, QbeastError):
        return {}
    option = option_of(error.argument, settings.command)
    return {"changed": error.changed, "argument": option, "value": error.value, "known": error.known}


def _described(error: BaseException) -> tuple[str, int, str]:
    """Return code, exit code and message of an error."""
    match error:
        case QbeastError():
            return error.code, exit_code_of(error), str(error)
        case click.UsageError():
            code, text = "usage", _usage(error)
        case click.ClickException():
            code, text = "usage", _one_line(error.format_message())
        case KeyboardInterrupt() | click.Abort():
            text = f"interrupted: {_STILL_TRUE}; `qbeast history` lists the finished ones"
            code = "interrupted"
        case BrokenPipeError():
            code, text = "broken-pipe", "the reader of the output went away"
        case OSError():
            where = "" if error.filename is None else f" ({error.filename})"
            code, text = "storage", f"{_one_line(error.strerror or str(error))}{where}"
        case ModuleNotFoundError() if _package(error) in _CLI_MODULES:
            text = (
                f"the command line needs {_package(error)}, which is not installed: pip install 'qbeast[cli]'"
            )
            code = "missing-dependency"
        case MemoryError():
            code, text = "internal", f"there is not enough memory; {_STILL_TRUE}. Give fewer rows at a time."
        case _:
            what = f"{type(error).__name__}: {_one_line(str(error))}"
            text = f"a bug of qbeast, or of a library that it uses: {what}; {_STILL_TRUE}. Report it with --traceback."
            code = "internal"
    return code, EXIT_CODES[code], text


def _one_line(text: str) -> str:
    r"""Return a text without line breaks.

    >>> _one_line("too many\n  rows ")
    'too many rows'
    """
    return " ".join(text.split())


def _package(error: ModuleNotFoundError) -> str:
    return (error.name or "").partition(".")[0]


def _usage(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "qbeast"
    if isinstance(error, click.NoSuchOption) and error.option_name in _OF_COMMANDS and " " not in path:
        name = error.option_name
        return f"{name} follows the command: `{path} COMMAND ... {name}`; see `{path} --help`"
    arguments = _arguments(error.ctx)
    usage = f"write `{' '.join([path, *arguments])}`; see `{path} --help`"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        return f"an argument is missing: {usage}"
    if isinstance(error, click.NoSuchOption) and error.option_name.removeprefix("--").upper() in arguments:
        return f"{error.option_name} is an argument, not an option: {usage}"
    if isinstance(error, click.NoSuchOption):
        text = f"No such option {error.option_name!r}.{_similar_option(error)}"
    else:
        text = _one_line(error.format_message())
    return f"{text.rstrip('.')}; see `{path} --help`"


def _similar_option(error: click.NoSuchOption) -> str:
    """Return the most similar option of the command, as a sentence."""
    if error.ctx is None:
        return ""
    command = error.ctx.command
    options = [item for item in command.params if isinstance(item, click.Option)]
    names = [name for item in options for name in (*item.opts, *item.secondary_opts)]
    unknown = error.option_name.lstrip("-").replace("-", "_")
    usual = (unknown, *usual_arguments(unknown, [name.lstrip("-").replace("-", "_") for name in names]))
    known = [option for name in usual if (option := _option_of(name, command))]
    return did_you_mean([*known, error.option_name][:1], names)


def _arguments(ctx: click.Context | None) -> list[str]:
    """Return the arguments of a command as its help writes them."""
    if ctx is None:
        return []
    return [p.make_metavar(ctx) for p in ctx.command.params if isinstance(p, click.Argument)]


def _in_shell(message: str, command: click.Command | None, commands: Container[str]) -> str:
    """Return a message with the commands and options of the shell for calls and arguments of Python.

    >>> _in_shell("Table.history() lists them, or qbeast.convert_table('t 1', columns=[...])", None, ["history"])
    "`qbeast history TABLE` lists them, or `qbeast convert 't 1' -c NAMES`"
    """
    for call, text in _CALLS:
        for match in reversed([*call.finditer(message)]):
            shown = f"`qbeast {text.format(_shown(match[1]))}`"
            message = message[: match.start()] + shown + message[match.end() :]
    message = message.replace('mode="append"', "`qbeast append`")
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
        option = option_of(match[1], command)
        if option is None:
            return match[0]
        if not option.startswith("-"):  # an argument is its value alone
            return _shown(match[2])
        if match[2].startswith("{"):
            pairs = literal_eval(match[2]).items()
            return " ".join(f"{option} {quote(f'{name}={value}')}" for name, value in pairs)
        return f"{option}{_value(match[2])}"

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

"""Make commands of functions: the options that they share, their answers, exit codes and errors."""

from __future__ import annotations

import csv
import os
import re
import sys
import traceback
import warnings
from ast import literal_eval
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from qbeast_core.errors import QbeastError
from qbeast_core.support.hints import line_of, usual_arguments, value_hint
from qbeast_core.support.text import did_you_mean, for_people, visible

if TYPE_CHECKING:
    from qbeast_core.results import Result
    from qbeast_core.support.process import ProgressCallback, Resources


ResultT = TypeVar("ResultT", bound="Result")

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
    result = with_hint(result)
    # The rest of a long line is indented further.
    lines = [line for line in repr(result).split("\n")[1:] if line[2:].split(" ")[0] not in _IN_HEAD]
    return Answer(parts=(head, *lines), data={**data, **result.to_dict()})


def with_hint(result: ResultT) -> ResultT:
    """Return a result whose hint names commands and options of the shell."""
    hint = getattr(result, "hint", None)
    changes: dict[str, Any] = {} if hint is None else {"hint": in_shell(hint)}
    return replace(result, **changes)


def in_shell(text: str) -> str:
    """Return a text of the library with the commands and options of the shell for calls of Python."""
    settings = click.get_current_context().find_object(Settings) or Settings()
    return _in_shell(text, settings.command, settings.commands)


def print_answer(answer: Answer, settings: Settings) -> None:
    """Print an answer to the standard output, in the requested form."""
    if settings.json:
        from qbeast_core.support.frames import to_json

        click.echo(to_json(answer.data))
    elif all(isinstance(part, str) for part in answer.parts):
        for part in answer.parts:
            click.echo(visible(part))
    else:
        from qbeast_core.cli.output import draw

        draw(answer.parts)


F = TypeVar("F", bound=Callable[..., Any])

# Parameters of commands with another name than the argument in Python.
_PARAMETERS: Final = {"columns": "select", "df": "sources", "path": "table", "version": "older"}

# Options of commands that are arguments of `qbeast.open_table`.
_OPENING: Final = ("storage_options", "version", "allow_absolute_paths")


def command(*parameters: Callable[[Any], Any]) -> Callable[[Callable[..., Answer]], click.Command]:
    """Make a command of a function; its docstring is the help text. It gets the options of all commands too."""

    def decorate(function: Callable[..., Answer]) -> click.Command:
        made = click.command(function.__name__.replace("_", "-"))
        return made(together(*parameters, _common)(function))

    return decorate


def option_of(argument: str | None, command: click.Command | None) -> str | None:
    """Return the option or argument of a command for an argument in Python; None if it has none.

    >>> option_of("memory_bytes", click.Command("write", params=[click.Option(["--memory", "memory_bytes"])]))
    '--memory'
    """
    if argument is None or command is None:
        return None
    by_name = {parameter.name or "": parameter for parameter in command.params}
    parameter = by_name.get(argument) or by_name.get(_PARAMETERS.get(argument, ""))
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return None if parameter is None else parameter.make_metavar(click.Context(command))


def together(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator for many: arguments and options, in the order of the help text."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def option(names: str, text: str, metavar: str | None = None, **settings: Any) -> Callable[[F], F]:
    """Return an option by its names, with blanks between; `metavar` is its value in the help text."""
    return click.option(*names.split(), help=text, metavar=metavar, **settings)


def flag(names: str, text: str, **settings: Any) -> Callable[[F], F]:
    """Return an option without a value."""
    return option(names, text, is_flag=True, **settings)


def choice_option(
    names: str, text: str, choices: Sequence[str], *, optional: bool = False
) -> Callable[[F], F]:
    """Return an option with some values; the first one is the default unless it is `optional`."""
    default: dict[str, Any] = {} if optional else {"default": choices[0], "show_default": True}
    return option(names, text, type=click.Choice(choices), **default)


def pairs_option(names: str, text: str, metavar: str = "KEY=VALUE") -> Callable[[F], F]:
    """Return an option that is given as often as needed, for a dictionary."""
    return option(names, text, metavar, multiple=True, callback=as_mapping)


def names_option(names: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """Return an option of names with commas between, once or repeatedly."""
    return option(names, text, metavar="NAMES", multiple=True, required=required, callback=_as_names)


def as_fraction(
    _ctx: click.Context, _parameter: click.Parameter, text: str | None
) -> float | str | tuple[float, float] | None:
    """Read ``0.01``, ``1%``, or two of them with a colon between; the library refuses other texts."""
    from qbeast_core.errors import InvalidInputError
    from qbeast_core.plan.weights import fractions_of

    if text is None:
        return None
    try:
        start, end = fractions_of(text)
    except InvalidInputError:
        return text
    return (start, end) if ":" in text or "," in text else end


def as_version(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> int | str | None:
    """Return a version number as a number, and a time as it is: the library reads it."""
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else text


def as_mapping(
    _ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    """Collect ``key=value`` texts, if there are any; the last one of a key counts."""
    values: dict[str, str] = {}
    for text in texts:
        name, sign, text_of_value = text.partition("=")
        key, value = name.strip(), text_of_value.lstrip() if name.endswith(" ") else text_of_value
        if not sign or not key:
            msg = "write it as key=value"  # the text may be a secret: it is not repeated
            raise click.BadParameter(msg, param=parameter)
        values[key] = value
    return values or None


def as_numbers(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float] | None:
    """Collect ``key=number`` texts, if there are any."""
    values = as_mapping(ctx, parameter, texts)
    try:
        return None if values is None else {key: float(text) for key, text in values.items()}
    except ValueError as error:
        msg = "write it as NAME=NUMBER"
        raise click.BadParameter(msg, param=parameter) from error


def _as_bytes(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """Read ``2GiB``, ``512MB`` or a plain number of bytes."""
    from qbeast_core.table.engine.engine import bytes_of_text

    return None if text is None else bytes_of_text(text, argument="--memory")


def _as_names(
    _ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Split lists at commas, as a line of CSV is split: a name with a comma is written in double quotes."""
    if not texts:
        return None
    try:
        lines = list(csv.reader(texts, skipinitialspace=True, strict=True))
    except csv.Error as error:
        msg = f"{', '.join(texts)!r} is not a list of names: {error}"
        raise click.BadParameter(msg, param=parameter) from error
    return tuple(name.strip() for line in lines for name in line if name.strip())


def _setting(name: str, text: str) -> Callable[[F], F]:
    """Return a flag that sets an attribute of `Settings` while the command line is read."""

    def keep(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        settings = ctx.find_object(Settings)
        if settings is not None and value:
            setattr(settings, name, value)

    return flag(f"--{name}", text, is_eager=True, expose_value=False, callback=keep)


json_option: Final = _setting("json", "Print one JSON document instead of text.")

_common: Final = together(
    pairs_option(
        "--storage-option storage_options",
        "Option of the object store, as for deltalake; may be repeated.",
    ),
    json_option,
    _setting("traceback", "Print the traceback of an error."),
)

table_argument: Final = click.argument("table", type=click.Path())

version_option: Final = option(
    "--version",
    "A version of the table: its number, or a time in ISO 8601 (by default in UTC).",
    "VERSION",
    callback=as_version,
)

absolute_paths_option: Final = flag(
    "--allow-absolute-paths",
    "Also read files outside of the table's folder (shallow clones). Use it only if you trust the writers.",
)

where_option: Final = option(
    "--where", """Condition on rows, such as "distance > 1500 AND carrier = 'UA'".""", "SQL"
)

sample_option: Final = option(
    "--sample",
    "Fraction of the rows: 0.01 or 1%; 0.1:0.2 for the rows between two fractions.",
    "FRACTION",
    callback=as_fraction,
)

sample_by_option: Final = names_option(
    "--sample-by",
    "Columns by whose values rows enter a sample; by default the sampling key, or the indexed columns. Needed if the "
    "table has no index.",
)

sampling_key_option: Final = names_option(
    "--sample-by",
    "Sampling key: columns by whose values rows enter a sample, such as user; by default the indexed columns.",
)

select_option: Final = names_option("--select", "Columns, separated by commas; all by default.")

importance_option: Final = option(
    "--importance",
    "Pages are narrower by this number along an indexed column, such as time=3; may be repeated.",
    "NAME=NUMBER",
    multiple=True,
    callback=as_numbers,
)

commit_metadata_option: Final = pairs_option("--commit-metadata", "Stored in the history; may be repeated.")

memory_option: Final = option(
    "--memory memory_bytes",
    "Maximum memory, such as 2GiB; by default half of the machine's memory.",
    "SIZE",
    callback=_as_bytes,
)

spill_dir_option: Final = option(
    "--spill-dir", "Folder for temporary files; by default the system's.", "FOLDER", type=click.Path()
)

dry_run_option: Final = flag("--dry-run", "Change nothing; print what would change.")

# Of commands that write rows.
writing_options: Final = together(commit_metadata_option, memory_option, spill_dir_option, dry_run_option)


def columns_option(text: str) -> Callable[[F], F]:
    """Return the option ``--columns``."""
    return names_option("-c --columns", text)


def columns_or_none_options(text: str) -> Callable[[F], F]:
    """Return the options ``--columns`` and ``--no-index``; see `columns_of`."""
    return together(columns_option(text), flag("--no-index", "Give the table no index; replaces --columns."))


def columns_of(columns: Sequence[str] | None, *, no_index: bool) -> Sequence[str] | None:
    """Return the columns to index from the options; empty for a table without index."""
    if columns is not None and (no_index or not columns):
        msg = "--no-index and --columns exclude each other" if columns else "--columns names no column"
        raise click.UsageError(msg, click.get_current_context())
    return () if no_index else columns


def dialect_option(text: str) -> Callable[[F], F]:
    """Return the option ``--dialect``."""
    return choice_option("--dialect", text, ("documented", "qbeast-spark"), optional=True)


def on_table(
    doing: str,
    *parameters: Callable[[Any], Any],
    arguments: Callable[[Any], Any] = table_argument,
    progress: bool = False,
) -> Callable[[Callable[..., Answer]], click.Command]:
    """Make a command of a function: it gets the open table, its options, and the callback if it reports `progress`."""

    def decorate(function: Callable[..., Answer]) -> click.Command:
        @wraps(function)
        def run(table: str, **options: Any) -> Answer:
            import qbeast

            with working(doing) as callback:
                opened = qbeast.open_table(table, **opening_options(options))
                reports = {"progress": callback} if progress else {}
                answer = function(opened, **reports, **options)
            return replace(answer, data={"table": opened.uri, "version": opened.version, **answer.data})

        return command(arguments, *parameters)(run)

    return decorate


def opening_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that open a table, and return them."""
    opening = {name: options.pop(name) for name in _OPENING if name in options}
    return opening | ({"resources": resources_of(options)} if "memory_bytes" in options else {})


def resources_of(options: dict[str, Any]) -> Resources:
    """Remove the options of memory and temporary files, and return them."""
    from qbeast_core.support.process import Resources

    return Resources(memory_bytes=options.pop("memory_bytes"), spill_dir=options.pop("spill_dir", None))


@contextmanager
def working(doing: str) -> Generator[ProgressCallback | None]:
    """Show progress if the standard error is a terminal; print warnings, a line each, at the end."""
    from qbeast_core.errors import QbeastWarning
    from qbeast_core.support.process import progress_bar

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", QbeastWarning)
        with progress_bar(doing) as progress:
            yield progress
    for warning in caught:
        if issubclass(warning.category, QbeastWarning):
            click.echo(f"{click.style('warning:', fg='yellow')} {warning.message}", err=True)


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
    "memory-budget": 15,
    "internal": 70,
    "interrupted": 130,
    "broken-pipe": 141,
}

# Similarity of a misspelled option.
_SIMILAR: Final = 0.7
_STILL_TRUE: Final = "nothing of an unfinished commit is visible"
_CLI_MODULES: Final = ("click", "rich")
_OF_COMMANDS: Final = ("--traceback", "--storage-option")

_VALUE: Final = r"""True|-?\d[\d.]*|"[^"]*"|'[^']*'|\[[^\[\]]*\]|\{"[^{}]*\}"""
_ARGUMENT: Final = re.compile(rf"(?<![\w.])(\w+)=({_VALUE})(?![\w(])")
_QUOTED: Final = re.compile(r"`(\w+)`")
_METHOD: Final = re.compile(rf"`?\b[Tt]able\.(\w+)(?:\(((?:\w+=(?:{_VALUE})(?:, )?)*)\))?`?")
_OF_POLARS: Final = "Pass an expression of Polars itself, without quotes: where=pl.col(...) > 5."
_PAIR: Final = re.compile(r'Write \{"([^"]+)": "([^"]*)"\}')
# The value in a message of click.
_GIVEN: Final = re.compile(r"'([^']*)' is not one of")
_EXTRA: Final = re.compile(r"unexpected extra argument")
# Options that hold what is typed as an argument by mistake.
_CHOSEN: Final = ("--where", "--set", "--columns")
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
    (re.compile(r"Table\.rows\(\)\.files\(\)()"), "explain TABLE --files"),
    (
        re.compile(r'\bsql\("SELECT \.\.\. FROM self((?: GROUP BY \.\.\.)?)"\)'),
        'sql TABLE "SELECT ... FROM self{}"',
    ),
    (re.compile(r"\brows\(where\)\.head\(\.\.\.\)()"), "show TABLE --where SQL --limit NUMBER"),
    (
        re.compile(r"\brows\(where\)\.lazy\(\)\.sort\(\.\.\.\)()"),
        'sql TABLE "SELECT ... FROM self ORDER BY ..."',
    ),
    (re.compile(r"(?<=read it with )scan_table()"), 'sql TABLE "SELECT ... FROM self"'),
    (re.compile(r"(?<![\w.])reindex\(columns=\[\.\.\.\]\)()"), "reindex TABLE -c NAMES"),
    (re.compile(r"(?<![\w.])repair\(\)()"), "repair TABLE"),
    (re.compile(r"qbeast\.suggest_columns\(rows\)()"), "suggest SOURCE"),
    (re.compile(r"Table\.set_importance\(\{[^{}]*\}\)()"), "reindex TABLE --importance NAME=NUMBER"),
    (re.compile(rf"[Tt]able\.set_properties\(\{{{_PATH}: None\}}\)"), "set-properties TABLE --unset {}"),
    (re.compile(rf"[Tt]able\.set_properties\(\{{{_PATH}: {_PATH}\}}\)"), "set-properties TABLE {}={}"),
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
                from qbeast_core.support.frames import to_json

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
    text = _one_line(error.format_message())
    if isinstance(error, click.NoSuchOption):
        hint = _similar_option(error) or (f" Write `{' '.join([path, *arguments])}`." if arguments else "")
        text = f"No such option {error.option_name!r}.{hint}"
    elif isinstance(error, click.BadParameter) and isinstance(error.param, click.Option):
        text = text.rstrip(".") + _similar_value(error)
    elif _EXTRA.search(text) and error.ctx is not None:
        options = [item for item in error.ctx.command.params if {*_CHOSEN} & {*item.opts}]
        shown = [f"{max(item.opts, key=len)} {item.make_metavar(error.ctx)}" for item in options]
        text += f": write `{' '.join([path, *arguments, *shown])}`" if shown else ""
    return f"{text.rstrip('.')}; see `{path} --help`"


def _similar_value(error: click.BadParameter) -> str:
    """Return the value of an option for one in words of other programs, as a sentence after a space."""
    name = error.param.name if error.param is not None else None
    given = _GIVEN.match(error.message)
    if name is None or given is None or not isinstance(error.param and error.param.type, click.Choice):
        return ""
    hint = 'Write mode="append".' if (name, given[1]) == ("mode", "append") else value_hint(name, given[1])
    return f". {_in_shell(hint, None if error.ctx is None else error.ctx.command, ())}" if hint else ""


def _similar_option(error: click.NoSuchOption) -> str:
    """Return the most similar option of the command, as a sentence."""
    if error.ctx is None:
        return ""
    command = error.ctx.command
    options = [item for item in command.params if isinstance(item, click.Option)]
    names = [name for item in options for name in (*item.opts, *item.secondary_opts)]
    unknown = error.option_name.lstrip("-").replace("-", "_")
    ours = usual_arguments(unknown, [name.lstrip("-").replace("-", "_") for name in names])
    usual = (unknown, *(name.partition("=")[0] for name in ours))
    line = line_of(f"Table.{(command.name or '').replace('-', '_')}", usual)
    known = [option for name in usual if (option := _option_of(name, command))]
    if line and not known:
        return f" {_in_shell(line, command, ())}"
    if not known and {name.upper() for name in usual} & {*_arguments(error.ctx)}:
        return ""
    return did_you_mean([*known, error.option_name][:1], names, _SIMILAR)


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
            shown = f"`qbeast {text.format(*map(_shown, match.groups()))}`"
            message = message[: match.start()] + shown + message[match.end() :]
    message = message.replace('mode="append"', "`qbeast append`").replace(_OF_POLARS, "Write it in SQL.")
    message = _PAIR.sub(r"Write \1=\2", message)
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

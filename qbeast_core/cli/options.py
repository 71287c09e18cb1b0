"""Make commands of functions: the arguments and options that commands share, the open table, progress and warnings."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from qbeast_core.cli.answer import Answer, Settings

if TYPE_CHECKING:
    from qbeast_core.support.process import ProgressCallback

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
    return int(text) if text is not None and text.isdecimal() else text


def as_mapping(
    _ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    """Collect ``key=value`` texts, if there are any; the last one of a key counts."""
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            msg = "write it as key=value"  # the text may be a secret: it is not repeated
            raise click.BadParameter(msg, param=parameter)
        values[key] = value
    return values or None


def _as_numbers(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float] | None:
    """Collect ``key=number`` texts, if there are any."""
    values = as_mapping(ctx, parameter, texts)
    try:
        return None if values is None else {key: float(text) for key, text in values.items()}
    except ValueError as error:
        msg = "write it as key=number"
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
    callback=_as_numbers,
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


def columns_option(text: str, *, required: bool = False) -> Callable[[F], F]:
    """Return the option ``--columns``."""
    return names_option("-c --columns", text, required=required)


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
    return {name: options.pop(name) for name in _OPENING if name in options}


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

"""Commands on an open table; progress and warnings of all commands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.options import command, table_argument

if TYPE_CHECKING:
    from qbeast_core.support.runtime import ProgressCallback


# Options of commands that are arguments of `qbeast.open_table`.
_OPENING: Final = ("storage_options", "version", "allow_absolute_paths")


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
    from qbeast_core.progress import progress_bar

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", QbeastWarning)
        with progress_bar(doing) as progress:
            yield progress
    for warning in caught:
        if issubclass(warning.category, QbeastWarning):
            click.echo(f"{click.style('warning:', fg='yellow')} {warning.message}", err=True)

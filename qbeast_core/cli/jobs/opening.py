"""What every command does round its own work: open the table, show progress, print warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any, Final

import click

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.wording import spoken
from qbeast_core.table.runtime import Progress, ProgressCallback

__all__ = ["on_table", "working"]

_STAGES: Final = {
    "read": "reading",
    "plan": "planning",
    "write": "writing files",
    "commit": "committing",
    "done": "done",
}


def on_table(doing: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Decorate what is done with an open table: it is given the table, what reports progress, and the other options.

    Parameters
    ----------
    doing : str
        The verb beside the bar, ``"counting"``.
    """

    def decorate(job: Callable[..., Answer]) -> Callable[..., Answer]:
        @wraps(job)
        def run(
            table: str,
            *,
            storage_options: Mapping[str, str] | None,
            version: int | str | None = None,
            allow_absolute_paths: bool = False,
            **options: Any,
        ) -> Answer:
            with working(doing) as progress:
                opened = qbeast.open_table(
                    table,
                    version=version,
                    storage_options=storage_options,
                    allow_absolute_paths=allow_absolute_paths,
                )
                answer = job(opened, progress, **options)
            return replace(answer, data={"table": opened.uri, "version": opened.version, **answer.data})

        return run

    return decorate


@contextmanager
def working(doing: str) -> Generator[ProgressCallback | None]:
    """Show how far the work is, where the standard error is a terminal; print warnings, a line each, at the end.

    Yields
    ------
    callable or None
        For `progress=` of the library; None where nobody looks.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", qbeast.QbeastWarning)
        with _bar(doing) if sys.stderr.isatty() else nullcontext() as progress:
            yield progress
    for warning in caught:
        if issubclass(warning.category, qbeast.QbeastWarning):
            context = click.get_current_context(silent=True)
            text = spoken(warning.message, None if context is None else context.command)
            click.echo(f"{click.style('warning:', fg='yellow')} {text}", err=True)


@contextmanager
def _bar(doing: str) -> Generator[ProgressCallback]:
    """Draw a bar; nothing of it stays on the screen."""
    from rich import progress as bars  # noqa: PLC0415 - slow to load, and of use on terminals alone
    from rich.console import Console  # noqa: PLC0415 - the same

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[count]}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as screen:
        task = screen.add_task(doing, total=None, count="")

        def report(step: Progress) -> None:
            screen.update(
                task,
                description=f"{doing}: {_STAGES[step.stage]}",
                completed=step.files_done,
                total=step.files_total or None,
                count=_count(step),
            )

        yield report


def _count(step: Progress) -> str:
    if step.files_total:
        return f"{step.files_done:,} of {step.files_total:,} files"
    return f"{step.rows:,} rows" if step.rows else ""

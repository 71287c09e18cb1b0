"""What every command does round its own work: open the table, show progress, print warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any

import click

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.wording import spoken
from qbeast_core.progress import terminal_bar
from qbeast_core.runtime import ProgressCallback


def on_table(doing: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Decorate what is done with an open table: it is given the table, what reports progress, and the other options."""

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
    """Show how far the work is, where the standard error is a terminal; print warnings, a line each, at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", qbeast.QbeastWarning)
        with terminal_bar(doing) if sys.stderr.isatty() else nullcontext() as progress:
            yield progress
    for warning in caught:
        if issubclass(warning.category, qbeast.QbeastWarning):
            context = click.get_current_context(silent=True)
            text = spoken(warning.message, None if context is None else context.command)
            click.echo(f"{click.style('warning:', fg='yellow')} {text}", err=True)

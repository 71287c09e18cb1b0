"""Open the table of a command, show progress, print warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from qbeast_core.cli.answer import Answer

if TYPE_CHECKING:
    from qbeast_core.support.runtime import ProgressCallback


def on_table(doing: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Decorate a command that works on an open table: it gets the table, the progress callback and its options."""

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
            import qbeast

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
    """Show progress if the standard error is a terminal; print warnings, a line each, at the end."""
    from qbeast_core.errors import QbeastWarning
    from qbeast_core.progress import terminal_bar

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", QbeastWarning)
        with terminal_bar(doing) if sys.stderr.isatty() else nullcontext() as progress:
            yield progress
    for warning in caught:
        if issubclass(warning.category, QbeastWarning):
            click.echo(f"{click.style('warning:', fg='yellow')} {warning.message}", err=True)

"""Open the table that a command is about."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import click

import qbeast
from qbeast_core.cli.wording import spoken

__all__ = ["open_table", "warnings_told"]


def open_table(
    table: str,
    storage_options: Mapping[str, str],
    version: int | str | None = None,
    *,
    allow_absolute_paths: bool = False,
) -> qbeast.Table:
    """Open a table; see `qbeast.open_table`."""
    return qbeast.open_table(
        table,
        version=version,
        storage_options=dict(storage_options) or None,
        allow_absolute_paths=allow_absolute_paths,
    )


@contextmanager
def warnings_told() -> Generator[None]:
    """Print warnings of the library on the standard error, one line each, when the work is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", qbeast.QbeastWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, qbeast.QbeastWarning):
            click.echo(f"{click.style('warning:', fg='yellow')} {spoken(str(warning.message))}", err=True)

"""Change rows of a table: delete, update, merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.jobs.opening import on_table
from qbeast_core.cli.jobs.write import readable
from qbeast_core.cli.sources import SourceFormat, SourceOptions, read_sources, types_by_name
from qbeast_core.cli.standard_input import standard_input
from qbeast_core.errors import InvalidInputError
from qbeast_core.runtime import ProgressCallback
from qbeast_core.table.dml.plan import ChangeResult
from qbeast_core.table.engine.choice import EngineChoice


@on_table("deleting")
def delete(
    table: qbeast.Table,
    progress: ProgressCallback | None,
    *,
    where: str | None,
    all_rows: bool,
    **options: Any,
) -> Answer:
    """Delete rows."""
    return _told(table.delete(_rows(where, all_rows=all_rows), progress=progress, **options))


@on_table("updating")
def update(
    table: qbeast.Table,
    progress: ProgressCallback | None,
    *,
    where: str | None,
    all_rows: bool,
    set: Mapping[str, str] | None,  # noqa: A002 -- the option is called so
    **options: Any,
) -> Answer:
    """Give columns of some rows other values."""
    rows = _rows(where, all_rows=all_rows)
    if not set:
        msg = "say what to change: --set NAME=SQL; nothing was changed"
        raise InvalidInputError(msg, argument="set")
    return _told(table.update(rows, set, progress=progress, **options))


def merge(sources: Sequence[str], table: str, **options: Any) -> Answer:
    """Merge the rows of all sources."""
    with readable():
        return _merge(table, sources=sources, given=options["storage_options"], **options)


@on_table("merging")
def _merge(
    table: qbeast.Table,
    progress: ProgressCallback | None,
    *,
    sources: Sequence[str],
    given: Mapping[str, str] | None,
    file_format: SourceFormat | None,
    types: Mapping[str, str] | None,
    separator: str,
    null_values: Sequence[str],
    set: Mapping[str, str] | None,  # noqa: A002 -- the option is called so
    **options: Any,
) -> Answer:
    reading = SourceOptions(
        file_format=file_format,
        types=types_by_name(types or {}),
        expected=dict(table.schema),
        separator=separator,
        null_values=null_values,
        storage_options=given,
    )
    choice = EngineChoice(memory_bytes=options["memory_bytes"], spill_dir=options["spill_dir"])
    with standard_input(choice) as stdin:
        rows = read_sources(sources, reading, stdin)
        return _told(table.merge(rows, update=set, progress=progress, **options))


def _rows(where: str | None, *, all_rows: bool) -> str | Literal[True]:
    if (where is None) is not all_rows:
        msg = "say which rows: --where SQL, or --all; nothing was changed"
        raise InvalidInputError(msg, argument="where")
    return True if where is None else where


def _told(result: ChangeResult) -> Answer:
    return Answer(parts=(repr(result).removeprefix("ChangeResult: "),), data=result.to_dict())

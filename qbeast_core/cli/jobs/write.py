"""Rows of files into a table."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

import qbeast
from qbeast_core.cli.answer import Answer, Part
from qbeast_core.cli.grid import grid, size_text
from qbeast_core.cli.jobs.opening import working
from qbeast_core.cli.screen import remark
from qbeast_core.cli.sources import SourceFormat, SourceOptions, read_sources, types_by_name
from qbeast_core.cli.standard_input import standard_input
from qbeast_core.errors import InvalidInputError
from qbeast_core.plain_text import first_line
from qbeast_core.resources import Resources
from qbeast_core.table.write.write import WriteResult

if TYPE_CHECKING:
    from qbeast_core.table.write.target import Mode


def append(**options: Any) -> Answer:
    """Append the rows of all sources to a table; as `write`."""
    return write(mode="append", **options)


def write(
    sources: Sequence[str],
    table: str,
    *,
    mode: Mode,
    file_format: SourceFormat | None,
    types: Mapping[str, str] | None,
    separator: str,
    null_values: Sequence[str],
    storage_options: Mapping[str, str] | None,
    dry_run: bool,
    **options: Any,
) -> Answer:
    """Write the rows of all sources in one commit, or say what that would do."""
    reading = SourceOptions(
        file_format=file_format,
        types=types_by_name(types or {}),
        expected=_types_of(table, mode, options["columns"], storage_options),
        separator=separator,
        null_values=null_values,
        storage_options=storage_options,
    )
    resources = Resources(memory_bytes=options["memory_bytes"], spill_dir=options["spill_dir"])
    with working("writing") as progress, readable(), standard_input(resources) as stdin:
        rows = read_sources(sources, reading, stdin)
        result = qbeast.write_table(
            rows,
            table,
            **options,
            mode=mode,
            storage_options=storage_options,
            dry_run=dry_run,
            progress=progress,
        )
    parts = _planned_text(result) if dry_run else _result_text(result)
    return Answer(parts=parts, data={"table": table, **result.to_dict()})


def suggest(
    sources: Sequence[str],
    *,
    queries: Sequence[str],
    most: int,
    table_rows: int | None,
    file_format: SourceFormat | None,
    types: Mapping[str, str] | None,
    separator: str,
    null_values: Sequence[str],
    storage_options: Mapping[str, str] | None,
    memory_bytes: int | None,
    spill_dir: str | None,
) -> Answer:
    """Propose columns to index, from the rows of all sources."""
    reading = SourceOptions(
        file_format=file_format,
        types=types_by_name(types or {}),
        separator=separator,
        null_values=null_values,
        storage_options=storage_options,
    )
    resources = Resources(memory_bytes=memory_bytes, spill_dir=spill_dir)
    with working("reading"), readable(), standard_input(resources) as stdin:
        found = qbeast.suggest_columns(
            read_sources(sources, reading, stdin), list(queries) or None, most=most, table_rows=table_rows
        )
    facts = {
        "columns": list(found.columns),
        "design_effect": found.design_effect,
        "opened": found.opened,
        "reasons": found.frame.to_dicts(),
    }
    reasons = grid(("column", "why"), found.frame.select("column", "reason").rows())
    effect = remark(f"design effect of samples {found.design_effect:.2f}")
    return Answer(parts=(f"--columns {','.join(found.columns)}", reasons, effect), data=facts)


def _types_of(
    table: str, mode: Mode, columns: Sequence[str] | None, storage_options: Mapping[str, str] | None
) -> Mapping[str, pl.DataType]:
    """Return the types that an append brings text into; none where the table is still to be made."""
    if mode != "append":
        return {}
    try:
        return dict(qbeast.open_table(table, storage_options=storage_options).schema)
    except qbeast.TableNotFoundError:
        if columns is None:
            raise
        return {}


@contextmanager
def readable() -> Generator[None]:
    """Take what Polars cannot read for what it is: a source that is damaged, or not what its name says."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        msg = (
            f"the sources cannot be read as rows: {first_line(str(error))}; nothing was written. Look at --format, "
            "--separator, --null-value and --type."
        )
        raise InvalidInputError(msg, argument="sources") from error


def _result_text(result: WriteResult) -> tuple[Part, ...]:
    if not result.written:
        return (f"nothing was written: version {result.version} stays as it is",)
    what = f"version {result.version}: {result.rows:,} rows in {result.files:,} file(s), {size_text(result.bytes)}"
    if result.spilled_bytes:
        what += f"; {size_text(result.spilled_bytes)} went through temporary files"
    return what, _index_text(result)


def _planned_text(planned: WriteResult) -> tuple[Part, ...]:
    if planned.skipped:
        return (f"a dry run: nothing would be written, version {planned.version} stays as it is",)
    where = "a new table" if planned.version < 0 else f"version {planned.version + 1}"
    return (
        f"a dry run: {where} would get {planned.rows:,} rows in {planned.files:,} file(s); nothing was written",
        _index_text(planned),
    )


def _index_text(outcome: WriteResult) -> str:
    kinds = ", ".join(f"{name}:{kind}" for name, kind in outcome.transformers.items())
    new = "new revision" if outcome.new_revision else "revision"
    return f"{new} {outcome.revision_id}, indexed by {kinds}; {outcome.cubes:,} cubes of {outcome.cube_size:,} rows"

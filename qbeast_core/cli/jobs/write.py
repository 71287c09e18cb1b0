"""Rows of files into a table."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

import qbeast
from qbeast_core.cli.answer import Answer, Part
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.grid import size_text
from qbeast_core.cli.jobs.opening import open_table, warnings_told
from qbeast_core.cli.sources import SourceFormat, SourceOptions, read_sources, types_by_name
from qbeast_core.cli.wording import first_line
from qbeast_core.errors import InvalidInputError
from qbeast_core.table.runtime import RUNTIME
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.write import WritePreview, WriteResult, preview_frame

if TYPE_CHECKING:
    from qbeast_core.table.write.target import Mode

__all__ = ["write_sources"]


def write_sources(
    sources: Sequence[str],
    table: str,
    *,
    mode: Mode,
    file_format: SourceFormat | None,
    types: Mapping[str, str],
    separator: str,
    null_values: Sequence[str],
    storage_options: Mapping[str, str],
    dry_run: bool,
    **options: Any,
) -> Answer:
    """Write or append the rows of all sources in one commit, or say what that would do."""
    reading = SourceOptions(
        file_format=file_format,
        types=types_by_name(types),
        expected=_types_of(table, mode, options["columns"], storage_options),
        separator=separator,
        null_values=null_values,
        storage_options=storage_options,
    )
    store = dict(storage_options) or None
    with progress_bar("writing") as progress, warnings_told(), _readable():
        rows = read_sources(sources, reading)
        asked: dict[str, Any] = {**options, "mode": mode, "storage_options": store, "progress": progress}
        if dry_run:
            preview = preview_frame(rows, table, WriteOptions(**asked), RUNTIME)
            return Answer(parts=_preview_text(preview), data=_facts(table, preview, dry_run=True))
        result = qbeast.write_table(rows, table, **asked)
    return Answer(parts=_result_text(result), data=_facts(table, result, dry_run=False))


def _types_of(
    table: str, mode: Mode, columns: Sequence[str] | None, storage_options: Mapping[str, str]
) -> Mapping[str, pl.DataType]:
    """Return the types that an append brings text into; none where the table is still to be made."""
    if mode != "append":
        return {}
    try:
        return dict(open_table(table, storage_options).schema)
    except qbeast.TableNotFoundError:
        if columns is None:
            raise
        return {}


@contextmanager
def _readable() -> Generator[None]:
    """Take what Polars cannot read for what it is: a source that is damaged, or not what its name says."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        msg = (
            f"the sources cannot be read as rows: {first_line(str(error))}; nothing was written. Look at --format, "
            "--separator, --null-value and --type."
        )
        raise InvalidInputError(msg, argument="sources") from error


def _facts(table: str, outcome: WriteResult | WritePreview, *, dry_run: bool) -> dict[str, Any]:
    return {"table": table, "dry_run": dry_run, **asdict(outcome)}


def _result_text(result: WriteResult) -> tuple[Part, ...]:
    if not result.written:
        return (f"nothing was written: version {result.version} stays as it is",)
    return (
        f"version {result.version}: {result.rows:,} rows in {result.files:,} file(s), {size_text(result.bytes)}",
        _index_text(result),
    )


def _preview_text(preview: WritePreview) -> tuple[Part, ...]:
    if not preview.would_write:
        return (f"a dry run: nothing would be written, version {preview.version} stays as it is",)
    where = "a new table" if preview.version < 0 else f"version {preview.version + 1}"
    return (
        f"a dry run: {where} would get {preview.rows:,} rows in {preview.files:,} file(s); nothing was written",
        _index_text(preview),
    )


def _index_text(outcome: WriteResult | WritePreview) -> str:
    kinds = ", ".join(f"{name}:{kind}" for name, kind in outcome.transformers.items())
    new = "new revision" if outcome.new_revision else "revision"
    return f"{new} {outcome.revision_id}, indexed by {kinds}; {outcome.cubes:,} cubes of {outcome.cube_size:,} rows"

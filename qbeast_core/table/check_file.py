"""One data file, checked from end to end in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from qbeast_core.errors import StorageError, UnsupportedTableError
from qbeast_core.io.store import Store
from qbeast_core.spec.layout import PageLayout
from qbeast_core.table.check_faults import Fault
from qbeast_core.table.check_pages import Unreadable, check_pages, read_footer
from qbeast_core.table.check_places import (
    Finding,
    Placement,
    check_hidden_weights,
    place_foreign_rows,
    place_our_rows,
)
from qbeast_core.table.check_statistics import compare_statistics, summaries_of
from qbeast_core.table.frames import WEIGHT_COLUMN
from qbeast_core.table.whole_batches import SCAN_ERRORS
from qbeast_core.table.whole_files import scan_files

__all__ = ["FileCheck", "check_file", "stored_size"]

_CHUNK_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileCheck:
    """A live file, and all that the log says of it.

    Attributes
    ----------
    path : str
        Decoded.
    revision : int or None
        By its tag.
    record : polars.DataFrame
        Its row of the snapshot's files.
    ours : bool
        Whether we wrote it.
    indexed : tuple of str
        The table's indexed columns; none where rows have no weights any more.
    reserved : bool
        Whether another writer added a column of the hidden one's name: files of others may hold its values.
    placement : Placement or None
        Its blocks, if they can be used; None: it is staged.
    layout : PageLayout or None
        Its pages, if it tells of them.
    """

    path: str
    revision: int | None
    record: pl.DataFrame
    ours: bool
    indexed: tuple[str, ...]
    reserved: bool = False
    placement: Placement | None = None
    layout: PageLayout | None = None
    schema: pl.Schema = field(repr=False)

    @property
    def num_records(self) -> int | None:
        """Rows by its statistics."""
        found: Any = self.record["num_records"][0]
        return None if found is None else int(found)


def stored_size(store: Store, path: str) -> int | None:
    """Return the bytes of a data file; None: it is not there, or must not be opened.

    Raises
    ------
    StorageError
        If the store cannot tell.
    """
    try:
        return store.size(path)
    except (FileNotFoundError, UnsupportedTableError):
        return None


def check_file(store: Store, job: FileCheck, storage_options: dict[str, str]) -> list[Fault]:
    """Read a file and check it against its tags and statistics.

    Parameters
    ----------
    store : Store
        Where it is.
    job : FileCheck
        The file.
    storage_options : dict
        For readers of their own.

    Returns
    -------
    list of Fault
        Empty if it is sound. A missing file is none of this function's faults.

    Raises
    ------
    StorageError
        If the store refuses, and not the file.
    """
    size = stored_size(store, job.path)
    if size is None:
        return []
    try:
        footer = read_footer(store, job.path, size)
        groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        names = footer.schema.to_arrow_schema().names
        findings = [
            *_statistics_of(store, job, sum(groups), storage_options),
            *_places_of(store, job, sum(groups), storage_options, hidden=_holds_weights(job, names)),
        ]
        if (WEIGHT_COLUMN in names or _asks_hidden(job)) and job.ours and names[-1] != WEIGHT_COLUMN:
            findings.append(Finding("hidden-weight", f"{WEIGHT_COLUMN} is not its last column"))
        if job.ours and job.layout is not None:
            findings += check_pages(store, job.path, size, job.layout)
    except (Unreadable, *SCAN_ERRORS) as error:
        return [_fault(job, Finding("file-unreadable", f"it cannot be read: {error}"), [])]
    except StorageError:
        raise
    except OSError as error:
        return [_fault(job, Finding("file-unreadable", f"it cannot be read: {error}"), [])]
    return [_fault(job, finding, groups) for finding in findings]


def _asks_hidden(job: FileCheck) -> bool:
    """Tell whether a file of ours has to have the hidden column; those for JVMs do without."""
    return job.layout is not None and job.layout.has_hidden_weights


def _holds_weights(job: FileCheck, names: list[str]) -> bool:
    return WEIGHT_COLUMN in names and (job.ours or not job.reserved)


def _fault(job: FileCheck, finding: Finding, groups: list[int]) -> Fault:
    group = None if finding.row is None else _group_of(finding.row, groups)
    return Fault(
        code=finding.code,
        message=finding.message,
        path=job.path,
        revision=job.revision,
        cube=finding.cube,
        row_group=group,
        row=finding.row,
    )


def _group_of(row: int, groups: list[int]) -> int | None:
    for number, rows in enumerate(groups):
        if row < rows:
            return number
        row -= rows
    return None


def _statistics_of(store: Store, job: FileCheck, rows: int, options: dict[str, str]) -> Iterator[Finding]:
    if job.num_records is not None and job.num_records != rows:
        yield Finding("rows-count", f"it holds {rows:,} rows, its statistics tell of {job.num_records:,}")
    if rows:
        whole = scan_files(store, [job.path], list(job.schema), job.schema, storage_options=options)
        found = whole.select(summaries_of(job.schema)).collect(engine="streaming")
        yield from compare_statistics(found, job.record, job.schema, ours=job.ours)


def _places_of(
    store: Store, job: FileCheck, rows: int, options: dict[str, str], *, hidden: bool
) -> Iterator[Finding]:
    """Check blocks where they account for every row, and the hidden column in any case: Spark goes by it."""
    placement = job.placement
    told = None if placement is None else int(placement.blocks["rows"].sum())
    if told not in {None, rows} and job.num_records != rows:  # else the log alone tells
        yield Finding("block-rows", f"it holds {rows:,} rows, its blocks {told:,}")
    if placement is not None and told == rows:
        if job.ours:
            chunks = _chunks(store, job, rows, options, hidden=hidden or _asks_hidden(job))
            yield from place_our_rows(chunks, placement, job.layout)
            return
        yield from place_foreign_rows(_chunks(store, job, rows, options, hidden=False), placement)
    if hidden and job.indexed:
        yield from check_hidden_weights(_chunks(store, job, rows, options, hidden=True), job.indexed)


def _chunks(
    store: Store, job: FileCheck, rows: int, options: dict[str, str], *, hidden: bool
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the indexed columns of all rows, some at a time."""
    schema = pl.Schema({**job.schema, WEIGHT_COLUMN: pl.Int32()})
    columns = [*job.indexed, WEIGHT_COLUMN] if hidden else list(job.indexed)
    scan = scan_files(store, [job.path], columns, schema, storage_options=options)
    for start in range(0, rows, _CHUNK_ROWS):
        yield start, scan.slice(start, _CHUNK_ROWS).collect()

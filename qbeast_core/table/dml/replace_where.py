"""Replace the rows that match a condition with new rows, in one commit."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Protocol, cast

import orjson

from qbeast_core.errors import InvalidColumnsError, invalid_argument
from qbeast_core.io.location import Location
from qbeast_core.table.data.expressions import Predicate, condition_of
from qbeast_core.table.dml.change import ChangeOptions, Delete, run_change
from qbeast_core.table.dml.plan import ChangedBy, ChangePlan, ChangeResult
from qbeast_core.table.dml.tasks import Fit, Outside, fit_rows
from qbeast_core.table.engine.engine import Engine, Source
from qbeast_core.table.engine.local import LocalEngine
from qbeast_core.table.engine.row_change import (
    SUFFIX,
    AddedFiles,
    AddedFrame,
    AddedRows,
    StoredPart,
    as_bytes,
)
from qbeast_core.table.engine.sources import FrameSource, marked_table, numbered_source, required_columns
from qbeast_core.table.index.counts import counts_of
from qbeast_core.table.index.revision import resolve_specs
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.prepare import prepare
from qbeast_core.table.write.write import WriteResult, on_table, write_rows

# Copies of the rows in memory: as given, fitted, written.
_COPIES: Final = 4


class RowKeeper(Protocol):
    """Reads new rows, and keeps them where the change can read them several times."""

    def kept(self, source: Source, fit: Fit) -> tuple[AddedRows, Outside]:
        """Return the rows like rows of files, and those that do not match the condition."""
        ...

    def checked(self, source: Source, fit: Fit) -> tuple[Source, Outside]:
        """Return the rows of a new table, and those that do not match the condition."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LocalKeeper:
    """Keeps rows in memory, or in temporary files if they do not fit; see `RowKeeper`."""

    engine: LocalEngine

    def kept(self, source: Source, fit: Fit) -> tuple[AddedRows, Outside]:
        """See `RowKeeper`."""
        taken = self.engine.take(source, copies=_COPIES)
        if isinstance(taken, FrameSource):
            rows, outside = fit(taken.frame)
            return AddedFrame(rows), outside
        spill, parts, outside = self.engine.spill, list[StoredPart](), Outside()
        for batch in taken.batches(None, size_bytes=spill.budget.batch_bytes):
            rows, others = fit(batch)
            outside += others
            path = Path(spill.folder.new_path() + SUFFIX)
            with spill.folder.writing():
                spill.report(path.write_bytes(as_bytes(rows)))
            parts.append(StoredPart(path.name, rows.height, int(rows.estimated_size())))
        return AddedFiles(Location.of(spill.folder.path), tuple(parts)), outside

    def checked(self, source: Source, fit: Fit) -> tuple[Source, Outside]:
        """See `RowKeeper`."""
        taken, outside = self.engine.take(source, copies=_COPIES), Outside()
        for batch in taken.batches(None, size_bytes=self.engine.budget.batch_bytes):
            outside += fit(batch)[1]
        return taken, outside


@dataclass(frozen=True)
class ReplaceWhere(Delete):
    """Deletes the matching rows, and adds rows that match too."""

    operation: ClassVar[ChangedBy] = "WRITE"
    adds_rows: ClassVar[bool] = True

    source: Source
    options: WriteOptions
    keeper: RowKeeper

    def with_new_columns(self, snapshot: Snapshot) -> Snapshot:
        """Return the version with the columns that the rows add."""
        return prepare(self.source.empty, snapshot, self.options).table

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        prepared, condition = prepare(self.source.empty, snapshot, self.options), self.condition(snapshot)
        source = numbered_source(self.source, prepared.drawn)
        fit = partial(fit_rows, prepared.target.shape, condition, snapshot.copied_schema)
        added, outside = self.keeper.kept(source, fit)
        outside.refuse(self.predicate)
        plan = super().plan(snapshot, engine)
        columns = orjson.dumps(list(snapshot.metadata.partition_columns)).decode()
        return replace(
            plan,
            replacement=replace(plan.replacement, added=added, keeps_keys=False),
            schema_json=marked_table(source, snapshot, added.height).schema_json,
            parameters={
                "mode": "Overwrite",
                "partitionBy": columns,
                "predicate": condition.text,
            },
            counts={**plan.counts, "numOutputRows": added.height},
        )


def replace_where(
    source: Source,
    path: str | os.PathLike[str] | Location,
    options: WriteOptions,
    *,
    engine: Engine,
    keeper: RowKeeper,
) -> WriteResult:
    """Replace the rows that match `options.where`; see `qbeast.write_table`. A missing table is created."""

    def attempt(before: Snapshot) -> WriteResult:
        write = _created if before.is_new else _replaced
        return write(source, before, options, engine, keeper)

    return on_table(path, options, attempt)


def _created(
    source: Source, before: Snapshot, options: WriteOptions, engine: Engine, keeper: RowKeeper
) -> WriteResult:
    """Create the table with the rows."""
    new = replace(options, where=None, mode="error")
    shape = prepare(source.empty, before, new, required=required_columns(source)).target.shape
    fit = partial(fit_rows, shape, condition_of(options.where, shape.schema), shape.schema)
    rows, outside = keeper.checked(source, fit)
    outside.refuse(options.where)
    return write_rows(rows, before.location, new, engine=engine)


def _replaced(
    source: Source, before: Snapshot, options: WriteOptions, engine: Engine, keeper: RowKeeper
) -> WriteResult:
    _refuse_new_index(before, options)
    # Only the columns, the schema and settings of the table are checked again.
    options = replace(options, mode="append", columns=None, cube_size=None)
    change = ReplaceWhere(cast("Predicate", options.where), source, options, keeper)
    common = ChangeOptions(
        dry_run=options.dry_run,
        txn=options.txn,
        commit_metadata=options.commit_metadata,
        progress=options.progress,
    )
    result, newest = run_change(before, change, common, engine=engine)
    return _written(result, newest or before, options)


def _written(result: ChangeResult, newest: Snapshot, options: WriteOptions) -> WriteResult:
    """Return the result of a change as the result of a write."""
    written = WriteResult.of(
        newest.config.latest,
        version=result.version,
        rows=result.rows_inserted,
        design_effect=counts_of(newest).design_effect,
    )
    return replace(
        written,
        committed=result.committed,
        files=result.files,
        bytes=result.bytes,
        cubes=result.cubes,
        new_revision=result.new_revision,
        attempts=result.attempts,
        rows_deleted=result.rows_deleted,
        rows_copied=result.rows_copied,
        copies=result.copies,
        hint=result.hint,
        dry_run=result.dry_run,
        skipped=not (result.committed or options.dry_run),
    )


def _refuse_new_index(target: Snapshot, options: WriteOptions) -> None:
    """Raise if options of the write would change the index: only an overwrite of all rows does."""
    latest = target.config.latest
    if options.columns is not None and resolve_specs(options.columns, latest) and latest is None:
        msg = (
            "the table has no index, and a write with `where` does not begin one. Leave `columns` out; "
            "Table.reindex indexes the table."
        )
        raise InvalidColumnsError(msg, value=options.columns)
    size = None if latest is None else latest.desired_cube_size
    if options.cube_size not in (None, size):
        problem = f"must be left out with `where`: the cubes of the table have {size} rows"
        invalid_argument("cube_size", problem, value=options.cube_size)
    if options.schema_mode == "overwrite":
        invalid_argument("schema_mode", "must be 'merge' or None with `where`", value=options.schema_mode)

"""Columns that a merge adds to the table."""

from __future__ import annotations

import polars as pl

from qbeast_core.errors import SchemaMismatchError
from qbeast_core.table.data.column_names import name_problems
from qbeast_core.table.data.schema import case_problems, merged_schema
from qbeast_core.table.dml.merge.clauses import Clauses
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.snapshot.with_schema import with_schema


def evolved(snapshot: Snapshot, source: pl.DataFrame, clauses: Clauses) -> Snapshot:
    """Return the version with the new columns of the source if ``schema_mode="merge"``, else the version."""
    if clauses.schema_mode is None:
        return snapshot
    named = {*(clauses.update or ()), *(clauses.insert or ())}
    new = {
        name: dtype
        for name, dtype in source.schema.items()
        if name not in snapshot.schema
        and dtype != pl.Null()
        and (clauses.needs_every_column or name in named)
    }
    problems = [*case_problems(list(new), snapshot.schema), *name_problems(pl.Schema(new))]
    if problems:
        msg = f"the source's new columns cannot be added to the table: {'; '.join(problems)}. Nothing was changed."
        raise SchemaMismatchError(msg, problems=problems)
    return with_schema(snapshot, merged_schema(snapshot.schema_json, snapshot.schema, new))

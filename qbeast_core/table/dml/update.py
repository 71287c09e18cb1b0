"""Give columns of some rows other values: files that hold none of these rows are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import orjson
import polars as pl

from qbeast_core.table.data.expressions import Condition, Value
from qbeast_core.table.dml.change import Change, ChangedBy, ChangePlan, RowsMeant
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.dml.values import Assignments, assignments_of
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader

__all__ = ["Update"]


@dataclass(frozen=True)
class Update(RowsMeant, Change):
    """Rows to change, None: all of them; and what of them."""

    operation: ClassVar[ChangedBy] = "UPDATE"

    assignments: Mapping[str, Value]

    def plan(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows in a version."""
        snapshot = reader.snapshot
        condition = self.condition(reader)
        assignments = assignments_of(self.assignments, snapshot, snapshot.schema)
        matches = count_matches(reader, condition, engine)
        updated = int(matches.rows.sum())
        return ChangePlan(
            matches=matches,
            drops=np.zeros(len(matches.files), np.bool_),
            change=_With(condition, assignments),
            keeps_keys=not set(assignments.columns) & set(reader.indexed),
            updated=updated,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numUpdatedRows": updated},
        )


@dataclass(frozen=True, slots=True)
class _With:
    """Rows as they will be."""

    condition: Condition
    assignments: Assignments

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        # Values are computed for the rows that are meant alone: others may not have any.
        meant = self.condition.mask(rows)
        return pl.concat([rows.filter(~meant), self.assignments.apply(rows.filter(meant))])

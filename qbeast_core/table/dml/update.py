"""Give columns of some rows other values: files that hold none of these rows are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import orjson

from qbeast_core.table.data.expressions import Value
from qbeast_core.table.dml.change import Change, ChangedBy, ChangePlan, RowsMeant
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.dml.row_changes import UpdatedRows
from qbeast_core.table.dml.values import assignments_of
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader


@dataclass(frozen=True)
class Update(RowsMeant, Change):
    """Rows to change, True: all of them; and their new values."""

    operation: ClassVar[ChangedBy] = "UPDATE"

    assignments: Mapping[str, Value]

    def plan(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows in a version."""
        snapshot = reader.snapshot
        condition = self.condition(reader)
        assignments = assignments_of(self.assignments, snapshot, snapshot.schema)
        matches = count_matches(reader, condition, engine)
        updated = int(matches.rows.sum())
        keeps_keys = not set(assignments.columns) & set(reader.indexed)
        return ChangePlan(
            matches=matches,
            drops=np.zeros(len(matches.files), np.bool_),
            change=UpdatedRows(condition, assignments),
            keeps_keys=keeps_keys,
            in_place=matches.files if keeps_keys else matches.files[:0],
            updated=updated,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numUpdatedRows": updated},
        )

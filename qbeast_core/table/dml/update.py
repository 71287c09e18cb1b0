"""Update rows. Files without a matching row stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import orjson

from qbeast_core.table.data.expressions import Value
from qbeast_core.table.dml.change import Change, MatchedRows
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.dml.plan import ChangedBy, ChangePlan
from qbeast_core.table.dml.row_changes import UpdatedRows
from qbeast_core.table.dml.values import assignments_of, rules_of_version
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.rewrite.replace import Replacement
from qbeast_core.table.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Update(MatchedRows, Change):
    """Sets new values in the matching rows."""

    operation: ClassVar[ChangedBy] = "UPDATE"

    assignments: Mapping[str, Value]

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        condition = self.condition(snapshot)
        rules = rules_of_version(snapshot, given=snapshot.schema)
        assignments = assignments_of(self.assignments, snapshot, snapshot.schema, rules)
        assignments = assignments.of_updates(snapshot.row_id_columns)
        matches = count_matches(snapshot, condition, engine)
        updated = int(matches.rows.sum())
        keeps_keys = not set(assignments.columns) & set(snapshot.key_columns)
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=matches.files,
                change=UpdatedRows(condition, assignments),
                keeps_keys=keeps_keys,
                in_place=matches.files if keeps_keys else matches.files[:0],
            ),
            updated=updated,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numUpdatedRows": updated},
        )

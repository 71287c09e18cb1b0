"""Delete rows. Files without a matching row stay. Files in which all rows match are dropped without a read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import orjson

from qbeast_core.table.dml.change import Change, MatchedRows
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.dml.plan import ChangedBy, ChangePlan
from qbeast_core.table.dml.row_changes import DeletedRows
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.rewrite.replace import Replacement
from qbeast_core.table.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Delete(MatchedRows, Change):
    """Deletes the matching rows."""

    operation: ClassVar[ChangedBy] = "DELETE"
    adds_rows: ClassVar[bool] = False

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        condition = self.condition(snapshot)
        matches = count_matches(snapshot, condition, engine)
        deleted = int(matches.rows.sum())
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=matches.files[~matches.whole],
                dropped=matches.files[matches.whole],
                change=DeletedRows(condition),
                keeps_keys=True,
            ),
            deleted=deleted,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numDeletedRows": deleted},
        )

"""Delete rows: files that hold none of them are left alone, files that hold nothing else are dropped unread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import orjson

from qbeast_core.log.protocol import Brings
from qbeast_core.table.dml.change import Change, ChangedBy, ChangePlan, RowsMeant
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.dml.row_changes import DeletedRows
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader


@dataclass(frozen=True)
class Delete(RowsMeant, Change):
    """Rows to delete; True: all of them."""

    operation: ClassVar[ChangedBy] = "DELETE"
    brings: ClassVar[Brings] = "files"

    def plan(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows in a version."""
        condition = self.condition(reader)
        matches = count_matches(reader, condition, engine)
        deleted = int(matches.rows.sum())
        return ChangePlan(
            matches=matches,
            drops=matches.whole,
            change=DeletedRows(condition),
            keeps_keys=True,
            deleted=deleted,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numDeletedRows": deleted},
        )

"""Delete or update the rows that match a condition. Files without a matching row stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import orjson

from qbeast_core.errors import invalid_argument
from qbeast_core.space.values import BoolArray
from qbeast_core.table.data.expressions import Condition, Predicate, Value, condition_of
from qbeast_core.table.dml.change import Change, assignments_of, rules_of_version
from qbeast_core.table.dml.change_plan import ChangedBy, ChangePlan
from qbeast_core.table.dml.file_matches import find_matches
from qbeast_core.table.dml.row_changes import DeletedRows, UpdatedRows
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.rewrite.replace import Replacement
from qbeast_core.table.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class MatchedRows:
    """Rows that match a condition. True matches all rows."""

    predicate: Predicate | Literal[True]

    def __post_init__(self) -> None:
        where = cast("object", self.predicate)
        problem = "must be a condition, or True for all rows"
        if isinstance(where, Mapping):
            problem += ", and comes before the values: update(where, set)"
        if where is None or where is False or isinstance(where, Mapping):
            invalid_argument("where", problem, value=where)

    def condition(self, snapshot: Snapshot) -> Condition:
        """Return the condition for the columns of a version."""
        return condition_of(None if self.predicate is True else self.predicate, snapshot.schema)

    def affects(self, snapshot: Snapshot, files: BoolArray, engine: Engine) -> bool:
        """Return whether a row of the files matches."""
        return bool(len(find_matches(snapshot, self.condition(snapshot), engine, among=files).files))


@dataclass(frozen=True)
class Delete(MatchedRows, Change):
    """Deletes the matching rows."""

    operation: ClassVar[ChangedBy] = "DELETE"
    adds_rows: ClassVar[bool] = False

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        condition = self.condition(snapshot)
        matches = find_matches(snapshot, condition, engine)
        deleted, is_marked = int(matches.rows.sum()), matches.markable(snapshot)
        rewritten = matches.files[~matches.whole & ~is_marked]
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=rewritten,
                in_place=rewritten,
                dropped=matches.files[matches.whole],
                change=DeletedRows(condition),
                keeps_keys=True,
                hidden=matches.found_in(is_marked),
            ),
            deleted=deleted,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numDeletedRows": deleted},
        )


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
        matches = find_matches(snapshot, condition, engine)
        updated = int(matches.rows.sum())
        keeps_keys = not set(assignments.columns) & set(snapshot.key_columns)
        is_marked = matches.markable(snapshot)
        rewritten, moved = matches.files[~is_marked], matches.found_in(is_marked)
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=rewritten,
                change=UpdatedRows(condition, assignments),
                keeps_keys=keeps_keys,
                in_place=rewritten if keeps_keys else rewritten[:0],
                hidden=moved,
                moved=moved,
            ),
            updated=updated,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numUpdatedRows": updated},
        )

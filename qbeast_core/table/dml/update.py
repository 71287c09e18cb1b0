"""Give columns of some rows other values: files that hold none of these rows are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import orjson
import polars as pl

from qbeast_core.log.protocol import Brings, WriteMode
from qbeast_core.space.arrays import BoolArray
from qbeast_core.table.data.expressions import Condition, Predicate, Value, condition_of
from qbeast_core.table.dml.change import ChangedBy, ChangePlan
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.dml.values import Assignments, assignments_of
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader

__all__ = ["Update"]


@dataclass(frozen=True, slots=True)
class Update:
    """Rows to change, None: all of them; and what of them."""

    predicate: Predicate | None
    assignments: Mapping[str, Value]

    @property
    def operation(self) -> ChangedBy:
        """Its name in the history."""
        return "UPDATE"

    @property
    def mode(self) -> WriteMode:
        """Rows change."""
        return "overwrite"

    @property
    def brings(self) -> Brings:
        """Rows change."""
        return "rows"

    def work(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows in a version."""
        snapshot = reader.snapshot
        condition = self._condition(reader)
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

    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether one of the files holds such a row."""
        return bool(len(count_matches(reader, self._condition(reader), engine, among=files).files))

    def _condition(self, reader: Reader) -> Condition:
        return condition_of(self.predicate, reader.snapshot.schema)


@dataclass(frozen=True, slots=True)
class _With:
    """Rows as they will be."""

    condition: Condition
    assignments: Assignments

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        # Values are computed for the rows that are meant alone: others may not have any.
        meant = self.condition.mask(rows)
        return pl.concat([rows.filter(~meant), self.assignments.apply(rows.filter(meant))])

"""Delete rows: files that hold none of them are left alone, files that hold nothing else are dropped unread."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import polars as pl

from qbeast_core.log.protocol import Brings, WriteMode
from qbeast_core.space.arrays import BoolArray
from qbeast_core.table.data.expressions import Condition, Predicate, condition_of
from qbeast_core.table.dml.change import ChangedBy, ChangePlan
from qbeast_core.table.dml.match import count_matches
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader

__all__ = ["Delete"]


@dataclass(frozen=True, slots=True)
class Delete:
    """Rows to delete; None: all of them."""

    predicate: Predicate | None

    @property
    def operation(self) -> ChangedBy:
        """Its name in the history."""
        return "DELETE"

    @property
    def mode(self) -> WriteMode:
        """Rows go."""
        return "overwrite"

    @property
    def brings(self) -> Brings:
        """Rows only go."""
        return "files"

    def work(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows in a version."""
        condition = self._condition(reader)
        matches = count_matches(reader, condition, engine)
        deleted = int(matches.rows.sum())
        return ChangePlan(
            matches=matches,
            drops=matches.whole,
            change=_Without(condition),
            keeps_keys=True,
            deleted=deleted,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numDeletedRows": deleted},
        )

    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether one of the files holds such a row."""
        return bool(len(count_matches(reader, self._condition(reader), engine, among=files).files))

    def _condition(self, reader: Reader) -> Condition:
        return condition_of(self.predicate, reader.snapshot.schema)


@dataclass(frozen=True, slots=True)
class _Without:
    """Rows that stay."""

    condition: Condition

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(~self.condition.mask(rows))

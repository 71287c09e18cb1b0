"""Keys of the rows that a merge inserts: it refuses to insert rows with equal keys, by default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.table.dml.merge.rules import MergeRules


@dataclass(frozen=True, slots=True)
class DoubledKeys:
    """Rows to insert with the key of another one."""

    rows: int = 0
    example: Mapping[str, object] | None = None

    @staticmethod
    def sum(parts: Iterable[DoubledKeys]) -> DoubledKeys:
        """Add up the rows of parts without common keys."""
        doubled = [part for part in parts if part.rows]
        return (
            DoubledKeys(sum(part.rows for part in doubled), doubled[0].example) if doubled else DoubledKeys()
        )

    def refuse(self) -> None:
        """Raise if there are such rows."""
        if self.rows:
            msg = (
                f"{self.rows} row(s) of the source match no row of the table and have the key of another such row, for "
                f"example {self.example}. Leave one row per key in the source, or pass "
                'duplicates="insert" to insert all of them.'
            )
            raise InvalidInputError(msg, argument="duplicates", value="error", known=["insert"])


class NewKeys:
    """Collects the keys of rows to insert, in several calls. A null equals nothing."""

    def __init__(self, rules: MergeRules) -> None:
        self._names = list(rules.clauses.keys)
        self._is_checked = rules.clauses.duplicates == "error"
        self._keys = rules.empty_source.select(self._names)
        self.doubled = DoubledKeys()

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows of the source."""
        if not self._is_checked:
            return
        keys = pl.concat([self._keys, rows.select(self._names).drop_nulls()])
        self._keys = keys.unique()
        if self._keys.height < keys.height:
            example = keys.filter(keys.is_duplicated()).row(0, named=True)
            self.doubled = DoubledKeys.sum(
                [self.doubled, DoubledKeys(keys.height - self._keys.height, example)]
            )

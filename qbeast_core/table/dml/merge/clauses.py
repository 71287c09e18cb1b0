"""Clauses of a merge: actions for matching rows, and for rows of the source or the table without a match."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import polars as pl

from qbeast_core.errors import InvalidInputError, check_choice, invalid_argument, unknown_columns
from qbeast_core.table.data.expressions import Condition, Value, Where, condition_of

# Action for rows of the table that match a row of the source.
WhenMatched: TypeAlias = Literal["update", "delete", "ignore"]

# Action for rows of the source that match no row of the table.
WhenNew: TypeAlias = Literal["insert", "ignore"]

# What to do if rows of the source without a match have equal keys.
Duplicates: TypeAlias = Literal["error", "insert"]

# Action for rows of the table that match no row of the source.
WhenNotMatchedBySource: TypeAlias = Literal["delete", "ignore"]

_IDLE: Final = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """Options of a merge. `Table.merge` documents them."""

    on: str | Sequence[str]
    when_matched: WhenMatched = "update"
    matched_if: Where | None = None
    delete_if: Where | None = None
    update: Mapping[str, Value] | None = None
    when_not_matched: WhenNew = "insert"
    not_matched_if: Where | None = None
    insert: Mapping[str, Value] | None = None
    duplicates: Duplicates = "error"
    when_not_matched_by_source: WhenNotMatchedBySource = "ignore"
    not_matched_by_source_if: Where | None = None
    source_name: str = "source"
    schema_mode: Literal["merge"] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns to match rows by."""
        return (self.on,) if isinstance(self.on, str) else tuple(self.on)

    @property
    def changes_rows(self) -> bool:
        """Whether rows of the table may be deleted or changed."""
        return (self.when_matched, self.when_not_matched_by_source) != (_IDLE, _IDLE)

    @property
    def needs_every_column(self) -> bool:
        """Whether the source needs all columns of the table."""
        updates = self.when_matched == "update" and self.update is None
        return updates or (self.when_not_matched == "insert" and self.insert is None)

    def columns_needed(self, schema: pl.Schema, source: Collection[str]) -> list[str]:
        """Return the columns of the table that the source needs, in the types of the table."""
        if not self.needs_every_column:
            return list(self.keys)
        inserts = self.when_not_matched == "insert" and self.insert is None
        return [name for name in schema if self.schema_mode is None or inserts or name in source]

    def cure(self, source: Sequence[str]) -> str:
        """Return arguments that set only columns that the source has, as a sentence after a space."""
        if not self.needs_every_column or not {*self.keys} <= {*source}:
            return ""
        changed = [name for name in source if name not in self.keys]
        updates = self.when_matched == "update" and self.update is None
        inserts = self.when_not_matched == "insert" and self.insert is None
        if updates and changed:
            example = f"update={self._copies(changed)}" + inserts * ' and when_not_matched="ignore"'
        else:
            example = updates * 'when_matched="ignore" and ' + f"insert={self._copies(source)}"
        or_merge = '; or give schema_mode="merge" for columns that are new or missing'
        return f" Set columns with `update` and `insert`, such as {example}{'' if self.schema_mode else or_merge}."

    def _copies(self, names: Sequence[str]) -> str:
        texts = {name: name if name.isidentifier() else json.dumps(name) for name in names}
        values = {name: f"{self.source_name}.{text}" for name, text in texts.items()}
        return json.dumps(values, ensure_ascii=False)

    def check(self, schema: pl.Schema) -> None:
        """Validate the options for a table of these columns."""
        check_choice("when_matched", self.when_matched, get_args(WhenMatched))
        check_choice("when_not_matched", self.when_not_matched, get_args(WhenNew))
        check_choice("duplicates", self.duplicates, get_args(Duplicates))
        by_source = self.when_not_matched_by_source
        check_choice("when_not_matched_by_source", by_source, get_args(WhenNotMatchedBySource))
        if self.schema_mode not in (None, "merge"):
            _refuse("schema_mode", f"must be 'merge' or None in a merge, got {self.schema_mode!r}")
        if (self.when_matched, self.when_not_matched, by_source) == (_IDLE,) * 3:
            _refuse("when_matched", "a merge that ignores every row does nothing")
        for argument, value, actions, action in (
            ("matched_if", self.matched_if, ("update", "delete"), self.when_matched),
            ("delete_if", self.delete_if, ("update",), self.when_matched),
            ("update", self.update, ("update",), self.when_matched),
            ("not_matched_if", self.not_matched_if, ("insert",), self.when_not_matched),
            ("insert", self.insert, ("insert",), self.when_not_matched),
            ("duplicates", None if self.duplicates == "error" else 1, ("insert",), self.when_not_matched),
            ("not_matched_by_source_if", self.not_matched_by_source_if, ("delete",), by_source),
        ):
            if value is not None and action not in actions:
                _refuse(argument, f"it has no effect on rows that the merge would {action}")
        self._check_names(schema)

    def _check_names(self, schema: pl.Schema) -> None:
        keys = self.keys
        if not keys or len(set(keys)) < len(keys):
            invalid_argument("on", "must name one column or several, each once", value=self.on)
        unknown = [name for name in keys if name not in schema]
        if unknown:
            unknown_columns("on", unknown, schema)
        nested = [name for name in keys if schema[name].is_nested()]
        if nested:
            _refuse("on", f"rows cannot be matched by the nested column(s) {nested}")
        if self.source_name in schema:
            _refuse("source_name", f"the table has a column {self.source_name!r}; choose another name")

    def conditions(self, schema: pl.Schema, source: pl.Schema) -> MergeConditions:
        """Compile the conditions."""
        alone = pl.Schema({self.source_name: pl.Struct(source)})
        both = pl.Schema({**schema, **alone})
        delete = None if self.delete_if is None else condition_of(self.delete_if, both, argument="delete_if")
        argument = "not_matched_by_source_if"
        return MergeConditions(
            matched=condition_of(self.matched_if, both, argument="matched_if"),
            delete=delete,
            new=condition_of(self.not_matched_if, alone, argument="not_matched_if"),
            not_matched=condition_of(self.not_matched_by_source_if, schema, argument=argument),
        )

    def described(self) -> dict[str, list[dict[str, str]]]:
        """Return the clauses in the form of Delta's history."""
        matched = [] if self.when_matched == _IDLE else [_clause(self.when_matched, self.matched_if)]
        if self.delete_if is not None:
            matched.insert(0, _clause("delete", self.delete_if))
        new = [] if self.when_not_matched == _IDLE else [_clause("insert", self.not_matched_if)]
        not_matched = [_clause("delete", self.not_matched_by_source_if)]
        return {
            "matchedPredicates": matched,
            "notMatchedPredicates": new,
            "notMatchedBySourcePredicates": [] if self.when_not_matched_by_source == _IDLE else not_matched,
        }


@dataclass(frozen=True, slots=True, eq=False)
class MergeConditions:
    """The compiled conditions."""

    # Matching rows to update or to delete.
    matched: Condition
    # Matching rows to delete, also where the others are updated.
    delete: Condition | None
    # Rows of the source without a match.
    new: Condition
    # Rows of the table without a match.
    not_matched: Condition

    def columns_of_rows(self, schema: pl.Schema) -> list[str]:
        """Return the columns of the table that the conditions use."""
        names = [*self._matching_columns(), *self.not_matched.columns]
        return [name for name in dict.fromkeys(names) if name in schema]

    def uses(self, name: str) -> bool:
        """Return whether a condition for matching rows uses a column."""
        return name in self._matching_columns()

    def _matching_columns(self) -> list[str]:
        return [*self.matched.columns, *([] if self.delete is None else self.delete.columns)]


def _clause(action: str, condition: Where | None) -> dict[str, str]:
    return ({} if condition is None else {"predicate": str(condition)}) | {"actionType": action}


def _refuse(argument: str, problem: str) -> None:
    msg = f"`{argument}`: {problem}"
    raise InvalidInputError(msg, argument=argument)

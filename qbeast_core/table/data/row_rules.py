"""Rules of a table as Polars expressions: they complete new rows, and check new and changed rows.

The place of a row among new rows decides its numbers in identity columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

import polars as pl

from qbeast_core.errors import ConstraintViolationError, InvalidInputError
from qbeast_core.plan.nodes import named_columns
from qbeast_core.support.text import excerpt, reason_of

if TYPE_CHECKING:  # workers that check rules do not read them
    from qbeast_core.log.rules import Identity


import numpy as np

from qbeast_core.log.rules import Identity

RuleKind: TypeAlias = Literal["constraint", "invariant", "generated column", "field without nulls"]
_MAX_CHARACTERS: Final = 200

_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A condition that each row has to meet. False and null break it, as in Spark."""

    kind: RuleKind
    name: str
    text: str
    expr: pl.Expr

    @property
    def broken(self) -> pl.Expr:
        """True for rows that break the rule."""
        return ~self.expr.fill_null(value=False)

    def example(self, rows: pl.LazyFrame) -> dict[str, object]:
        """Return the values of a row that breaks the rule."""
        broken = rows.filter(self.broken)
        columns = named_columns(self.expr)
        shown = broken.select(columns) if columns else broken
        return shown.head(1).collect().row(0, named=True)

    def violation(
        self, rows: int, example: Mapping[str, object], *, argument: str | None
    ) -> ConstraintViolationError:
        """Return the error about rows that break the rule."""
        values = str(dict(example))
        shown = values if len(values) <= _MAX_CHARACTERS else f"{values[:_MAX_CHARACTERS]}…"
        rule = f"{self.kind} {self.name!r}, {excerpt(self.text)}"
        msg = f"{rows:,} row(s) break the {rule}: for example {shown}."
        return ConstraintViolationError(
            msg,
            constraint=self.name,
            expression=self.text,
            rows=rows,
            example=example,
            argument=argument,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ComputedColumn:
    """A column with an expression over other columns (generated), or over none (default)."""

    name: str
    text: str
    # In the type of the column.
    expr: pl.Expr

    @property
    def sources(self) -> frozenset[str]:
        """Columns that the expression uses."""
        return frozenset(named_columns(self.expr))

    def check(self) -> Check:
        """Return the check that a row has the value of the expression."""
        same = pl.col(self.name).eq_missing(self.expr)
        return Check("generated column", self.name, f"{self.name} <=> {self.text}", same)


@dataclass(frozen=True, slots=True, eq=False)
class AppliedRules:
    """Rules for rows with certain columns. Picklable."""

    defaults: tuple[ComputedColumn, ...] = ()
    generated: tuple[ComputedColumn, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns that are computed."""
        return [column.name for column in (*self.defaults, *self.generated)]

    @property
    def sources(self) -> frozenset[str]:
        """Columns that the rules use."""
        exprs = [*(column.expr for column in self.generated), *(check.expr for check in self.checks)]
        return frozenset(named_columns(*exprs))

    def apply(self, rows: pl.DataFrame, *, argument: str) -> pl.DataFrame:
        """Return changed rows with the computed columns, after a check. The rows have the types of the table."""
        filled = _computed(rows, self.defaults, argument)
        computed = _computed(filled, self.generated, argument)
        self.check(computed, argument=argument)
        return computed

    def fill(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows with the default columns."""
        return _computed(rows, self.defaults)

    def compute(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows with the generated columns. The rows have the types of the table."""
        return _computed(rows, self.generated)

    def check(self, rows: pl.DataFrame, *, argument: str = "df") -> None:
        """Raise `ConstraintViolationError` if a row breaks a rule."""
        if not self.checks or not rows.height:
            return
        try:
            broken = rows.select(
                check.broken.sum().cast(pl.Int64).alias(str(number))
                for number, check in enumerate(self.checks)
            ).row(0)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            _refuse(", ".join(check.text for check in self.checks), error, argument)
        for check, count in zip(self.checks, broken, strict=True):
            if count:
                # A rule without columns is broken by all rows or by none.
                rows_broken = count if named_columns(check.expr) else rows.height
                raise check.violation(rows_broken, check.example(rows.lazy()), argument=argument)


@dataclass(frozen=True, slots=True, eq=False)
class RowRules:
    """All rules of a table. Picklable."""

    defaults: tuple[ComputedColumn, ...]
    generated: tuple[ComputedColumn, ...]
    identities: tuple[Identity, ...] = ()
    checks: tuple[Check, ...] = ()
    # False: rows are completed, and not checked.
    verifies: bool = True

    @property
    def optional(self) -> frozenset[str]:
        """Columns that new rows may lack."""
        computed = [column.name for column in (*self.defaults, *self.generated)]
        return frozenset(computed) | {identity.column for identity in self.identities}

    def on_new(self, columns: Collection[str]) -> AppliedRules:
        """Return the rules for new rows that have these columns."""
        given = tuple(column.check() for column in self.generated if column.name in columns)
        return AppliedRules(
            defaults=tuple(column for column in self.defaults if column.name not in columns),
            generated=tuple(column for column in self.generated if column.name not in columns),
            checks=self.checks + given if self.verifies else (),
        )

    def on_changed(self, columns: Collection[str]) -> AppliedRules:
        """Return the rules for rows in which these columns have new values.

        A generated column follows its sources, unless it has a new value itself. All constraints are checked.
        """
        given = tuple(column for column in self.generated if column.name in columns)
        follows = tuple(
            column
            for column in self.generated
            if column not in given and not column.sources.isdisjoint(columns)
        )
        return AppliedRules(generated=follows, checks=self.checks + tuple(column.check() for column in given))

    def for_columns(self, names: Collection[str]) -> RowRules:
        """Return the rules that compute some columns, and check nothing."""
        needed = {*names, *self.sources_of(names)}
        return RowRules(
            defaults=tuple(column for column in self.defaults if column.name in needed),
            generated=tuple(column for column in self.generated if column.name in names),
            verifies=False,
        )

    def sources_of(self, names: Collection[str]) -> set[str]:
        """Return the columns that generated columns among these are computed from."""
        return {source for column in self.generated if column.name in names for source in column.sources}


def _computed(rows: pl.DataFrame, columns: Sequence[ComputedColumn], argument: str = "df") -> pl.DataFrame:
    if not columns:
        return rows
    try:
        return rows.with_columns(column.expr.alias(column.name) for column in columns)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        texts = ", ".join(f"{column.name} as {column.text}" for column in columns)
        _refuse(texts, error, argument)


def _refuse(texts: str, error: BaseException, argument: str) -> NoReturn:
    msg = f"{excerpt(texts)} cannot be computed for every row: {reason_of(error)}."
    raise InvalidInputError(msg, argument=argument) from error


def with_numbers(rows: pl.DataFrame, identities: Sequence[Identity], first_row: int = 0) -> pl.DataFrame:
    """Return rows with numbers; `first_row` is the number of rows before these.

    >>> with_numbers(pl.DataFrame({"x": ["a", "b"]}), [Identity("id", 5, 10, 25, False)], 3)["id"].to_list()
    [65, 75]
    """
    places = np.arange(first_row, first_row + rows.height, dtype=np.int64)
    columns = list[pl.Series]()
    for identity in identities:
        refuse_exhausted(identity, first_row + rows.height)
        columns.append(pl.Series(identity.column, places * identity.step + identity.first))
    return rows.with_columns(columns)


def refuse_exhausted(identity: Identity, count: int) -> None:
    """Raise if a column has fewer numbers left than `count`."""
    if count and abs(identity.first + identity.step * (count - 1)) > _LARGEST:
        msg = f"the identity column {identity.column!r} has no {count:,} numbers left"
        raise InvalidInputError(msg, argument="df")


def drawn_for(
    identities: Sequence[Identity], columns: Collection[str], argument: str
) -> tuple[Identity, ...]:
    """Return the identity columns that new rows with these columns lack. Raise on columns that must be drawn."""
    for identity in identities:
        if identity.column in columns and not identity.allows_values:
            _refuse_numbers(identity.column, argument, "leave the column out")
    return tuple(identity for identity in identities if identity.column not in columns)


def refuse_new_numbers(identities: Sequence[Identity], columns: Collection[str], argument: str) -> None:
    """Raise if a change sets an identity column."""
    for identity in identities:
        if identity.column in columns:
            _refuse_numbers(identity.column, argument, "identity columns keep their values")


def _refuse_numbers(column: str, argument: str, cure: str) -> NoReturn:
    problem = f"`{argument}` sets the identity column {column!r}, whose numbers the table draws"
    msg = f"{problem}: {cure}"
    raise InvalidInputError(msg, argument=argument, value=column)

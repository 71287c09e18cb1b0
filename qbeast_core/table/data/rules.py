"""Rules of a table, compiled to expressions: they complete new rows, and check new and changed rows.

The place of a row among new rows decides its numbers in identity columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal, NoReturn, TypeAlias
from typing import Protocol as Interface

import numpy as np
import polars as pl

from qbeast_core.errors import ConstraintViolationError, InvalidInputError, UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol, names_text
from qbeast_core.log.protocol import unsupported_rule
from qbeast_core.log.rules import DeclaredRules, Identity, declared_rules
from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.values import InvalidSqlError, UnknownColumnError, half_up
from qbeast_core.support.text import excerpt, reason_of
from qbeast_core.table.data.expressions import clock_of_text

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
        checked = tuple(column.check() for column in self.generated if column.name in columns)
        return AppliedRules(
            defaults=tuple(column for column in self.defaults if column.name not in columns),
            generated=tuple(column for column in self.generated if column.name not in columns),
            checks=self.checks + checked if self.verifies else (),
        )

    def on_changed(self, columns: Collection[str]) -> AppliedRules:
        """Return the rules for rows in which these columns have new values.

        A generated column follows its sources, unless it has a new value itself. All constraints are checked.
        """
        assigned = tuple(column for column in self.generated if column.name in columns)
        follows = tuple(
            column
            for column in self.generated
            if column not in assigned and not column.sources.isdisjoint(columns)
        )
        return AppliedRules(
            generated=follows, checks=self.checks + tuple(column.check() for column in assigned)
        )

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


class _Table(Interface):
    """The part of a snapshot that has rules."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def protocol(self) -> Protocol: ...
    @property
    def schema(self) -> pl.Schema: ...
    @property
    def uri(self) -> str: ...


def rules_of(table: _Table, *, present: Collection[str] = ()) -> RowRules | None:
    """Return the compiled rules of a table. None: it has none.

    Defaults of the `present` columns are left out: they are not used, and may have unsupported expressions.
    """
    declared = declared_rules(table.metadata, table.protocol)
    if declared is None:
        return None
    try:
        return _Compiler(table.schema).compiled(declared, present)
    except RuleError as error:
        feature, rule = error.feature, (error.feature, error.name, error.text, str(error))
        message = unsupported_rule(*rule, table.metadata, path=table.uri)
        raise UnsupportedTableError(message, path=table.uri, feature=feature) from error


def constraint_of(name: str, expression: str, schema: pl.Schema) -> Check:
    """Return a compiled constraint, or raise `RuleError`.

    >>> str(constraint_of("positive", "Price > 0", pl.Schema({"price": pl.Int64})).expr)
    '[(col("price")) > (dyn int: 0)]'
    """
    return _Compiler(schema).check("checkConstraints", "constraint", name, expression)


class RuleError(Exception):
    """Reason why a rule is not supported; callers convert it to a public error."""

    def __init__(self, reason: str, *, feature: str, name: str, text: str) -> None:
        self.feature, self.name, self.text = feature, name, text
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class _Compiler:
    schema: pl.Schema

    def compiled(self, declared: DeclaredRules, present: Collection[str]) -> RowRules:
        defaults = tuple(
            ComputedColumn(name, text, self._value("allowColumnDefaults", name, text, pl.Schema()))
            for name, text in declared.defaults.items()
            if name in self.schema and name not in present
        )
        plain = pl.Schema(
            {name: dtype for name, dtype in self.schema.items() if name not in declared.generated}
        )
        generated = tuple(
            ComputedColumn(name, text, self._value("generatedColumns", name, text, plain))
            for name, text in declared.generated.items()
            if name in self.schema
        )
        return RowRules(defaults, generated, declared.identities, tuple(self._checks(declared)))

    def check(self, feature: str, kind: RuleKind, name: str, text: str) -> Check:
        """Return a compiled condition."""
        expr = self._expression(feature, name, text, self.schema, pl.Boolean())
        dtype = self._type(feature, name, text, expr)
        if dtype not in (pl.Boolean(), pl.Null()):
            _refuse_rule(feature, name, text, f"it is {dtype}, neither true nor false for a row")
        return Check(kind, name, text, expr if dtype == pl.Boolean() else expr.cast(pl.Boolean))

    def _checks(self, declared: DeclaredRules) -> Iterator[Check]:
        for name, text in declared.constraints.items():
            yield self.check("checkConstraints", "constraint", name, text)
        for path, text in declared.invariants.items():
            yield self.check("invariants", "invariant", names_text([path]), text)
        for names in declared.not_null:
            if names[0] in self.schema:
                filled = _field(names).is_not_null()
                if len(names) > 1:  # a struct that is null has no fields
                    filled |= _field(names[:-1]).is_null()
                name = names_text([names])
                yield Check("field without nulls", name, f"{name} IS NOT NULL", filled)

    def _value(self, feature: str, name: str, text: str, scope: pl.Schema) -> pl.Expr:
        """Return a compiled value for a column, in the type of the column."""
        wanted = self.schema[name]
        expr = self._expression(feature, name, text, scope, wanted)
        dtype = self._type(feature, name, text, expr)
        same_kind = (dtype.is_integer() and wanted.is_integer()) or (
            dtype.is_numeric() and (wanted.is_float() or isinstance(wanted, pl.Decimal))
        )
        if not same_kind and dtype not in (wanted, pl.Null()):
            _refuse_rule(feature, name, text, f"it is {dtype}, and the column is {wanted}")
        return expr if dtype == wanted else half_up(expr, dtype, wanted).cast(wanted)

    def _expression(
        self, feature: str, name: str, text: str, scope: pl.Schema, dtype: pl.DataType
    ) -> pl.Expr:
        # Tables without rules do without sqlglot, as workers do.
        from qbeast_core.sql.lower import spark_expression  # noqa: PLC0415 -- see above

        try:
            return spark_expression(text, scope, dtype=dtype, clock=clock_of_text())
        except (InvalidSqlError, UnknownColumnError) as error:
            _refuse_rule(feature, name, text, reason_of(error), error)

    def _type(self, feature: str, name: str, text: str, expr: pl.Expr) -> pl.DataType:
        try:
            types = self.schema.to_frame().lazy().select(expr.alias("value")).collect_schema()
        except pl.exceptions.PolarsError as error:
            _refuse_rule(feature, name, text, reason_of(error), error)
        return types["value"]


def _refuse_rule(
    feature: str, name: str, text: str, reason: str, cause: BaseException | None = None
) -> NoReturn:
    raise RuleError(reason, feature=feature, name=name, text=text) from cause


def _field(names: tuple[str, ...]) -> pl.Expr:
    return reduce(lambda expr, name: expr.struct.field(name), names[1:], pl.col(names[0]))

"""Compile the rules that a table declares. A rule that cannot be parsed is refused before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.actions import Metadata, Protocol, names_text
from qbeast_core.log.protocol import unsupported_rule
from qbeast_core.log.rules import DeclaredRules, declared_rules
from qbeast_core.sql.values import InvalidSqlError, UnknownColumnError, half_up
from qbeast_core.support.text import reason_of
from qbeast_core.table.data.expressions import UTC_NOW
from qbeast_core.table.data.row_rules import Check, ComputedColumn, RowRules, RuleKind


def rules_of(
    metadata: Metadata, protocol: Protocol, schema: pl.Schema, *, path: str, given: Collection[str] = ()
) -> RowRules | None:
    """Return the compiled rules of a table. None: it has none.

    Defaults of the `given` columns are left out: they are not used, and may have unsupported expressions.
    """
    declared = declared_rules(metadata, protocol)
    if declared is None:
        return None
    try:
        return _Compiler(schema).compiled(declared, given)
    except RuleError as error:
        message = unsupported_rule(error.feature, error.name, error.text, str(error), metadata, path=path)
        raise UnsupportedTableError(message, path=path, feature=error.feature) from error


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

    def compiled(self, declared: DeclaredRules, given: Collection[str]) -> RowRules:
        defaults = tuple(
            ComputedColumn(name, text, self._value("allowColumnDefaults", name, text, pl.Schema()))
            for name, text in declared.defaults.items()
            if name in self.schema and name not in given
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
            return spark_expression(text, scope, dtype=dtype, clock=UTC_NOW)
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

"""Lower HAVING, ORDER BY and LIMIT of a query to tests and terms over the answers of an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl
from sqlglot import exp

from qbeast_core.query.sql.clauses import (
    Ordered,
    has_aggregate,
    limit_of,
    name_of,
    order_of,
    replaced_nodes,
    with_aliases,
)
from qbeast_core.query.sql.cut import (
    HIDDEN,
    Compared,
    Connected,
    Cut,
    Missing,
    OfGroup,
    Opposite,
    SortTerm,
    Test,
)
from qbeast_core.query.sql.lower import COMPARISON_SIGNS, Lowering
from qbeast_core.query.sql.operators import Comparison
from qbeast_core.query.sql.parse import checked_part, operands, sql_of, without_parentheses
from qbeast_core.query.sql.values import invalid_sql

_MIRRORED: Final[Mapping[Comparison, Comparison]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


@dataclass(slots=True, eq=False)
class Terms:
    """Finds the columns of groups and the answers that an expression of HAVING or ORDER BY means."""

    keys: Mapping[str, exp.Expr]
    answers: Mapping[str, exp.Expr]
    lowering: Lowering
    groups: Mapping[str, pl.Expr]
    aggregate: Callable[[exp.Expr], pl.Expr]
    # Answers that are not in SELECT.
    hidden: dict[str, pl.Expr] = field(default_factory=dict[str, pl.Expr])
    _nodes: list[tuple[exp.Expr, str]] = field(default_factory=list[tuple[exp.Expr, str]])

    def answer(self, node: exp.Expr) -> str:
        """Return the name of the answer of an aggregate; it is added if SELECT does not have it."""
        node = without_parentheses(node)
        shown = [(without_parentheses(shown), name) for name, shown in self.answers.items()]
        name = next((name for other, name in (*shown, *self._nodes) if other == node), None)
        if name is None:
            name = f"{name_of(node)}{HIDDEN}"
            self.hidden[name] = self.aggregate(node)
            self._nodes.append((node, name))
        return name

    def of_group(self, node: exp.Expr) -> tuple[Lowering, exp.Expr]:
        """Return an expression over the columns of a group, and what lowers it."""
        keys = [(without_parentheses(key), name) for name, key in self.keys.items()]

        def replaced(part: exp.Expr) -> exp.Expr:
            name = next((name for key, name in keys if key == part), None)
            return part if name is None else exp.Column(this=exp.Identifier(this=name))

        result = checked_part(replaced_nodes(node, replaced), aggregates=False)
        other = next((part.name for part in result.find_all(exp.Column) if part.name not in self.keys), None)
        if other is not None:
            invalid_sql(f"{other!r} is neither a column of GROUP BY nor inside of an aggregate")
        rows = pl.LazyFrame(schema=self.lowering.schema)
        schema = rows.select(expr.alias(name) for name, expr in self.groups.items()).collect_schema()
        return Lowering(schema, self.lowering.clock), result


def cut_of(tree: exp.Select, columns: Mapping[str, exp.Expr], terms: Terms) -> Cut | None:
    """Return the HAVING, ORDER BY and LIMIT of a query; None without any."""
    having, names = tree.args.get("having"), terms.lowering.schema.names()
    test = None if having is None else _test(having.this, columns, terms)
    order = tuple(_sort_term(item, terms) for item in order_of(tree, columns, names))
    limit = limit_of(tree)
    return None if test is None and not order and limit is None else Cut(test, order, limit)


def _sort_term(item: Ordered, terms: Terms) -> SortTerm:
    if has_aggregate(item.node):
        return SortTerm(terms.answer(item.node), item.descending, item.nulls_last)
    lowering, node = terms.of_group(item.node)
    return SortTerm(lowering.value(node).expr, item.descending, item.nulls_last)


def _test(node: exp.Expr, columns: Mapping[str, exp.Expr], terms: Terms) -> Test:
    """Return a condition of HAVING; aliases are resolved in its smallest parts."""
    node = without_parentheses(node)
    if isinstance(node, (exp.And, exp.Or)):
        parts = tuple(_test(part, columns, terms) for part in operands(node))
        return Connected(parts, isinstance(node, exp.And))
    if isinstance(node, exp.Not):
        return Opposite(_test(node.this, columns, terms))
    names = [name for name in terms.keys if name in terms.lowering.schema]
    resolved = with_aliases(node, columns, names, in_aggregates=False)
    if not has_aggregate(resolved):
        lowering, condition = terms.of_group(resolved)
        return OfGroup(lowering.condition(condition))
    return _comparison(resolved, terms)


def _comparison(node: exp.Expr, terms: Terms) -> Test:
    """Return a condition on aggregates."""
    if isinstance(node, exp.Between):
        low, high = (
            exp.GTE(this=node.this, expression=node.args["low"]),
            exp.LTE(this=node.this, expression=node.args["high"]),
        )
        return Connected(tuple(_compared(part, terms) for part in (low, high)), is_and=True)
    if isinstance(node, exp.In) and node.expressions:
        equal = (exp.EQ(this=node.this, expression=item) for item in node.expressions)
        return Connected(tuple(_compared(part, terms) for part in equal), is_and=False)
    if isinstance(node, exp.Is) and isinstance(without_parentheses(node.expression), exp.Null):
        return Missing(terms.answer(node.this))
    if type(node) not in COMPARISON_SIGNS:
        invalid_sql(
            f"HAVING {sql_of(node)} is not supported; compare aggregates with numbers, as in sum(x) > 10"
        )
    return _compared(node, terms)


def _compared(node: exp.Expr, terms: Terms) -> Compared:
    sign: Comparison = COMPARISON_SIGNS[type(node)]
    left, right = node.this, node.expression
    if not has_aggregate(left):
        sign = _MIRRORED[sign]
        left, right = right, left
    if has_aggregate(right):
        return Compared(terms.answer(exp.Sub(this=left, expression=right)), sign, 0.0)
    return Compared(terms.answer(left), sign, _number(right, terms))


def _number(node: exp.Expr, terms: Terms) -> float:
    value = None
    if next(node.find_all(exp.Column), None) is None:
        value = Lowering(pl.Schema(), terms.lowering.clock).value(checked_part(node, aggregates=False))
    if value is None or not value.dtype.is_numeric():
        invalid_sql(f"HAVING compares aggregates with numbers, not with {sql_of(node)}")
    return float(pl.select(value.expr).item())

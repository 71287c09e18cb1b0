"""Lower aggregates of SQL, with GROUP BY, HAVING, ORDER BY and LIMIT, to the questions of an estimate."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import polars as pl
from sqlglot import exp

from qbeast_core.sql.clauses import (
    Query,
    columns_of,
    group_keys,
    has_aggregate,
    limit_of,
    name_of,
    named_aggregate,
    order_of,
    parse_query,
    replaced_nodes,
    with_aliases,
)
from qbeast_core.sql.cut import HIDDEN, Cut, Having, SortTerm
from qbeast_core.sql.lower import COMPARISON_SIGNS, Clock, Lowering
from qbeast_core.sql.operators import MIRRORED
from qbeast_core.sql.parse import checked_part, operands, parse_list, sql_of, without_parentheses
from qbeast_core.sql.select import DOUBLES, SINGLE, Aggregate, level_of
from qbeast_core.sql.values import invalid_sql
from qbeast_core.support.text import reason_of


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


def _cut_of(tree: exp.Select, columns: Mapping[str, exp.Expr], terms: Terms) -> Cut | None:
    """Return the HAVING, ORDER BY and LIMIT of a query; None without any."""
    having, names = tree.args.get("having"), terms.lowering.schema.names()
    test = None if having is None else _test(having.this, columns, terms)
    order = tuple(_sort_term(item, terms) for item in order_of(tree, columns, names))
    limit = limit_of(tree)
    return None if test is None and not order and limit is None else Cut(test, order, limit)


def _sort_term(item: SortTerm, terms: Terms) -> SortTerm:
    if has_aggregate(item.term):
        return replace(item, term=terms.answer(item.term))
    lowering, node = terms.of_group(item.term)
    return replace(item, term=lowering.value(node).expr)


def _test(node: exp.Expr, columns: Mapping[str, exp.Expr], terms: Terms) -> Having:
    """Return a condition of HAVING; aliases are resolved in its smallest parts."""
    node = without_parentheses(node)
    if isinstance(node, (exp.And, exp.Or)):
        parts = tuple(_test(part, columns, terms) for part in operands(node))
        return Having("and" if isinstance(node, exp.And) else "or", parts=parts)
    if isinstance(node, exp.Not):
        return Having("not", parts=(_test(node.this, columns, terms),))
    names = [name for name in terms.keys if name in terms.lowering.schema]
    resolved = with_aliases(node, columns, names, in_aggregates=False)
    if not has_aggregate(resolved):
        lowering, condition = terms.of_group(resolved)
        return Having("group", condition=lowering.condition(condition))
    return _comparison(resolved, terms)


def _comparison(node: exp.Expr, terms: Terms) -> Having:
    """Return a condition on aggregates."""
    if isinstance(node, exp.Between):
        low, high = (
            exp.GTE(this=node.this, expression=node.args["low"]),
            exp.LTE(this=node.this, expression=node.args["high"]),
        )
        return Having("and", parts=tuple(_compared(part, terms) for part in (low, high)))
    if isinstance(node, exp.In) and node.expressions:
        equal = (exp.EQ(this=node.this, expression=item) for item in node.expressions)
        return Having("or", parts=tuple(_compared(part, terms) for part in equal))
    if isinstance(node, exp.Is) and isinstance(without_parentheses(node.expression), exp.Null):
        return Having("null", terms.answer(node.this))
    if type(node) not in COMPARISON_SIGNS:
        invalid_sql(
            f"HAVING {sql_of(node)} is not supported; compare aggregates with numbers, as in sum(x) > 10"
        )
    return _compared(node, terms)


def _compared(node: exp.Expr, terms: Terms) -> Having:
    sign = COMPARISON_SIGNS[type(node)]
    left, right = node.this, node.expression
    if not has_aggregate(left):
        sign = MIRRORED.get(sign, sign)
        left, right = right, left
    if has_aggregate(right):
        return Having(sign, terms.answer(exp.Sub(this=left, expression=right)))
    return Having(sign, terms.answer(left), _number(right, terms))


def _number(node: exp.Expr, terms: Terms) -> float:
    value = None
    if next(node.find_all(exp.Column), None) is None:
        value = Lowering(pl.Schema(), terms.lowering.clock).value(checked_part(node, aggregates=False))
    if value is None or not value.dtype.is_numeric():
        invalid_sql(f"HAVING compares aggregates with numbers, not with {sql_of(node)}")
    return float(pl.select(value.expr).item())


_AGGREGATES: Final[Mapping[type[exp.Expr], Aggregate]] = {
    **DOUBLES,
    exp.Sum: lambda values: values.sum(),
    **SINGLE,  # estimates have no bound for these; they are lowered so that an error can name them
}
_QUANTILES: Final[Mapping[type[exp.Expr], Any]] = {
    exp.PercentileCont: "linear",
    exp.PercentileDisc: "equiprobable",
    exp.Quantile: "equiprobable",
}
_SIGNS: Final[Mapping[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True, eq=False)
class GroupedQuery:
    """A lowered query: keys and aggregates by column name, and the condition of WHERE."""

    by: Mapping[str, pl.Expr]
    aggregates: Mapping[str, pl.Expr]
    where: pl.Expr | None
    # HAVING, ORDER BY and LIMIT.
    cut: Cut | None = None
    # Names of aggregates that only HAVING and ORDER BY use.
    hidden: tuple[str, ...] = ()
    # The query in FROM, whose columns the other parts use.
    inner: GroupedQuery | None = None

    def types(self, schema: pl.Schema) -> pl.Schema:
        """Return the columns of the result of a query with groups."""
        keys = [expr.alias(name) for name, expr in self.by.items()]
        columns = [expr.alias(name) for name, expr in self.aggregates.items()]
        try:
            return pl.LazyFrame(schema=schema).group_by(keys).agg(columns).collect_schema()
        except pl.exceptions.PolarsError as error:
            invalid_sql(f"its inner query cannot be computed: {reason_of(error)}", error)


def sql_list(
    text: str, schema: pl.Schema, *, aggregates: bool, clock: Clock | None = None, null_sums: bool = False
) -> dict[str, pl.Expr]:
    """Lower comma-separated expressions, and return them by name. `null_sums`: the sum of no values is null, not 0.

    >>> schema = pl.Schema({"price": pl.Float64})
    >>> columns = sql_list("sum(price * 2) / count(*) AS double, min(price)", schema, aggregates=True)
    >>> {name: str(expr) for name, expr in columns.items()}
    {'double': '[([(col("price")) * (2.0)].sum()) / (len())]', 'min(price)': 'col("price").min()'}
    """
    lowering = Lowering(schema, clock, null_sums=null_sums)
    nodes = columns_of(parse_list(text, schema.names()), name_of)
    lower = _checked_aggregate if aggregates else _values
    return {name: lower(node, lowering) for name, node in nodes.items()}


def sql_query(text: str, schema: pl.Schema, *, clock: Clock | None = None) -> GroupedQuery:
    """Lower ``SELECT keys, aggregates [FROM name] [WHERE ...] [GROUP BY keys] [HAVING ...] [ORDER BY ...] [LIMIT n]``.

    Instead of a name, FROM may have a query in parentheses, up to GROUP BY.

    >>> schema = pl.Schema({"price": pl.Float64, "shop": pl.String})
    >>> query = sql_query("SELECT shop, avg(price) AS mean FROM self WHERE price > 1 GROUP BY shop", schema)
    >>> list(query.by), list(query.aggregates)
    (['shop'], ['mean'])
    """
    return lowered_query(parse_query(text, schema.names()), schema, clock=clock)


def lowered_query(query: Query, schema: pl.Schema, *, clock: Clock | None = None) -> GroupedQuery:
    """Lower a parsed query over the columns of the joined rows."""
    if query.inner is None:
        return _lowered_query(query.outer, Lowering(schema, clock))
    inner = _lowered_query(query.inner, Lowering(schema, clock, null_sums=True))
    return replace(_lowered_query(query.outer, Lowering(inner.types(schema), clock)), inner=inner)


def _lowered_query(tree: exp.Select, lowering: Lowering) -> GroupedQuery:
    columns = columns_of(tree.expressions, name_of)
    names = lowering.schema.names()
    where = tree.args.get("where")
    keys = group_keys(tree, columns, names)
    by, answers = dict[str, exp.Expr](), dict[str, exp.Expr]()
    for name, node in columns.items():
        (by if without_parentheses(node) in keys else answers)[name] = node
    selected = [without_parentheses(node) for node in columns.values()]
    by |= {name_of(key): key for key in keys if key not in selected}
    groups = {name: _values(node, lowering) for name, node in by.items()}
    aggregates = {name: _checked_aggregate(node, lowering) for name, node in answers.items()}
    condition = None if where is None else with_aliases(where.this, columns, names)
    kept = None if condition is None else lowering.condition(checked_part(condition, aggregates=False))
    terms = Terms(by, answers, lowering, groups, partial(_checked_aggregate, lowering=lowering))
    cut = _cut_of(tree, columns, terms)
    return GroupedQuery(groups, aggregates | terms.hidden, kept, cut, hidden=tuple(terms.hidden))


def _checked_aggregate(node: exp.Expr, lowering: Lowering) -> pl.Expr:
    return _lowered(checked_part(node, aggregates=True), lowering)


def _lowered(node: exp.Expr, lowering: Lowering) -> pl.Expr:
    """Lower arithmetic on aggregates, with numbers as DOUBLE."""
    node = without_parentheses(node)
    if type(node) in _SIGNS:
        return _SIGNS[type(node)](_lowered(node.this, lowering), _lowered(node.expression, lowering))
    if isinstance(node, exp.Neg):
        return -_lowered(node.this, lowering)
    if isinstance(node, exp.Sqrt):
        return _lowered(node.this, lowering).sqrt()
    if isinstance(node, exp.Literal) and not node.is_string:
        return pl.lit(float(node.this))
    if isinstance(node, exp.Filter):
        return _aggregate(node.this, lowering, lowering.condition(node.expression.this))
    return _aggregate(node, lowering, None)


def _aggregate(node: exp.Expr, lowering: Lowering, where: pl.Expr | None) -> pl.Expr:
    node = named_aggregate(node)
    if isinstance(node, exp.Count):
        return _count(node, lowering, where)
    if isinstance(node, exp.CountIf):  # `condition` rejects values of other types
        condition = lowering.condition(node.this)
        return (condition if where is None else condition & where).sum()
    is_aggregate = type(node) in _AGGREGATES or type(node) in _QUANTILES
    if not is_aggregate or node.this is None:
        invalid_sql(f"{sql_of(node)} is not an aggregate; write avg(column), sum(column) or the like")
    values = _values(node.this, lowering, where)
    if isinstance(node, exp.Sum) and lowering.null_sums:
        return pl.when(values.count() > 0).then(_wide(values, lowering.schema).sum())
    if type(node) in _AGGREGATES:
        return _AGGREGATES[type(node)](values)
    return values.quantile(level_of(node), _QUANTILES[type(node)])


def _wide(values: pl.Expr, schema: pl.Schema) -> pl.Expr:
    """Return integers in 128 bits: Polars wraps around in a sum. A sum of products may need even more."""
    dtype = pl.LazyFrame(schema=schema).select(values).collect_schema().dtypes()[0]
    wide = pl.Int128() if dtype.is_integer() and dtype != pl.Int128() else pl.Float64()
    return values.cast(wide) if dtype.is_integer() else values


def _count(node: exp.Count, lowering: Lowering, where: pl.Expr | None) -> pl.Expr:
    counted = node.this
    if counted is None or isinstance(counted, (exp.Star, exp.Literal)):
        return pl.len() if where is None else where.filter(where).count()
    if isinstance(counted, exp.Distinct):
        return _count_distinct(counted.expressions, lowering, where)
    return _values(counted, lowering, where).count()


def _count_distinct(nodes: Sequence[exp.Expr], lowering: Lowering, where: pl.Expr | None) -> pl.Expr:
    """Lower ``count(DISTINCT a)``, which ignores null, or ``count(DISTINCT (a, b))``, which does not."""
    if len(nodes) != 1:
        invalid_sql("count(DISTINCT ...) takes one column, or several in parentheses: count(DISTINCT (a, b))")
    if not isinstance(nodes[0], exp.Tuple):
        return _values(nodes[0], lowering, where).drop_nulls().n_unique()
    values = pl.struct(_values(part, lowering) for part in nodes[0].expressions)
    return (values if where is None else values.filter(where)).n_unique()


def _values(node: exp.Expr, lowering: Lowering, where: pl.Expr | None = None) -> pl.Expr:
    values = lowering.value(checked_part(node, aggregates=False)).expr
    return values if where is None else values.filter(where)

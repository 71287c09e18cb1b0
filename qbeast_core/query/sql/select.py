"""Lower a query over the rows of one table to a lazy frame of Polars, with the types and rules of conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl
from sqlglot import exp

from qbeast_core.plan.nodes import named_columns
from qbeast_core.query.sql.clauses import (
    Ordered,
    columns_of,
    drop_qualifiers,
    group_keys,
    has_aggregate,
    is_aggregate,
    is_plain_limit,
    limit_of,
    name_of,
    order_of,
    replaced_nodes,
    with_aliases,
)
from qbeast_core.query.sql.cut import HIDDEN
from qbeast_core.query.sql.functions import NAMED
from qbeast_core.query.sql.lower import TYPES, Clock, Lowering, lowered
from qbeast_core.query.sql.parse import (
    checked_part,
    is_supported,
    parse_statement,
    sql_of,
    without_parentheses,
)
from qbeast_core.query.sql.row_aggregates import row_aggregate
from qbeast_core.query.sql.values import InvalidSqlError, invalid_sql
from qbeast_core.support.joins import own_column

_CLAUSES: Final = frozenset(
    {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct"}
)
_NODES: Final = (
    exp.Alias,
    exp.Star,
    exp.Ordered,
    exp.Order,
    exp.Group,
    exp.Having,
    exp.Limit,
    exp.Offset,
    exp.From,
)
# Prefixes of columns of a query that its result does not have.
_KEY, _AGGREGATE, _CONSTANT = own_column("key"), own_column("aggregate"), own_column("constant")


def selected(text: str, rows: pl.LazyFrame, name: str, *, clock: Clock | None = None) -> pl.LazyFrame | None:
    """Return the rows of a query over `rows`; None if it has a clause or function that conditions do not have.

    >>> rows = pl.LazyFrame({"shop": ["a", "b", "a"], "price": [1, 2, 3]})
    >>> selected("SELECT shop, sum(price) AS total FROM self GROUP BY ALL ORDER BY 2", rows, "self").collect().rows()
    [('b', 2), ('a', 4)]
    >>> selected("SELECT row_number() OVER () FROM self", rows, "self") is None
    True
    """
    schema = rows.collect_schema()
    try:
        tree = parse_statement(text, schema.names())
    except InvalidSqlError:
        return None
    if not isinstance(tree, exp.Select) or not _is_plain(tree, name):
        return None
    for identifier in tree.find_all(
        exp.Identifier
    ):  # a key of GROUP BY may quote a name that SELECT does not
        identifier.set("quoted", None)
    source = tree.args["from_"].this
    drop_qualifiers(tree, tuple(filter(None, (name, source.alias))), schema.names())
    result = _result(tree, rows, Lowering(schema, clock))
    result.collect_schema()  # raises if types do not fit
    return result


def _is_plain(tree: exp.Select, name: str) -> bool:
    """Return whether a query reads one table, and has only clauses and functions that are supported here."""
    source = tree.args.get("from_")
    table = None if source is None else source.this
    distinct = tree.args.get("distinct")
    limits = [tree.args[key] for key in ("limit", "offset") if tree.args.get(key)]
    return (
        isinstance(table, exp.Table)
        and len(tree.expressions) > 0
        and {key for key, value in table.args.items() if value} <= {"this", "alias"}
        and table.name == name
        and not (table.args.get("alias") and table.args["alias"].args.get("columns"))
        and {key for key, value in tree.args.items() if value} <= _CLAUSES
        and (distinct is None or not distinct.args.get("on"))
        and all(map(is_plain_limit, limits))
        and all(
            _is_known(node)
            for key in _CLAUSES - {"from_"}
            for part in _parts(tree, key)
            for node in part.walk()
        )
    )


def _parts(tree: exp.Select, clause: str) -> Sequence[exp.Expr]:
    value = tree.args.get(clause)
    return value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else []


def _is_known(node: exp.Expr) -> bool:
    arguments = {key for key, value in node.args.items() if value}
    match node:
        case exp.Star() | exp.Group():
            return arguments <= {"expressions", "all"}
        case exp.Ordered():
            return arguments <= {"this", "desc", "nulls_first"} and not isinstance(node.this, exp.Var)
        case exp.DataType():
            return node.this == exp.DType.DECIMAL or (node.this in TYPES and not node.expressions)
        case exp.Anonymous():
            return str(node.this).lower() in (*NAMED, "now") or is_aggregate(node)
        case _:
            return isinstance(node, _NODES) or is_supported(node)


def _result(tree: exp.Select, rows: pl.LazyFrame, lowering: Lowering) -> pl.LazyFrame:
    """Lower the clauses in order: the rows, the groups, and the columns of the result."""
    names = lowering.schema.names()
    columns = _columns(tree.expressions, names)
    order = order_of(tree, columns, names)
    where, having = tree.args.get("where"), tree.args.get("having")
    if where is not None:
        matches = with_aliases(where.this, columns, names)
        rows = rows.filter(lowering.condition(checked_part(matches, aggregates=False)))
    nodes = [*columns.values(), *(item.node for item in order)]
    if having is not None or tree.args.get("group") or any(map(has_aggregate, nodes)):
        keys = group_keys(tree, columns, names)
        grouped = [key.name for key in keys if isinstance(key, exp.Column)]
        aliases = dict(columns)
        groups = _Groups.of(keys, lowering)
        columns = {name: groups.over(node) for name, node in columns.items()}
        order = [replace(item, node=groups.over(item.node)) for item in order]
        passes: exp.Expr = exp.true()
        if having is not None:
            passes = groups.over(with_aliases(having.this, aliases, grouped, in_aggregates=False))
        rows = groups.rows(rows)
        lowering = replace(lowering, schema=rows.collect_schema())
        if having is not None:
            rows = rows.filter(lowering.condition(checked_part(passes, aggregates=False)))
    return _in_order(tree, rows, columns, order, lowering)


def _columns(nodes: Sequence[exp.Expr], names: Sequence[str]) -> dict[str, exp.Expr]:
    """Return the expressions of SELECT by name; each may use the aliases before it."""
    stars = [exp.Column(this=exp.Identifier(this=name)) for name in names]
    listed = [part for node in nodes for part in (stars if _is_star(node) else [node])]
    columns: dict[str, exp.Expr] = {}
    for name, node in columns_of(listed, _name_of).items():
        columns[name] = with_aliases(node, columns, names)
    return columns


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _name_of(node: exp.Expr) -> str:
    """Return the name of a column of the result; a field of a struct has its own name."""
    return str(node.name) if isinstance(node, (exp.Column, exp.Dot)) else name_of(node)


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The columns of groups: the keys, and the aggregates that expressions need."""

    keys: Mapping[exp.Expr, str]
    lowering: Lowering
    aggregates: dict[exp.Expr, str] = field(default_factory=dict[exp.Expr, str])

    @staticmethod
    def of(keys: Sequence[exp.Expr], lowering: Lowering) -> _Groups:
        """Return groups by these keys; a constant does not change them."""
        varying = [key for key in dict.fromkeys(keys) if key.find(exp.Column)]
        if keys and not varying:
            invalid_sql(f"GROUP BY {sql_of(keys[0])} names no column; leave it out")
        return _Groups({key: f"{_KEY}{number}" for number, key in enumerate(varying)}, lowering)

    def over(self, node: exp.Expr) -> exp.Expr:
        """Return an expression over the columns of groups."""
        own: set[int] = set()

        def replaced(part: exp.Expr) -> exp.Expr:
            name = self.keys.get(part)
            if name is None and is_aggregate(part):
                hidden = f"{part.sql('duckdb')[:60]}{HIDDEN * (len(self.aggregates) + 1)}"
                name = self.aggregates.setdefault(part.copy(), hidden)
            if name is None:
                return part
            column = exp.Column(this=exp.Identifier(this=name))
            own.add(id(column))
            return column

        result = replaced_nodes(node, replaced)
        other = next((part for part in result.find_all(exp.Column) if id(part) not in own), None)
        if other is not None:
            invalid_sql(f"{sql_of(other)} is neither in GROUP BY nor inside of an aggregate")
        return result

    def rows(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return one row per group; without keys, one row."""
        keys = [_expr(key, self.lowering).alias(name) for key, name in self.keys.items()]
        exprs = [row_aggregate(node, self.lowering).alias(name) for node, name in self.aggregates.items()]
        return rows.group_by(keys).agg(exprs) if keys else rows.select(exprs or pl.len().alias(_AGGREGATE))


def _expr(node: exp.Expr, lowering: Lowering) -> pl.Expr:
    """Return an expression; a column by itself keeps its type."""
    plain = without_parentheses(node)
    if isinstance(plain, exp.Column) and not plain.table and plain.name in lowering.schema:
        return pl.col(plain.name)
    return lowered(lowering, checked_part(node, aggregates=False), None)


def _in_order(
    tree: exp.Select,
    rows: pl.LazyFrame,
    columns: Mapping[str, exp.Expr],
    order: Sequence[Ordered],
    lowering: Lowering,
) -> pl.LazyFrame:
    """Return the columns of the result, after DISTINCT, ORDER BY, LIMIT and OFFSET."""
    exprs = {name: _expr(node, lowering) for name, node in columns.items()}
    if tree.args.get("distinct"):
        rows = _with_columns(rows, exprs).unique()
        order = [replace(item, node=_selected_column(item.node, columns)) for item in order]
        lowering, exprs = (
            replace(lowering, schema=rows.collect_schema()),
            {name: pl.col(name) for name in columns},
        )
    terms = [(lowering.value(checked_part(item.node, aggregates=False)).expr, item) for item in order]
    terms = [(expr, item) for expr, item in terms if named_columns(expr)]
    if terms:
        descending, nulls_last = zip(*((item.descending, item.nulls_last) for _, item in terms), strict=True)
        rows = rows.sort([expr for expr, _ in terms], descending=[*descending], nulls_last=[*nulls_last])
    limit, offset = limit_of(tree), limit_of(tree, "offset")
    if limit is not None or offset:
        rows = rows.slice(offset or 0, limit)
    return _with_columns(rows, exprs)


def _selected_column(node: exp.Expr, columns: Mapping[str, exp.Expr]) -> exp.Expr:
    name = next((name for name, other in columns.items() if without_parentheses(other) == node), None)
    if name is None:
        invalid_sql(f"ORDER BY {sql_of(node)} is not a column of SELECT DISTINCT")
    return exp.Column(this=exp.Identifier(this=name))


def _with_columns(rows: pl.LazyFrame, exprs: Mapping[str, pl.Expr]) -> pl.LazyFrame:
    """Return rows with these columns only; integers of 128 bits, which Arrow does not have, are cast to 64."""
    if not named_columns(*exprs.values()):  # as many constants as there are rows
        named = {f"{_CONSTANT}{number}": expr for number, expr in enumerate(exprs.values())}
        rows, exprs = rows.with_columns(**named), dict(zip(exprs, map(pl.col, named), strict=True))
    result = rows.select(expr.alias(name) for name, expr in exprs.items())
    wide = [name for name, dtype in result.collect_schema().items() if isinstance(dtype, pl.Int128)]
    return result.with_columns(pl.col(name).cast(pl.Int64) for name in wide) if wide else result

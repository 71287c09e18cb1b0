"""Lower a query over the rows of one table to a lazy frame, with the types and rules of conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, TypeAlias

import polars as pl
from sqlglot import exp

from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.clauses import (
    columns_of,
    drop_qualifiers,
    group_keys,
    has_aggregate,
    is_aggregate,
    is_plain_limit,
    limit_of,
    name_of,
    named_aggregate,
    order_of,
    replaced_nodes,
    with_aliases,
)
from qbeast_core.sql.cut import HIDDEN, SortTerm
from qbeast_core.sql.functions import NAMED
from qbeast_core.sql.lower import TYPES, Clock, Lowering, lowered
from qbeast_core.sql.parse import checked_part, is_supported, parse_statement, sql_of, without_parentheses
from qbeast_core.sql.values import INTEGERS, MAX_DIGITS, InvalidSqlError, Value, invalid_sql, shown
from qbeast_core.support.frames import own_column

Aggregate: TypeAlias = Callable[[pl.Expr], pl.Expr]

# On numbers, as DOUBLE.
DOUBLES: Final[Mapping[type[exp.Expr], Aggregate]] = {
    exp.Avg: lambda values: values.mean(),
    exp.Median: lambda values: values.median(),
    exp.Stddev: lambda values: values.std(),
    exp.StddevSamp: lambda values: values.std(),
    exp.StddevPop: lambda values: values.std(ddof=0),
    exp.Variance: lambda values: values.var(),
    exp.VariancePop: lambda values: values.var(ddof=0),
}
# Of all types.
SINGLE: Final[Mapping[type[exp.Expr], Aggregate]] = {
    exp.Min: lambda values: values.min(),
    exp.Max: lambda values: values.max(),
    exp.First: lambda values: values.first(),
    exp.Last: lambda values: values.last(),
}
_LEVELS: Final = (exp.Quantile, exp.PercentileCont, exp.PercentileDisc)


def _row_aggregate(node: exp.Expr, lowering: Lowering) -> pl.Expr:
    """Return the expression of an aggregate, perhaps with FILTER.

    >>> from qbeast_core.sql.parse import parse_list
    >>> (node,) = parse_list("sum(x) FILTER (WHERE x > 1)", ["x"])
    >>> pl.select(x=pl.Series([1, 2, 3])).select(_row_aggregate(node, Lowering(pl.Schema({"x": pl.Int64})))).item()
    5
    """
    where: pl.Expr | None = None
    if isinstance(node, exp.Filter):
        where = lowering.condition(checked_part(node.expression.this, aggregates=False))
        node = node.this
    node = named_aggregate(node)
    if isinstance(node, exp.Count):
        return _count(node, lowering, where).cast(pl.Int64)
    if isinstance(node, exp.CountIf):
        condition = lowering.condition(checked_part(node.this, aggregates=False))
        return _filtered(condition, where).sum().cast(pl.Int64)
    if node.this is None:
        invalid_sql(f"{sql_of(node)} takes a column")
    is_distinct = isinstance(node.this, exp.Distinct)
    if is_distinct and (len(node.this.expressions) != 1 or isinstance(node.this.expressions[0], exp.Tuple)):
        invalid_sql(f"{sql_of(node)} takes one column")
    argument = node.this.expressions[0] if is_distinct else node.this
    value = lowering.value(checked_part(argument, aggregates=False))
    values = _filtered(value.expr, where)
    return _aggregate(node, value, values.drop_nulls().unique() if is_distinct else values)


def _filtered(values: pl.Expr, where: pl.Expr | None) -> pl.Expr:
    return values if where is None else values.filter(where)


def _aggregate(node: exp.Expr, value: Value, values: pl.Expr) -> pl.Expr:
    kind, dtype = type(node), value.dtype
    _by_row(node, value.expr)
    if kind is exp.Sum:
        return _sum(node, dtype, values)
    if kind in DOUBLES:
        return DOUBLES[kind](_doubles(node, dtype, values))
    if kind in _LEVELS:
        return _quantile(node, dtype, values)
    if kind not in SINGLE or dtype.is_nested():
        invalid_sql(f"{sql_of(node)} is not an aggregate of {shown(dtype)}")
    # NaN is larger than all numbers.
    return values.nan_max() if kind is exp.Max and dtype.is_float() else SINGLE[kind](values)


def _quantile(node: exp.Expr, dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    level = level_of(node)
    if isinstance(node, exp.PercentileCont):
        return _doubles(node, dtype, values).quantile(level, "linear")
    present = values.drop_nulls().sort()
    place = (present.len() * level).ceil().cast(pl.Int64) - 1
    return present.get(pl.max_horizontal(place, pl.lit(0)), null_on_oob=True)


def _by_row(node: exp.Expr, values: pl.Expr) -> pl.Expr:
    """Refuse an aggregate of a constant, which Polars computes for one row."""
    if not named_columns(values):
        invalid_sql(f"{sql_of(node)} names no column")
    return values


def _sum(node: exp.Expr, dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    """Return a sum that does not wrap around; the sum of no values is null."""
    wide: pl.DataType = pl.Float64()
    if isinstance(dtype, (pl.Boolean, *INTEGERS)):
        # Fewer than 2**32 values of 32 bits fit in 64.
        wide = pl.Int128() if isinstance(dtype, (pl.Int64, pl.Int128)) else pl.Int64()
    elif isinstance(dtype, pl.Decimal):
        wide = pl.Decimal(MAX_DIGITS, dtype.scale)
    elif not dtype.is_float():
        _refuse(node, dtype)
    return pl.when(values.count() > 0).then(values.cast(wide).sum())


def _doubles(node: exp.Expr, dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    if not dtype.is_numeric():
        _refuse(node, dtype)
    return values.cast(pl.Float64)


def _refuse(node: exp.Expr, dtype: pl.DataType) -> NoReturn:
    invalid_sql(f"{sql_of(node)} takes numbers, not {shown(dtype)}; quantile_disc takes other types")


def level_of(node: exp.Expr) -> float:
    """Return the level of a quantile."""
    level = node.args.get("quantile", node.args.get("expression"))
    if not isinstance(level, exp.Literal) or level.is_string or not 0 <= float(level.this) <= 1:
        invalid_sql("a quantile takes a column and a level from 0 to 1, as in quantile_cont(price, 0.9)")
    return float(level.this)


def _count(node: exp.Count, lowering: Lowering, where: pl.Expr | None) -> pl.Expr:
    counted = node.this
    if counted is None or isinstance(counted, (exp.Star, exp.Literal)):
        return pl.len() if where is None else where.sum()
    if not isinstance(counted, exp.Distinct):
        value = lowering.value(checked_part(counted, aggregates=False)).expr
        return _filtered(_by_row(counted, value), where).count()
    if len(counted.expressions) != 1:
        invalid_sql("count(DISTINCT ...) takes one column, or several in parentheses: count(DISTINCT (a, b))")
    (inner,) = counted.expressions
    if not isinstance(without_parentheses(inner), exp.Tuple):
        value = lowering.value(checked_part(inner, aggregates=False)).expr
        return _filtered(_by_row(counted, value), where).drop_nulls().n_unique()
    parts = [lowering.value(checked_part(part, aggregates=False)).expr for part in inner.expressions]
    row = pl.struct(part.alias(str(number)) for number, part in enumerate(parts))
    return _filtered(row, where).n_unique()


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
    nodes = [*columns.values(), *(item.term for item in order)]
    if having is not None or tree.args.get("group") or any(map(has_aggregate, nodes)):
        keys = group_keys(tree, columns, names)
        grouped = [key.name for key in keys if isinstance(key, exp.Column)]
        aliases = dict(columns)
        groups = _Groups.of(keys, lowering)
        columns = {name: groups.over(node) for name, node in columns.items()}
        order = [replace(item, term=groups.over(item.term)) for item in order]
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
        exprs = [_row_aggregate(node, self.lowering).alias(name) for node, name in self.aggregates.items()]
        return rows.group_by(keys).agg(exprs) if keys else rows.select(exprs or pl.len().alias(_AGGREGATE))


def _expr(node: exp.Expr, lowering: Lowering) -> pl.Expr:
    """Return an expression; a column by itself keeps its type."""
    plain = without_parentheses(node)
    if isinstance(plain, exp.Column) and not plain.table and plain.name in lowering.schema:
        return pl.col(plain.name)
    return lowered(lowering, checked_part(node, aggregates=False), None).expr


def _in_order(
    tree: exp.Select,
    rows: pl.LazyFrame,
    columns: Mapping[str, exp.Expr],
    order: Sequence[SortTerm],
    lowering: Lowering,
) -> pl.LazyFrame:
    """Return the columns of the result, after DISTINCT, ORDER BY, LIMIT and OFFSET."""
    exprs = {name: _expr(node, lowering) for name, node in columns.items()}
    if tree.args.get("distinct"):
        rows = _with_columns(rows, exprs).unique()
        order = [replace(item, term=_selected_column(item.term, columns)) for item in order]
        lowering, exprs = (
            replace(lowering, schema=rows.collect_schema()),
            {name: pl.col(name) for name in columns},
        )
    terms = [(lowering.value(checked_part(item.term, aggregates=False)).expr, item) for item in order]
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

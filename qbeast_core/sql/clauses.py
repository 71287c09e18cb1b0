"""Read the clauses of a query: names of tables, joins, columns by name or position, keys and order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlglot import exp

from qbeast_core.sql.cut import SortTerm
from qbeast_core.sql.parse import TEXT, WRITTEN, operands, parse_statement, sql_of, without_parentheses
from qbeast_core.sql.values import invalid_sql

# Nodes that names of columns may copy; more would need more memory than the text.
_MAX_COPIED: Final = 20_000

CLAUSES: Final = frozenset({"expressions", "from_", "joins", "where", "group", "having", "order", "limit"})
# Names of other clauses, and what to do instead.
_OTHER_CLAUSES: Final = {
    "with_": ("WITH", "write the inner query in FROM"),
    "distinct": ("DISTINCT", "group by the columns"),
    "offset": ("OFFSET", "take a larger LIMIT, and slice the result"),
    "qualify": ("QUALIFY", "group by the columns, and use HAVING"),
    "windows": ("WINDOW", "group by the columns"),
    "laterals": ("LATERAL VIEW", ""),
    "locks": ("FOR UPDATE", ""),
    "sample": ("USING SAMPLE", "estimates choose the sample, or give it as `sample`"),
    "connect": ("CONNECT BY", ""),
    "joins": ("JOIN", "join in the inner query"),
    "order": ("ORDER BY", "sort the outer query"),
    "limit": ("LIMIT", "limit the outer query"),
    "having": ("HAVING", "write the condition into WHERE of the outer query"),
}
_SHOWN: Final = "SELECT, FROM, JOIN, WHERE, GROUP BY, HAVING, ORDER BY and LIMIT"
_INNER: Final = "SELECT, FROM, JOIN, WHERE and GROUP BY"

# Aggregates for which sqlglot has no node, by name.
_NAMED: Final[Mapping[str, type[exp.Expr]]] = {"mean": exp.Avg, "percentile": exp.PercentileCont}

How = Literal["left", "inner", "semi", "anti"]
_KINDS: Final[Mapping[tuple[str, str], How]] = {
    **dict.fromkeys((("", ""), ("", "INNER")), "inner"),
    **dict.fromkeys((("LEFT", ""), ("LEFT", "OUTER")), "left"),
    **dict.fromkeys((("", "SEMI"), ("LEFT", "SEMI")), "semi"),
    **dict.fromkeys((("", "ANTI"), ("LEFT", "ANTI")), "anti"),
}


@dataclass(frozen=True, slots=True)
class TextJoin:
    """A join of a text: the name of the other table, the columns that are equal in both, and the kind."""

    name: str
    on: tuple[str, ...]
    how: How


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A parsed query of one level, or with a query in FROM."""

    outer: exp.Select
    # The query in FROM.
    inner: exp.Select | None
    joins: tuple[TextJoin, ...]


def parse_query(text: str, columns: Collection[str]) -> Query:
    """Parse a query of the clauses in `CLAUSES`; its names of columns have no names of tables then.

    >>> query = parse_query("SELECT o.shop, sum(x) FROM orders o JOIN users u USING (user) GROUP BY 1", ["shop", "x"])
    >>> query.joins, query.outer.expressions[0].sql()
    ((TextJoin(name='users', on=('user',), how='inner'),), 'shop')
    """
    tree = parse_statement(text, columns)
    if isinstance(tree, exp.SetOperation):
        invalid_sql(f"{tree.key.upper()} is not supported; run its queries one by one")
    if not isinstance(tree, exp.Select):
        invalid_sql("it is not a SELECT")
    inner = _inner_query(tree)
    _check_clauses(tree, CLAUSES if inner is None else CLAUSES - {"joins"}, _SHOWN)
    if inner is not None:
        _check_clauses(inner, CLAUSES - {"having", "order", "limit"}, _INNER)
    _refuse_nodes(tree, inner)
    for name in tree.find_all(exp.Identifier):  # a key of GROUP BY may quote a name that SELECT does not
        name.set("quoted", None)
    if inner is not None:
        drop_qualifiers(tree, _names_of(tree.args["from_"].this), ())
    return Query(tree, inner, _joins(tree if inner is None else inner, columns))


def _inner_query(tree: exp.Select) -> exp.Select | None:
    """Return the query in FROM, if there is one."""
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Subquery):
        return None
    query = source.this.this
    more = {name for name, value in source.this.args.items() if value} - {"this", "alias"}
    if more or not isinstance(query, exp.Select) or not query.args.get("group"):
        invalid_sql(f"FROM {sql_of(source.this)} is not supported; write FROM (SELECT ... GROUP BY ...)")
    return query


def _check_clauses(tree: exp.Select, allowed: Collection[str], shown: str) -> None:
    for name, value in tree.args.items():
        if value and name not in allowed:
            word, cure = _OTHER_CLAUSES.get(name, (name.strip("_").upper().replace("_", " "), ""))
            if name == "distinct" and value.args.get("on"):
                word = "DISTINCT ON"
            invalid_sql(f"{word} is not supported: a query has {shown} only{cure and f'; {cure}'}")


def _refuse_nodes(tree: exp.Select, inner: exp.Select | None) -> None:
    """Refuse window functions, and queries other than the one in FROM."""
    for node in tree.find_all(exp.Window, exp.Query, exp.Exists):
        if isinstance(node, exp.Window):
            invalid_sql("window functions (OVER) are not supported; group by the columns")
        if node not in (tree, inner) and not (isinstance(node, exp.Subquery) and node.this is inner):
            invalid_sql(
                "a query inside of an expression is not supported; run it first, or use SEMI JOIN or ANTI JOIN"
            )


def _names_of(source: exp.Expr) -> tuple[str, ...]:
    """Return the names of a table or query in FROM or JOIN: its own one and its alias."""
    own = source.this.this if isinstance(source.this, exp.Identifier) else None
    return tuple(name for name in (own, source.alias) if name)


def _joins(tree: exp.Select, columns: Collection[str]) -> tuple[TextJoin, ...]:
    """Return the joins of a query, and drop the names of tables before columns."""
    source = tree.args.get("from_")
    own = () if source is None else _names_of(_plain_table(source.this, "FROM"))
    joins: list[TextJoin] = []
    for join in tree.args.get("joins") or ():
        names = _names_of(_plain_table(join.this, "JOIN"))
        joined = _join(join, names)
        joins.append(joined)
        join.set("on", None)
        drop_qualifiers(tree, names, (), joined)
    drop_qualifiers(tree, own, columns)
    return tuple(joins)


def _plain_table(source: exp.Expr, clause: str) -> exp.Expr:
    more = {name for name, value in source.args.items() if value} - {"this", "alias"}
    alias = source.args.get("alias")
    is_plain = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not more
    if not is_plain or (alias is not None and alias.args.get("columns")):
        invalid_sql(f"{clause} {sql_of(source)} is not supported; write the name of a table, as in FROM self")
    return source


def _join(join: exp.Join, names: Sequence[str]) -> TextJoin:
    side, kind, method = (str(join.args.get(key) or "").upper() for key in ("side", "kind", "method"))
    how = None if method else _KINDS.get((side, kind))
    on, using = join.args.get("on"), join.args.get("using")
    if how is None or (on is None and not using):
        words = " ".join(word for word in (method, side, kind, "JOIN") if word) if how is None else "JOIN"
        lacks = "" if how is None else " without ON or USING"
        invalid_sql(f"{words}{lacks} is not supported; use JOIN, LEFT, SEMI or ANTI JOIN with ON or USING")
    if using:
        return TextJoin(names[0], tuple(str(name.this) for name in using), how)
    parts = operands(on) if isinstance(on, exp.And) else [without_parentheses(on)]
    return TextJoin(names[0], tuple(_equal_name(part, names) for part in parts), how)


def _equal_name(node: exp.Expr, names: Sequence[str]) -> str:
    """Return the name of the column in ``o.user = u.user``."""
    sides = (
        [without_parentheses(node.this), without_parentheses(node.expression)]
        if isinstance(node, exp.EQ)
        else []
    )
    columns = [side for side in sides if isinstance(side, exp.Column) and not side.args.get("db")]
    of_other = [str(side.table) in names for side in columns]
    if len(columns) != 2 or of_other.count(True) != 1 or columns[0].name != columns[1].name:
        invalid_sql(
            f"ON {sql_of(node)} is not supported: a join compares columns of equal names, as in ON o.user = u.user, or "
            "USING (user); rename one of them"
        )
    return str(columns[0].name)


def drop_qualifiers(
    tree: exp.Select, names: Collection[str], columns: Collection[str], join: TextJoin | None = None
) -> None:
    """Drop the names of a table before its columns; a column of this name stays if it has such a field."""
    for node in list(tree.find_all(exp.Column)):
        parts = [key for key in ("catalog", "db", "table") if node.args.get(key) is not None]
        first = node.args[parts[0]].this if parts else None
        if first not in names:
            continue
        following = (node.args[parts[1]] if len(parts) > 1 else node.this).this
        if first in columns and following not in columns:
            continue
        is_key = join is not None and following in join.on
        if join is not None and (join.how in ("semi", "anti") or (join.how == "left" and is_key)):
            cure = "its column is the same" if is_key else "a SEMI or ANTI JOIN adds no columns"
            invalid_sql(f"{sql_of(node)} is not supported; name the column of the table in FROM: {cure}")
        node.set(parts[0], None)


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression has an aggregate."""
    return any(is_aggregate(part) for part in node.walk())


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression is an aggregate, perhaps with FILTER."""
    return isinstance(named_aggregate(node), (exp.AggFunc, exp.Filter))


def named_aggregate(node: exp.Expr) -> exp.Expr:
    """Return the node of an aggregate that sqlglot knows by its name only; others unchanged."""
    kind = _NAMED.get(str(node.this).lower()) if isinstance(node, exp.Anonymous) else None
    if kind is None:
        return node
    first, *rest = node.expressions or [None]
    return kind(this=first, expression=rest[0] if rest else None)


def columns_of(nodes: Sequence[exp.Expr], name_of: Callable[[exp.Expr], str]) -> dict[str, exp.Expr]:
    """Return the expressions of SELECT by name."""
    columns: dict[str, exp.Expr] = {}
    for node in nodes:
        name = name_of(node)
        if name in columns:
            invalid_sql(f"two columns are named {name!r}; rename one with AS")
        columns[name] = node.this if isinstance(node, exp.Alias) else node
    return columns


def name_of(node: exp.Expr) -> str:
    """Return the name of an expression of SELECT: its alias, the name of its column, or its text."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, exp.Column) and not node.table:
        return str(node.this.this)
    return str(node.meta.get(TEXT) or node.sql("duckdb"))


def group_keys(
    tree: exp.Select,
    columns: Mapping[str, exp.Expr],
    names: Collection[str],
) -> list[exp.Expr]:
    """Return the keys of GROUP BY: positions and aliases are resolved; `names` are those of the table's columns."""
    group = tree.args.get("group")
    if group is None:
        return []
    extra = [name for name, value in group.args.items() if value and name not in ("expressions", "all")]
    sets = [
        node.key for node in group.expressions if isinstance(node, (exp.Cube, exp.Rollup, exp.GroupingSets))
    ]
    if extra or sets:
        invalid_sql(f"GROUP BY {[*extra, *sets][0].strip('_').upper()} is not supported; list the keys")
    if group.args.get("all"):
        return [without_parentheses(node) for node in columns.values() if not has_aggregate(node)]
    return [
        without_parentheses(
            _at_position(node, columns, "GROUP BY") or _of_alias(node, columns, names) or node
        )
        for node in map(without_parentheses, group.expressions)
    ]


def _at_position(node: exp.Expr, columns: Mapping[str, exp.Expr], clause: str) -> exp.Expr | None:
    """Return the column that a number means."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    position = int(node.this) if node.this.isdigit() else 0
    if not 1 <= position <= len(columns):
        invalid_sql(f"{clause} {node.this} is not the position of a column; there are {len(columns)}")
    return list(columns.values())[position - 1]


def _of_alias(node: exp.Expr, columns: Mapping[str, exp.Expr], names: Collection[str]) -> exp.Expr | None:
    """Return the column that an alias means; columns of the table come first."""
    alias = name_of(node) if isinstance(node, exp.Column) and not node.table else ""
    return columns[alias] if alias in columns and alias not in names else None


def order_of(tree: exp.Select, columns: Mapping[str, exp.Expr], names: Collection[str]) -> list[SortTerm]:
    """Return the expressions of ORDER BY; an alias by itself comes before a column of this name, as in DuckDB."""
    order = tree.args.get("order")
    result: list[SortTerm] = []
    for item in () if order is None else order.expressions:
        if item.args.get("with_fill") or isinstance(item.this, exp.Var):
            invalid_sql("ORDER BY ALL and WITH FILL are not supported; list the columns")
        node = without_parentheses(item.this)
        expr = _at_position(node, columns, "ORDER BY") or _of_alias(node, columns, ()) or node
        expr = with_aliases(expr, columns, names)
        result.append(SortTerm(expr, bool(item.args.get("desc")), not item.args.get("nulls_first")))
    return result


def limit_of(tree: exp.Select, clause: str = "limit") -> int | None:
    """Return the number of LIMIT or OFFSET."""
    limit = tree.args.get(clause)
    if limit is None:
        return None
    if not is_plain_limit(limit):
        invalid_sql(f"{clause.upper()} takes a whole number")
    return int(limit.expression.this)


def is_plain_limit(limit: exp.Expr) -> bool:
    """Return whether LIMIT or OFFSET has one whole number."""
    count, more = limit.args.get("expression"), [name for name, value in limit.args.items() if value]
    return (
        more == ["expression"]
        and isinstance(count, exp.Literal)
        and count.this.isdigit()
        and len(count.this) < 19
    )


def with_aliases(
    node: exp.Expr, columns: Mapping[str, exp.Expr], names: Collection[str], *, in_aggregates: bool = True
) -> exp.Expr:
    """Return an expression with the columns that its aliases mean; `names` are not aliases."""
    aliases = {name: columns[name] for name in columns if name not in names}
    sizes: dict[str, int] = {}
    copied = 0

    def replaced(part: exp.Expr) -> exp.Expr:
        nonlocal copied
        if not in_aggregates and is_aggregate(part):
            return part.copy()
        alias = part.name if isinstance(part, exp.Column) and not part.table else ""
        if alias not in aliases or aliases[alias] is part:
            return part
        if alias not in sizes:
            sizes[alias] = sum(1 for _ in aliases[alias].walk())
        copied += sizes[alias]
        if copied > _MAX_COPIED:
            invalid_sql(f"it uses the alias {alias!r} too often; write the expression in an inner query")
        inner = exp.Paren(this=aliases[alias].copy())
        inner.meta[WRITTEN] = True
        return inner

    if isinstance(node, exp.Column):
        result: exp.Expr = without_parentheses(replaced(node))
        return result
    return replaced_nodes(node, replaced)


def replaced_nodes(node: exp.Expr, replaced: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Return a copy in which a function replaced nodes from the top down; what it returns is not visited again."""
    result = node.copy()
    new = replaced(result)
    if new is not result:
        return new
    waiting = [result]
    while waiting:
        for part in list(waiting.pop().iter_expressions()):
            new = replaced(part)
            if new is part:
                waiting.append(part)
            else:
                part.replace(new)
    return result

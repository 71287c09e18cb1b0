"""Find the parts of a filter that skip no file, with the reason and an alternative."""

from __future__ import annotations

from typing import Final

import polars as pl

from qbeast_core.query.filters.nodes import (
    And,
    Atom,
    Compare,
    IsNotNull,
    Node,
    Nothing,
    Or,
    Unknown,
    column_of,
)
from qbeast_core.query.filters.predicate import conjuncts, disjuncts, parse_predicate
from qbeast_core.query.index.index_table import IndexTable
from qbeast_core.query.plan.intervals import coordinate_intervals
from qbeast_core.query.plan.select import match
from qbeast_core.spec.transformation import HashTransformation
from qbeast_core.table.read.scan import pushed_down

_COMPARE: Final = "compare a column with constants instead (=, <, BETWEEN, IN, LIKE 'a%', IS NULL)"
_NOT_SUPPORTED: Final = f"the index does not support it; {_COMPARE}"
_LATER: Final = f"Polars applies it after the read, as it may fail for some value or calls Python; {_COMPARE}"
_ONE_VALUE_LESS: Final = "it excludes only one value; list the values to match instead"
_STAGED: Final = "no file is indexed yet; optimize the table, or convert it first if it has no index"


def unused_conditions(where: pl.Expr, schema: pl.Schema, table: IndexTable) -> dict[str, str]:
    """Return the parts of a filter (joined by AND) that skip no file, with the reason and an alternative."""
    reasons = {str(part): _reasons(part, schema, table) for part in conjuncts(where)}
    return {part: "; ".join(dict.fromkeys(texts)) for part, texts in reasons.items() if texts}


def _reasons(part: pl.Expr, schema: pl.Schema, table: IndexTable) -> list[str]:
    """Return why a part skips no file; empty if it does, or could in a larger table."""
    if not part.meta.root_names():  # a constant
        return []
    pushed, _ = pushed_down(schema, part, None)
    node = Unknown() if pushed is None else parse_predicate(pushed, schema)
    if not match(table, node).blocks.all():
        return []
    sides = disjuncts(part)
    if len(sides) > 1:
        named = ((side, reason) for side in sides for reason in _reasons(side, schema, table))
        return [f"{side}: {reason}" for side, reason in named]
    nested = [name for name in part.meta.root_names() if schema[name].is_nested()]
    if nested and isinstance(node, Unknown):
        return [
            f"{nested[0]!r} is nested, and its fields have no index; write the field as a column, and index that"
        ]
    return [_LATER] if pushed is None else _of_node(node, schema, table)


def _of_node(node: Node, schema: pl.Schema, table: IndexTable) -> list[str]:
    match node:
        case Unknown():
            return [_NOT_SUPPORTED]
        case Nothing():
            return []
        case And():
            reasons = [_of_node(child, schema, table) for child in node.children]
            return [reason for child in reasons for reason in child] if all(reasons) else []
        case Or():
            return [reason for child in node.children for reason in _of_node(child, schema, table)]
        case _:
            reason = _of_atom(node, schema, table)
            return [] if reason is None else [reason]


def _of_atom(atom: Atom, schema: pl.Schema, table: IndexTable) -> str | None:
    """Return why the index cannot use a comparison. None: it can."""
    if isinstance(atom, IsNotNull) or (isinstance(atom, Compare) and atom.op == "!="):
        return _ONE_VALUE_LESS
    if not table.spaces:
        return _STAGED
    column = column_of(atom)
    spaces = [
        (space.revision.transformations[space.revision.columns.index(column)], space.foreign)
        for space in table.spaces
        if column in space.revision.columns
    ]
    if not spaces:
        return (
            f"{column!r} is not indexed, and all files have similar values of it; index it too: "
            "Table.reindex(columns=[...])"
        )
    if any(coordinate_intervals(atom, space, foreign=foreign) is not None for space, foreign in spaces):
        return None
    if any(isinstance(space, HashTransformation) for space, _ in spaces):
        return (
            f"{column!r} is indexed by hash, which has no order; use single values (= or IN), or index "
            f"{f'{column}:quantiles'!r}: Table.reindex(columns=[...])"
        )
    return f"the index of {column!r} cannot place the value; compare it with values of its own type, {schema[column]}"

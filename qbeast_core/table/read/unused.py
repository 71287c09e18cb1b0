"""Find the parts of a filter that prune nothing, with the reason and an alternative."""

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
_NOT_UNDERSTOOD: Final = f"the plan does not understand it; {_COMPARE}"
_LATER: Final = f"Polars applies it after the read, as it may fail for some value or calls Python; {_COMPARE}"
_ONE_VALUE_LESS: Final = (
    "only one value is left out, and others lie beside it; list the values wanted instead"
)
_STAGED: Final = "no file is indexed yet; optimize the table"


def unused_conditions(where: pl.Expr, schema: pl.Schema, table: IndexTable) -> dict[str, str]:
    """Return the parts of a filter, of those joined by AND, that keep nothing closed, each with why and a cure."""
    reasons = {str(part): _reasons(part, schema, table) for part in conjuncts(where)}
    return {part: "; ".join(dict.fromkeys(found)) for part, found in reasons.items() if found}


def _reasons(part: pl.Expr, schema: pl.Schema, table: IndexTable) -> list[str]:
    """Return why a part keeps nothing closed; nothing where it does, or could do in a larger table."""
    if not part.meta.root_names():  # it is the same for every row
        return []
    given, _ = pushed_down(schema, part, None)
    node = Unknown() if given is None else parse_predicate(given, schema)
    if not match(table, node).blocks.all():
        return []
    sides = disjuncts(part)
    if len(sides) > 1:
        named = ((side, reason) for side in sides for reason in _reasons(side, schema, table))
        return [f"{side}: {reason}" for side, reason in named]
    return [_LATER] if given is None else _of_node(node, schema, table)


def _of_node(node: Node, schema: pl.Schema, table: IndexTable) -> list[str]:
    match node:
        case Unknown():
            return [_NOT_UNDERSTOOD]
        case Nothing():
            return []
        case And():
            found = [_of_node(child, schema, table) for child in node.children]
            return [reason for child in found for reason in child] if all(found) else []
        case Or():
            return [reason for child in node.children for reason in _of_node(child, schema, table)]
        case _:
            reason = _of_atom(node, schema, table)
            return [] if reason is None else [reason]


def _of_atom(atom: Atom, schema: pl.Schema, table: IndexTable) -> str | None:
    """Return why the index does nothing for a comparison; None where it does."""
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
            f"{column!r} is not indexed, and its values are not parted by files; write the rows to a new table that "
            "indexes it too"
        )
    if any(coordinate_intervals(atom, one, foreign=foreign) is not None for one, foreign in spaces):
        return None
    if any(isinstance(one, HashTransformation) for one, _ in spaces):
        return (
            f"{column!r} is indexed by hash, which has no order; ask for single values (= or IN), or write the rows to "
            f"a new table that indexes {f'{column}:quantiles'!r}"
        )
    return f"the index of {column!r} cannot place the value; compare it with values of its own type, {schema[column]}"

"""Fields of structs in a filter, as columns of their own: only columns can be indexed."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

import orjson
import polars as pl


@dataclass(frozen=True, slots=True)
class NestedField:
    """A field of a column, and of its fields."""

    path: tuple[str, ...]

    @property
    def expr(self) -> pl.Expr:
        """The values of the field."""
        return reduce(lambda outer, name: outer.struct.field(name), self.path[1:], pl.col(self.path[0]))

    @property
    def code(self) -> str:
        """The same in Python.

        >>> NestedField(("user", "country")).code
        "pl.col('user').struct.field('country')"
        """
        return f"pl.col({self.path[0]!r})" + "".join(f".struct.field({name!r})" for name in self.path[1:])


def with_fields_as_columns(
    where: pl.Expr, columns: Collection[str]
) -> tuple[pl.Expr, dict[str, NestedField]]:
    """Return a filter on columns in place of fields, and the fields by the names of these columns.

    >>> where, fields = with_fields_as_columns(pl.col("user").struct.field("country") == "DE", ["user"])
    >>> str(where), fields
    ('[(col("user_country")) == ("DE")]', {'user_country': NestedField(path=('user', 'country'))})
    """
    try:
        tree = orjson.loads(where.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, orjson.JSONDecodeError):  # calls Python, or is nested too deeply
        return where, {}
    renaming = _Renaming(frozenset(columns))
    replaced = renaming.replaced(tree)
    if not renaming.fields:
        return where, {}
    text = orjson.dumps(replaced).decode()
    return pl.Expr.deserialize(io.StringIO(text), format="json"), renaming.fields


@dataclass(frozen=True, slots=True)
class _Renaming:
    columns: frozenset[str]
    fields: dict[str, NestedField] = field(default_factory=dict[str, NestedField])

    def replaced(self, tree: object) -> object:
        """Return a serialised expression with columns in place of fields."""
        path = _path_of(tree)
        if len(path) > 1:
            name = "_".join(path)
            while name in self.columns:
                name += "_"
            self.fields[name] = NestedField(path)
            return {"Column": name}
        if isinstance(tree, dict):
            return {key: self.replaced(part) for key, part in cast("dict[str, Any]", tree).items()}
        if isinstance(tree, list):
            return list(map(self.replaced, cast("list[object]", tree)))
        return tree


def _path_of(tree: object) -> tuple[str, ...]:
    """Return the names of a field, or of a column; nothing for other expressions."""
    match tree:
        case {"Column": str(name)}:
            return (name,)
        case {"Function": {"input": [outer], "function": {"StructExpr": {"FieldByName": str(name)}}}}:
            path = _path_of(outer)
            return (*path, name) if path else ()
        case _:
            return ()

"""Convert the argument `columns` to texts."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidColumnsError

# A list of names, `"name:kind"`, pairs of name and kind, or `pl.col`; or a mapping from name to kind (None: any kind).
IndexColumns: TypeAlias = Sequence[str | tuple[str, str | None] | pl.Expr] | Mapping[str, str | None]


def column_texts(columns: IndexColumns) -> list[str]:
    """Return columns to index as texts, ``"name"`` or ``"name:kind"``.

    >>> column_texts(["a", ("b", "hash"), pl.col("c")]), column_texts({"a": "linear", "b": None})
    (['a', 'b:hash', 'c'], ['a:linear', 'b:auto'])
    """
    value = cast("object", columns)
    ordered = isinstance(value, Iterable) and not isinstance(value, str | frozenset | set)
    pairs: object = value.items() if isinstance(value, Mapping) else value
    items: list[object] = list(cast("Iterable[object]", pairs)) if ordered else []
    texts = [text for item in items if (text := _column_text(item)) is not None]
    if not ordered or len(texts) < len(items):
        split = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
        message = (
            "`columns` must be a list of names, 'a' or 'a:hash', or map names to kinds, not "
            f"{reprlib.repr(value)}.{f' Did you mean columns={split}?' if any(split) else ''}"
        )
        raise InvalidColumnsError(message, value=value)
    return texts


def _column_text(item: object) -> str | None:
    match item:
        case str():
            return item
        case (str(name), None):
            return f"{name}:auto"
        case (str(name), str(kind)):
            return f"{name}:{kind}"
        case pl.Expr() if item.meta.is_column():
            return item.meta.output_name()
        case _:
            return None

"""Convert the index columns that a user passes to texts."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidColumnsError

# Names, `"name:kind"`, pairs of name and kind or plain `pl.col` in a list; or kinds by name, None: any.
IndexColumns: TypeAlias = Sequence[str | tuple[str, str | None] | pl.Expr] | Mapping[str, str | None]


def column_texts(columns: IndexColumns) -> list[str]:
    """Return columns to index as texts, ``"name"`` or ``"name:kind"``.

    >>> column_texts(["a", ("b", "hash"), pl.col("c")]), column_texts({"a": "linear", "b": None})
    (['a', 'b:hash', 'c'], ['a:linear', 'b:auto'])
    """
    given = cast("object", columns)
    ordered = isinstance(given, Iterable) and not isinstance(given, str | frozenset | set)
    pairs: object = given.items() if isinstance(given, Mapping) else given
    listed: list[object] = list(cast("Iterable[object]", pairs)) if ordered else []
    texts = [text for one in listed if (text := _column_text(one)) is not None]
    if not ordered or len(texts) < len(listed):
        split = [name.strip() for name in given.split(",")] if isinstance(given, str) else []
        message = (
            "`columns` must be a list of names, 'a' or 'a:hash', or map names to kinds, not "
            f"{reprlib.repr(given)}; nothing was written.{f' Did you mean columns={split}?' if any(split) else ''}"
        )
        raise InvalidColumnsError(message, value=given)
    return texts


def _column_text(given: object) -> str | None:
    match given:
        case str():
            return given
        case (str(name), None):
            return f"{name}:auto"
        case (str(name), str(kind)):
            return f"{name}:{kind}"
        case pl.Expr() if given.meta.is_column():
            return given.meta.output_name()
        case _:
            return None

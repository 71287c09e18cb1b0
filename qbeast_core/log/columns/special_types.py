"""Types that files store in another form than rows have in memory: variants and voids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import polars as pl

from qbeast_core.log.schema import type_from_delta

VARIANT: Final = "variant"
VOID: Final = "void"

_INNER: Final = ("elementType", "keyType", "valueType")


def is_variant(dtype: Any) -> bool:
    """Return whether a type of a Delta schema is a variant; the protocol has two forms for it.

    >>> is_variant("variant"), is_variant({"type": "variant"}), is_variant("binary")
    (True, True, False)
    """
    return dtype == VARIANT or (isinstance(dtype, dict) and dtype.get("type") == VARIANT)


def is_special(dtype: Any) -> bool:
    """Return whether a type is or contains a variant or a void."""
    return any(is_variant(part) or part == VOID for part in _parts_of(dtype))


def statistics_schema(special_types: Mapping[str, Any], schema: pl.Schema) -> pl.Schema:
    """Return a schema in which a variant is one leaf: Delta counts the nulls of a variant, not of its binaries.

    >>> statistics_schema({"v": "variant"}, pl.Schema({"v": type_from_delta("variant"), "x": pl.Int64}))
    Schema([('v', Binary), ('x', Int64)])
    """
    leaves = {
        name: type_from_delta(_with_leaves(dtype)) for name, dtype in special_types.items() if name in schema
    }
    return pl.Schema({**schema, **leaves})


def unstored_voids(schema_string: str) -> list[str]:
    """Return the columns with a void that files cannot leave out: in a list or a map, or alone in a struct.

    >>> unstored_voids('{"fields":[{"name":"a","type":"void"},{"name":"b","type":'
    ...                '{"type":"array","elementType":"void","containsNull":true}}]}')
    ['b']
    """
    if '"void"' not in schema_string:
        return []
    fields = orjson.loads(schema_string)["fields"]
    return [field["name"] for field in fields if field["type"] != VOID and _keeps_void(field["type"])]


def _parts_of(dtype: Any) -> Iterator[Any]:
    """Yield a type and all types inside it."""
    yield dtype
    if isinstance(dtype, dict):
        for field in dtype.get("fields", ()):
            yield from _parts_of(field["type"])
        for key in _INNER:
            if key in dtype:
                yield from _parts_of(dtype[key])


def _with_leaves(dtype: Any) -> Any:
    if is_variant(dtype):
        return "binary"
    if not isinstance(dtype, dict):
        return dtype
    inner = {key: _with_leaves(dtype[key]) for key in _INNER if key in dtype}
    if "fields" in dtype:
        inner["fields"] = [{**field, "type": _with_leaves(field["type"])} for field in dtype["fields"]]
    return {**dtype, **inner}


def _keeps_void(dtype: Any) -> bool:
    if not isinstance(dtype, dict):
        return False
    inner = [dtype[key] for key in _INNER if key in dtype]
    if VOID in inner or any(map(_keeps_void, inner)):
        return True
    types = [field["type"] for field in dtype.get("fields", ())]
    return bool(types) and (all(item == VOID for item in types) or any(map(_keeps_void, types)))

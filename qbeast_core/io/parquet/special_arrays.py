"""Arrow arrays in the form that files have: variants as structs of required binaries, no voids."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from qbeast_core.errors import InvalidInputError

# In the order of Spark. Spark reads only variants whose binaries are required.
_BINARIES: Final = ("value", "metadata")


def in_files(array: Any, dtype: Any) -> Any:
    """Return an array of a type of a Delta schema as files store it; None: files do not store it.

    >>> rows = pa.array([{"metadata": b"m", "value": b"v"}, None])
    >>> in_files(rows, "variant").type
    StructType(struct<value: binary not null, metadata: binary not null>)
    >>> in_files(pa.nulls(2), "void") is None
    True
    """
    kind = dtype["type"] if isinstance(dtype, dict) else dtype
    match kind:
        case "void":
            return None
        case "variant":
            return _variant(array)
        case "struct":
            return _struct(array, dtype["fields"])
        case "array":
            whole = _from_zero(array)
            values = in_files(whole.values, dtype["elementType"])
            return type(whole).from_arrays(whole.offsets, values, mask=whole.is_null())
        case "map":
            whole = _from_zero(array)
            keys, items = in_files(whole.keys, dtype["keyType"]), in_files(whole.items, dtype["valueType"])
            return pa.MapArray.from_arrays(whole.offsets, keys, items, mask=whole.is_null())
        case _:
            return array


def _struct(array: Any, delta_fields: list[dict[str, Any]]) -> Any:
    # By position: names in files may be others.
    parts = [in_files(array.field(i), field["type"]) for i, field in enumerate(delta_fields)]
    kept = [(array.type.field(i), part) for i, part in enumerate(parts) if part is not None]
    fields = [field.with_type(part.type) for field, part in kept]
    return pa.StructArray.from_arrays([part for _, part in kept], fields=fields, mask=array.is_null())


def _from_zero(array: Any) -> Any:
    """Return the same lists without an offset, with which Arrow builds no lists that may be null."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _variant(array: Any) -> Any:
    valid, parts = array.is_valid(), []
    for name in _BINARIES:
        part = array.field(name)
        if part.null_count and part.filter(valid).null_count:
            msg = f"a variant has no {name!r}: it has to be null, or have both binaries."
            raise InvalidInputError(msg, argument="df")
        parts.append(pc.fill_null(part, b"") if part.null_count else part)
    fields = [pa.field(name, part.type, nullable=False) for name, part in zip(_BINARIES, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())

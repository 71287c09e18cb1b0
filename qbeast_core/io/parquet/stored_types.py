"""Column types in files of other writers, and how to read them as the type in the table's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_INTEGER_BITS: Final[dict[pl.DataType, int]] = {
    pl.Int8(): 8,
    pl.Int16(): 16,
    pl.Int32(): 32,
    pl.Int64(): 64,
    pl.UInt8(): 8,
    pl.UInt16(): 16,
    pl.UInt32(): 32,
    pl.UInt64(): 64,
}
# Types of a file and of a table, other than integers and decimals.
_PAIRS: Final[frozenset[tuple[pl.DataType, pl.DataType]]] = frozenset(
    {
        (pl.Int32(), pl.Date()),
        (pl.Date(), pl.Datetime("us")),
        (pl.Binary(), pl.String()),
        (pl.String(), pl.Binary()),
        *((dtype, pl.Float64()) for dtype, bits in _INTEGER_BITS.items() if bits <= 32),
    }
)
# The fields of a variant.
_BINARIES: Final = pl.Schema({"metadata": pl.Binary(), "value": pl.Binary()})


def stored_type(stored: pl.DataType, target: pl.DataType) -> pl.DataType:
    """Return the type to read a file's column as, so that a strict cast to the table's type loses nothing.

    Polars itself widens numbers and converts timestamps. For types that cannot be cast, the table's type is returned
    and Polars raises.

    >>> stored_type(pl.Int32(), pl.Int8()), stored_type(pl.Int8(), pl.Int32()), stored_type(pl.Int64(), pl.Boolean())
    (Int32, Int32, Boolean)
    >>> stored_type(pl.Struct({"a": pl.Binary, "b": pl.Date}), pl.Struct({"b": pl.Date, "a": pl.String}))
    Struct({'b': Date, 'a': Binary})
    """
    match stored, target:
        case pl.Struct(), pl.Struct():
            stored_fields = {field.name: _type(field.dtype) for field in stored.fields}
            fields = {field.name: _type(field.dtype) for field in target.fields}
            return pl.Struct(
                {name: stored_type(stored_fields.get(name, dtype), dtype) for name, dtype in fields.items()}
            )
        case pl.List(), pl.List():
            return pl.List(stored_type(_type(stored.inner), _type(target.inner)))
        case pl.Map(), pl.Map():
            key = stored_type(_type(stored.key), _type(target.key))
            value = stored_type(_type(stored.value), _type(target.value))
            # Polars casts no keys of maps, and overflows on INT96 in maps, but does both in lists.
            if _type(stored.key) != _type(target.key) or "'ns'" in str(stored):
                return pl.List(pl.Struct({"key": key, "value": value}))
            return pl.Map(key, value)
        case _:
            return stored if _is_cast(stored, target) else target


def parts_apart(stored: Any, target: Any) -> bool:
    """Return whether a file stores parts of a variant apart (shredded), at any depth.

    >>> binaries = {"metadata": pl.Binary, "value": pl.Binary}
    >>> parts_apart(pl.Struct({**binaries, "typed_value": pl.Int64}), pl.Struct(binaries))
    True
    """
    match stored, target:
        case pl.Struct(), pl.Struct():
            stored_fields, fields = stored.to_schema(), target.to_schema()
            if "typed_value" in stored_fields and fields == _BINARIES:
                return True
            return any(parts_apart(dtype, fields.get(name)) for name, dtype in stored_fields.items())
        case pl.List(), pl.List():
            return parts_apart(stored.inner, target.inner)
        case pl.Map(), pl.Map():
            return parts_apart(stored.value, target.value)
        case _:
            return False


def _is_cast(stored: pl.DataType, target: pl.DataType) -> bool:
    """Return whether Spark or deltalake read a type as another one without loss, where a scan of Polars does not."""
    bits, target_bits = _INTEGER_BITS.get(stored), _INTEGER_BITS.get(target)
    if isinstance(target, pl.Decimal):
        return bits is not None or _is_narrowed(stored, target)
    if bits is None or target_bits is None:
        return (stored, target) in _PAIRS
    return stored != target and bits >= target_bits


def _is_narrowed(stored: pl.DataType, target: pl.Decimal) -> bool:
    """Return whether a decimal type needs a cast to another one."""
    if not isinstance(stored, pl.Decimal) or stored.scale > target.scale:
        return False
    return stored.scale < target.scale or (stored.precision or 38) > (target.precision or 38)


def _type(dtype: PolarsDataType) -> pl.DataType:
    """Return an instance of a type: nested types may be classes."""
    return dtype if isinstance(dtype, pl.DataType) else dtype()

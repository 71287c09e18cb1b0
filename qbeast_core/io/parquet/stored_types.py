"""Types that files of other writers hold under a column of a table, and how they are read as that column's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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


def stored_type(stored: pl.DataType, wanted: pl.DataType) -> pl.DataType:
    """Return the type to read a file's column as, so that a strict cast makes a table's column of it without loss.

    Polars itself widens numbers and converts timestamps; a type that is not castable is left to it, and refused.

    >>> stored_type(pl.Int32(), pl.Int8()), stored_type(pl.Int8(), pl.Int32()), stored_type(pl.Int64(), pl.Boolean())
    (Int32, Int32, Boolean)
    >>> stored_type(pl.Struct({"a": pl.Binary, "b": pl.Date}), pl.Struct({"b": pl.Date, "a": pl.String}))
    Struct({'b': Date, 'a': Binary})
    """
    match stored, wanted:
        case pl.Struct(), pl.Struct():
            stored_fields = {one.name: _type(one.dtype) for one in stored.fields}
            fields = {one.name: _type(one.dtype) for one in wanted.fields}
            return pl.Struct(
                {name: stored_type(stored_fields.get(name, dtype), dtype) for name, dtype in fields.items()}
            )
        case pl.List(), pl.List():
            return pl.List(stored_type(_type(stored.inner), _type(wanted.inner)))
        case pl.Map(), pl.Map():
            key = stored_type(_type(stored.key), _type(wanted.key))
            value = stored_type(_type(stored.value), _type(wanted.value))
            # INT96 overflows in maps as Polars reads them, and not in lists.
            return (
                pl.List(pl.Struct({"key": key, "value": value}))
                if "'ns'" in str(stored)
                else pl.Map(key, value)
            )
        case _:
            return stored if _is_cast(stored, wanted) else wanted


def _is_cast(stored: pl.DataType, wanted: pl.DataType) -> bool:
    """Return whether Spark or deltalake read one type as the other without loss, and Polars' scan does not."""
    bits, wanted_bits = _INTEGER_BITS.get(stored), _INTEGER_BITS.get(wanted)
    if isinstance(wanted, pl.Decimal):
        return bits is not None or _is_narrowed(stored, wanted)
    if bits is None or wanted_bits is None:
        return (stored, wanted) in _PAIRS
    return stored != wanted and bits >= wanted_bits


def _is_narrowed(stored: pl.DataType, wanted: pl.Decimal) -> bool:
    """Return whether a decimal type needs a cast to another one."""
    if not isinstance(stored, pl.Decimal) or stored.scale > wanted.scale:
        return False
    return stored.scale < wanted.scale or (stored.precision or 38) > (wanted.precision or 38)


def _type(dtype: PolarsDataType) -> pl.DataType:
    """Return an instance: the types inside of others may be classes."""
    return dtype if isinstance(dtype, pl.DataType) else dtype()

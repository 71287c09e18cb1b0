"""Types of columns of Polars, Python, Arrow, Delta or Spark, or by their names, as Polars types."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.delta_schema import schema_from_delta

# A type of Polars, Python, Arrow, `deltalake` or PySpark, or the name of one.
TypeLike: TypeAlias = Any

# Delta's names of types that are not nested.
NAMES: Final = (
    "byte, short, integer, long, float, double, decimal(p,s), string, binary, boolean, date, timestamp (in UTC) and "
    "timestamp_ntz"
)

_SQL: Final = {
    "bigint": "long",
    "blob": "binary",
    "bool": "boolean",
    "bytes": "binary",
    "char": "string",
    "int": "integer",
    "real": "float",
    "smallint": "short",
    "str": "string",
    "text": "string",
    "tinyint": "byte",
    "varchar": "string",
}
_ONLY_READ: Final = ("variant", "void")
_ANY_DECIMAL: Final = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def type_of(dtype: TypeLike) -> pl.DataType:
    """Return a user's type as a Polars type.

    >>> import pyarrow as pa
    >>> [str(type_of(dtype)) for dtype in (pl.Int64, int, pa.int64(), "long", "BIGINT", "Int64")]
    ['Int64', 'Int64', 'Int64', 'Int64', 'Int64', 'Int64']
    >>> type_of("decimal(9,2)")
    Decimal(precision=9, scale=2)
    """
    if isinstance(dtype, str):
        return _named(dtype)
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    if isinstance(dtype, pa.DataType):
        return pl.Schema(pa.schema([pa.field("", dtype)]))[""]
    for method in ("to_json", "json"):  # of deltalake, of PySpark: both as in the log
        if not isinstance(dtype, type) and callable(getattr(dtype, method, None)):
            return _of_log(orjson.loads(getattr(dtype, method)()))
    return pl.DataFrame(schema={"": dtype}).schema[""]


def _named(name: str) -> pl.DataType:
    text = name.strip().lower()
    decimal = _ANY_DECIMAL.fullmatch(text)
    if decimal is not None:
        return _of_log(f"decimal({decimal[1]},{decimal[2] or 0})")
    polars_type = getattr(pl, name, None)
    if isinstance(polars_type, type) and issubclass(polars_type, pl.DataType):
        return type_of(polars_type)
    return _of_log(_SQL.get(text, text))


def _of_log(written: object) -> pl.DataType:
    if written in _ONLY_READ:
        msg = f"columns of type {written!r} can be read and written, and not made"
        raise TypeError(msg)
    try:
        return schema_from_delta(orjson.dumps({"fields": [{"name": "", "type": written}]}).decode())[""]
    except UnsupportedTableError as error:
        msg = f"{written!r} is not a type"
        raise TypeError(msg) from error

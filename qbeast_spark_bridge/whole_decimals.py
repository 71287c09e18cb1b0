"""Decimals on their way to Python as whole numbers: Spark makes an object of every decimal that it hands to Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["decimals_as_longs", "longs_as_decimals", "short_decimals"]

_LONG_DIGITS: Final = 18
_SIGN_SHIFT: Final = 63


def short_decimals(schema: StructType) -> dict[int, tuple[int, int]]:
    """Return precision and scale of the top-level decimals whose digits fit in a long, by their places.

    Parameters
    ----------
    schema : StructType
        Of a Spark DataFrame.
    """
    # By its name: workers import this module, and none of Spark's SQL.
    return {
        place: (field.dataType.precision, field.dataType.scale)  # type: ignore[attr-defined] # of a DecimalType
        for place, field in enumerate(schema.fields)
        if field.dataType.typeName() == "decimal" and field.dataType.precision <= _LONG_DIGITS  # type: ignore[attr-defined] # of a DecimalType
    }


def decimals_as_longs(df: DataFrame, decimals: dict[int, tuple[int, int]]) -> DataFrame:
    """Return the rows with such decimals as their digits: 1.50 of scale 2 is 150.

    Parameters
    ----------
    df : DataFrame
        With column names that need no quoting.
    decimals : dict
        From `short_decimals`.
    """
    return df.selectExpr(
        *(
            _digits(name, decimals[place][1]) if place in decimals else name
            for place, name in enumerate(df.columns)
        )
    )


def longs_as_decimals(table: pa.Table, decimals: dict[int, tuple[int, int]]) -> pa.Table:
    """Return the rows with their decimals again.

    Parameters
    ----------
    table : pyarrow.Table
        Rows of `decimals_as_longs`.
    decimals : dict
        From `short_decimals`.
    """
    for place, (precision, scale) in decimals.items():
        dtype = pa.decimal128(precision, scale)
        column = table.column(place)
        chunks = [_decimal(chunk, dtype) for chunk in column.chunks]
        table = table.set_column(place, table.field(place).name, pa.chunked_array(chunks, dtype))
    return table


def _digits(name: str, scale: int) -> str:
    return f"CAST({name} * {10**scale}BD AS BIGINT) AS {name}"


def _decimal(longs: pa.Array, dtype: pa.DataType) -> pa.Array:
    valid, values = longs.buffers()
    first, rows = longs.offset, len(longs)
    low = np.frombuffer(values, np.int64, count=first + rows)
    words = np.empty((first + rows, 2), np.int64)  # of 128 bits, the lower half first
    words[:, 0] = low
    np.right_shift(low, _SIGN_SHIFT, out=words[:, 1])
    return pa.Array.from_buffers(dtype, rows, [valid, pa.py_buffer(words)], longs.null_count, first)

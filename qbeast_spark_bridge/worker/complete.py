"""Complete rows in a worker: compute columns of a table that the rows lack."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from qbeast_core.table.engine.target import RowShape
from qbeast_spark_bridge.worker.transport import gathered, longs_as_decimals


def complete_rows(
    argument: tuple[RowShape, list[str], list[str], dict[int, tuple[int, int]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the table for the rows, named c0, c1 and so on."""
    shape, columns, names, decimals = argument
    for rows in gathered(batches, columns):
        frame = shape.fit(longs_as_decimals(rows, decimals)).select(names)
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        fields = [
            pa.field(f"c{number}", _spark_type(field.type)) for number, field in enumerate(table.schema)
        ]
        renamed = table.rename_columns([field.name for field in fields])
        yield from renamed.cast(pa.schema(fields)).to_batches()


def _spark_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that Spark expects: texts and bytes of Polars have long offsets."""
    if pa.types.is_large_string(dtype):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(dtype) else dtype

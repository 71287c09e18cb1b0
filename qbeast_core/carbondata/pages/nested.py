"""Puts the pages of complex columns together: lists, structs, and CarbonData's rules of nulls.

CarbonData writes a null array as an array of one null, and a null struct as a struct of nulls: both are read as null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.structs.schema import DataType
from qbeast_core.space.arrays import I64Array

_MAX_ENTRIES: Final = 2**31 - 1


def assemble(column: Column, leaf: Callable[[Column], Any], records: Callable[[Column], I64Array]) -> Any:
    """Return the values of one page of a column with all that is nested in it."""
    if not column.is_nested:
        return leaf(column)
    children = [assemble(child, leaf, records) for child in column.children]
    if column.kind == DataType.STRUCT:
        return _struct(column, children, len(records(column)))
    return _list(column, children[0], records(column))


def _struct(column: Column, children: list[Any], rows: int) -> Any:
    for child, values in zip(column.children, children, strict=True):
        if len(values) != rows:
            damaged(f"field {child.schema.name!r} has {len(values)} values for {rows} structs")
    nulls = np.logical_and.reduce([np.asarray(values.is_null()) for values in children])
    names = [child.field_name for child in column.children]
    return pa.StructArray.from_arrays(children, names=names, mask=pa.array(nulls) if nulls.any() else None)


def _list(column: Column, child: Any, records: I64Array) -> Any:
    counts, starts = records[:, 0], records[:, 1]
    full = counts > 0
    if np.any(counts < 0) or np.any((starts < 0) & full) or np.any((starts + counts)[full] > len(child)):
        damaged(f"an array of {column.schema.name!r} refers to more than the {len(child)} values there are")
    nulls = _only_null(counts, starts, child)
    counts = np.where(nulls, 0, counts)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > len(child):
        damaged(f"arrays of {column.schema.name!r} share values")
    if not np.array_equal(starts[counts > 0], offsets[:-1][counts > 0]) or offsets[-1] != len(child):
        child = child.take(pa.array(np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)))
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    kind = column.arrow_type
    if column.kind == DataType.MAP:
        if len(child) > _MAX_ENTRIES or child.null_count or child.field(0).null_count:
            damaged(f"a map of {column.schema.name!r} has an entry without a key, or there are too many")
        offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(kind, len(counts), [validity, pa.py_buffer(offsets)], children=[child])


def _only_null(counts: I64Array, starts: I64Array, child: Any) -> Any:
    """Return which arrays consist of one null."""
    single = counts == 1
    if not child.null_count:
        return np.zeros(len(counts), np.bool_)
    single[single] = np.asarray(child.is_null())[starts[single]]
    return single

"""Bounds of statistics that hold for the values as they are read: after changes of types, and under collations."""

from __future__ import annotations

from typing import Final

import polars as pl

from qbeast_core.log.columns.stored import StoredColumns

# A text of a Float32 in the log, read as a Float64, differs from the value by at most half of its last bit.
_RELATIVE: Final = 2.0**-23
_SMALLEST: Final = 1.5e-45


def sound_bounds(files: pl.DataFrame, columns: StoredColumns) -> pl.DataFrame:
    """Return the files with wider bounds, or none, where the bounds in the log do not enclose the values.

    The statistics of files from before a change from Float32 to Float64 are texts of the narrow numbers: 3.4 for a
    value that is 3.4000000953674316 now. The bounds of strings with a collation may follow its order, not that of
    bytes, which filters of Polars compare.

    >>> columns = StoredColumns({})
    >>> sound_bounds(pl.DataFrame({"path": ["a"]}), columns).height
    1
    """
    widened = {
        change.column for change in columns.type_changes if change.to_type == "double" and change.is_whole
    }
    unknown = set(columns.collated)
    unknown |= {change.column for change in columns.type_changes if change.to_type == "double"} - widened
    if not widened and not unknown:
        return files
    changed: list[pl.Expr] = []
    for kind, sign in (("min", -1.0), ("max", 1.0)):
        dtype = files.schema[kind]
        fields = dtype.to_schema() if isinstance(dtype, pl.Struct) else {}
        bounds: list[pl.Expr] = []
        for name in fields:
            bound = pl.col(kind).struct.field(name)
            if name in unknown:
                bounds.append(pl.lit(None, fields[name]).alias(name))
            elif name in widened and fields[name] == pl.Float64:
                bounds.append(bound + sign * (bound.abs() * _RELATIVE + _SMALLEST))
        if bounds:
            changed.append(pl.col(kind).struct.with_fields(*bounds))
    return files.with_columns(changed)

"""The columns of a folder of data files that has no schema: those of its files together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import Unreadable
from qbeast_core.carbondata.structs.schema import DataType

_WIDENS: Final = {
    (DataType.BYTE, DataType.SHORT),
    (DataType.SHORT, DataType.INT),
    (DataType.INT, DataType.LONG),
    (DataType.SHORT, DataType.LONG),
    (DataType.FLOAT, DataType.DOUBLE),
    (DataType.STRING, DataType.VARCHAR),
}


def columns_of_files(files: Sequence[Sequence[Column]]) -> tuple[Column, ...]:
    """Return the columns of all files by name, in the order of the first that has them, each in its widest type."""
    found: dict[str, Column] = {}
    for columns in files:
        ordered = sorted(
            columns, key=lambda one: one.schema.ordinal if one.schema.ordinal >= 0 else one.number
        )
        for column in ordered:
            if column.is_dummy or column.schema.invisible:
                continue
            name = column.schema.name.lower()
            found[name] = _wider(found[name], column) if name in found else column
    return tuple(found.values())


def _wider(known: Column, other: Column) -> Column:
    if known.arrow_type == other.arrow_type or (other.kind, known.kind) in _WIDENS:
        return known
    if (known.kind, other.kind) in _WIDENS:
        return other
    if known.kind == other.kind == DataType.DECIMAL:
        whole, scale = (max(one) for one in zip(_digits(known), _digits(other), strict=True))
        wider = known if _digits(known) == (whole, scale) else other
        if _digits(wider) == (whole, scale):
            return wider
    message = (
        f"its files disagree about column {known.schema.name!r}: {known.arrow_type} and {other.arrow_type}"
    )
    raise Unreadable(message)


def _digits(column: Column) -> tuple[int, int]:
    return column.schema.precision - column.schema.scale, column.schema.scale

"""Columns of index keys as plain NumPy buffers: what every kernel takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import BoolArray, I64Array, U8Array

__all__ = ["IndexColumn", "NumberColumn", "NumberKind", "StringColumn"]

NumberKind = Literal["int8", "int16", "int32", "int64", "float32", "float64", "date", "timestamp", "decimal"]

_DTYPES: dict[NumberKind, str] = {"date": "int32", "timestamp": "int64", "decimal": "int64"}
_NARROW_DECIMAL = 18


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """One column of numbers, dates, timestamps or decimals.

    Parameters
    ----------
    kind
        What the values are.
    values
        Shape (n,) of the dtype that `kind` names. `date` is int32 days and `timestamp` int64
        microseconds since 1970-01-01 UTC. `decimal` is the unscaled value: int64 of shape (n,) for a
        precision up to 18, else int64 of shape (n, 2), the low and the high word of 128 bits.
        Values at nulls are arbitrary.
    nulls
        True where the row is null, shape (n,); None when no row is.
    precision, scale
        Declared digits of a decimal and those after its point; 0 for other kinds.

    Raises
    ------
    InvalidInputError
        Dtype or shape do not fit the kind.

    Examples
    --------
    >>> prices = NumberColumn("float64", np.array([1.5, 2.5, 0.0]), np.array([False, False, True]))
    >>> len(prices), prices.slice(1, 3).values.tolist()
    (3, [2.5, 0.0])
    """

    kind: NumberKind
    values: npt.NDArray[Any]
    nulls: BoolArray | None = None
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        wide = self.kind == "decimal" and self.precision > _NARROW_DECIMAL
        shape = (len(self.values), 2) if wide else (len(self.values),)
        dtype = np.dtype(_DTYPES.get(self.kind, self.kind))
        if self.values.dtype != dtype or self.values.shape != shape:
            message = (
                f"A {self.kind} column holds {dtype} of shape {shape}, "
                f"not {self.values.dtype} of shape {self.values.shape}"
            )
            raise InvalidInputError(message, argument="values")
        _check_nulls(self.nulls, len(self.values))

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> NumberColumn:
        """Give rows `start` to `stop` (excluded) as a view."""
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return NumberColumn(self.kind, self.values[start:stop], nulls, self.precision, self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class StringColumn:
    """One column of UTF-8 strings, laid out as Arrow lays out a large string array.

    Parameters
    ----------
    data
        All bytes, uint8. Need not start at the first row nor end at the last.
    offsets
        int64 of shape (n + 1,), ascending: row i is ``data[offsets[i]:offsets[i + 1]]``.
    nulls
        True where the row is null, shape (n,); None when no row is. Bytes of a null row are ignored.

    Raises
    ------
    InvalidInputError
        A dtype or the shape of the offsets does not fit.

    Examples
    --------
    >>> text = StringColumn(np.frombuffer(b"abcde", np.uint8), np.array([0, 2, 2, 5]))
    >>> len(text), text.slice(1, 3).offsets.tolist()
    (3, [2, 2, 5])
    """

    data: U8Array
    offsets: I64Array
    nulls: BoolArray | None = None

    def __post_init__(self) -> None:
        if self.data.dtype != np.uint8 or self.offsets.dtype != np.int64 or self.offsets.size == 0:
            message = "A string column holds uint8 data and int64 offsets, one more than it has rows"
            raise InvalidInputError(message, argument="data")
        _check_nulls(self.nulls, len(self))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> StringColumn:
        """Give rows `start` to `stop` (excluded) as a view over the same bytes."""
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return StringColumn(self.data, self.offsets[start : stop + 1], nulls)


IndexColumn = NumberColumn | StringColumn
"""What a table may be indexed by."""


def _check_nulls(nulls: BoolArray | None, rows: int) -> None:
    if nulls is not None and (nulls.dtype != np.bool_ or nulls.shape != (rows,)):
        message = f"nulls must be booleans of shape ({rows},), not {nulls.dtype} of shape {nulls.shape}"
        raise InvalidInputError(message, argument="nulls")

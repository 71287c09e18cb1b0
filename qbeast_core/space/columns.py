"""Columns of index keys as plain NumPy buffers: what every kernel takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import BoolArray, I64Array, U8Array

NumberKind = Literal["int8", "int16", "int32", "int64", "float32", "float64", "date", "timestamp", "decimal"]

_DTYPES: dict[NumberKind, str] = {"date": "int32", "timestamp": "int64", "decimal": "int64"}
_NARROW_DECIMAL = 18


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """One column of numbers, dates, timestamps or decimals.

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


# What a table may be indexed by.
IndexColumn = NumberColumn | StringColumn


def _check_nulls(nulls: BoolArray | None, rows: int) -> None:
    if nulls is not None and (nulls.dtype != np.bool_ or nulls.shape != (rows,)):
        message = f"nulls must be booleans of shape ({rows},), not {nulls.dtype} of shape {nulls.shape}"
        raise InvalidInputError(message, argument="nulls")

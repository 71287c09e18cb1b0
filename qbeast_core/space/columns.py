"""Columns of index keys as plain NumPy buffers: the input of every kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from qbeast_core.space.arrays import BoolArray, I64Array, U8Array

NumberKind = Literal["int8", "int16", "int32", "int64", "float32", "float64", "date", "timestamp", "decimal"]


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """One column of numbers, dates, timestamps or decimals.

    >>> import numpy as np
    >>> prices = NumberColumn("float64", np.array([1.5, 2.5, 0.0]), np.array([False, False, True]))
    >>> len(prices), prices.slice(1, 3).values.tolist()
    (3, [2.5, 0.0])
    """

    kind: NumberKind
    # Dates are int32 days, timestamps int64 us, decimals int64; decimals of more than 18 digits are pairs of int64,
    # of shape (rows, 2), the low half first.
    values: npt.NDArray[Any]
    nulls: BoolArray | None = None
    # Of decimals.
    scale: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> NumberColumn:
        """Return rows `start` to `stop` (excluded) as a view."""
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return NumberColumn(self.kind, self.values[start:stop], nulls, self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class StringColumn:
    """One column of UTF-8 strings, laid out as Arrow lays out a large string array.

    >>> import numpy as np
    >>> text = StringColumn(np.frombuffer(b"abcde", np.uint8), np.array([0, 2, 2, 5]))
    >>> len(text), text.slice(1, 3).offsets.tolist()
    (3, [2, 2, 5])
    """

    data: U8Array
    # One more than there are rows.
    offsets: I64Array
    nulls: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> StringColumn:
        """Return rows `start` to `stop` (excluded) as a view over the same bytes."""
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return StringColumn(self.data, self.offsets[start : stop + 1], nulls)


# Columns that a table may be indexed by.
IndexColumn = NumberColumn | StringColumn

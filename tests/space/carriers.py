"""Columns from Python values, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbeast_core.space.values import NumberColumn, NumberKind, StringColumn

DTYPES = {"date": "int32", "timestamp": "int64", "decimal": "int64"}


def numbers(kind: NumberKind, values: Sequence[float | None], *, precision: int = 0, scale: int = 0):
    nulls = np.array([value is None for value in values], dtype=bool)
    filled = [0 if value is None else value for value in values]
    if kind == "decimal" and precision > 18:
        words = [[value & (2**64 - 1), value >> 64 & (2**64 - 1)] for value in filled]
        array = np.array(words, dtype=np.uint64).reshape(-1, 2).view(np.int64)
    else:
        array = np.array(filled, dtype=DTYPES.get(kind, kind))
    return NumberColumn(kind, array, nulls if nulls.any() else None, scale)


def strings(values: Sequence[str | bytes | None]) -> StringColumn:
    texts = [
        b"" if value is None else value.encode() if isinstance(value, str) else value for value in values
    ]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    nulls = np.array([value is None for value in values], dtype=bool)
    return StringColumn(np.frombuffer(b"".join(texts), np.uint8), offsets, nulls if nulls.any() else None)

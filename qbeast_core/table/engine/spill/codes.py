"""Columns of few distinct values, spilled as small numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from qbeast_core.io.encodings import choose_dictionary, is_few

_MOST_VALUES: Final = 1 << 16
_MOST_BYTES: Final = 4 << 20


class TooManyValuesError(Exception):
    """A column has more distinct values than are kept in memory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def columns_to_code(rows: pl.DataFrame, *, besides: Collection[str]) -> list[str]:
    """Return the columns that data files would dictionary encode, of types that take much more than a code."""
    large = rows.select(
        [name for name, dtype in rows.schema.items() if name not in besides and _is_large(dtype)]
    )
    return choose_dictionary(large)


class Codes:
    """Numbers for the values of some columns, the same ones in all batches; for many threads. Null stays null.

    >>> rows = pl.DataFrame({"a": ["x", "y", None, "x"], "b": range(4)})
    >>> codes = Codes(rows.schema, ["a"], most_bytes=100)
    >>> coded = codes.code(rows)
    >>> coded["a"].to_list()
    [0, 1, None, 0]
    >>> few, values = codes.of_file(pl.concat([coded[1:3]] * 8))
    >>> few["a"].to_list()[:2], values["a"].to_list()
    ([0, None], ['y'])
    """

    def __init__(self, schema: pl.Schema, names: Sequence[str], *, most_bytes: int) -> None:
        self._plain, self._most_bytes = schema, min(most_bytes, _MOST_BYTES)
        self.names = list(names)
        self.schema = pl.Schema({**schema, **dict.fromkeys(names, pl.UInt16())})
        self._lock = Lock()
        self._values = {name: _arrow(pl.Series([], dtype=schema[name])) for name in names}

    def code(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with codes instead of values."""
        return rows.with_columns([self._code(rows[name]) for name in self._values])

    def of_file(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
        """Return coded rows as `store_file` takes them: with places among the values that a column has here.

        Columns with too many of them for a dictionary are decoded.
        """
        columns: list[pl.Series] = []
        values: dict[str, pl.Series] = {}
        for name, found in self._values.items():
            known, codes = pl.Series(name, found).cast(self._plain[name]), rows[name]
            used = np.zeros(len(known), np.bool_)
            used[codes.drop_nulls().to_numpy()] = True
            some = known if used.all() else known.filter(pl.Series(used))
            if is_few(some, rows.height):
                places = (np.cumsum(used) - 1).astype(np.uint16)
                columns.append(codes if used.all() else _taken(places, codes))
                values[name] = some
            else:
                columns.append(known.gather(codes))
        return rows.with_columns(columns), values

    def _code(self, column: pl.Series) -> pl.Series:
        views = column.to_arrow(compat_level=pl.CompatLevel.newest())
        found = views.dictionary_encode()
        numbers = self._numbers(column.name, found.dictionary)
        return _taken(numbers, pl.Series(column.name, found.indices))

    def _numbers(self, name: str, values: Any) -> npt.NDArray[np.uint16]:
        """Return the code of each value; what is new gets the next ones."""
        with self._lock:
            known = self._values[name]
            values = values.cast(known.type)
            places = _places(values, known)
            if places.null_count:
                known = pa.concat_arrays([known, values.filter(places.is_null())])
                self._values[name] = known
                if (
                    len(known) > _MOST_VALUES
                    or sum(one.nbytes for one in self._values.values()) > self._most_bytes
                ):
                    raise TooManyValuesError(name)
                places = _places(values, known)
        return pl.Series(places).to_numpy().astype(np.uint16)  # pyarrow's own imports pandas first


def _is_large(dtype: pl.DataType) -> bool:
    # To look a number of eight bytes up takes longer than to move it.
    return dtype.is_decimal() or dtype == pl.String


def _arrow(column: pl.Series) -> Any:
    return column.to_arrow(compat_level=pl.CompatLevel.oldest())


def _places(values: Any, known: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - it makes hundreds of functions, and only what is spilled needs one

    # By its name: the functions of this module have no types.
    return pc.call_function("index_in", [values], pc.SetLookupOptions(value_set=known))


def _taken(numbers: npt.NDArray[np.uint16], places: pl.Series) -> pl.Series:
    """Return numbers by their places, null for null."""
    if not len(numbers):
        return pl.Series(places.name, [None] * len(places), dtype=pl.UInt16)
    if not places.null_count():
        return pl.Series(places.name, numbers[places.to_numpy()])
    return pl.Series(places.name, numbers[places.fill_null(0).to_numpy()]).set(places.is_null(), None)

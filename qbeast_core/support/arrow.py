"""Convert tables of Arrow to Polars, also columns of types that Polars does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_core.support.text import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence


# What Polars and pyarrow raise for a column; a panic is not an `Exception`.
_FAULTS: Final = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    NotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)
_MAX_DIGITS: Final = 38


def frame_of(table: pa.Table) -> tuple[pl.DataFrame, list[str]]:
    """Return the columns that Polars can hold, and the problems of the others. Names must differ.

    Columns of several encodings become plain ones, zoned times times in UTC.

    >>> frame, problems = frame_of(pa.table({"a": [1], "b": pa.array([pa.MonthDayNano([1, 2, 3])])}))
    >>> frame.columns, problems
    (['a'], ["column 'b' has type month_day_nano_interval"])
    """
    columns: dict[str, pa.ChunkedArray] = {}
    problems: list[str] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        try:
            columns[field.name] = _plain_column(column)
        except _FAULTS as error:
            problems.append(_problem(field, error))
    plain = pa.table(columns)
    try:
        return pl.DataFrame(plain), problems
    except _FAULTS:
        return _each([plain.select([name]) for name in columns], problems)


def frame_of_pandas(data: Any) -> tuple[pl.DataFrame, list[str]]:
    """Return the columns of a pandas frame that Polars can hold, and the problems of the others."""
    tables, problems = [], []
    for number, name in enumerate(data.columns):
        column = data.iloc[:, [number]]
        try:
            tables.append(pa.Table.from_pandas(column, preserve_index=False))
        except _FAULTS as error:
            kind = column.dtypes.iloc[0]
            problems.append(
                f"column {str(name)!r} of type {kind} cannot be read: {first_line(str(error.args[0]))}"
            )
    return _each(tables, problems)


def _each(tables: Sequence[pa.Table], problems: list[str]) -> tuple[pl.DataFrame, list[str]]:
    """Convert tables of one column each."""
    frames = []
    for table in tables:
        (field,) = table.schema
        try:
            frames.append(pl.DataFrame(pa.table({field.name: _plain_column(table.column(0))})))
        except _FAULTS as error:
            problems.append(_problem(field, error))
    return pl.concat(frames, how="horizontal") if frames else pl.DataFrame(), problems


def _problem(field: pa.Field, error: BaseException) -> str:
    """Describe why a column cannot be read: by its values, or by its type."""
    if isinstance(error, pl.exceptions.PolarsError | pa.ArrowInvalid):
        return f"column {field.name!r} of type {field.type} cannot be read: {first_line(str(error))}"
    return f"column {field.name!r} has type {field.type}"


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_plain(column.type):
        return column
    return pa.chunked_array([_plain(chunk) for chunk in column.chunks or [pa.nulls(0, column.type)]])


def _is_plain(dtype: pa.DataType) -> bool:
    """Return whether Polars reads values of a type; it panics at others, or reads them wrongly."""
    return _is_plain_outside(dtype) and all(map(_is_plain, _inner_types(dtype)))


def _is_plain_outside(dtype: pa.DataType) -> bool:
    is_plain: bool
    match dtype:
        case pa.TimestampType():
            is_plain = dtype.tz in {None, "UTC"} and dtype.unit != "s"  # Polars wraps seconds around
        case pa.Decimal128Type():
            is_plain = dtype.scale >= 0
        case pa.Decimal32Type() | pa.Decimal64Type() | pa.Decimal256Type():
            is_plain = False  # Polars panics at small ones in lists
        case pa.RunEndEncodedType() | pa.UnionType():
            is_plain = False
        case pa.FixedSizeBinaryType():
            is_plain = dtype.byte_width > 0
        case pa.FixedSizeListType():
            is_plain = dtype.list_size > 0
        case _:
            others = (pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_interval)
            is_plain = not any(is_other(dtype) for is_other in others)
    return is_plain


def _inner_types(dtype: pa.DataType) -> list[pa.DataType]:
    match dtype:
        case pa.BaseExtensionType():
            return [dtype.storage_type]
        case pa.DictionaryType():
            return [dtype.value_type]
        case pa.MapType():
            return [dtype.key_type, dtype.item_type]
        case _:
            return [dtype.field(number).type for number in range(dtype.num_fields)]


def _plain(array: pa.Array) -> pa.Array:
    """Return an array with plain values. Raise one of `_FAULTS` if there are none."""
    dtype = array.type
    if _is_plain(dtype):
        return array
    if (values := _decoded(array)) is not None:
        return _plain(values)
    if isinstance(dtype, pa.StructType):
        names = [field.name for field in dtype]
        return pa.StructArray.from_arrays(list(map(_plain, array.flatten())), names, mask=array.is_null())
    if isinstance(dtype, pa.MapType):
        return _plain_map(array)
    wanted = _castable(dtype)
    return _plain_list(array) if wanted is None else array.cast(wanted)


def _decoded(array: pa.Array) -> pa.Array | None:
    match array.type:
        case pa.BaseExtensionType():
            return array.storage
        case pa.RunEndEncodedType():
            return pc.call_function("run_end_decode", [array])
        case pa.DictionaryType():
            return array.dictionary_decode()
        case _:
            return None


def _castable(dtype: pa.DataType) -> pa.DataType | None:
    """Return the plain type that pyarrow casts a type to."""
    match dtype:
        case pa.TimestampType():
            return pa.timestamp("ms" if dtype.unit == "s" else dtype.unit, dtype.tz and "UTC")
        case pa.Decimal32Type() | pa.Decimal64Type() | pa.Decimal128Type() | pa.Decimal256Type():
            digits = min(dtype.precision - min(dtype.scale, 0), _MAX_DIGITS)
            return pa.decimal128(digits, max(dtype.scale, 0))
        case pa.FixedSizeBinaryType():
            return pa.binary()
        case _:
            return None


def _plain_map(array: pa.MapArray) -> pa.Array:
    """Return maps of plain values. `cast` of pyarrow 26 makes offsets out of bounds from views."""
    offsets = pa.array(array.offsets.to_numpy())
    return pa.MapArray.from_arrays(offsets, _plain(array.keys), _plain(array.items), mask=array.is_null())


def _plain_list(array: pa.Array) -> pa.Array:
    """Return lists of any kind as plain ones. `cast` of pyarrow 26 drops values of views."""
    lengths = pc.fill_null(pc.call_function("list_value_length", [array]), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.call_function("cumulative_sum", [lengths])])
    return pa.LargeListArray.from_arrays(offsets, _plain(array.flatten()), mask=array.is_null())

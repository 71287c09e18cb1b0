"""The tables that qbeast accepts, and the one type it works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError

__all__ = ["WEIGHT_COLUMN", "ArrowStream", "FrameLike", "to_frame"]

WEIGHT_COLUMN: Final = "_qbeast_weight"
"""Name of the hidden physical column; no column of a table may be called so (format 7)."""

_WIDER: Final[dict[pl.DataType, pl.DataType]] = {
    pl.UInt8(): pl.Int16(),
    pl.UInt16(): pl.Int32(),
    pl.UInt32(): pl.Int64(),
    pl.UInt64(): pl.Int64(),
    pl.Float16(): pl.Float32(),
}
_STORED: Final = frozenset(
    {
        pl.Boolean,
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.Float32,
        pl.Float64,
        pl.Decimal,
        pl.String,
        pl.Binary,
        pl.Date,
        pl.Datetime,
        pl.Null,  # a column of nulls takes the type that the table has; a new table refuses it
    }
)


@runtime_checkable
class ArrowStream(Protocol):
    """Anything that hands over an Arrow C stream: pyarrow, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream as a PyCapsule."""
        ...


FrameLike: TypeAlias = pl.DataFrame | pl.LazyFrame | ArrowStream
"""What a write takes; a `pandas.DataFrame` is an `ArrowStream`."""


def to_frame(data: FrameLike) -> pl.DataFrame:
    """Return `data` as a Polars frame of types that a Delta table can hold.

    Categoricals become strings, unsigned integers the next wider signed ones, timestamps microseconds
    (zoned ones in UTC). The rows and their order stay.

    Parameters
    ----------
    data : polars.DataFrame, polars.LazyFrame or anything with ``__arrow_c_stream__``
        The rows; a lazy frame is collected.

    Returns
    -------
    polars.DataFrame
        Without the index of a pandas frame.

    Raises
    ------
    InvalidInputError
        If `data` is none of these, has no column, the hidden column's name, one name twice, names that
        differ in case alone, or one that Polars reads as a pattern.
    SchemaMismatchError
        If a column's type has no place in a Delta table; all such columns are listed.

    Examples
    --------
    >>> to_frame(pl.DataFrame({"a": pl.Series([1], dtype=pl.UInt8)})).schema
    Schema([('a', Int16)])
    """
    frame = _collect(data)
    _check_names(frame.columns)
    _check_cases("columns", frame.schema)
    problems = [
        f"column {name!r} has type {dtype}" for name, dtype in frame.schema.items() if not _fits(dtype)
    ]
    if problems:
        msg = (
            f"{len(problems)} column(s) cannot be stored in a Delta table: {'; '.join(problems)}. "
            "Nothing was written. Cast or drop them."
        )
        raise SchemaMismatchError(msg, problems=problems)
    wanted = {name: _stored(dtype) for name, dtype in frame.schema.items()}
    changed = {name: dtype for name, dtype in wanted.items() if frame.schema[name] != dtype}
    return _cast(frame, changed) if changed else frame


def _collect(data: object) -> pl.DataFrame:
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if isinstance(data, ArrowStream):
        return _from_stream(data)
    kind = f"{type(data).__module__}.{type(data).__name__}"
    msg = (
        f"cannot write a {kind}; nothing was written. Give a Polars or pandas frame, or anything with "
        "__arrow_c_stream__ (pyarrow Table, RecordBatchReader, DuckDB relation)."
    )
    raise InvalidInputError(msg, argument="df")


def _from_stream(data: ArrowStream) -> pl.DataFrame:
    try:
        frame = pl.DataFrame(data)
    # Whatever Polars raises, which depends on the type that it cannot take.
    except (pl.exceptions.PolarsError, TypeError, ValueError, NotImplementedError) as error:
        msg = f"the rows cannot be taken over as columns of one type each: {error}. Nothing was written."
        raise InvalidInputError(msg, argument="df") from error
    # pandas may hand its index over as one more column; who wants it kept resets it first.
    return frame.drop([c for c in frame.columns if c.startswith("__index_level_")])


def _check_names(names: Sequence[str]) -> None:
    if not names:
        msg = "the rows have no column; nothing was written. Give at least one column."
        raise InvalidInputError(msg, argument="df")
    if WEIGHT_COLUMN in names:
        msg = f"{WEIGHT_COLUMN!r} is the name of a column of qbeast's own; nothing was written. Rename it."
        raise InvalidInputError(msg, argument="df")
    patterns = [name for name in names if name == "*" or (name.startswith("^") and name.endswith("$"))]
    if patterns:
        msg = f"Polars reads the column names {patterns} as patterns; nothing was written. Rename them."
        raise InvalidInputError(msg, argument="df")


def _check_cases(what: str, fields: Mapping[str, Any]) -> None:
    """Refuse names that differ in case alone, in structs too: no Delta reader would open the table."""
    seen: dict[str, str] = {}
    for name, dtype in fields.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            msg = (
                f"{what} {other!r} and {name!r} differ in case alone, which Delta tables cannot tell apart; "
                "nothing was written. Rename one."
            )
            raise InvalidInputError(msg, argument="df")
        match dtype:
            case pl.Struct():
                _check_cases(f"fields of {name!r}:", dtype.to_schema())
            case pl.List() | pl.Array():
                _check_cases(what, {name: dtype.inner})
            case pl.Map():
                _check_cases(what, {name: dtype.key})
                _check_cases(what, {name: dtype.value})
            case _:
                pass


def _fits(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.List | pl.Array):
        return _fits_inner(dtype.inner)
    if isinstance(dtype, pl.Map):
        return _fits_inner(dtype.key) and _fits_inner(dtype.value)
    if isinstance(dtype, pl.Struct):
        return bool(dtype.fields) and all(_fits_inner(field.dtype) for field in dtype.fields)
    return dtype.base_type() in _STORED or dtype in _WIDER or isinstance(dtype, pl.Categorical | pl.Enum)


def _fits_inner(dtype: Any) -> bool:
    return _fits(dtype if isinstance(dtype, pl.DataType) else dtype())


def _stored(dtype: Any) -> pl.DataType:
    whole: pl.DataType = dtype if isinstance(dtype, pl.DataType) else dtype()
    match whole:
        case pl.List() | pl.Array():
            stored: pl.DataType = pl.List(_stored(whole.inner))
        case pl.Map():
            stored = pl.Map(_stored(whole.key), _stored(whole.value))
        case pl.Struct():
            stored = pl.Struct([pl.Field(field.name, _stored(field.dtype)) for field in whole.fields])
        case pl.Categorical() | pl.Enum():
            stored = pl.String()
        case pl.Datetime():
            stored = pl.Datetime("us", "UTC" if whole.time_zone else None)
        case pl.Decimal():
            stored = pl.Decimal(whole.precision or 38, whole.scale)
        case _:
            stored = _WIDER.get(whole, whole)
    return stored


def _cast(frame: pl.DataFrame, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
    try:
        return frame.with_columns(
            _cast_column(name, frame.schema[name], dtype) for name, dtype in wanted.items()
        )
    except pl.exceptions.InvalidOperationError as error:
        msg = f"a value does not fit the type that Delta has for its column; nothing was written: {error}"
        raise SchemaMismatchError(msg, problems=[str(error)]) from error


def _cast_column(name: str, now: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(now, pl.Datetime) and now.time_zone is not None:
        column = column.dt.convert_time_zone("UTC")
    return column.cast(wanted)

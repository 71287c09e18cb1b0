"""Do these rows fit that table, and what does the table look like afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import SchemaMismatchError
from qbeast_core.log.schema import schema_to_delta

SchemaMode: TypeAlias = Literal["merge", "overwrite"]

# From narrow to wide.
_INTEGERS: Final[tuple[pl.DataType, ...]] = (pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64())
_FLOATS: Final[tuple[pl.DataType, ...]] = (pl.Float32(), pl.Float64())


def is_wider(wanted: pl.DataType, now: pl.DataType) -> bool:
    """Return whether a type of integers, or of floats, holds all values of another one, and more.

    >>> is_wider(pl.Int64(), pl.Int8()), is_wider(pl.Float64(), pl.Int8())
    (True, False)
    """
    return any(wanted in types[types.index(now) + 1 :] for types in (_INTEGERS, _FLOATS) if now in types)


def fit_frame(
    frame: pl.DataFrame, schema_json: str, schema: pl.Schema, *, merge: bool, replaces: bool = False
) -> pl.DataFrame:
    """Return the rows with the table's columns, order and types; new columns follow at the end.

    Narrower integers and floats are widened to the table's type; a column of nulls takes any type. Numbers fit integers
    if each of them is one: pandas makes floats of integers with nulls, and longs of integers. NaN is none. Rows that
    replace all others have to have the types.
    """
    required = {f["name"] for f in orjson.loads(schema_json)["fields"] if not f.get("nullable", True)}
    columns_now = frame.schema  # once: Polars makes it anew each time
    if columns_now == schema and not required:
        return frame
    new = [name for name in columns_now if name not in schema]
    problems = [f"column {name!r} is not in the table" for name in new]
    if merge:
        problems = case_problems(new, schema)
    columns: list[pl.Expr] = []
    for name, dtype in schema.items():
        problem, column = _column(frame, columns_now, name, dtype, merge=merge, by_value=not replaces)
        problems += [problem] if problem else []
        if not problem and name in required and (name not in columns_now or frame[name].null_count()):
            problems.append(f"column {name!r} may hold no nulls")
        columns.append(column)
    if problems:
        named = not merge and any(name not in columns_now for name in schema) | bool(new)
        cure = "Cast or fill them."
        if replaces:
            cure = 'With schema_mode="overwrite" the columns of the table are replaced too.'
        elif named:
            cure = 'With schema_mode="merge" columns may be new or missing.'
        msg = f"the rows do not fit the table: {'; '.join(problems)}. Nothing was written. {cure}"
        argument = "schema_mode" if replaces or named else "df"
        raise SchemaMismatchError(msg, problems=problems, argument=argument)
    return frame.select(*columns, *new)


def merged_schema(schema_json: str, schema: pl.Schema, columns: Mapping[str, pl.DataType]) -> str:
    """Return the table's Delta schema with the new ones of some columns, nullable, at the end.

    The text of a schema that gains nothing is returned as it is.
    """
    new = pl.Schema({name: dtype for name, dtype in columns.items() if name not in schema})
    if not new:
        return schema_json
    whole = orjson.loads(schema_json)
    whole["fields"] += orjson.loads(schema_to_delta(new))["fields"]
    return orjson.dumps(whole).decode()


def case_problems(new: list[str], schema: pl.Schema) -> list[str]:
    """Return the problems of new columns whose names differ from columns of the table in case alone."""
    names = {name.lower(): name for name in schema}
    return [
        f"column {name!r} differs in case alone from {names[name.lower()]!r}, which Delta cannot tell apart"
        for name in new
        if name.lower() in names
    ]


def _column(
    frame: pl.DataFrame, schema: pl.Schema, name: str, dtype: pl.DataType, *, merge: bool, by_value: bool
) -> tuple[str | None, pl.Expr]:
    if name not in schema:
        missing = None if merge else f"column {name!r} is missing"
        return missing, pl.lit(None, dtype=dtype).alias(name)
    now = schema[name]
    if now == dtype or _fits_losslessly(now, dtype):
        return None, pl.col(name) if now == dtype else pl.col(name).cast(dtype)
    problem = f"column {name!r} is {now} and the table has {dtype}"
    if not by_value or dtype not in _INTEGERS or now not in (*_FLOATS, *_INTEGERS):
        return problem, pl.col(name)
    whole = frame[name].cast(dtype, strict=False)
    if whole.cast(now).eq_missing(frame[name]).all():
        return None, pl.lit(whole)
    return f"{problem}, which does not hold all of its values", pl.col(name)


def _fits_losslessly(now: pl.DataType, wanted: pl.DataType) -> bool:
    if now == pl.Null or is_wider(wanted, now) or _has_same_fields(now, wanted):
        return True
    if isinstance(now, pl.Decimal) and isinstance(wanted, pl.Decimal):
        digits = (wanted.precision or 38) - wanted.scale
        return now.scale <= wanted.scale and (now.precision or 38) - now.scale <= digits
    return False


def _has_same_fields(now: Any, wanted: Any) -> bool:
    """Return whether types differ in nothing but the order of fields in structs."""
    match now, wanted:
        case pl.Struct(), pl.Struct():
            fields, types = dict(now.to_schema()), dict(wanted.to_schema())
            return fields.keys() == types.keys() and all(
                _has_same_fields(fields[name], dtype) for name, dtype in types.items()
            )
        case pl.List(), pl.List():
            return _has_same_fields(now.inner, wanted.inner)
        case pl.Map(), pl.Map():
            return _has_same_fields(now.key, wanted.key) and _has_same_fields(now.value, wanted.value)
        case _:
            return bool(now == wanted)

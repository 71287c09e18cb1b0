"""Do these rows fit that table, and what does the table look like afterwards."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import SchemaMismatchError
from qbeast_core.log.schema import schema_to_delta

SchemaMode: TypeAlias = Literal["merge", "overwrite"]

_WIDTH: Final[dict[pl.DataType, int]] = {pl.Int8(): 1, pl.Int16(): 2, pl.Int32(): 3, pl.Int64(): 4}
_FLOATS: Final[dict[pl.DataType, int]] = {pl.Float32(): 1, pl.Float64(): 2}


def fit_frame(
    frame: pl.DataFrame, schema_json: str, schema: pl.Schema, *, merge: bool, replaces: bool = False
) -> pl.DataFrame:
    """Return the rows with the table's columns, order and types; new columns follow at the end.

    Narrower integers and floats are widened to the table's type; a column of nulls takes any type. Numbers fit integers
    if each of them is one: pandas makes floats of integers with nulls, and longs of integers. NaN is none. Rows that
    replace all others have to have the types.
    """
    required = {f["name"] for f in orjson.loads(schema_json)["fields"] if not f.get("nullable", True)}
    given = frame.schema  # once: Polars makes it anew each time
    if given == schema and not required:
        return frame
    new = [name for name in given if name not in schema]
    problems = (
        case_problems(new, schema) if merge else [f"column {name!r} is not in the table" for name in new]
    )
    columns: list[pl.Expr] = []
    for name, dtype in schema.items():
        problem, column = _column(frame, given, name, dtype, merge=merge, by_value=not replaces)
        problems += [problem] if problem else []
        if not problem and name in required and (name not in given or frame[name].null_count()):
            problems.append(f"column {name!r} may hold no nulls")
        columns.append(column)
    if problems:
        named = not merge and any(name not in given for name in schema) | bool(new)
        option, cure = "df", "Cast or fill them."
        if replaces:
            option, cure = (
                "schema_mode",
                'With schema_mode="overwrite" the columns of the table are replaced too.',
            )
        elif named:
            option, cure = "schema_mode", 'With schema_mode="merge" columns may be new or missing.'
        msg = f"the rows do not fit the table: {'; '.join(problems)}. Nothing was written. {cure}"
        raise SchemaMismatchError(msg, problems=problems, argument=option)
    return frame.select(*columns, *new)


def merged_schema(schema_json: str, schema: pl.Schema, frame: pl.DataFrame) -> str:
    """Return the table's Delta schema with the frame's new columns, nullable, at the end.

    The text of a schema that gains nothing is returned as it is.
    """
    new = pl.Schema({name: dtype for name, dtype in frame.schema.items() if name not in schema})
    if not new:
        return schema_json
    whole = orjson.loads(schema_json)
    whole["fields"] += orjson.loads(schema_to_delta(new))["fields"]
    return orjson.dumps(whole).decode()


def case_problems(new: list[str], schema: pl.Schema) -> list[str]:
    """Tell of new columns whose names differ from those of the table in case alone."""
    known = {name.lower(): name for name in schema}
    return [
        f"column {name!r} differs in case alone from {known[name.lower()]!r}, which Delta cannot tell apart"
        for name in new
        if name.lower() in known
    ]


def _column(
    frame: pl.DataFrame, given: pl.Schema, name: str, dtype: pl.DataType, *, merge: bool, by_value: bool
) -> tuple[str | None, pl.Expr]:
    if name not in given:
        missing = None if merge else f"column {name!r} is missing"
        return missing, pl.lit(None, dtype=dtype).alias(name)
    now = given[name]
    if now == dtype or _fits_losslessly(now, dtype):
        return None, pl.col(name) if now == dtype else pl.col(name).cast(dtype)
    problem = f"column {name!r} is {now} and the table has {dtype}"
    if not by_value or dtype not in _WIDTH or now not in (*_FLOATS, *_WIDTH):
        return problem, pl.col(name)
    whole = frame[name].cast(dtype, strict=False)
    if whole.cast(now).eq_missing(frame[name]).all():
        return None, pl.lit(whole)
    return f"{problem}, which does not hold all of its values", pl.col(name)


def _fits_losslessly(now: pl.DataType, wanted: pl.DataType) -> bool:
    if now == pl.Null:
        return True
    for widths in (_WIDTH, _FLOATS):
        if now in widths and wanted in widths:
            return widths[now] < widths[wanted]
    if isinstance(now, pl.Decimal) and isinstance(wanted, pl.Decimal):
        digits = (wanted.precision or 38) - wanted.scale
        return now.scale <= wanted.scale and (now.precision or 38) - now.scale <= digits
    return False

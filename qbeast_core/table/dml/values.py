"""New values of columns: understood once, put into rows as often as needed, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson
import polars as pl

from qbeast_core.errors import invalid_argument, unknown_columns
from qbeast_core.table.data.expressions import Value, value_of
from qbeast_core.table.dml.row_changes import Assignments
from qbeast_core.table.snapshot.snapshot import Snapshot


def assignments_of(
    given: Mapping[str, Value], snapshot: Snapshot, seen: pl.Schema, *, argument: str = "set"
) -> Assignments:
    """Understand values for columns, or refuse them before anything is read."""
    if not isinstance(cast("object", given), Mapping) or not given:
        invalid_argument(
            argument, "must map columns to values, at least one", "nothing was changed", value=given
        )
    schema = snapshot.schema
    unknown = [name for name in given if name not in schema]
    if unknown:
        unknown_columns(argument, unknown, schema, "nothing was changed")
    values = [
        value_of(value, seen, schema[name], column=name, argument=argument) for name, value in given.items()
    ]
    return Assignments(tuple(values), required_columns(snapshot) & frozenset(given), argument)


def required_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns of a table that may hold no nulls."""
    fields = orjson.loads(snapshot.schema_json)["fields"]
    return frozenset(field["name"] for field in fields if not field.get("nullable", True))

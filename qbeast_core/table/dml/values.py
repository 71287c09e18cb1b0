"""Check and compile new values of columns. No row is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import orjson
import polars as pl

from qbeast_core.errors import invalid_argument, unknown_columns
from qbeast_core.table.data.column_names import refuse_sample_column
from qbeast_core.table.data.expressions import Value, value_of
from qbeast_core.table.data.rules.compiled import rules_of
from qbeast_core.table.data.rules.identities import refuse_new_numbers
from qbeast_core.table.data.rules.row_rules import RowRules
from qbeast_core.table.dml.row_changes import Assignments
from qbeast_core.table.snapshot.snapshot import Snapshot


def assignments_of(
    values: Mapping[str, Value],
    snapshot: Snapshot,
    scope: pl.Schema,
    rules: RowRules | None,
    *,
    argument: str = "set",
) -> Assignments:
    """Return compiled values for columns. Raise if they do not fit the table.

    `rules` are the rules for changed rows, or None.
    """
    if not isinstance(cast("object", values), Mapping) or not values:
        problem = "must map columns to values, at least one"
        invalid_argument(argument, problem, value=values)
    schema = snapshot.schema
    unknown = [name for name in values if name not in schema]
    if unknown:
        unknown_columns(argument, unknown, schema)
    refuse_sample_column(snapshot.sample_column, values, argument=argument)
    if rules is not None:
        refuse_new_numbers(rules.identities, values, argument)
    compiled = [
        value_of(value, scope, schema[name], column=name, argument=argument) for name, value in values.items()
    ]
    applied = None if rules is None else rules.on_changed(values)
    return Assignments(tuple(compiled), required_columns(snapshot) & frozenset(values), argument, applied)


def rules_of_version(snapshot: Snapshot, *, given: Collection[str] = ()) -> RowRules | None:
    """Return the rules of a table for its rows, see `rules_of`. None: it has none."""
    return rules_of(snapshot.metadata, snapshot.protocol, snapshot.schema, path=snapshot.uri, given=given)


def required_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns of a table that may hold no nulls."""
    fields = orjson.loads(snapshot.schema_json)["fields"]
    return frozenset(field["name"] for field in fields if not field.get("nullable", True))

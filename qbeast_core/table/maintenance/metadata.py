"""Changes of a table's metadata alone: properties, check constraints, and columns that files need not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, cast

import polars as pl
import pyarrow as pa

from qbeast_core.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError, invalid_argument
from qbeast_core.log.columns import with_fields
from qbeast_core.log.protocol import DELETION_VECTORS, SETTABLE, expected_value, is_true
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.rules import CONSTRAINT
from qbeast_core.log.schema import NAMES, TypeLike, merged_schema, type_of
from qbeast_core.results import MetadataResult
from qbeast_core.spec.table_config import IMPORTANCE
from qbeast_core.support.process import new_id
from qbeast_core.support.text import did_you_mean
from qbeast_core.table.commit import CommitOutcome, commit_metadata
from qbeast_core.table.data.rules import Check, RuleError, constraint_of
from qbeast_core.table.data.schema import name_problems, refuse_feed_columns
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.read.scan import scan
from qbeast_core.table.snapshot.snapshot import Snapshot, warn_of_added_columns
from qbeast_core.table.write.options import check_importance, with_importance

_TYPES: Final = (
    'must map names to types: of Polars {"price": pl.Float64}, of Arrow {"price": pa.float64()}, or names '
    f'{{"price": "double"}}: {NAMES}'
)
_RULE: Final = "delta.constraints."
# Properties of tables that must not have deletion vectors.
_ICEBERG: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")


def set_properties(
    snapshot: Snapshot, properties: Mapping[str, str | None]
) -> tuple[MetadataResult, Snapshot | None]:
    """Set and unset properties; see `Table.set_properties` for which, and for what is raised."""
    if not isinstance(cast("object", properties), Mapping):
        problem = "must map names to texts, or to None to unset them"
        invalid_argument("properties", problem, value=properties)
    for key, value in properties.items():
        _refuse_property(snapshot, key, value)
    merged = {**snapshot.metadata.configuration, **properties}
    configuration = {key: value for key, value in merged.items() if value is not None}
    parameters = {key: value or "" for key, value in properties.items()}
    changed = snapshot.metadata.model_copy(update={"configuration": configuration})
    operation, before = "SET TBLPROPERTIES", snapshot.metadata.configuration
    outcome = commit_metadata(snapshot, changed, "settings", operation=operation, parameters=parameters)
    return result_of(outcome, [key for key, value in properties.items() if before.get(key) != value])


def set_importance(
    snapshot: Snapshot, importance: Mapping[str, float]
) -> tuple[MetadataResult, Snapshot | None]:
    """Set how much narrower than others the pages of columns are; see `Table.set_importance`."""
    check_importance(importance)
    changed = with_importance(snapshot.metadata, importance, snapshot.indexed)
    parameters = {"importance": changed.configuration.get(IMPORTANCE, "{}")}
    operation = "SET TBLPROPERTIES"
    outcome = commit_metadata(snapshot, changed, "settings", operation=operation, parameters=parameters)
    return result_of(outcome, [IMPORTANCE])


def add_columns(
    snapshot: Snapshot, columns: Mapping[str, TypeLike] | pa.Schema
) -> tuple[MetadataResult, Snapshot | None]:
    """Add columns; see `Table.add_columns` for which, and for what is raised."""
    new = types_of(columns)
    names = {name.lower(): name for name in snapshot.schema}
    problems = [f"{name!r} is there as {names[name.lower()]!r}" for name in new if name.lower() in names]
    problems += name_problems(new)
    if problems:
        msg = f"columns cannot be added to {snapshot.uri!r}: {'; '.join(problems)}."
        raise SchemaMismatchError(msg, problems=problems)
    changed = with_fields(snapshot.metadata, merged_schema(snapshot.schema_json, new), new_id)
    parameters = {"columns": ",".join(new)}
    outcome = commit_metadata(snapshot, changed, "columns", operation="ADD COLUMNS", parameters=parameters)
    warn_of_added_columns(snapshot, new)
    return result_of(outcome, list(new))


def types_of(columns: Mapping[str, TypeLike] | pa.Schema) -> pl.Schema:
    """Return new types of columns; raise on values that are not types."""
    if isinstance(columns, pa.Schema):
        fields = cast("pa.Schema", columns)
        return types_of(dict(zip(fields.names, fields.types, strict=True)))
    try:
        return pl.DataFrame(schema={name: type_of(given) for name, given in columns.items()}).schema
    except (pl.exceptions.PolarsError, pa.ArrowException, AttributeError, TypeError, ValueError):
        invalid_argument("columns", _TYPES, value=columns)


def result_of(
    outcome: CommitOutcome, changed: Sequence[str], *, rewritten_files: int = 0
) -> tuple[MetadataResult, Snapshot | None]:
    """Return the result of a commit, and the version that it made."""
    result = MetadataResult(
        version=outcome.version,
        committed=outcome.committed,
        changed=tuple(changed) if outcome.committed else (),
        rewritten_files=rewritten_files,
    )
    return result, outcome.snapshot


def _refuse_property(snapshot: Snapshot, key: object, value: object) -> None:
    if not isinstance(key, str) or not key or not isinstance(value, str | None):
        msg = f"properties map texts to texts, or to None to unset them; got {key!r}: {value!r}."
        raise InvalidInputError(msg, argument="properties")
    if key.lower().startswith("qbeast."):
        msg = f"{key!r} describes the index and is qbeast's own. Use the method that it is about."
        raise InvalidInputError(msg, argument="properties")
    if value is None and key.startswith(_RULE):
        return
    if key.lower().startswith("delta.") and key not in SETTABLE:
        msg = (
            f"{key!r} cannot be set by qbeast: it may require features of Delta that qbeast does not support; "
            f"these can be set: {', '.join(sorted(SETTABLE))}, and names of your own; {_RULE}<name> can "
            "be unset with None."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=key)
    expected = None if value is None else expected_value(key, value)
    if expected is not None:
        msg = f"{key!r} takes {expected}, got {value!r}."
        raise InvalidInputError(msg, argument="properties")
    refuse_feed_columns({key: value or ""}, snapshot.schema, snapshot.uri)
    if key == DELETION_VECTORS and (value or "").lower() == "true":
        _refuse_vectors(snapshot)
    named = snapshot.protocol.writer_features
    if key == "delta.appendOnly" and value is not None and named is not None and "appendOnly" not in named:
        msg = f"{key!r} needs the feature appendOnly, which {snapshot.uri!r} does not have."
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="appendOnly")


def _refuse_vectors(snapshot: Snapshot) -> None:
    """Raise if readers of the table would return the rows that deletion vectors hide."""
    iceberg = [name for name in _ICEBERG if is_true(snapshot.metadata, name)]
    if iceberg:
        why = (
            f"{iceberg[0]} is true, and readers of Iceberg ignore them. Let Spark unset that property first."
        )
    elif snapshot.config.is_indexed and dialect_of(snapshot) == "qbeast-spark":
        why = (
            "it has the dialect 'qbeast-spark', and qbeast-spark reads files without them, and its optimize refuses "
            "the table. If qbeast-spark need not read it, use the dialect 'documented': Table.switch_dialect."
        )
    else:
        return
    msg = f"{snapshot.uri!r} cannot have deletion vectors: {why}"
    raise UnsupportedTableError(msg, path=snapshot.uri, feature=DELETION_VECTORS)


def add_constraint(snapshot: Snapshot, name: str, expression: str) -> tuple[MetadataResult, Snapshot | None]:
    """Add a check constraint; see `Table.add_constraint`."""
    key = _key(name)
    if key in snapshot.metadata.configuration:
        now = snapshot.metadata.configuration[key]
        msg = f"the table has a constraint {name!r}: {now}. Drop it first: Table.drop_constraint({name!r})."
        raise InvalidInputError(msg, argument="name", value=name)
    check = _compiled(name, expression, snapshot.schema)
    broken = _broken(snapshot, check)
    if broken:
        example = check.example(scan(Planner(snapshot)))
        raise check.violation(broken, example, argument="expression")

    def conflict_with(newest: Snapshot) -> str | None:
        rows = 0 if newest.files.equals(snapshot.files) else _broken(newest, check)
        return f"{rows:,} row(s) break the constraint {name!r} now" if rows else None

    configuration = {**snapshot.metadata.configuration, key: expression}
    outcome = commit_metadata(
        snapshot,
        snapshot.metadata.model_copy(update={"configuration": configuration}),
        "settings",
        operation="ADD CONSTRAINT",
        parameters={"name": name, "expr": expression},
        conflict_with=conflict_with,
    )
    return result_of(outcome, [key])


def drop_constraint(snapshot: Snapshot, name: str) -> tuple[MetadataResult, Snapshot | None]:
    """Drop a check constraint; see `Table.drop_constraint`."""
    configuration = dict(snapshot.metadata.configuration)
    wanted = _key(name)
    found = [key for key in configuration if key.lower() == wanted and key.startswith(CONSTRAINT)]
    if not found:
        names = [key.removeprefix(CONSTRAINT) for key in configuration if key.startswith(CONSTRAINT)]
        msg = f"the table has no constraint {name!r}, only {names}.{did_you_mean([name], names)}"
        raise InvalidInputError(msg, argument="name", value=name, known=names)
    parameters = {"name": name, "expr": configuration.pop(found[0])}
    changed = snapshot.metadata.model_copy(update={"configuration": configuration})
    outcome = commit_metadata(
        snapshot, changed, "settings", operation="DROP CONSTRAINT", parameters=parameters
    )
    return result_of(outcome, found[:1])


def _key(name: object) -> str:
    """Return the property of a constraint. Delta stores names in lower case."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        invalid_argument("name", "must be the name of a constraint", value=name)
    return f"{CONSTRAINT}{name.lower()}"


def _compiled(name: str, expression: object, schema: pl.Schema) -> Check:
    if not isinstance(expression, str):
        invalid_argument("expression", "must be a condition in SQL", value=expression)
    try:
        return constraint_of(name, expression, schema)
    except RuleError as error:
        _refuse(expression, str(error), error)


def _refuse(expression: str, reason: str, cause: BaseException) -> NoReturn:
    msg = f"`expression` {expression!r} is not supported: {reason}"
    raise InvalidInputError(msg, argument="expression", value=expression) from cause


def _broken(snapshot: Snapshot, check: Check) -> int:
    """Return the number of rows that break a rule."""
    return int(scan(Planner(snapshot)).filter(check.broken).select(pl.len()).collect().item())

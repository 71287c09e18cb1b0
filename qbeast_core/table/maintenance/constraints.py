"""Add and drop check constraints: conditions that all rows of a table meet."""

from __future__ import annotations

from typing import NoReturn

import polars as pl

from qbeast_core.errors import InvalidInputError, invalid_argument
from qbeast_core.log.columns.declared_rules import CONSTRAINT
from qbeast_core.results import MetadataResult
from qbeast_core.support.suggestions import did_you_mean
from qbeast_core.table.commit.commit import commit_metadata
from qbeast_core.table.data.rules.compiled import RuleError, constraint_of
from qbeast_core.table.data.rules.row_rules import Check
from qbeast_core.table.maintenance.metadata import result_of
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.read.scan import scan
from qbeast_core.table.snapshot.snapshot import Snapshot


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
        example = check.example(scan(Reader(snapshot)))
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
    return int(scan(Reader(snapshot)).filter(check.broken).select(pl.len()).collect().item())

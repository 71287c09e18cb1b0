"""Commits of metadata alone: properties, constraints, columns, and tags in another dialect (format 7, 11)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, cast, get_args

import polars as pl
import pyarrow as pa

from qbeast_core.errors import (
    HiddenColumnWarning,
    InvalidColumnsError,
    InvalidInputError,
    InvalidMetadataError,
    NotQbeastTableError,
    QbeastWarning,
    SchemaMismatchError,
    UnsupportedTableError,
    check_choice,
    invalid_argument,
)
from qbeast_core.io.footer import Unreadable, read_footer, stored_size
from qbeast_core.io.location import Location
from qbeast_core.io.store import map_files
from qbeast_core.log.actions import AddFile
from qbeast_core.log.columns import with_fields
from qbeast_core.log.protocol import DELETION_VECTORS, SETTABLE, expected_value, may_hide_rows
from qbeast_core.log.rebase import why_no_vectors
from qbeast_core.log.replay import FLAT_KEYS, block_from_flat_tags
from qbeast_core.log.rules import CONSTRAINT
from qbeast_core.log.schema import NAMES, TypeLike, merged_schema, type_of
from qbeast_core.log.values import FileChange, LastChange, LiveFiles, retag
from qbeast_core.results import MetadataResult, Result
from qbeast_core.spec.blocks import WEIGHT_COLUMN, BlocksDialect, dump_blocks, parse_blocks, respell_blocks
from qbeast_core.spec.revision import (
    STAGING_REVISION_ID,
    CDFNumericQuantilesTransformation,
    CDFNumericQuantilesTransformer,
    CDFStringQuantilesTransformation,
    CDFStringQuantilesTransformer,
    ColumnSpec,
    IdentityTransformation,
)
from qbeast_core.spec.table_config import (
    BLOCKS_DIALECT,
    IMPORTANCE,
    REPLICATED_SET_PREFIX,
    qbeast_spark_entries,
)
from qbeast_core.support.hints import property_hint
from qbeast_core.support.process import caller_stacklevel, new_id
from qbeast_core.support.text import convert_call, did_you_mean
from qbeast_core.table.check.rows import read_layout
from qbeast_core.table.commit import CommitOutcome, commit_metadata
from qbeast_core.table.data.rules import Check, RuleError, constraint_of
from qbeast_core.table.data.schema import name_problems, refuse_feed_columns, refuse_mapping
from qbeast_core.table.index.counts import latest_revision
from qbeast_core.table.index.revision import check_columns
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.read.scan import scan
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, warn_of_added_columns
from qbeast_core.table.write.options import check_importance, with_importance

_TYPES: Final = (
    'must map names to types: of Polars {"price": pl.Float64}, of Arrow {"price": pa.float64()}, or names '
    f'{{"price": "double"}}: {NAMES}'
)
_RULE: Final = "delta.constraints."


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
    before = snapshot.metadata.configuration
    changed = [key for key, value in properties.items() if before.get(key) != value]
    return _set(snapshot, configuration, "SET TBLPROPERTIES", parameters, changed)


def set_importance(
    snapshot: Snapshot, importance: Mapping[str, float]
) -> tuple[MetadataResult, Snapshot | None]:
    """Set how much narrower than others the pages of columns are; see `Table.set_importance`."""
    check_importance(importance)
    changed = with_importance(snapshot.metadata, importance, snapshot.indexed)
    parameters = {"importance": changed.configuration.get(IMPORTANCE, "{}")}
    return _set(snapshot, changed.configuration, "SET TBLPROPERTIES", parameters, [IMPORTANCE])


def _set(
    snapshot: Snapshot,
    configuration: Mapping[str, str],
    operation: str,
    parameters: Mapping[str, str],
    changed: Sequence[str],
    *,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> tuple[MetadataResult, Snapshot | None]:
    """Commit another configuration."""
    outcome = commit_metadata(
        snapshot,
        snapshot.metadata.model_copy(update={"configuration": configuration}),
        "settings",
        operation=operation,
        parameters=parameters,
        conflict_with=conflict_with,
    )
    return result_of(outcome, changed)


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
        return pl.DataFrame(schema={name: type_of(dtype) for name, dtype in columns.items()}).schema
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
    name = property_hint(key) if isinstance(key, str) else ""
    if (
        not isinstance(key, str)
        or not key
        or not isinstance(value, str | None)
        or (name and value is not None)
    ):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        pair = json.dumps({name or key: text}) if isinstance(key, str) and key else '{"name": "value"}'
        msg = (
            f"properties map texts to texts, or to None to unset them; got {key!r}: {value!r}. Write {pair}."
        )
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
    why = why_no_vectors(snapshot, is_indexed=snapshot.config.is_indexed)
    if why is None:
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
    parameters = {"name": name, "expr": expression}
    return _set(snapshot, configuration, "ADD CONSTRAINT", parameters, [key], conflict_with=conflict_with)


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
    return _set(snapshot, configuration, "DROP CONSTRAINT", parameters, found[:1])


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
        msg = f"`expression` {expression!r} is not supported: {error}"
        raise InvalidInputError(msg, argument="expression", value=expression) from error


def _broken(snapshot: Snapshot, check: Check) -> int:
    """Return the number of rows that break a rule."""
    return int(scan(Planner(snapshot)).filter(check.broken).select(pl.len()).collect().item())


# The release of qbeast-spark that has to read the table. 0.8 is its unreleased main branch.
JvmRelease: TypeAlias = Literal["0.7", "0.8"]

_NAMED: Final = 3  # files in a warning
_NEW_IN_0_8: Final = (
    CDFNumericQuantilesTransformation,
    CDFNumericQuantilesTransformer,
    CDFStringQuantilesTransformation,
    CDFStringQuantilesTransformer,
    IdentityTransformation,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DialectResult(Result):
    """Outcome of `Table.switch_dialect`.

    Attributes
    ----------
    version : int
        The version in which every block has the requested dialect.
    committed : bool
        False when every block had it already.
    retagged_files : int
        Files that got new tags.
    hidden_column_files : tuple of str
        In dialect ``"qbeast-spark"``, the files (decoded paths) that hold the column `_qbeast_weight`, on which
        an optimize by qbeast-spark 0.7 fails; ``optimize(full=True)`` takes it out.
    """

    retagged_files: int
    hidden_column_files: tuple[str, ...] = ()


def switch_dialect(
    snapshot: Snapshot, dialect: BlocksDialect, *, jvm: JvmRelease
) -> tuple[DialectResult, CommitOutcome]:
    """Rewrite the block tags; see `Table.switch_dialect` for the options and errors."""
    check_choice("dialect", dialect, get_args(BlocksDialect))
    check_choice("jvm", jvm, get_args(JvmRelease))
    latest = latest_revision(snapshot)
    entries: dict[str, str] = {BLOCKS_DIALECT: dialect}
    if dialect == "qbeast-spark":
        refuse_mapping(snapshot.uri, snapshot.columns)
        _refuse_unsupported(snapshot, jvm)
        check_columns([ColumnSpec(name) for name in latest.columns], snapshot.schema, dialect)
        if jvm == "0.7":
            _refuse_new_transformations(snapshot)
        names, transformers = latest.columns, latest.column_transformers
        kinds = [f"{name}:{made.kind}" for name, made in zip(names, transformers, strict=True)]
        if latest.revision_id == 0:
            kinds = list(snapshot.config.column_specs or names)
        entries |= qbeast_spark_entries(kinds, cube_size=latest.desired_cube_size)
    configuration = snapshot.config.with_entries(entries).to_configuration()
    plan = LastChange(lambda live, _: retag(live, lambda add, _: _respelled(add, dialect)))
    outcome = commit_metadata(
        snapshot,
        snapshot.metadata.model_copy(update={"configuration": configuration}),
        "files",
        parameters={BLOCKS_DIALECT: dialect},
        files=plan,
        conflict_with=_hidden_rows if dialect == "qbeast-spark" else None,
    )
    result = DialectResult(
        version=outcome.version,
        committed=outcome.committed,
        retagged_files=len(plan.change.adds),
        hidden_column_files=_hidden_columns(outcome.snapshot or snapshot, jvm, dialect),
    )
    return result, outcome


def _hidden_columns(snapshot: Snapshot, jvm: JvmRelease, dialect: BlocksDialect) -> tuple[str, ...]:
    """Return the files that hold the hidden column, and warn where the JVM fails on them."""
    if dialect != "qbeast-spark":
        return ()
    numbers = hidden_column_files(snapshot)
    if numbers and jvm == "0.7":
        warnings.warn(
            _hidden_column_message(snapshot, numbers), HiddenColumnWarning, stacklevel=caller_stacklevel()
        )
    paths = snapshot.data_paths
    return tuple(paths[number] for number in numbers)


def _respelled(add: AddFile, dialect: BlocksDialect) -> AddFile:
    tags = add.tags or {}
    text = tags.get("blocks")
    if text is None:
        return add
    return add.model_copy(update={"tags": {**tags, "blocks": respell_blocks(text, dialect)}})


def _refuse_unsupported(snapshot: Snapshot, jvm: JvmRelease) -> None:
    """Raise if qbeast-spark does not support a property of the table."""
    name, partitions = snapshot.sample_column, snapshot.columns.partitions
    new_table = 'to a new table, with dialect="qbeast-spark".'
    if name is not None:
        reason = f"it has the sample column {name!r}, and appends of qbeast-spark would leave nulls in it"
        cure = f"Write the rows without the column {new_table}"
    elif snapshot.config.has_other_columns:
        reason = "its revisions have different columns, after a reindex, and qbeast-spark supports one list of columns"
        cure = 'Call Table.optimize(into="new") first: it leaves one revision.'
    elif (hidden := _hidden_rows(snapshot)) is not None:
        reason = f"{hidden}, and qbeast-spark reads files without their deletion vectors"
        cure = "Call Table.optimize(purge=True) first: it removes them."
    elif jvm == "0.8" and "deletionVectors" in (snapshot.protocol.reader_features or ()):
        reason = "it has the table feature deletionVectors, with which the optimize of qbeast-spark 0.8 refuses a table"
        cure = f"Remove it in Spark (ALTER TABLE ... DROP FEATURE deletionVectors), or write the rows {new_table}"
    elif may_hide_rows(snapshot.protocol, snapshot.metadata):
        reason = "its changes may hide rows, and qbeast-spark reads files without their deletion vectors"
        cure = f"Call Table.set_properties({{{DELETION_VECTORS!r}: None}}) first."
    elif snapshot.config.sample_by:
        key = list(snapshot.config.sample_by)
        reason = f"its samples are by the hash of {key}, and qbeast-spark samples by the indexed columns"
        cure = f"Write the rows {new_table}"
    elif partitions:
        reason = f"it is partitioned by {list(partitions)}, and qbeast-spark supports tables without partitions only"
        cure = f"Write the rows {new_table}"
    else:
        return
    msg = f"{snapshot.uri!r} cannot have this dialect: {reason}. {cure}"
    raise InvalidInputError(msg, argument="dialect", value="qbeast-spark")


def _hidden_rows(snapshot: Snapshot) -> str | None:
    """Return how many files have hidden rows, or None."""
    count = int(snapshot.files["has_deletion_vector"].sum())
    return f"{count:,} of its files have hidden rows" if count else None


def _refuse_new_transformations(snapshot: Snapshot) -> None:
    """Raise if a revision has a transformation that the released JVM fails to load."""
    for revision in snapshot.config.revisions.values():
        pairs = zip(revision.column_transformers, revision.transformations, strict=False)
        new = [pair[0].column_name for pair in pairs if any(isinstance(part, _NEW_IN_0_8) for part in pair)]
        if new:
            msg = (
                f"revision {revision.revision_id} indexes {', '.join(new)} by quantiles or as one value, and "
                'qbeast-spark 0.7 fails to load such a table. Pass jvm="0.8" if only its main '
                'branch has to read it, or write the rows to a new table with dialect="qbeast-spark".'
            )
            raise InvalidColumnsError(msg, columns=new)


def hidden_column_files(snapshot: Snapshot) -> list[int]:
    """Return the numbers of the live files that hold the hidden column.

    The layout tag of a file records it. Of files without one, such as those not yet indexed, the footers are read.
    """
    layouts = list(map(read_layout, snapshot.files["layout"]))
    unknown = [path for path, layout in zip(snapshot.data_paths, layouts, strict=True) if layout is None]
    holds = iter(map_files(snapshot.source.store, partial(_holds, snapshot), unknown))
    marks = (next(holds) if layout is None else layout.has_hidden_weights for layout in layouts)
    return [number for number, mark in enumerate(marks) if mark]


def _hidden_column_message(snapshot: Snapshot, numbers: Sequence[int]) -> str:
    """Return what these files mean to a JVM that reads files without the table's schema, and the cure."""
    paths = snapshot.data_paths
    named = ", ".join(paths[number] for number in numbers[:_NAMED])
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    latest = snapshot.config.latest
    newest = {None, STAGING_REVISION_ID, None if latest is None else latest.revision_id}
    older = any(snapshot.files["revision"][number] not in newest for number in numbers)
    into = ', into="newest"' if older else ""
    return (
        f"{len(numbers):,} file(s) hold the column {WEIGHT_COLUMN!r} ({named}{more}), and qbeast-spark 0.7 optimizes "
        "files without looking at the table's schema: it fails on them, or takes the column for one that was added. "
        "It reads, samples and appends as it should. Files written from now on are without it; "
        f"`optimize(full=True{into})` takes it out of these."
    )


def _holds(snapshot: Snapshot, path: str) -> bool:
    store = snapshot.source.store
    size = stored_size(store, path)
    if size is None:
        return False
    try:
        return WEIGHT_COLUMN in read_footer(store, path, size).schema.to_arrow_schema().names
    except (Unreadable, pa.ArrowException):
        return False  # no reader can open it; `check` says so


Copies: TypeAlias = Literal["keep", "drop"]

_FLAT: Final = frozenset({"state", *FLAT_KEYS.values()})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpgradeResult(Result):
    """Outcome of `Table.upgrade`.

    Attributes
    ----------
    version : int
        Version of the table that is up to date; the present one when there was nothing to do, or a dry run.
    committed : bool
        Whether anything was committed.
    dry_run : bool
        Whether the counts are only planned.
    retagged_files : int
        Files that got new tags.
    kept_copies : int
        Live files that still hold copies of rows: qbeast passes over them, other readers do not.
    dropped_copies : int
        Files that this call took out of the table. Their rows are in other files.
    """

    retagged_files: int
    kept_copies: int
    dropped_copies: int


def upgrade(location: Location, *, replicated: Copies | None, dry_run: bool = False) -> UpgradeResult:
    """Upgrade a table; see `Table.upgrade` for the options and errors."""
    check_choice("replicated", replicated, (None, *get_args(Copies)))
    snapshot, uri = load_snapshot(location), location.uri
    if not snapshot.config.is_indexed:
        cure = f"Convert it instead: {convert_call(uri)}."
        msg = f"{uri!r} is a Delta table without Qbeast index. {cure}"
        raise NotQbeastTableError(msg, path=uri)
    configuration = snapshot.config.without(REPLICATED_SET_PREFIX).to_configuration()
    plan = _Upgrade(drop=replicated == "drop")
    outcome = commit_metadata(
        snapshot,
        snapshot.metadata.model_copy(update={"configuration": configuration}),
        "files",
        operation="UPGRADE",
        parameters={"replicated": replicated or "keep"},
        files=plan,
        dry_run=dry_run,
    )
    if plan.kept and replicated is None and not dry_run:
        message = (
            f"{plan.kept} file(s) of {uri!r} hold copies of rows that other files hold too. qbeast skips them; other "
            'readers of Delta tables return those rows twice. Use replicated="drop" to take the files out of the '
            'table, or "keep" to silence this warning.'
        )
        warnings.warn(QbeastWarning(message), stacklevel=caller_stacklevel())
    return UpgradeResult(
        version=outcome.version,
        committed=outcome.committed,
        dry_run=dry_run,
        retagged_files=len(plan.change.adds),
        kept_copies=plan.kept,
        dropped_copies=len(plan.change.removed),
    )


class _Upgrade(LastChange):
    """Plans the new tags of the files; counts of the newest plan."""

    def __init__(self, *, drop: bool) -> None:
        super().__init__(self._retag)
        self._drop, self.kept = drop, 0

    def _retag(self, live: LiveFiles, dialect: BlocksDialect) -> FileChange:
        self.kept = 0
        return retag(live, lambda add, listed: self._edit(add, dialect, listed=listed))

    def _edit(self, add: AddFile, dialect: BlocksDialect, *, listed: bool) -> AddFile | None:
        tags = {key: text for key, text in (add.tags or {}).items() if text is not None}
        try:
            blocks = parse_blocks(tags["blocks"]) if "blocks" in tags else []
            if not blocks and "cube" in tags:
                blocks = [block_from_flat_tags(tags)]
        except InvalidMetadataError:
            return add  # no reader relies on such tags
        if any(block.replicated for block in blocks):
            # Readers disagree on unlisted files; of copies none is needed, so all are made to agree.
            if all(block.replicated for block in blocks) and (self._drop or not listed):
                return None
            self.kept += 1
        kept = {key: text for key, text in tags.items() if key not in _FLAT}
        if len(kept) == len(tags):
            return add
        return add.model_copy(update={"tags": {"blocks": dump_blocks(blocks, dialect=dialect), **kept}})

"""Switch the dialect of a table's block tags: new tags for the same files, in one commit (format 7)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

import pyarrow as pa

from qbeast_core.errors import HiddenColumnWarning, InvalidColumnsError, InvalidInputError, check_choice
from qbeast_core.io.footer import Unreadable, read_footer, stored_size
from qbeast_core.io.store import map_files
from qbeast_core.log.actions import AddFile
from qbeast_core.log.protocol import DELETION_VECTORS, may_hide_rows
from qbeast_core.log.values import LastChange, retag
from qbeast_core.results import Result
from qbeast_core.spec.blocks import WEIGHT_COLUMN, BlocksDialect, respell_blocks
from qbeast_core.spec.revision import (
    STAGING_REVISION_ID,
    CDFNumericQuantilesTransformation,
    CDFNumericQuantilesTransformer,
    CDFStringQuantilesTransformation,
    CDFStringQuantilesTransformer,
    ColumnSpec,
    IdentityTransformation,
)
from qbeast_core.spec.table_config import BLOCKS_DIALECT, qbeast_spark_entries
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.table.check.placement import read_layout
from qbeast_core.table.commit import CommitOutcome, commit_metadata
from qbeast_core.table.data.schema import refuse_mapping
from qbeast_core.table.index.counts import latest_revision
from qbeast_core.table.index.revision import check_columns
from qbeast_core.table.snapshot.snapshot import Snapshot

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

"""Switch the dialect of a table's block tags: new tags for the same files, in one commit (format 7)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from qbeast_core.errors import HiddenColumnWarning, InvalidColumnsError
from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.live_files import LastChange, retag
from qbeast_core.results import Result
from qbeast_core.spec.block import BlocksDialect, respell_blocks
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.table_config import BLOCKS_DIALECT, qbeast_spark_entries
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    IdentityTransformation,
)
from qbeast_core.spec.transformer import CDFNumericQuantilesTransformer, CDFStringQuantilesTransformer
from qbeast_core.table.commit.commit import CommitOutcome, commit_metadata
from qbeast_core.table.index.revision import check_columns
from qbeast_core.table.maintenance.hidden_column import hidden_column_files, hidden_column_message
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.options import check_choice

# The release of qbeast-spark that has to read the table. 0.8 is its unreleased main branch.
JvmRelease: TypeAlias = Literal["0.7", "0.8"]

_OUTCOME: Final = "nothing was changed"
_CALLER: Final = 4  # of Table.switch_dialect: past this module and table_admin.py
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
    check_choice("dialect", dialect, get_args(BlocksDialect), _OUTCOME)
    check_choice("jvm", jvm, get_args(JvmRelease), _OUTCOME)
    latest = Reader(snapshot).latest
    entries: dict[str, str] = {BLOCKS_DIALECT: dialect}
    if dialect == "qbeast-spark":
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
        warnings.warn(hidden_column_message(snapshot, numbers), HiddenColumnWarning, stacklevel=_CALLER)
    paths = snapshot.data_paths
    return tuple(paths[number] for number in numbers)


def _respelled(add: AddFile, dialect: BlocksDialect) -> AddFile:
    tags = add.tags or {}
    text = tags.get("blocks")
    if text is None:
        return add
    return add.model_copy(update={"tags": {**tags, "blocks": respell_blocks(text, dialect)}})


def _refuse_new_transformations(snapshot: Snapshot) -> None:
    """Raise if a revision has a transformation that the released JVM fails to load."""
    for revision in snapshot.config.revisions.values():
        pairs = zip(revision.column_transformers, revision.transformations, strict=False)
        new = [pair[0].column_name for pair in pairs if any(isinstance(part, _NEW_IN_0_8) for part in pair)]
        if new:
            msg = (
                f"revision {revision.revision_id} indexes {', '.join(new)} by quantiles or as one value, and "
                'qbeast-spark 0.7 fails to load such a table; nothing was changed. Pass jvm="0.8" if only its main '
                'branch has to read it, or write the rows to a new table with dialect="qbeast-spark".'
            )
            raise InvalidColumnsError(msg, columns=new)

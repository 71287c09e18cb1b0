"""Spell the blocks of a table anew: other tags for the same files, in one commit (format 7)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from qbeast_core.errors import (
    HiddenColumnWarning,
    InvalidColumnsError,
    InvalidMetadataError,
    invalid_argument,
)
from qbeast_core.log.actions import AddFile
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.live_files import FileChange, LiveFiles, retag
from qbeast_core.log.protocol import check_writable
from qbeast_core.results import Result
from qbeast_core.spec.block import BlocksDialect, dump_blocks, parse_blocks
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.table_config import BLOCKS_DIALECT, qbeast_spark_entries
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    IdentityTransformation,
)
from qbeast_core.spec.transformer import CDFNumericQuantilesTransformer, CDFStringQuantilesTransformer
from qbeast_core.table.check.hidden_column import hidden_column_files, hidden_column_message
from qbeast_core.table.commit.commit import CommitOutcome, commit
from qbeast_core.table.index.revision import check_columns
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.snapshot import Snapshot

# Of qbeast-spark: what a table in its dialect has to be readable by. 0.8 is its unreleased main branch.
JvmRelease: TypeAlias = Literal["0.7", "0.8"]

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
        The version in which every block is spelled as asked for.
    committed : bool
        False when that was so already.
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
    """Spell the blocks anew; see `Table.switch_dialect` for what the options mean and what is raised."""
    _refuse_unknown(dialect, jvm)
    check_writable(snapshot.protocol, snapshot.metadata, mode="metadata", path=snapshot.uri, brings="files")
    latest = Reader(snapshot).latest
    entries: dict[str, str] = {BLOCKS_DIALECT: dialect}
    if dialect == "qbeast-spark":
        check_columns([ColumnSpec(name) for name in latest.columns], snapshot.schema, dialect)
        if jvm == "0.7":
            _refuse_new_transformations(snapshot)
        kinds = [f"{one.column_name}:{one.kind}" for one in latest.column_transformers]
        if latest.revision_id == 0:
            kinds = list(snapshot.config.column_specs or latest.columns)
        entries |= qbeast_spark_entries(kinds, cube_size=latest.desired_cube_size)
    configuration = snapshot.config.with_entries(entries).to_configuration()
    plan = _Switch(dialect)
    intent = WriteIntent(
        mode="metadata",
        brings="files",
        metadata=snapshot.metadata.model_copy(update={"configuration": configuration}),
        files=plan,
        commit_info={"operationParameters": {BLOCKS_DIALECT: dialect}},
    )
    outcome = commit(snapshot.source.store, snapshot, intent)
    result = DialectResult(
        version=outcome.version,
        committed=not outcome.already_applied,
        retagged_files=len(plan.change.adds),
        hidden_column_files=_hidden_columns(outcome.snapshot or snapshot, jvm, dialect),
    )
    return result, outcome


def _hidden_columns(snapshot: Snapshot, jvm: JvmRelease, dialect: BlocksDialect) -> tuple[str, ...]:
    """Name the files that hold the hidden column, and warn of them where the JVM minds."""
    if dialect != "qbeast-spark":
        return ()
    numbers = hidden_column_files(snapshot)
    if numbers and jvm == "0.7":
        warnings.warn(hidden_column_message(snapshot, numbers), HiddenColumnWarning, stacklevel=_CALLER)
    paths = snapshot.data_paths
    return tuple(paths[number] for number in numbers)


class _Switch:
    """What becomes of the files, and how it went the last time it was asked."""

    def __init__(self, dialect: BlocksDialect) -> None:
        self._dialect: BlocksDialect = dialect
        self.change = FileChange()

    def __call__(self, live: LiveFiles, _: BlocksDialect) -> FileChange:
        self.change = retag(live, lambda add, _: self._edit(add))
        return self.change

    def _edit(self, add: AddFile) -> AddFile:
        tags = dict(add.tags or {})
        text = tags.get("blocks")
        if text is None:
            return add
        try:
            spelled = dump_blocks(parse_blocks(text), dialect=self._dialect)
        except InvalidMetadataError:
            return add  # no reader relies on such tags
        return add if spelled == text else add.model_copy(update={"tags": {**tags, "blocks": spelled}})


_OUTCOME: Final = "nothing was changed"


def _refuse_unknown(dialect: object, jvm: object) -> None:
    if dialect not in ("documented", "qbeast-spark"):
        what, known = 'must be "documented" or "qbeast-spark"', ("documented", "qbeast-spark")
        invalid_argument("dialect", what, _OUTCOME, value=dialect, known=known)
    if jvm not in ("0.7", "0.8"):
        invalid_argument("jvm", 'must be "0.7" or "0.8"', _OUTCOME, value=jvm, known=("0.7", "0.8"))


def _refuse_new_transformations(snapshot: Snapshot) -> None:
    """Raise where a revision holds what the released JVM fails to load."""
    for revision in snapshot.config.revisions.values():
        pairs = zip(revision.column_transformers, revision.transformations, strict=False)
        new = [
            one.column_name
            for one, space in pairs
            if isinstance(one, _NEW_IN_0_8) or isinstance(space, _NEW_IN_0_8)
        ]
        if new:
            msg = (
                f"revision {revision.revision_id} indexes {', '.join(new)} by quantiles or as one value, and "
                'qbeast-spark 0.7 fails to load such a table; nothing was changed. Pass jvm="0.8" if only its main '
                'branch has to read it, or write the rows to a new table with dialect="qbeast-spark".'
            )
            raise InvalidColumnsError(msg, columns=new)

"""Make an older version of a table the newest one: its rows, its schema and its index, tags and all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from qbeast_core.errors import NotQbeastTableError, VersionNotFoundError
from qbeast_core.io.store import Store, map_files
from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.deletion_vector import FileKey, file_key, file_paths
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.live_files import FileChange, LiveFiles
from qbeast_core.log.protocol import check_writable
from qbeast_core.results import Result
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.file_path import FilePath
from qbeast_core.spec.table_config import HIGHEST_REVISION_ID
from qbeast_core.table.commit.commit import CommitOutcome, commit
from qbeast_core.table.snapshot.snapshot import Snapshot, read_live_files

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestoreResult(Result):
    """Outcome of `Table.restore`.

    Attributes
    ----------
    version : int
        The new version; the present one when the table was as asked for already, or it was a dry run.
    restored_version : int
        The version it is like.
    committed : bool
        Whether it made a version.
    dry_run : bool
        Whether the numbers are only what would be done.
    files_added, files_removed : int
        Files that came back, and files that went.
    """

    restored_version: int
    files_added: int
    files_removed: int


def restore(
    newest: Snapshot, old: Snapshot, *, dry_run: bool = False
) -> tuple[RestoreResult, CommitOutcome | None]:
    """Restore a version; see `Table.restore` for what is promised and raised."""
    store = newest.source.store
    if not old.config.is_indexed:
        msg = f"version {old.version} of {newest.uri!r} has no Qbeast index; nothing was changed. Restore a later one."
        raise NotQbeastTableError(msg, path=newest.uri)
    check_writable(newest.protocol, newest.metadata, mode="overwrite", path=newest.uri)
    wanted = read_live_files(old).listed
    _refuse_missing(store, newest, old, wanted)
    plan = _Restore(wanted)
    if dry_run:
        plan(read_live_files(newest), newest.config.dialect or "documented")
        return _result(plan, newest.version, old.version, committed=False, dry_run=True), None
    intent = WriteIntent(
        mode="metadata",
        metadata=_metadata(newest, old),
        files=plan,
        operation="RESTORE",
        commit_info={"operationParameters": {"version": str(old.version)}},
    )
    outcome = commit(store, newest, intent)
    return _result(
        plan, outcome.version, old.version, committed=not outcome.already_applied, dry_run=False
    ), outcome


def _result(plan: _Restore, version: int, restored: int, *, committed: bool, dry_run: bool) -> RestoreResult:
    return RestoreResult(
        version=version,
        committed=committed,
        restored_version=restored,
        dry_run=dry_run,
        files_added=len(plan.change.adds),
        files_removed=len(plan.change.removed),
    )


class _Restore:
    """What becomes of the files, and how it went the last time it was asked."""

    def __init__(self, wanted: tuple[AddFile, ...]) -> None:
        self._wanted = {_key(add): add.model_copy(update={"data_change": True}) for add in wanted}
        self.change = FileChange()

    def __call__(self, live: LiveFiles, dialect: BlocksDialect) -> FileChange:  # noqa: ARG002 - tags are kept
        now = {_key(add): add.model_copy(update={"data_change": True}) for add in live.listed}
        adds = [
            # The same file with other tags is no change of rows.
            add.model_copy(update={"data_change": key not in now})
            for key, add in self._wanted.items()
            if now.get(key) != add
        ]
        removed = [add for add in (*live.listed, *live.unlisted) if _key(add) not in self._wanted]
        self.change = FileChange(adds=tuple(adds), removed=tuple(removed), data_change=True)
        return self.change


def _metadata(newest: Snapshot, old: Snapshot) -> Metadata:
    """Return the old metadata; it remembers which revision ids were used since, so that none is used again."""
    config = old.config
    highest = newest.config.highest_revision_id
    if highest > config.highest_revision_id:
        config = config.with_entries({HIGHEST_REVISION_ID: str(highest)})
    return old.metadata.model_copy(
        update={"id": newest.metadata.id, "configuration": config.to_configuration()}
    )


def _key(add: AddFile) -> FileKey:
    return file_key(add.path, add.deletion_vector)


def _refuse_missing(store: Store, newest: Snapshot, old: Snapshot, wanted: tuple[AddFile, ...]) -> None:
    """Raise where a file that is not live any more has been vacuumed."""
    named = {path for add in wanted for path in file_paths(add.path, add.deletion_vector)}
    named -= {FilePath(path) for path in newest.data_paths}
    inside = sorted(path.text for path in named if path.kind == "inside")
    there = map_files(store, partial(_is_there, store), inside)
    missing = [path for path, found in zip(inside, there, strict=True) if not found]
    if missing:
        shown = ", ".join(missing[:_SHOWN])
        msg = (
            f"version {old.version} of {newest.uri!r} cannot be restored: {len(missing)} of its files are gone "
            f"({shown} ...), a vacuum took them. Nothing was changed; restore a later version."
        )
        raise VersionNotFoundError(msg, path=newest.uri, version=old.version)


def _is_there(store: Store, path: str) -> bool:
    try:
        return store.size(path) >= 0
    except FileNotFoundError:
        return False

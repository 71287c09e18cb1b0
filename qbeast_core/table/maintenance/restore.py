"""Make an older version of a table the newest one, with its rows, schema and index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from qbeast_core.errors import NotQbeastTableError, VersionNotFoundError
from qbeast_core.io.footer import stored_size
from qbeast_core.io.store import map_files
from qbeast_core.log.actions import AddFile, Metadata, parse_commit
from qbeast_core.log.columns import with_max_id
from qbeast_core.log.deletion_vectors import FileKey, file_key, file_paths
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.rules import identity_columns, keeping_high_water_marks
from qbeast_core.log.values import FileChange, LastChange, LiveFiles
from qbeast_core.results import Result
from qbeast_core.spec.blocks import FilePath
from qbeast_core.spec.table_config import HIGHEST_REVISION_ID
from qbeast_core.table.commit import commit_metadata
from qbeast_core.table.snapshot.log_files import read_log
from qbeast_core.table.snapshot.snapshot import Snapshot, read_live_files

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestoreResult(Result):
    """Outcome of `Table.restore`.

    Attributes
    ----------
    version : int
        The new version; the present one after a dry run, or if the table was in this state already.
    restored_version : int
        The version that was restored.
    committed : bool
        Whether it made a version.
    dry_run : bool
        Whether the counts are only planned.
    files_added, files_removed : int
        Files that came back, and files that were removed.
    """

    restored_version: int
    files_added: int
    files_removed: int


def restore(newest: Snapshot, old: Snapshot, *, dry_run: bool) -> tuple[RestoreResult, Snapshot | None]:
    """Restore a version; see `Table.restore` for the promises and errors."""
    config = old.config
    if newest.config.is_indexed and not (config.is_indexed or config.is_left_unindexed):
        msg = f"version {old.version} of {newest.uri!r} has no Qbeast index. Restore a later one."
        raise NotQbeastTableError(msg, path=newest.uri)
    check_writable(newest.protocol, newest.metadata, mode="overwrite", path=newest.uri)
    wanted = read_live_files(old).listed
    _refuse_missing(newest, old, wanted)
    plan = LastChange(lambda live, _: _plan(live, wanted))
    outcome = commit_metadata(
        newest,
        _metadata(newest, old),
        "rows",
        operation="RESTORE",
        parameters={"version": str(old.version)},
        files=plan,
        dry_run=dry_run,
    )
    result = RestoreResult(
        version=outcome.version,
        committed=outcome.committed,
        restored_version=old.version,
        dry_run=dry_run,
        files_added=len(plan.change.adds),
        files_removed=len(plan.change.removed),
    )
    return result, outcome.snapshot


def _plan(live: LiveFiles, wanted: tuple[AddFile, ...]) -> FileChange:
    """Return the change from the live files to the wanted ones."""
    now = {_key(add): add.model_copy(update={"data_change": True}) for add in live.listed}
    # A live file keeps the text of its path; another one gets the text that Spark's VACUUM keeps.
    paths = {key: now[key].path if key in now else FilePath(key[0]).encoded for key in map(_key, wanted)}
    by_key = {
        _key(add): add.model_copy(update={"data_change": True, "path": paths[_key(add)]}) for add in wanted
    }
    # The same file with other tags is not a change of rows.
    changed = [(add, key not in now) for key, add in by_key.items() if now.get(key) != add]
    return FileChange(
        adds=tuple(add.model_copy(update={"data_change": is_new}) for add, is_new in changed),
        removed=tuple(add for add in (*live.listed, *live.unlisted) if _key(add) not in by_key),
        data_change=True,
        renamed=tuple(add for add in wanted if _key(add) not in now and add.path != paths[_key(add)]),
    )


def _metadata(newest: Snapshot, old: Snapshot) -> Metadata:
    """Return the old metadata with the highest ids and identity values used since, so that none is used twice."""
    config = old.config
    highest = newest.config.highest_revision_id
    if highest > config.highest_revision_id:
        config = config.with_entries({HIGHEST_REVISION_ID: str(highest)})
    update = {
        "id": newest.metadata.id,
        "configuration": config.to_configuration(),
        "schema_string": keeping_high_water_marks(old.schema_json, _schemas_since(newest, old)),
    }
    return with_max_id(old.metadata.model_copy(update=update), newest.metadata)


def _schemas_since(newest: Snapshot, old: Snapshot) -> list[str]:
    """Return the schemas that may have marks of the identity columns of an old version, oldest first."""
    if identity_columns(old.schema_json) <= identity_columns(newest.schema_json):
        return [newest.schema_json]
    # A column was dropped meanwhile: only the commits before have its mark.
    try:
        commits = read_log(newest.source.store, newest.version, after=old.version).commits
    except FileNotFoundError as error:
        msg = (
            f"version {old.version} of {newest.uri!r} cannot be restored: it has identity columns that were dropped "
            f"since, and the last numbers of these are in commits that are gone ({error})."
        )
        raise VersionNotFoundError(msg, path=newest.uri, version=old.version) from error
    changes = (parse_commit(body, version=0).metadata for body in commits if b'"metaData"' in body)
    return [change.schema_string for change in changes if change is not None]


def _key(add: AddFile) -> FileKey:
    return file_key(add.path, add.deletion_vector)


def _refuse_missing(newest: Snapshot, old: Snapshot, wanted: tuple[AddFile, ...]) -> None:
    """Raise if a vacuum has deleted a file of the old version."""
    named = {path for add in wanted for path in file_paths(add.path, add.deletion_vector)}
    named -= {FilePath(path) for path in newest.data_paths}
    inside = sorted(path.text for path in named if path.kind == "inside")
    store = newest.source.store
    sizes = map_files(store, partial(stored_size, store), inside)
    missing = [path for path, size in zip(inside, sizes, strict=True) if size is None]
    if missing:
        shown = ", ".join(missing[:_SHOWN])
        msg = (
            f"version {old.version} of {newest.uri!r} cannot be restored: {len(missing)} of its files are gone "
            f"({shown} ...), a vacuum took them; restore a later version."
        )
        raise VersionNotFoundError(msg, path=newest.uri, version=old.version)

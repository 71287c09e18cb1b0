"""Keep a table in shape: optimize, repair, restore, vacuum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.grid import size_text
from qbeast_core.cli.jobs.opening import open_table, warnings_told

__all__ = ["optimize_table", "repair_table", "restore_table", "vacuum_table"]


def optimize_table(
    path: str,
    *,
    revision: int | None,
    all_revisions: bool,
    fraction: float | None,
    files: Sequence[str],
    full: bool,
    fold: bool,
    redraw: bool,
    commit_metadata: Mapping[str, str],
    dry_run: bool,
    storage_options: Mapping[str, str],
) -> Answer:
    """Rewrite what is out of shape."""
    table = open_table(path, storage_options)
    with progress_bar("optimizing") as progress, warnings_told():
        result = table.optimize(
            revision=revision,
            all_revisions=all_revisions,
            fraction=fraction,
            files=list(files) or None,
            full=full,
            fold=fold,
            redraw=redraw,
            dry_run=dry_run,
            commit_metadata=commit_metadata,
            progress=progress,
        )
    data = {"table": table.uri, **result.to_dict()}
    return Answer(parts=(repr(result).removeprefix("OptimizeResult: "),), data=data)


def repair_table(path: str, *, dry_run: bool, storage_options: Mapping[str, str]) -> Answer:
    """Mend what the log alone can mend."""
    table = open_table(path, storage_options)
    with progress_bar("checking") as progress, warnings_told():
        result = table.repair(dry_run=dry_run, progress=progress)
    data = {"table": table.uri, **result.to_dict()}
    return Answer(parts=(repr(result),), data=data)


def restore_table(
    path: str, *, version: int | str, dry_run: bool, storage_options: Mapping[str, str]
) -> Answer:
    """Make an older version the newest."""
    table = open_table(path, storage_options)
    before = table.version
    with progress_bar("restoring"), warnings_told():
        result = table.restore(version, dry_run=dry_run)
    moved = f"{result.added_files:,} file(s) come back, {result.removed_files:,} go"
    if dry_run:
        text = f"a dry run: version {result.restored_version} would be the newest again; {moved}"
    elif result.version == before:
        text = f"version {before} is like version {result.restored_version} already; nothing was changed"
    else:
        text = f"version {result.version} is like version {result.restored_version}; {moved}"
    data = {"table": table.uri, **result.to_dict()}
    return Answer(parts=(text,), data=data)


def vacuum_table(
    path: str,
    *,
    retention_hours: float | None,
    allow_short_retention: bool,
    dry_run: bool,
    storage_options: Mapping[str, str],
) -> Answer:
    """List, or delete, files that no version needs."""
    table = open_table(path, storage_options)
    with progress_bar("looking for files"), warnings_told():
        result = table.vacuum(
            retention_hours=retention_hours, allow_short_retention=allow_short_retention, dry_run=dry_run
        )
    data = {
        "table": table.uri,
        "version": table.version,
        "deleted": result.deleted,
        "retention_hours": result.retention_hours,
        "bytes": result.bytes,
        "files": list(result.files),
    }
    age = f"{result.retention_hours:g} hours"
    if not result.files:
        return Answer(parts=(f"nothing to delete: every file is needed, or younger than {age}",), data=data)
    found = f"{len(result.files):,} file(s), {size_text(result.bytes)}, older than {age}"
    if result.deleted:
        return Answer(parts=(f"deleted {found}",), data=data)
    return Answer(parts=(*result.files, f"{found}; say --delete to delete them for good"), data=data)

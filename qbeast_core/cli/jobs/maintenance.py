"""Bring tables into the format, up to date and into shape; look after their columns, properties and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.grid import size_text
from qbeast_core.cli.jobs.opening import on_table, working
from qbeast_core.cli.sources import types_by_name
from qbeast_core.runtime import ProgressCallback

if TYPE_CHECKING:
    from qbeast_core.spec.block import BlocksDialect
    from qbeast_core.table.maintenance.dialect import JvmRelease
    from qbeast_core.table.maintenance.upgrade import Copies


def convert(
    table: str, columns: Sequence[str], *, storage_options: Mapping[str, str] | None, **options: Any
) -> Answer:
    """Give a Delta table or Parquet files an index to come."""
    with working("converting"):
        result = qbeast.convert_table(table, columns, storage_options=storage_options, **options)
    rows = "rows that the log does not count" if result.rows is None else f"{result.rows:,} rows"
    held = f"{result.files:,} file(s), {size_text(result.bytes)}, {rows}"
    index = f"indexed by {', '.join(result.columns)}, cubes of {result.cube_size:,} rows"
    if result.converted:
        text = f"version {result.version}: {held}; {index} as soon as `qbeast optimize` runs"
    elif result.dry_run and not _is_indexed(table, storage_options):
        text = f"a dry run: {held} would be {index}; nothing was changed"
    else:
        text = f"version {result.version} is a qbeast table already, {index}; nothing was changed"
    return Answer(parts=(text,), data={"table": table, **result.to_dict()})


def upgrade(
    table: str, *, replicated: Copies | None, dry_run: bool, storage_options: Mapping[str, str] | None
) -> Answer:
    """Give files of old tables the tags of today."""
    with working("upgrading"):
        result = qbeast.upgrade_table(
            table, replicated=replicated, dry_run=dry_run, storage_options=storage_options
        )
    facts = [f"{result.retagged_files:,} file(s) with new tags"]
    if result.dropped_copies:
        facts.append(f"{result.dropped_copies:,} with copies of rows dropped")
    if result.kept_copies:
        facts.append(f"{result.kept_copies:,} with copies of rows kept")
    if result.upgraded:
        text = f"version {result.version}: {', '.join(facts)}"
    elif result.dry_run:
        text = f"a dry run: {', '.join(facts)}; nothing was changed"
    else:
        text = f"version {result.version} is up to date; nothing was changed"
    return Answer(parts=(text,), data={"table": table, **result.to_dict()})


@on_table("optimizing")
def optimize(
    table: qbeast.Table,
    progress: ProgressCallback | None,
    *,
    files: Sequence[str],
    revision: str | None,
    **options: Any,
) -> Answer:
    """Rewrite what is out of shape."""
    number: Any = int(revision) if revision is not None and revision.isdecimal() else revision
    result = table.optimize(files=list(files) or None, revision=number, progress=progress, **options)
    return Answer(parts=(repr(result).removeprefix("OptimizeResult: "),), data=result.to_dict())


@on_table("adding columns")
def add_columns(
    table: qbeast.Table, _progress: ProgressCallback | None, *, columns: Mapping[str, str]
) -> Answer:
    """Add columns at the end of the schema."""
    result = table.add_columns(types_by_name(columns))
    return Answer(
        parts=(f"version {result.version}: added {', '.join(columns)}",), data={"added": list(columns)}
    )


@on_table("widening columns")
def widen_columns(
    table: qbeast.Table, _progress: ProgressCallback | None, *, columns: Mapping[str, str]
) -> Answer:
    """Give columns wider types."""
    result = table.widen_columns(types_by_name(columns))
    told = ", ".join(f"{name} is {kind}" for name, kind in columns.items())
    return Answer(parts=(f"version {result.version}: {told}",), data={"widened": dict(columns)})


@on_table("spelling the index")
def switch_dialect(
    table: qbeast.Table, _progress: ProgressCallback | None, *, dialect: BlocksDialect, jvm: JvmRelease
) -> Answer:
    """Spell the index in the log anew."""
    result = table.switch_dialect(dialect, jvm=jvm)
    if result.committed:
        text = f"version {result.version}: {result.retagged_files:,} file(s) with new tags"
    else:
        text = f"version {result.version} is spelled so already; nothing was changed"
    return Answer(parts=(text,), data=result.to_dict())


@on_table("setting properties")
def set_properties(
    table: qbeast.Table,
    _progress: ProgressCallback | None,
    *,
    properties: Mapping[str, str] | None,
    unset: Sequence[str],
) -> Answer:
    """Show properties, after setting and unsetting some."""
    result = table.set_properties({**(properties or {}), **dict.fromkeys(unset)})
    lines = [f"{name}={value}" for name, value in sorted(table.properties.items())]
    changed = [f"version {table.version}:"] if result.committed else []
    return Answer(
        parts=(*changed, *(lines or ["no properties"])), data={"properties": dict(table.properties)}
    )


@on_table("checking")
def repair(table: qbeast.Table, progress: ProgressCallback | None, *, dry_run: bool) -> Answer:
    """Mend what the log alone can mend."""
    result = table.repair(dry_run=dry_run, progress=progress)
    return Answer(parts=(repr(result),), data=result.to_dict())


@on_table("restoring")
def restore(
    table: qbeast.Table, _progress: ProgressCallback | None, *, older: int | str, dry_run: bool
) -> Answer:
    """Make an older version the newest."""
    before = table.version
    result = table.restore(older, dry_run=dry_run)
    moved = f"{result.added_files:,} file(s) come back, {result.removed_files:,} go"
    if dry_run:
        text = f"a dry run: version {result.restored_version} would be the newest again; {moved}"
    elif result.version == before:
        text = f"version {before} is like version {result.restored_version} already; nothing was changed"
    else:
        text = f"version {result.version} is like version {result.restored_version}; {moved}"
    return Answer(parts=(text,), data=result.to_dict())


@on_table("looking for files")
def vacuum(table: qbeast.Table, _progress: ProgressCallback | None, **options: Any) -> Answer:
    """List, or delete, files that no version needs."""
    result = table.vacuum(**options)
    data = {
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


def _is_indexed(table: str, storage_options: Mapping[str, str] | None) -> bool:
    try:
        qbeast.open_table(table, storage_options=storage_options)
    except (qbeast.NotQbeastTableError, qbeast.TableNotFoundError):
        return False
    return True

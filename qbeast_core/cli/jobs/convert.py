"""Bring tables into the format, and up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.grid import size_text
from qbeast_core.cli.jobs.opening import open_table, warnings_told

if TYPE_CHECKING:
    from qbeast_core.spec.block import BlocksDialect
    from qbeast_core.table.maintenance.upgrade import Copies

__all__ = ["convert_folder", "upgrade_folder"]


def convert_folder(
    path: str,
    *,
    columns: Sequence[str],
    cube_size: int | None,
    dialect: BlocksDialect | None,
    commit_metadata: Mapping[str, str],
    dry_run: bool,
    storage_options: Mapping[str, str],
) -> Answer:
    """Give a Delta table or Parquet files an index to come."""
    with progress_bar("converting"), warnings_told():
        result = qbeast.convert_table(
            path,
            columns,
            cube_size=cube_size,
            dialect=dialect,
            commit_metadata=commit_metadata,
            dry_run=dry_run,
            storage_options=dict(storage_options) or None,
        )
    rows = "rows that the log does not count" if result.rows is None else f"{result.rows:,} rows"
    held = f"{result.files:,} file(s), {size_text(result.bytes)}, {rows}"
    index = f"indexed by {', '.join(result.columns)}, cubes of {result.cube_size:,} rows"
    if result.converted:
        text = f"version {result.version}: {held}; {index} as soon as `qbeast optimize` runs"
    elif result.dry_run and not _is_indexed(path, storage_options):
        text = f"a dry run: {held} would be {index}; nothing was changed"
    else:
        text = f"version {result.version} is a qbeast table already, {index}; nothing was changed"
    return Answer(parts=(text,), data={"table": path, **result.to_dict()})


def upgrade_folder(
    path: str, *, replicated: Copies | None, dry_run: bool, storage_options: Mapping[str, str]
) -> Answer:
    """Give files of old tables the tags of today."""
    with progress_bar("upgrading"), warnings_told():
        result = qbeast.upgrade_table(
            path, replicated=replicated, dry_run=dry_run, storage_options=dict(storage_options) or None
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
    return Answer(parts=(text,), data={"table": path, **result.to_dict()})


def _is_indexed(path: str, storage_options: Mapping[str, str]) -> bool:
    try:
        open_table(path, storage_options)
    except (qbeast.NotQbeastTableError, qbeast.TableNotFoundError):
        return False
    return True

"""Maintenance of tables, from `qbeast convert` to `qbeast vacuum`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from qbeast_core.cli.answer import Answer, answer_of, facts_of
from qbeast_core.cli.opening import on_table, working
from qbeast_core.cli.options import (
    as_mapping,
    as_version,
    choice_option,
    columns_option,
    command,
    commit_metadata_option,
    dialect_option,
    dry_run_option,
    memory_option,
    spill_dir_option,
    table_argument,
)

if TYPE_CHECKING:
    import qbeast
    from qbeast_core.spec.block import BlocksDialect
    from qbeast_core.support.runtime import ProgressCallback
    from qbeast_core.table.maintenance.dialect import JvmRelease
    from qbeast_core.table.maintenance.upgrade import Copies


@command(
    table_argument,
    columns_option("Columns to index, as for `qbeast write`.", required=True),
    click.option(
        "--cube-size", type=int, help="Rows a cube aims to hold; by default chosen from the number of rows."
    ),
    dialect_option("The dialect of the index."),
    commit_metadata_option,
    memory_option,
    dry_run_option,
    short_help="Give a Delta table or Parquet files an index.",
)
def convert(
    table: str, columns: Sequence[str], *, storage_options: Mapping[str, str] | None, **options: Any
) -> Answer:
    """Give a Delta table, or a folder of Parquet files, an index to come; no data is moved."""
    import qbeast
    from qbeast_core.cli.tables import size_text

    with working("converting"):
        result = qbeast.convert_table(table, columns, storage_options=storage_options, **options)
    rows = "rows that the log does not count" if result.rows is None else f"{result.rows:,} rows"
    held = f"{result.files:,} file(s), {size_text(result.bytes)}, {rows}"
    index = f"indexed by {', '.join(result.columns)}, cubes of {result.cube_size:,} rows"
    if result.committed:
        text = f"version {result.version}: {held}; {index} as soon as `qbeast optimize` runs"
    elif result.dry_run and not _is_indexed(table, storage_options):
        text = f"a dry run: {held} would be {index}; nothing was changed"
    else:
        text = f"version {result.version} is a qbeast table already, {index}; nothing was changed"
    return Answer(parts=(text,), data={"table": table, **result.to_dict()})


@command(
    table_argument,
    choice_option(
        "--replicated",
        choices=("keep", "drop"),
        text="What becomes of files with copies of rows; kept, with a warning, by default.",
        optional=True,
    ),
    dry_run_option,
    short_help="Bring an old table of qbeast-spark up to date.",
)
def upgrade(
    table: str, *, replicated: Copies | None, dry_run: bool, storage_options: Mapping[str, str] | None
) -> Answer:
    """Bring a table of qbeast-spark before 0.6.0 up to date; no data is touched."""
    import qbeast

    with working("upgrading"):
        result = qbeast.upgrade_table(
            table, replicated=replicated, dry_run=dry_run, storage_options=storage_options
        )
    return answer_of(result, table=table)


@command(
    table_argument,
    click.option(
        "--revision",
        metavar="N",
        help="Look at this revision only, 0: at files without index; all: at every revision, one commit each.",
    ),
    click.option(
        "--fraction", metavar="FRACTION", help="Only what samples up to this fraction read: 0.1 or 10%."
    ),
    click.option(
        "--file", "files", multiple=True, help="Rewrite this file, whatever its shape; may be repeated."
    ),
    click.option("--full", is_flag=True, help="Rewrite every file looked at into a fresh tree."),
    click.option(
        "--into",
        type=click.Choice(("newest", "new")),
        help="newest: move rows of older revisions there; new: rewrite all rows with new quantiles and ranges.",
    ),
    commit_metadata_option,
    memory_option,
    spill_dir_option,
    dry_run_option,
    short_help="Rewrite what is out of shape.",
)
@on_table("optimizing")
def optimize(
    table: qbeast.Table,
    progress: ProgressCallback | None,
    *,
    files: Sequence[str],
    revision: str | None,
    **options: Any,
) -> Answer:
    """Rewrite what is out of shape: small appends, files of other writers, overfull cubes."""
    number: Any = int(revision) if revision is not None and revision.isdecimal() else revision
    result = table.optimize(files=list(files) or None, revision=number, progress=progress, **options)
    return Answer(parts=(repr(result).removeprefix("OptimizeResult: "),), data=result.to_dict())


@command(
    table_argument,
    click.argument("columns", nargs=-1, required=True, metavar="NAME=TYPE...", callback=as_mapping),
)
@on_table("adding columns")
def add_columns(
    table: qbeast.Table, _progress: ProgressCallback | None, *, columns: Mapping[str, str]
) -> Answer:
    """Add columns at the end; existing rows get nulls."""
    from qbeast_core.cli.sources import types_by_name

    version = table.add_columns(types_by_name(columns)).version
    return Answer(parts=(f"version {version}: added {', '.join(columns)}",), data={"added": list(columns)})


@command(
    table_argument,
    click.argument("columns", nargs=-1, required=True, metavar="NAME=TYPE...", callback=as_mapping),
    short_help="Give columns wider types.",
)
@on_table("widening columns")
def widen_columns(
    table: qbeast.Table, _progress: ProgressCallback | None, *, columns: Mapping[str, str]
) -> Answer:
    """Give columns wider types; files are written anew where they hold narrower ones than a reader takes."""
    from qbeast_core.cli.sources import types_by_name

    version = table.widen_columns(types_by_name(columns)).version
    told = ", ".join(f"{name} is {kind}" for name, kind in columns.items())
    return Answer(parts=(f"version {version}: {told}",), data={"widened": dict(columns)})


@command(
    table_argument,
    click.argument("dialect", type=click.Choice(("documented", "qbeast-spark"))),
    choice_option("--jvm", choices=("0.7", "0.8"), text="Which qbeast-spark is to read the table."),
    short_help="Write the index for other readers.",
)
@on_table("switching the dialect")
def switch_dialect(
    table: qbeast.Table, _progress: ProgressCallback | None, *, dialect: BlocksDialect, jvm: JvmRelease
) -> Answer:
    """Spell the index in the log as the format's documents do, or as qbeast-spark reads it; no data file is touched."""
    return answer_of(table.switch_dialect(dialect, jvm=jvm))


@command(
    table_argument,
    click.argument("properties", nargs=-1, metavar="[NAME=TEXT]...", callback=as_mapping),
    click.option("--unset", metavar="NAME", multiple=True, help="Take a property away; may be repeated."),
    short_help="Show, set or unset properties.",
)
@on_table("setting properties")
def set_properties(
    table: qbeast.Table,
    _progress: ProgressCallback | None,
    *,
    properties: Mapping[str, str] | None,
    unset: Sequence[str],
) -> Answer:
    """Show the properties of a table, set them (NAME=TEXT), or unset them."""
    result = table.set_properties({**(properties or {}), **dict.fromkeys(unset)})
    lines = [f"{name}={value}" for name, value in sorted(table.properties.items())]
    changed = [f"version {table.version}:"] if result.committed else []
    return Answer(
        parts=(*changed, *(lines or ["no properties"])), data={"properties": dict(table.properties)}
    )


@command(table_argument, dry_run_option, short_help="Fix what the log alone can fix.")
@on_table("checking")
def repair(table: qbeast.Table, progress: ProgressCallback | None, *, dry_run: bool) -> Answer:
    """Repair faults that `qbeast check` finds, as far as the log allows; no row is touched."""
    result = table.repair(dry_run=dry_run, progress=progress)
    return Answer(parts=(repr(result),), data=result.to_dict())


@command(
    table_argument,
    click.argument("older", metavar="VERSION", callback=as_version),
    dry_run_option,
    short_help="Make an older version the newest again.",
)
@on_table("restoring")
def restore(
    table: qbeast.Table, _progress: ProgressCallback | None, *, older: int | str, dry_run: bool
) -> Answer:
    """Make an older VERSION (a number, or a time) the newest again, in one commit."""
    return answer_of(table.restore(older, dry_run=dry_run))


@command(
    table_argument,
    click.option(
        "--retention-hours",
        type=float,
        help="Spare younger files; by default what the table says, or a week.",
    ),
    click.option("--allow-short-retention", is_flag=True, help="Accept less than the table promises."),
    click.option(
        *("--dry-run/--delete",),
        default=True,
        show_default=True,
        help="List the files, or delete them for good.",
    ),
    short_help="List or delete files that nobody needs.",
)
@on_table("looking for files")
def vacuum(table: qbeast.Table, _progress: ProgressCallback | None, **options: Any) -> Answer:
    """List, or delete, data files that no version needs any more."""
    from qbeast_core.cli.tables import size_text

    result = table.vacuum(**options)
    data = facts_of(result, "deleted", "retention_hours", "bytes", "files")
    age = f"{result.retention_hours:g} hours"
    if not result.files:
        return Answer(parts=(f"nothing to delete: every file is needed, or younger than {age}",), data=data)
    found = f"{len(result.files):,} file(s), {size_text(result.bytes)}, older than {age}"
    if result.deleted:
        return Answer(parts=(f"deleted {found}",), data=data)
    return Answer(parts=(*result.files, f"{found}; --delete deletes them for good"), data=data)


def _is_indexed(table: str, storage_options: Mapping[str, str] | None) -> bool:
    import qbeast

    try:
        qbeast.open_table(table, storage_options=storage_options)
    except (qbeast.NotQbeastTableError, qbeast.TableNotFoundError):
        return False
    return True

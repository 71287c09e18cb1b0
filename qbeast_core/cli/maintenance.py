"""Commands that inspect and maintain tables, from `history` and `check` to `optimize` and `vacuum`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.commands import (
    FAULTS,
    Answer,
    absolute_paths_option,
    answer_of,
    as_mapping,
    as_version,
    choice_option,
    columns_of,
    columns_option,
    columns_or_none_options,
    command,
    commit_metadata_option,
    dialect_option,
    dry_run_option,
    facts_of,
    flag,
    importance_option,
    memory_option,
    on_table,
    option,
    pairs_option,
    resources_of,
    sample_option,
    sampling_key_option,
    spill_dir_option,
    table_argument,
    version_option,
    where_option,
    working,
    writing_options,
)
from qbeast_core.errors import changing

if TYPE_CHECKING:
    import qbeast
    from qbeast_core.spec.blocks import BlocksDialect
    from qbeast_core.support.process import ProgressCallback
    from qbeast_core.table.inspect.metrics import PlotKind
    from qbeast_core.table.maintenance.metadata import JvmRelease


@command(
    table_argument,
    columns_or_none_options("Columns to index, as for `qbeast write`."),
    option(
        "--cube-size", "Target number of rows per cube; by default chosen from the number of rows.", type=int
    ),
    dialect_option("Dialect of the index."),
    sampling_key_option,
    commit_metadata_option,
    memory_option,
    dry_run_option,
)
def convert(table: str, columns: Sequence[str] | None, *, no_index: bool, **options: Any) -> Answer:
    """Give a Delta table or Parquet files an index. No data is moved: `qbeast optimize` builds the index."""
    import qbeast

    columns = columns_of(columns, no_index=no_index)
    if columns is None:
        msg = "Missing option '-c' / '--columns'."
        raise click.UsageError(msg, click.get_current_context())
    resources = resources_of(options)
    with working("converting"):
        result = qbeast.convert_table(table, columns, resources=resources, **options)
    return answer_of(result, table=table)


@on_table(
    "upgrading",
    choice_option(
        "--replicated",
        "What to do with files that hold copies of rows; by default keep them, with a warning.",
        ("keep", "drop"),
        optional=True,
    ),
    dry_run_option,
)
def upgrade(table: qbeast.Table, **options: Any) -> Answer:
    """Upgrade a table of qbeast-spark before 0.6.0. Data files are not changed."""
    return answer_of(table.upgrade(**options))


@on_table(
    "optimizing",
    option("--revision", "Only this revision (0: files without index; all: each revision).", "N"),
    option("--fraction", "Only files that a sample of this fraction reads: 0.1 or 10%.", "FRACTION"),
    option("--file files", "Rewrite this file in any case; may be repeated.", multiple=True),
    flag("--full", "Rewrite all considered files into a new tree."),
    choice_option(
        "--into",
        "newest: move rows of older revisions there; new: rewrite all rows with new quantiles and ranges.",
        ("newest", "new"),
        optional=True,
    ),
    flag("--purge", "Rewrite all files with rows that deletion vectors hide, also those with few."),
    writing_options,
    progress=True,
)
def optimize(table: qbeast.Table, *, files: Sequence[str], revision: str | None, **options: Any) -> Answer:
    """Rewrite files to improve the index: files of other writers, and appends that are better written together."""
    number: Any = int(revision) if revision is not None and revision.isdecimal() else revision
    result = table.optimize(files=list(files) or None, revision=number, **options)
    return Answer(parts=(repr(result).removeprefix("OptimizeResult: "),), data=result.to_dict())


@on_table(
    "reindexing",
    columns_option("Columns to index, as for `qbeast write`; by default they stay."),
    option("--cube-size", "Target number of rows per cube; by default it stays.", type=int),
    importance_option,
    flag("--full", "Also move all rows now, instead of a part at each optimize."),
    commit_metadata_option,
    memory_option,
    spill_dir_option,
    progress=True,
)
def reindex(table: qbeast.Table, *, columns: Sequence[str] | None, **options: Any) -> Answer:
    """Index a table by other columns, or change their importance.

    No file is written: `qbeast optimize` moves the rows in steps.
    """
    return answer_of(table.reindex(columns, **options))


_types: Final = click.argument(
    "columns", nargs=-1, required=True, metavar="NAME=TYPE...", callback=as_mapping
)


@on_table("adding columns", _types)
def add_columns(table: qbeast.Table, *, columns: Mapping[str, str]) -> Answer:
    """Add columns at the end; existing rows get nulls."""
    from qbeast_core.cli.sources import types_by_name

    version = table.add_columns(types_by_name(columns)).version
    return Answer(parts=(f"version {version}: added {', '.join(columns)}",), data={"added": list(columns)})


@on_table("widening columns", _types)
def widen_columns(table: qbeast.Table, *, columns: Mapping[str, str]) -> Answer:
    """Change columns to wider types. Files that readers would reject are rewritten."""
    from qbeast_core.cli.sources import types_by_name

    version = table.widen_columns(types_by_name(columns)).version
    types = ", ".join(f"{name} is {kind}" for name, kind in columns.items())
    return Answer(parts=(f"version {version}: {types}",), data={"widened": dict(columns)})


_upgrade_protocol: Final = flag(
    "--upgrade-protocol", "Add column mapping to a table without it; older readers refuse the table then."
)


@on_table("renaming the column", click.argument("column"), click.argument("name"), _upgrade_protocol)
def rename_column(table: qbeast.Table, *, column: str, name: str, upgrade_protocol: bool) -> Answer:
    """Rename a COLUMN, or a field such as address.street. Data files are not changed."""
    return answer_of(table.rename_column(column, name, upgrade_protocol=upgrade_protocol))


@on_table("dropping the column", click.argument("column"), _upgrade_protocol)
def drop_column(table: qbeast.Table, *, column: str, upgrade_protocol: bool) -> Answer:
    """Drop a COLUMN, or a field such as address.street. Data files are not changed."""
    return answer_of(table.drop_column(column, upgrade_protocol=upgrade_protocol))


@command(
    table_argument,
    flag("--yes confirm", "Delete the table; without it the command only reports what it would delete."),
    flag("--keep-others", "Delete the table although its folder holds other files; they stay."),
    dry_run_option,
)
@changing
def drop(table: str, *, confirm: bool, keep_others: bool, dry_run: bool, **options: Any) -> Answer:
    """Delete a TABLE: its log, and the data files of all versions. This cannot be undone.

    The command refuses a folder that is not a Delta table, or that holds other files or tables.
    """
    import qbeast
    from qbeast_core.cli.output import size_text
    from qbeast_core.errors import InvalidInputError

    with working("listing"):
        plan = qbeast.drop_table(table, dry_run=True, **options)
    what = f"version {plan.version}, {len(plan.files):,} files, {size_text(plan.bytes)}"
    others = [path for path in plan.kept if not path.startswith(("_", "."))]
    if others and not keep_others:
        msg = (
            f"the folder of the table holds {len(others):,} other files, such as {others[0]!r}. Move them, or give "
            "keep_others=True: then they stay, and the table is deleted."
        )
        raise InvalidInputError(msg, argument="keep_others")
    if dry_run:
        return Answer(
            parts=(*plan.files, f"a dry run; would delete {what}"), data={"table": table, **plan.to_dict()}
        )
    if not confirm:
        msg = f"this deletes {table!r} for good: {what}. Give confirm=True to do it, or dry_run=True to list the files."
        raise InvalidInputError(msg, argument="confirm")
    with working("deleting"):
        result = qbeast.drop_table(table, confirm=True, **options)
    return Answer(parts=(f"deleted {what}",), data={"table": table, **result.to_dict()})


@on_table("adding the sample column", click.argument("name", default="sample"))
def add_sample_column(table: qbeast.Table, *, name: str) -> Answer:
    """Add a column by which any engine reads samples: WHERE sample < 0.01. All files are rewritten."""
    result = table.add_sample_column(name)
    return Answer(parts=(f"version {result.version}: added {name}",), data={"added": [name]})


@on_table(
    "switching the dialect",
    click.argument("dialect", type=click.Choice(("documented", "qbeast-spark"))),
    choice_option("--jvm", "Version of qbeast-spark that reads the table.", ("0.7", "0.8")),
)
def switch_dialect(table: qbeast.Table, *, dialect: BlocksDialect, jvm: JvmRelease) -> Answer:
    """Rewrite the index in the log for other readers.

    Data files are not changed. The format documents define the dialect "documented"; qbeast-spark reads its own.
    """
    return answer_of(table.switch_dialect(dialect, jvm=jvm))


@on_table(
    "setting properties",
    click.argument("properties", nargs=-1, metavar="[NAME=TEXT]...", callback=as_mapping),
    option("--unset", "Remove a property; may be repeated.", "NAME", multiple=True),
)
def set_properties(
    table: qbeast.Table, *, properties: Mapping[str, str] | None, unset: Sequence[str]
) -> Answer:
    """Show, set (NAME=TEXT) or unset properties of a table."""
    result = table.set_properties({**(properties or {}), **dict.fromkeys(unset)})
    lines = [f"{name}={value}" for name, value in sorted(table.properties.items())]
    changed = [f"version {table.version}:"] if result.committed else []
    parts = (*changed, *(lines or ["no properties"]))
    return Answer(parts=parts, data={"properties": dict(table.properties)})


@on_table(
    "changing constraints",
    pairs_option("--add", "A condition that all rows meet, now and later; may be repeated.", "NAME=SQL"),
    option("--drop", "Name of a constraint to drop; may be repeated.", "NAME", multiple=True),
)
def constraints(table: qbeast.Table, *, add: Mapping[str, str] | None, drop: Sequence[str]) -> Answer:
    """Show, add (NAME=SQL) or drop constraints of a table. Each is a commit of its own."""
    before = table.version
    for name in drop:
        table.drop_constraint(name)
    for name, expression in (add or {}).items():
        table.add_constraint(name, expression)
    prefix = "delta.constraints."
    stored = {k.removeprefix(prefix): text for k, text in table.properties.items() if k.startswith(prefix)}
    lines = [f"{name}: {text}" for name, text in sorted(stored.items())]
    changed = [f"version {table.version}:"] if table.version > before else []
    return Answer(parts=(*changed, *(lines or ["no constraints"])), data={"constraints": stored})


@on_table("checking", dry_run_option, progress=True)
def repair(table: qbeast.Table, **options: Any) -> Answer:
    """Repair faults of the log that `qbeast check` reports. Data files are not changed."""
    result = table.repair(**options)
    return Answer(parts=(repr(result),), data=result.to_dict())


@on_table("restoring", click.argument("older", metavar="VERSION", callback=as_version), dry_run_option)
def restore(table: qbeast.Table, *, older: int | str, dry_run: bool) -> Answer:
    """Restore an older VERSION, in one commit. VERSION is a number or a time."""
    return answer_of(table.restore(older, dry_run=dry_run))


@on_table(
    "looking for files",
    option(
        "--retention-hours", "Keep younger files; by default the table's property, or a week.", type=float
    ),
    flag("--allow-short-retention", "Allow a retention below the table's property."),
    option(
        "--dry-run/--delete", "List the files, or delete them permanently.", default=True, show_default=True
    ),
)
def vacuum(table: qbeast.Table, **options: Any) -> Answer:
    """List or delete data files that no version needs."""
    from qbeast_core.cli.output import size_text

    result = table.vacuum(**options)
    data = facts_of(result, "deleted", "retention_hours", "bytes", "files")
    age = f"{result.retention_hours:g} hours"
    if not result.files:
        return Answer(parts=(f"nothing to delete: every file is needed, or younger than {age}",), data=data)
    files = f"{len(result.files):,} file(s), {size_text(result.bytes)}, older than {age}"
    if result.deleted:
        return Answer(parts=(f"deleted {files}",), data=data)
    return Answer(parts=(*result.files, f"{files}; --delete deletes them for good"), data=data)


_DPI: Final = 150
_ENDINGS: Final = (".png", ".svg", ".pdf")


@on_table(
    "counting",
    option("--revision", "Only this revision; 0: rows without index.", type=int),
    version_option,
)
def metrics(table: qbeast.Table, *, revision: int | None) -> Answer:
    """Count cubes, blocks, files and rows of the index. No data file is opened."""
    counts = table.metrics(revision=revision)
    return Answer(parts=(repr(counts),), data=counts.model_dump(mode="json"))


@on_table(
    "comparing indexes",
    option(
        "--where queries", "A filter of later queries; may be repeated.", "SQL", multiple=True, required=True
    ),
    option("--most", "Maximum number of columns.", type=click.IntRange(1, 8), default=4, show_default=True),
    version_option,
    absolute_paths_option,
)
def advise(table: qbeast.Table, *, queries: Sequence[str], most: int) -> Answer:
    """Compare other indexes on a sample of the rows, by the bytes that filters would open.

    Each --where is a filter of later queries. Repeat one to give it more weight.
    """
    advice = table.advise(queries, most=most)
    names = (
        "columns",
        "importance",
        "cube_size",
        "keep",
        "bytes_opened",
        "bytes_opened_now",
        "design_effect",
    )
    frames = {name: getattr(advice, name).to_dicts() for name in ("queries", "alternatives")}
    return Answer(parts=(repr(advice),), data={**facts_of(advice, *names), **frames})


@on_table(
    "checking",
    flag("--log-only", "Check only the log, not the data files."),
    version_option,
    absolute_paths_option,
    progress=True,
)
def check(table: qbeast.Table, *, log_only: bool, progress: ProgressCallback | None) -> Answer:
    """Verify a table against the format. Exits with 1 if there are faults."""
    report = table.check(data=not log_only, progress=progress)
    data = {
        **facts_of(report, "ok", "data", "files", "blocks", "rows", "notes"),
        "faults": report.faults.to_dicts(),
    }
    return Answer(parts=(repr(report),), data=data, exit_code=0 if report.ok else FAULTS)


@on_table(
    "reading",
    option("-n --limit", "Maximum number of commits; all by default.", type=click.IntRange(min=1)),
    version_option,
)
def history(table: qbeast.Table, *, limit: int | None) -> Answer:
    """List commits, newest first."""
    from qbeast_core.cli.output import table as drawn
    from qbeast_core.table.inspect.history import summary_of
    from qbeast_core.table.snapshot.log_files import read_history

    commits = read_history(table.planner.store, version=table.version, limit=limit)  # the log's own words
    rows = [(c["version"], _time(c), c.get("operation"), summary_of(c), _writer(c)) for c in commits]
    shown = drawn(("version", "time (UTC)", "operation", "summary", "by"), rows, right=(0,))
    return Answer(parts=(shown,), data={"commits": commits})


@on_table("listing", version_option)
def versions(table: qbeast.Table) -> Answer:
    """List versions, newest first, and which of them can be read.

    A vacuum deletes data files of old versions. No data file is opened.
    """
    from qbeast_core.cli.output import table as drawn

    listed = table.versions()
    rows = [
        (
            number,
            None if time is None else f"{time:%Y-%m-%d %H:%M:%S}",
            operation,
            "yes" if readable else "no",
        )
        for number, time, operation, readable in listed.iter_rows()
    ]
    shown = drawn(("version", "time (UTC)", "operation", "readable"), rows, right=(0,))
    return Answer(parts=(shown,), data={"versions": listed.to_dicts()})


@on_table(
    "drawing",
    click.argument("kind", type=click.Choice(("tree", "space", "fraction")), default="tree"),
    option("-o --output", "Image file: .png, .svg or .pdf; KIND.png by default.", type=click.Path()),
    flag("--overwrite", "Replace the file if it exists."),
    columns_option("For space: two indexed columns. For fraction: columns to read."),
    where_option,
    sample_option,
    option("--revision", "Revision to draw; by default the newest in use.", type=int),
    version_option,
)
def plot(
    table: qbeast.Table, *, kind: PlotKind, output: str | None, overwrite: bool, **options: Any
) -> Answer:
    """Draw the tree, the space, or the cost of samples. The space shows the cubes that a query opens."""
    from qbeast_core.cli.output import fresh_file, size_text
    from qbeast_core.errors import InvalidInputError

    name = output or f"{kind}.png"
    if not name.endswith(_ENDINGS):
        msg = f"{name!r} is not a picture. Choose one of {', '.join(_ENDINGS)}."
        raise InvalidInputError(msg, argument="output")
    file = fresh_file(name, overwrite=overwrite)
    table.plot(kind, **options).savefig(file, dpi=_DPI)
    size = file.stat().st_size
    return Answer(parts=(f"{name}: {size_text(size)}",), data={"kind": kind, "output": name, "bytes": size})


def _time(commit: Mapping[str, Any]) -> str | None:
    stamp = commit.get("timestamp")
    return None if stamp is None else f"{datetime.fromtimestamp(stamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _writer(commit: Mapping[str, Any]) -> object:
    return commit.get("engineInfo") or commit.get("clientVersion")

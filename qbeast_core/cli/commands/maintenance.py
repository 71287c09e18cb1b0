"""What looks after tables, from `qbeast convert` to `qbeast vacuum`."""

from __future__ import annotations

import click

from qbeast_core.cli.commands.parameters import (
    as_mapping,
    as_version,
    columns_option,
    command,
    commit_metadata_option,
    dialect_option,
    dry_run_option,
    memory_option,
    spill_dir_option,
    table_argument,
)

convert = command(
    "maintenance.convert",
    "Give a Delta table, or a folder of Parquet files, an index to come; no data is moved.",
    table_argument,
    columns_option("Columns to index, as for `qbeast write`.", required=True),
    click.option(
        "--cube-size", type=int, help="Rows a cube aims to hold; by default chosen from the number of rows."
    ),
    dialect_option("How blocks will be spelled."),
    commit_metadata_option,
    memory_option,
    dry_run_option,
    short_help="Give a Delta table or Parquet files an index.",
)

upgrade = command(
    "maintenance.upgrade",
    "Bring a table of qbeast-spark before 0.6.0 up to date; no data is touched.",
    table_argument,
    click.option(
        "--replicated",
        type=click.Choice(("keep", "drop")),
        help="What becomes of files with copies of rows; kept, with a warning, by default.",
    ),
    dry_run_option,
    short_help="Bring an old table of qbeast-spark up to date.",
)

optimize = command(
    "maintenance.optimize",
    "Rewrite what is out of shape: small appends, files of other writers, overfull cubes.",
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

add_columns = command(
    "maintenance.add_columns",
    "Add columns at the end; existing rows get nulls.",
    table_argument,
    click.argument("columns", nargs=-1, required=True, metavar="NAME=TYPE...", callback=as_mapping),
)

widen_columns = command(
    "maintenance.widen_columns",
    "Give columns wider types; files are written anew where they hold narrower ones than a reader takes.",
    table_argument,
    click.argument("columns", nargs=-1, required=True, metavar="NAME=TYPE...", callback=as_mapping),
    short_help="Give columns wider types.",
)

switch_dialect = command(
    "maintenance.switch_dialect",
    "Spell the index in the log as the format's documents do, or as qbeast-spark reads it; no data file is touched.",
    table_argument,
    click.argument("dialect", type=click.Choice(("documented", "qbeast-spark"))),
    click.option(
        "--jvm",
        type=click.Choice(("0.7", "0.8")),
        default="0.7",
        show_default=True,
        help="Which qbeast-spark is to read the table.",
    ),
    short_help="Write the index for other readers.",
)

set_properties = command(
    "maintenance.set_properties",
    "Show the properties of a table, set them (NAME=TEXT), or unset them.",
    table_argument,
    click.argument("properties", nargs=-1, metavar="[NAME=TEXT]...", callback=as_mapping),
    click.option("--unset", metavar="NAME", multiple=True, help="Take a property away; may be repeated."),
    short_help="Show, set or unset properties.",
)

repair = command(
    "maintenance.repair",
    "Mend what `qbeast check` finds and the log alone can mend; no row is touched.",
    table_argument,
    dry_run_option,
    short_help="Fix what the log alone can fix.",
)

restore = command(
    "maintenance.restore",
    "Make an older VERSION (a number, or a time) the newest again, in one commit.",
    table_argument,
    click.argument("older", metavar="VERSION", callback=as_version),
    dry_run_option,
    short_help="Make an older version the newest again.",
)

vacuum = command(
    "maintenance.vacuum",
    "List, or delete, data files that no version needs any more.",
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

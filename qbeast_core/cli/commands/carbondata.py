"""`qbeast import-carbondata`."""

from __future__ import annotations

import click

from qbeast_core.cli.commands.parameters import (
    absolute_paths_option,
    as_mapping,
    columns_option,
    command,
    commit_metadata_option,
    dialect_option,
    dry_run_option,
    memory_option,
    spill_dir_option,
    table_argument,
)

import_carbondata = command(
    "carbondata.import_carbondata",
    """Write the rows of a table of Apache CarbonData, SOURCE, to a new table; no JVM is needed.

    SOURCE is the folder of a CarbonData table, or of *.carbondata files; it stays as it is.
    """,
    click.argument("source", type=click.Path()),
    table_argument,
    columns_option("Columns to index; by default the sort columns of SOURCE, or its first three dimensions."),
    click.option(
        "--segments",
        type=click.Choice(("current", "history")),
        default="current",
        show_default=True,
        help="The rows as they are in one commit, or a commit for each load.",
    ),
    click.option(
        "--mode",
        type=click.Choice(("error", "append", "overwrite", "ignore")),
        default="error",
        show_default=True,
        help="What to do where there is a table.",
    ),
    click.option("--cube-size", metavar="ROWS", type=int, help="Rows a cube aims to hold."),
    click.option(
        "--on-unreadable",
        type=click.Choice(("error", "skip-segment")),
        default="error",
        show_default=True,
        help="What to do about a segment that cannot be read.",
    ),
    click.option(
        *("--external-path", "external_paths"),
        metavar="OLD=NEW",
        multiple=True,
        callback=as_mapping,
        help="Where the folder OLD of an added segment lies now; may be repeated.",
    ),
    absolute_paths_option,
    click.option(
        *("--writer-setting", "writer_settings"),
        metavar="NAME=VALUE",
        multiple=True,
        callback=as_mapping,
        help="What carbon.properties of SOURCE's writer said of carbon.timegranularity or carbon.cutOffTimestamp.",
    ),
    dialect_option("How the new table spells its index."),
    commit_metadata_option,
    memory_option,
    spill_dir_option,
    dry_run_option,
    short_help="Write the rows of a CarbonData table to a new table.",
)

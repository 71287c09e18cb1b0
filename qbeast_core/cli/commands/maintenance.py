"""`qbeast optimize`, `repair`, `restore` and `vacuum`."""

from __future__ import annotations

from typing import Any

import click

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.commands.parameters import (
    as_version,
    commit_metadata_option,
    common,
    dry_run_option,
    table_argument,
)

__all__ = ["optimize", "repair", "restore", "vacuum"]


@click.command(short_help="Rewrite what is out of shape.")
@table_argument
@click.option("--revision", type=int, help="Look at this revision alone; 0 is what is not indexed.")
@click.option("--all-revisions", is_flag=True, help="Look at every revision, one commit each.")
@click.option("--fraction", type=float, help="Only what samples up to this fraction read.")
@click.option(
    "--file", "files", multiple=True, help="Rewrite this file, whatever its shape; may be repeated."
)
@click.option("--full", is_flag=True, help="Rewrite every file looked at into a fresh tree.")
@click.option("--fold", is_flag=True, help="Index rows of older revisions with the newest.")
@click.option(
    "--redraw", is_flag=True, help="Rewrite all files with quantiles and ranges of the rows there are now."
)
@commit_metadata_option
@dry_run_option
@common
def optimize(table: str, **options: Any) -> Answer:
    """Rewrite what is out of shape: small appends, files of other writers, overfull cubes."""
    from qbeast_core.cli.jobs.maintenance import optimize_table

    return optimize_table(table, **options)


@click.command(short_help="Mend what the log alone can mend.")
@table_argument
@dry_run_option
@common
def repair(table: str, **options: Any) -> Answer:
    """Mend what `qbeast check` finds and the log alone can mend; no row is touched."""
    from qbeast_core.cli.jobs.maintenance import repair_table

    return repair_table(table, **options)


@click.command(short_help="Make an older version the newest again.")
@table_argument
@click.argument("version", callback=as_version)
@dry_run_option
@common
def restore(table: str, **options: Any) -> Answer:
    """Make an older VERSION (a number, or a time) the newest again, in one commit."""
    from qbeast_core.cli.jobs.maintenance import restore_table

    return restore_table(table, **options)


@click.command(short_help="List or delete files nobody needs any more.")
@table_argument
@click.option(
    "--retention-hours", type=float, help="Spare younger files; by default what the table says, or a week."
)
@click.option(
    "--allow-short-retention",
    is_flag=True,
    help="Accept less than the table promises.",
)
@click.option(
    "--dry-run/--delete", default=True, show_default=True, help="List the files, or delete them for good."
)
@common
def vacuum(table: str, **options: Any) -> Answer:
    """List, or delete, data files that no version needs any more."""
    from qbeast_core.cli.jobs.maintenance import vacuum_table

    return vacuum_table(table, **options)

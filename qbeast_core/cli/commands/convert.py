"""`qbeast convert` and `upgrade`."""

from __future__ import annotations

from typing import Any

import click

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.commands.parameters import (
    columns_option,
    commit_metadata_option,
    common,
    dry_run_option,
    table_argument,
)

__all__ = ["convert", "upgrade"]


@click.command(short_help="Give a Delta table or Parquet files an index.")
@table_argument
@columns_option("Columns to index, as for `qbeast write`.", required=True)
@click.option(
    "--cube-size", type=int, help="Rows a cube aims to hold; by default chosen from the number of rows."
)
@click.option(
    "--dialect", type=click.Choice(("documented", "qbeast-spark")), help="How blocks will be spelled."
)
@commit_metadata_option
@dry_run_option
@common
def convert(table: str, **options: Any) -> Answer:
    """Give a Delta table, or a folder of Parquet files, an index to come; no data is moved."""
    from qbeast_core.cli.jobs.convert import convert_folder

    return convert_folder(table, **options)


@click.command(short_help="Bring an old table of qbeast-spark up to date.")
@table_argument
@click.option(
    "--replicated",
    type=click.Choice(("keep", "drop")),
    help="What becomes of files with copies of rows; kept, with a warning, by default.",
)
@dry_run_option
@common
def upgrade(table: str, **options: Any) -> Answer:
    """Bring a table of qbeast-spark before 0.6.0 up to date; no data is touched."""
    from qbeast_core.cli.jobs.convert import upgrade_folder

    return upgrade_folder(table, **options)

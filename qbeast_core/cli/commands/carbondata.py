"""`qbeast import-carbondata`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from qbeast_core.cli.answer import Answer, answer_of
from qbeast_core.cli.opening import working
from qbeast_core.cli.options import (
    absolute_paths_option,
    choice_option,
    columns_option,
    command,
    dialect_option,
    option,
    pairs_option,
    table_argument,
    writing_options,
)


@command(
    click.argument("source", type=click.Path()),
    table_argument,
    columns_option("Columns to index; by default the sort columns of SOURCE, or its first three dimensions."),
    choice_option(
        "--segments", "All current rows in one commit, or one commit per load.", ("current", "history")
    ),
    choice_option("--mode", "What to do if the table exists.", ("error", "append", "overwrite", "ignore")),
    option("--cube-size", "Target number of rows per cube.", "ROWS", type=int),
    choice_option(
        "--on-unreadable", "What to do with a segment that cannot be read.", ("error", "skip-segment")
    ),
    pairs_option(
        "--external-path external_paths",
        "New location of the folder OLD of an added segment; may be repeated.",
        "OLD=NEW",
    ),
    absolute_paths_option,
    pairs_option(
        "--writer-setting writer_settings",
        "carbon.timegranularity or carbon.cutOffTimestamp in the carbon.properties of SOURCE's writer.",
        "NAME=VALUE",
    ),
    dialect_option("Dialect of the index of the new table."),
    writing_options,
)
def import_carbondata(source: str, table: str, columns: Sequence[str] | None, **options: Any) -> Answer:
    """Write the rows of a CarbonData table to a new table.

    No JVM is needed. SOURCE is the folder of a CarbonData table, or of *.carbondata files; it is not changed.
    """
    import qbeast

    with working("importing") as progress:
        result = qbeast.import_carbondata(source, table, columns, progress=progress, **options)
    answer = answer_of(result, source=source, table=table)
    left_out = tuple(f"left out: {segment['reason']}" for segment in result.left_out)
    return replace(answer, parts=answer.parts + left_out)

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
        "--segments", "The rows as they are in one commit, or a commit for each load.", ("current", "history")
    ),
    choice_option("--mode", "What to do where there is a table.", ("error", "append", "overwrite", "ignore")),
    option("--cube-size", "Rows a cube aims to hold.", "ROWS", type=int),
    choice_option(
        "--on-unreadable", "What to do about a segment that cannot be read.", ("error", "skip-segment")
    ),
    pairs_option(
        "--external-path external_paths",
        "Where the folder OLD of an added segment lies now; may be repeated.",
        "OLD=NEW",
    ),
    absolute_paths_option,
    pairs_option(
        "--writer-setting writer_settings",
        "What carbon.properties of SOURCE's writer said of carbon.timegranularity or carbon.cutOffTimestamp.",
        "NAME=VALUE",
    ),
    dialect_option("The dialect of the index of the new table."),
    writing_options,
)
def import_carbondata(source: str, table: str, columns: Sequence[str] | None, **options: Any) -> Answer:
    """Write the rows of a CarbonData table to a new table.

    No JVM is needed. SOURCE is the folder of a CarbonData table, or of *.carbondata files; it stays as it is.
    """
    import qbeast

    with working("importing") as progress:
        result = qbeast.import_carbondata(source, table, columns, progress=progress, **options)
    answer = answer_of(result, source=source, table=table)
    left_out = tuple(f"left out: {segment['reason']}" for segment in result.left_out)
    return replace(answer, parts=answer.parts + left_out)

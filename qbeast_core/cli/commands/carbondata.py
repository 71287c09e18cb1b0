"""`qbeast import-carbondata`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from qbeast_core.cli.answer import Answer, Part
from qbeast_core.cli.opening import working
from qbeast_core.cli.options import (
    absolute_paths_option,
    choice_option,
    columns_option,
    command,
    commit_metadata_option,
    dialect_option,
    dry_run_option,
    memory_option,
    pairs_option,
    spill_dir_option,
    table_argument,
)

if TYPE_CHECKING:
    import qbeast


@command(
    click.argument("source", type=click.Path()),
    table_argument,
    columns_option("Columns to index; by default the sort columns of SOURCE, or its first three dimensions."),
    choice_option(
        "--segments",
        choices=("current", "history"),
        text="The rows as they are in one commit, or a commit for each load.",
    ),
    choice_option(
        "--mode",
        choices=("error", "append", "overwrite", "ignore"),
        text="What to do where there is a table.",
    ),
    click.option("--cube-size", metavar="ROWS", type=int, help="Rows a cube aims to hold."),
    choice_option(
        "--on-unreadable",
        choices=("error", "skip-segment"),
        text="What to do about a segment that cannot be read.",
    ),
    pairs_option(
        "--external-path",
        "external_paths",
        metavar="OLD=NEW",
        text="Where the folder OLD of an added segment lies now; may be repeated.",
    ),
    absolute_paths_option,
    pairs_option(
        "--writer-setting",
        "writer_settings",
        metavar="NAME=VALUE",
        text="What carbon.properties of SOURCE's writer said of carbon.timegranularity or carbon.cutOffTimestamp.",
    ),
    dialect_option("The dialect of the index of the new table."),
    commit_metadata_option,
    memory_option,
    spill_dir_option,
    dry_run_option,
    short_help="Write the rows of a CarbonData table to a new table.",
)
def import_carbondata(
    source: str,
    table: str,
    columns: Sequence[str] | None,
    *,
    storage_options: Mapping[str, str] | None,
    **options: Any,
) -> Answer:
    """Write the rows of a table of Apache CarbonData, SOURCE, to a new table; no JVM is needed.

    SOURCE is the folder of a CarbonData table, or of *.carbondata files; it stays as it is.
    """
    import qbeast

    with working("importing") as progress:
        result = qbeast.import_carbondata(
            source, table, columns, storage_options=storage_options, progress=progress, **options
        )
    parts: list[Part] = [_told(result), *(f"left out: {one['reason']}" for one in result.left_out)]
    return Answer(parts=tuple(parts), data={"source": source, "table": table, **result.to_dict()})


def _told(result: qbeast.ImportResult) -> str:
    from qbeast_core.cli.tables import size_text

    kinds = ", ".join(f"{name}:{kind}" for name, kind in result.transformers.items())
    if result.dry_run:
        return f"a dry run: {result.rows:,} rows would be written, indexed by {kinds}; nothing was changed"
    if not result.committed:
        return f"nothing was written: version {result.version} stays as it is"
    what = f"{result.rows:,} rows of {len(result.segments):,} segment(s) in {result.commits:,} commit(s)"
    return f"version {result.version}: {what}, {size_text(result.bytes)}; indexed by {kinds}"

"""`qbeast import-carbondata`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from qbeast_core.cli.answer import Answer, Part
from qbeast_core.cli.opening import working
from qbeast_core.cli.options import (
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

if TYPE_CHECKING:
    import qbeast


@command(
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

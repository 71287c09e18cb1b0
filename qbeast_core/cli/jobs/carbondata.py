"""Tables of Apache CarbonData: import them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import qbeast
from qbeast_core.cli.answer import Answer, Part
from qbeast_core.cli.grid import size_text
from qbeast_core.cli.jobs.opening import working


def import_carbondata(
    source: str,
    table: str,
    columns: Sequence[str] | None,
    *,
    storage_options: Mapping[str, str] | None,
    **options: Any,
) -> Answer:
    """Write the rows of a CarbonData table to a new table."""
    with working("importing") as progress:
        result = qbeast.import_carbondata(
            source, table, columns, storage_options=storage_options, progress=progress, **options
        )
    parts: list[Part] = [_told(result), *(f"left out: {one['reason']}" for one in result.left_out)]
    return Answer(parts=tuple(parts), data={"source": source, "table": table, **result.to_dict()})


def _told(result: qbeast.ImportResult) -> str:
    kinds = ", ".join(f"{name}:{kind}" for name, kind in result.transformers.items())
    if result.dry_run:
        return f"a dry run: {result.rows:,} rows would be written, indexed by {kinds}; nothing was changed"
    if not result.committed:
        return f"nothing was written: version {result.version} stays as it is"
    what = f"{result.rows:,} rows of {len(result.segments):,} segment(s) in {result.commits:,} commit(s)"
    return f"version {result.version}: {what}, {size_text(result.bytes)}; indexed by {kinds}"

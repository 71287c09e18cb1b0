"""Which live files hold the hidden column `_qbeast_weight`, and what that means to a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from qbeast_core.io.stores.store import map_files
from qbeast_core.spec.layout import WEIGHT_COLUMN
from qbeast_core.spec.revision import STAGING_REVISION_ID
from qbeast_core.table.check.pages import read_layout
from qbeast_core.table.data.footers import Unreadable, read_footer, stored_size
from qbeast_core.table.snapshot.snapshot import Snapshot

_NAMED: Final = 3


def hidden_column_files(snapshot: Snapshot) -> list[int]:
    """Return the numbers of the live files that hold the hidden column.

    The layout tag of a file records it. Of files without one, such as those not yet indexed, the footers are read.
    """
    layouts = list(map(read_layout, snapshot.files["layout"]))
    unknown = [path for path, layout in zip(snapshot.data_paths, layouts, strict=True) if layout is None]
    holds = iter(map_files(snapshot.source.store, partial(_holds, snapshot), unknown))
    marks = (next(holds) if layout is None else layout.has_hidden_weights for layout in layouts)
    return [number for number, mark in enumerate(marks) if mark]


def hidden_column_message(snapshot: Snapshot, numbers: Sequence[int]) -> str:
    """Return what these files mean to a JVM that reads files without the table's schema, and the cure."""
    paths = snapshot.data_paths
    named = ", ".join(paths[number] for number in numbers[:_NAMED])
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    latest = snapshot.config.latest
    newest = {None, STAGING_REVISION_ID, None if latest is None else latest.revision_id}
    older = any(snapshot.files["revision"][number] not in newest for number in numbers)
    into = ', into="newest"' if older else ""
    return (
        f"{len(numbers):,} file(s) hold the column {WEIGHT_COLUMN!r} ({named}{more}), and qbeast-spark 0.7 optimizes "
        "files without looking at the table's schema: it fails on them, or takes the column for one that was added. "
        "It reads, samples and appends as it should. Files written from now on are without it; "
        f"`optimize(full=True{into})` takes it out of these."
    )


def _holds(snapshot: Snapshot, path: str) -> bool:
    store = snapshot.source.store
    size = stored_size(store, path)
    if size is None:
        return False
    try:
        footer = read_footer(store, path, size)
        names: list[str] = footer.schema.to_arrow_schema().names
    except (Unreadable, pa.ArrowException):
        return False  # no reader can open it; `check` says so
    return WEIGHT_COLUMN in names

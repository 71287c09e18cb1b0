"""One line about the index of a new table, if filters will skip little with it."""

from __future__ import annotations

from typing import Final

from qbeast_core.support.sizing import sizing
from qbeast_core.table.index.revision import ChosenRevision
from qbeast_core.table.write.planned_table import PlannedTable
from qbeast_core.tree.keys import CLUSTERED

# Number of pages of a table of which filters open a third or more, whatever the index.
_FEW_PAGES: Final = 4


def hint_of_first_write(
    planned: PlannedTable, chosen: ChosenRevision, rows: int, design_effect: float | None
) -> str | None:
    """Return what to know about the index of a new table. None: all is well, or a warning was given."""
    if not rows or planned.wish.dialect != "documented" or planned.metadata.partition_columns:
        return None
    pages = -(-rows // sizing().min_page_rows)
    if pages <= _FEW_PAGES:
        opened = "all of them" if pages == 1 else "a third of them or more"
        return (
            f"{rows:,} row(s) fill {pages} page(s): filters open {opened}, and skip more as the table grows"
        )
    if design_effect is None or design_effect > CLUSTERED:
        return None
    name = min(chosen.few_values, key=chosen.few_values.__getitem__, default=None)
    others = [column for column in chosen.revision.columns if column != name]
    if name is None or not others:
        return None
    count = chosen.few_values[name]
    share = f"{count} values: a filter on one of them opens about {100 / count:.0f} % or more"
    has = share if count > 1 else "one value: a filter on it opens all"
    return (
        f"{name!r} has {has}, and filters on other columns open less without it: "
        f"table.reindex(columns={others}, full=True)"
    )

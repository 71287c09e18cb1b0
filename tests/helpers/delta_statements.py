"""The statements of Delta that docs/spark-statements.md lists, and the calls that replace them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.helpers.snippets import DATA, ROOT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PAGE", "Statement", "statements"]

PAGE = (ROOT / "docs" / "spark-statements.md").read_text()
# The time in the statement that reads a version by its time.
_TIME = "2026-11-28"
_HEAD = "\n| statement | with Delta's jar | without it |\n"


class Statement(NamedTuple):
    """A row of a table of the page."""

    statement: str
    # What it does with Delta's jar; "works" or "refused", and some words.
    with_jar: str
    call: str

    def at(self, folder: Path, time: str = _TIME) -> Statement:
        """Return the row for tables in another folder than that of the page, with the time of a version."""
        text = self.statement.replace(DATA, str(folder)).replace(_TIME, time)
        return self._replace(statement=text, call=self.call.replace(_TIME, time))


def statements() -> list[Statement]:
    """Return the rows of all tables."""
    found: list[Statement] = []
    for table in PAGE.split(_HEAD)[1:]:
        lines = table.split("\n\n")[0].splitlines()[1:]
        rows = [re.fullmatch(r"\| `+ ?(.+?) ?`+ \| ([^|]+) \| `([^`]+)` \|", line) for line in lines]
        assert all(rows), "a row has another form"
        found += [Statement(*row.groups()) for row in rows if row]
    return found

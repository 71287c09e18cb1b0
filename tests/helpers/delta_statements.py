"""The statements of Delta that docs/spark-reference.md lists, and the calls that replace them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.helpers.snippets import DATA, ROOT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Statement", "statements"]


class Statement(NamedTuple):
    """A row of the table of the page."""

    statement: str
    # What it does with Delta's jar; "works" and some words, or why it does not.
    with_jar: str
    call: str

    def at(self, folder: Path) -> Statement:
        """Return the row for tables in another folder than that of the page."""
        return self._replace(statement=self.statement.replace(DATA, str(folder)))


def statements() -> list[Statement]:
    """Return the rows of the table."""
    text = (ROOT / "docs" / "spark-reference.md").read_text()
    section = text.split("### Statements of Delta")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `+ ?(.+?) ?`+ \| ([^|]+) \| `([^`]+)` \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n|") - 2, "a row has another form"
    return [Statement(*row) for row in rows]

"""What a read of a CarbonData table opens: files by their index entries, blocklets and pages by their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Final

import polars as pl

from qbeast_core.carbondata.reader import FilePlan, TableReader
from qbeast_core.query.filters.nodes import Node
from qbeast_core.support.html import html_of
from qbeast_core.support.plain_text import in_lines

_FILES: Final = {
    "segment": pl.String,
    "path": pl.String,
    "opened": pl.Boolean,
    "blocklets_opened": pl.Int64,
    "blocklets_total": pl.Int64,
    "pages_opened": pl.Int64,
    "pages_total": pl.Int64,
    "rows_opened": pl.Int64,
    "rows_total": pl.Int64,
}


@dataclass(frozen=True, eq=False, repr=False)  # no slots: what is derived is kept
class CarbonPlan:
    """A read of a CarbonData table, planned; footers and page headers are read when `files` is asked for.

    Attributes
    ----------
    reader : TableReader
        Of the table.
    predicate : polars.Expr or None
        The part of the filter that reaches the reader.
    columns : tuple of str
        Columns that are decoded.
    """

    reader: TableReader
    predicate: pl.Expr | None
    columns: tuple[str, ...]

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row per live data file.

        `segment`, `path`, `opened`, `blocklets_opened`, `blocklets_total`, `pages_opened`, `pages_total`,
        `rows_opened`, `rows_total`. What a file without index entries holds is told by its footer.
        """
        node = self.reader.node(self.predicate)
        rows = [self._row(plan, node) for plan in self.reader.plan(node)]
        return pl.DataFrame(rows, schema=_FILES, orient="row")

    @property
    def blocklets_opened(self) -> int:
        """Blocklets of which pages are read."""
        return int(self.files["blocklets_opened"].sum())

    @property
    def blocklets_total(self) -> int:
        """Blocklets of all live files."""
        return int(self.files["blocklets_total"].sum())

    @property
    def pages_opened(self) -> int:
        """Pages read, of each column."""
        return int(self.files["pages_opened"].sum())

    @property
    def pages_total(self) -> int:
        """Pages of all live files, of each column."""
        return int(self.files["pages_total"].sum())

    @property
    def rows_opened(self) -> int:
        """Rows of the pages read; more than match."""
        return int(self.files["rows_opened"].sum())

    @property
    def rows_total(self) -> int:
        """Rows of all live files, deleted ones included."""
        return int(self.files["rows_total"].sum())

    def _row(self, plan: FilePlan, node: Node) -> tuple[Any, ...]:
        live = plan.live
        entries = [entry.blocklet for entry in live.entries if entry.blocklet is not None]
        if not plan.opened and entries:
            pages = sum(entry.pages for entry in entries)
            return live.segment, live.path, False, 0, len(entries), 0, pages, 0, live.rows
        file = self.reader.open(live)
        pages = sum(len(blocklet.page_rows) for blocklet in file.blocklets)
        total = sum(blocklet.rows for blocklet in file.blocklets)
        chosen = list(self.reader.chosen(file, node)) if plan.opened else []
        rows = sum(blocklet.page_rows[page] for blocklet, some in chosen for page in some)
        opened = sum(len(some) for _, some in chosen)
        counts = (len(chosen), len(file.blocklets), opened, pages, rows, total)
        return (live.segment, live.path, bool(chosen), *counts)

    def __repr__(self) -> str:
        return in_lines([self._title, *(f"  {name:<9}  {fact}" for name, fact in self._facts().items())])

    def _repr_html_(self) -> str:
        return html_of(self._title, {name: escape(fact) for name, fact in self._facts().items()})

    @property
    def _title(self) -> str:
        return f"Plan of CarbonData table {self.reader.snapshot.uri}"

    def _facts(self) -> dict[str, str]:
        files = self.files
        share = self.rows_opened / self.rows_total if self.rows_total else 0.0
        return {
            "filter": "none" if self.predicate is None else str(self.predicate),
            "files": f"{int(files['opened'].sum()):,} of {files.height:,} opened",
            "blocklets": f"{self.blocklets_opened:,} of {self.blocklets_total:,}",
            "pages": f"{self.pages_opened:,} of {self.pages_total:,}",
            "rows": f"{self.rows_opened:,} of {self.rows_total:,} ({share:.2%})",
        }

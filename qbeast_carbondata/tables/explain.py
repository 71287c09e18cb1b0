"""The plan of a read of a CarbonData table: the files, blocklets and pages to open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Final

import polars as pl

from qbeast_carbondata.metadata.segments import LiveFile
from qbeast_carbondata.reader import TableReader
from qbeast_core.plan.nodes import Node, Nothing
from qbeast_core.support.frames import html_of
from qbeast_core.support.text import in_lines

_FILES: Final = {
    "segment": pl.String,
    "path": pl.String,
    "opened": pl.Boolean,
    **{f"{unit}_{part}": pl.Int64 for unit in ("blocklets", "pages", "rows") for part in ("opened", "total")},
}


@dataclass(frozen=True, eq=False, repr=False)  # no slots: cached properties
class CarbonPlan:
    """The plan of a read of a CarbonData table; `files` reads footers and page headers.

    Attributes
    ----------
    reader : TableReader
        The reader of the table.
    predicate : polars.Expr or None
        The part of the filter that the reader applies.
    columns : tuple of str
        Columns to decode.
    """

    reader: TableReader
    predicate: pl.Expr | None
    columns: tuple[str, ...]

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row per live data file.

        `segment`, `path`, `opened`, `blocklets_opened`, `blocklets_total`, `pages_opened`, `pages_total`,
        `rows_opened`, `rows_total`. For files without index entries, the counts are read from the footer.
        """
        node = self.reader.node(self.predicate)
        opened = set(self.reader.plan(node))
        rows = [self._row(live, node if live in opened else Nothing()) for live in self.reader.files]
        return pl.DataFrame(rows, schema=_FILES, orient="row")

    @property
    def blocklets_opened(self) -> int:
        """Number of blocklets with pages to read."""
        return int(self.files["blocklets_opened"].sum())

    @property
    def blocklets_total(self) -> int:
        """Number of blocklets of all live files."""
        return int(self.files["blocklets_total"].sum())

    @property
    def pages_opened(self) -> int:
        """Number of pages to read, per column."""
        return int(self.files["pages_opened"].sum())

    @property
    def pages_total(self) -> int:
        """Number of pages of all live files, per column."""
        return int(self.files["pages_total"].sum())

    @property
    def rows_opened(self) -> int:
        """Number of rows in the pages to read, matching or not."""
        return int(self.files["rows_opened"].sum())

    @property
    def rows_total(self) -> int:
        """Number of rows of all live files, including deleted ones."""
        return int(self.files["rows_total"].sum())

    def _row(self, live: LiveFile, node: Node) -> tuple[Any, ...]:
        entries = [entry.blocklet for entry in live.entries if entry.blocklet is not None]
        if isinstance(node, Nothing) and entries:
            pages = sum(entry.pages for entry in entries)
            return live.segment, live.path, False, 0, len(entries), 0, pages, 0, live.rows
        file = self.reader.open(live)
        pages = sum(len(blocklet.page_rows) for blocklet in file.blocklets)
        total = sum(blocklet.rows for blocklet in file.blocklets)
        chosen = list(self.reader.chosen(file, node))
        rows = sum(blocklet.page_rows[page] for blocklet, numbers in chosen for page in numbers)
        opened = sum(len(numbers) for _, numbers in chosen)
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

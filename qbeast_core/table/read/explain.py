"""The plan of a read: every byte it reads, and why the other files stay closed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from html import escape
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from qbeast_core.io.parquet.footer import PagesUnavailable
from qbeast_core.io.parquet.page_plan import PageRequest
from qbeast_core.io.parquet.pages import PageRanges
from qbeast_core.io.stores.store import map_files
from qbeast_core.query.plan.fractions import Sample
from qbeast_core.space.arrays import BoolArray
from qbeast_core.support.as_json import to_json
from qbeast_core.support.forked import refuse_forked
from qbeast_core.support.html import bar, html_of
from qbeast_core.support.plain_text import in_lines
from qbeast_core.table.data.expressions import Predicate, filter_of
from qbeast_core.table.data.footers import Unreadable, read_footer
from qbeast_core.table.index.key_counts import KeyCounts, count_keys
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan import pushed_down, warn_if_empty
from qbeast_core.table.read.unused import unused_conditions
from qbeast_core.tree.keys.design_effect import CLUSTERED

_RANGES: Final = pl.List(pl.Struct({"start": pl.Int64, "length": pl.Int64}))


@dataclass(frozen=True, eq=False, repr=False)  # no slots: derived values are cached
class Plan:
    """A read, planned; no row is read.

    The tails of opened files are read when `files` is asked for, those of files that the log does not count when rows
    are.

    Bytes count all that is read from data files: pages, dictionaries, page directories and footers.
    """

    reader: Reader
    scan_plan: ScanPlan
    sample: Sample | None
    columns: tuple[str, ...]
    where: pl.Expr | None = None
    beside: Mapping[str, str] = field(default_factory=dict[str, str])
    """Conditions that another engine applies, each with the reason."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what was asked for, and `files` if they were looked at; the plan is made again from the log."""
        asked = {"sample": self.sample, "columns": self.columns, "where": self.where, "beside": self.beside}
        asked["files"] = self.__dict__.get("files")
        return _planned_again, (self.reader, self.scan_plan.predicate, asked)

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row per live file.

        `path` as in the log, decoded; `opened`; `pages_opened` and `pages_total`, 0 where a file has no
        pages to choose from; `ranges`, a list of ``{start, length}`` of the column data read, null where
        the whole file is read; `bytes_opened`; `reason`: ``"matches"``, or what alone keeps it closed
        (``"weights"``, ``"statistics"``, ``"cubes"``, ``"replicated copies"``).
        """
        chosen = self.scan_plan.selection
        found = [self._ranges_of(number) for number in range(len(self.reader.paths))]
        listed = [None if r is None else [{"start": s, "length": n} for s, n in r.data] for r in found]
        return pl.DataFrame(
            {
                "path": pl.Series(self.reader.paths, dtype=pl.String),
                "opened": chosen.opened,
                "pages_opened": chosen.pages_opened,
                "pages_total": np.diff(
                    self.reader.blocks.pages.first_page
                ),  # of files that were not looked at, too
                "ranges": pl.Series(listed, dtype=_RANGES),
                "bytes_opened": pl.Series(
                    [self._bytes_of(number, r) for number, r in enumerate(found)], dtype=pl.Int64
                ),
                "reason": chosen.frame()["reason"],
            }
        )

    @cached_property
    def bytes_opened(self) -> int:
        """Bytes read from data files."""
        opened = np.flatnonzero(self.scan_plan.selection.opened).tolist()
        return sum(self._bytes_opened_of(number) for number in opened)

    @cached_property
    def bytes_total(self) -> int:
        """Bytes of all live data files."""
        return int(self.reader.snapshot.files["size_bytes"].sum())

    @cached_property
    def rows_opened(self) -> int:
        """Rows of the pages and whole files read; more than match."""
        chosen, uncounted = self.scan_plan.selection, self._uncounted
        return int(chosen.rows_opened[~uncounted].sum()) + self._footer_rows(uncounted & chosen.opened)

    @cached_property
    def rows_total(self) -> int:
        """Rows of all live data files, copies and deleted ones included."""
        table, uncounted = self.scan_plan.selection.table, self._uncounted
        counted = np.bincount(table.file, table.rows, table.files.height).astype(np.int64)
        known = np.where(table.num_records < 0, counted, table.num_records)
        return int(known[~uncounted].sum()) + self._footer_rows(uncounted)

    @property
    def _uncounted(self) -> BoolArray:
        """Files whose rows the log does not count, or counts in two ways, shape (files,)."""
        table = self.scan_plan.selection.table
        return (table.num_records < 0) & table.unplaced_files

    def _footer_rows(self, files: BoolArray) -> int:
        """Count the rows of some files by their footers."""
        reader, numbers = self.reader, np.flatnonzero(files).tolist()
        return sum(map_files(reader.store, partial(_rows_of_footer, reader), numbers))

    @property
    def share(self) -> float:
        """Bytes read over bytes in all, in [0, 1]; 0.0 for a table without files."""
        return self.bytes_opened / self.bytes_total if self.bytes_total else 0.0

    @cached_property
    def unused_conditions(self) -> dict[str, str]:
        """Parts of the filter, of those joined by AND, that keep nothing closed, each with the reason and a cure.

        Rows are read for them and looked at: a column is not indexed, or by a hash that a range cannot use, or the part
        is not understood. An OR is one part: it closes nothing where one of its sides does not.
        """
        table = self.scan_plan.selection.table
        schema = self.reader.snapshot.schema
        own = {} if self.where is None else unused_conditions(self.where, schema, table)
        return {**self.beside, **own}

    @property
    def design_effect(self) -> float:
        """How clustered a sample is, see `Table.design_effect`; `design_effect_scope` says of which rows."""
        return self._keys.lower_bound

    @property
    def design_effect_scope(self) -> Literal["rows", "files", "at least"]:
        """Of which rows `design_effect` is told.

        ``"rows"``: of those asked for, all of the table. ``"files"``: of all rows in the files that the filter
        opens; those that it keeps may be more clustered, or less. ``"at least"``: it is a lower bound, since some
        of these files do not tell how often index keys repeat.
        """
        if self._keys.unknown_files:
            return "at least"
        return "rows" if self.where is None else "files"

    @cached_property
    def _keys(self) -> KeyCounts:
        """Keys in the files that the filter opens, whatever the sample leaves of them."""
        chosen = self.scan_plan if self.sample is None else self.reader.plan(self.scan_plan.predicate, None)
        return count_keys(self.reader.snapshot.files.filter(pl.Series(chosen.selection.opened)))

    @cached_property
    def _needed(self) -> list[str]:
        """Columns to read."""
        return self.reader.row_filter(self.scan_plan, self.columns).needed

    def _bytes_of(self, number: int, ranges: PageRanges | None) -> int:
        """Bytes read of one file."""
        whole = self.reader.snapshot.files["size_bytes"]
        return int(whole[number]) if ranges is None else ranges.bytes_total

    def _ranges_of(self, number: int) -> PageRanges | None:
        """Everything read of one file; None: the whole file."""
        if not self.scan_plan.selection.opened[number]:
            return PageRanges([], (0, 0), 0)
        request = self._request_of(number)
        if request is None:
            return None
        try:
            return self.reader.pages.ranges(request, self._needed)
        except PagesUnavailable:
            return None  # the read falls back to the whole file too

    def _bytes_opened_of(self, number: int) -> int:
        """Bytes read of one file that is opened: as of its ranges, which take longer to name."""
        request = self._request_of(number)
        if request is not None:
            with suppress(PagesUnavailable):
                return self.reader.pages.bytes_of(request, self._needed)
        return self._bytes_of(number, None)

    def _request_of(self, number: int) -> PageRequest | None:
        """Pages read of one opened file; None: the whole file."""
        chosen = self.scan_plan.selection
        request = self.reader.request(chosen, number)
        if request is None and not set(self._needed) >= set(self.reader.snapshot.schema):
            return self.reader.all_pages(chosen, number)  # a choice of columns makes that less than the file
        return request

    def to_json(self) -> str:
        """Return the plan as JSON text: numbers, filter, unused conditions, and `files` as a list of objects."""
        facts = {
            "uri": self.reader.snapshot.uri,
            "version": self.reader.snapshot.version,
            "where": None if self.where is None else str(self.where),
            "columns": self.columns,
            "sample": self.sample,
            "bytes_opened": self.bytes_opened,
            "bytes_total": self.bytes_total,
            "rows_opened": self.rows_opened,
            "rows_total": self.rows_total,
            "share": self.share,
            "unused_conditions": self.unused_conditions,
            "files": self.files.to_dicts(),
        }
        return to_json(facts)

    def __repr__(self) -> str:
        return in_lines([self._title, *(f"  {name:<7} {fact}" for name, fact in self._facts().items())])

    def _repr_html_(self) -> str:
        facts = {name: escape(fact) for name, fact in self._facts().items()}
        return html_of(
            self._title, facts | {"bytes": f"{self.bytes_opened:,} of {self.bytes_total:,} {bar(self.share)}"}
        )

    @property
    def _title(self) -> str:
        return f"Plan of {self.reader.snapshot.uri}, version {self.reader.snapshot.version}"

    def _facts(self) -> dict[str, str]:
        files = self.files
        closed = (
            files.filter(~pl.col("opened")).group_by("reason").len().sort("len", "reason", descending=True)
        )
        why = "".join(f", {count:,} closed by {reason}" for reason, count in closed.iter_rows())
        rows = self.rows_opened / self.rows_total if self.rows_total else 0.0
        pushed = self.scan_plan.predicate
        parts: dict[str, list[str]] = {}
        for part, reason in self.unused_conditions.items():
            parts.setdefault(reason, []).append(part)
        unused = "; ".join(f"{' AND '.join(some)} keeps nothing closed: {one}" for one, some in parts.items())
        shown = self.where if pushed is None else pushed
        facts = {
            "filter": "none" if shown is None else str(shown),
            **({"unused": unused} if unused else {}),
            "sample": "none" if self.sample is None else str(self.sample),
            "files": f"{int(files['opened'].sum()):,} of {files.height:,} opened{why}",
            "pages": f"{int(files['pages_opened'].sum()):,} of {int(files['pages_total'].sum()):,}",
            "rows": f"{self.rows_opened:,} of {self.rows_total:,} ({rows:.2%})",
            "bytes": f"{self.bytes_opened:,} of {self.bytes_total:,} ({self.share:.2%})",
        }
        return facts if self.sample is None else facts | {"design effect": self._clustering()}

    def _clustering(self) -> str:
        effect, scope = self.design_effect, self.design_effect_scope
        least = "at least " if scope == "at least" else ""
        where = " in the files that the filter opens; of the rows it keeps it may differ" * (
            self.where is not None
        )
        much = f": a sampled count varies {effect**0.5:.1f} times as much as with independent rows"
        return f"{least}{effect:.2f}{where}{much if effect > CLUSTERED else ''}"


def _rows_of_footer(reader: Reader, number: int) -> int:
    size = int(reader.snapshot.files["size_bytes"][number])
    try:
        return int(read_footer(reader.store, reader.paths[number], size).num_rows)
    except (Unreadable, FileNotFoundError):  # the error of a read names the file
        return 0


def _planned_again(reader: Reader, predicate: pl.Expr | None, asked: dict[str, Any]) -> Plan:
    """Make a plan that was pickled; `asked` is what it is made of besides, and `files`."""
    files = asked.pop("files")
    plan = Plan(reader, reader.plan(predicate, asked["sample"]), **asked)
    if files is not None:
        plan.__dict__["files"] = files
    return plan


def explain(
    reader: Reader, predicate: Predicate | None, sample: Sample | None, columns: list[str] | None
) -> Plan:
    """Plan a read without reading rows; see `Table.explain`."""
    refuse_forked(reader.snapshot.uri)
    asked = filter_of(predicate, reader.snapshot.schema)
    given, wanted = pushed_down(reader.snapshot.schema, asked, columns)
    plan = reader.plan(given, sample)
    warn_if_empty(reader, sample, plan if given is None else None)
    return Plan(reader, plan, sample, tuple(wanted), asked)

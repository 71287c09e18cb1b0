"""The faults that a check can find: codes, severity, and the frame that lists them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal, TypeAlias

import polars as pl

from qbeast_core.support.html import html_of
from qbeast_core.support.plain_text import in_lines

# What is wrong; stable: codes may be added, never renamed.
Code: TypeAlias = Literal[
    "block-rows",
    "blocks-count",
    "copies-misplaced",
    "copy-alone",
    "cube-unreadable",
    "deletion-vector",
    "file-missing",
    "file-outside",
    "file-size",
    "file-unreadable",
    "hidden-weight",
    "indexed-columns",
    "last-revision",
    "layout",
    "layout-unreadable",
    "leaf-threshold",
    "min-weight",
    "pages",
    "reserved-column",
    "revision-types",
    "revision-unknown",
    "row-cube",
    "row-order",
    "row-range",
    "row-weight",
    "rows-count",
    "rows-doubled",
    "settings-unreadable",
    "stats-bounds",
    "stats-missing",
    "stats-nulls",
    "tags-incomplete",
    "tags-spelling",
    "tags-unreadable",
    "threshold-order",
    "weight-order",
]

# Reads are right but slower, or the cause is unclear; with all others some reader may return wrong rows or fail.
_WARNINGS: Final[frozenset[Code]] = frozenset(
    {
        "layout-unreadable",
        "leaf-threshold",
        "revision-types",
        "rows-doubled",
        "stats-missing",
        "tags-incomplete",
    }
)

# One row a fault; null where it is about no file, block or row. `row` counts from 0 in its file.
FAULT_SCHEMA: Final = pl.Schema(
    {
        "code": pl.String,
        "severity": pl.String,
        "path": pl.String,
        "revision": pl.Int64,
        "cube": pl.String,
        "row_group": pl.Int64,
        "row": pl.Int64,
        "message": pl.String,
    }
)

# What nearly every check of a table finds: made once, for a frame of no rows costs as much as a query.
_NO_FAULTS: Final = pl.DataFrame(schema=FAULT_SCHEMA)

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks the format."""

    code: Code
    # The same in words, with the facts.
    message: str
    # The first row concerned, counted from 0 in the file.
    row: int | None = None
    # The block, by the text form of its cube.
    cube: str | None = None
    row_group: int | None = None
    # The file, decoded; None: it is about the table.
    path: str | None = None
    revision: int | None = None

    @property
    def severity(self) -> str:
        """``"warning"`` or ``"error"``."""
        return _severity(self.code)


def fault_frame(faults: Iterable[Fault]) -> pl.DataFrame:
    """List faults in a frame of `FAULT_SCHEMA`.

    >>> fault_frame([Fault(code="file-missing", message="gone", path="a.parquet")]).row(0)[:3]
    ('file-missing', 'error', 'a.parquet')
    """
    listed = list(faults)
    if not listed:
        return _NO_FAULTS
    columns = {name: [getattr(fault, name) for fault in listed] for name in FAULT_SCHEMA}
    return pl.DataFrame(columns, schema=FAULT_SCHEMA)


def faults_at(code: Code, places: pl.DataFrame, message: pl.Expr | str) -> pl.DataFrame:
    """Return a fault for every row of a frame."""
    if places.is_empty():
        return _NO_FAULTS
    text = pl.lit(message) if isinstance(message, str) else message
    given = {"code": pl.lit(code), "severity": pl.lit(_severity(code)), "message": text}
    columns = {name: pl.col(name) if name in places.columns else pl.lit(None) for name in FAULT_SCHEMA}
    return places.select(**columns | given).cast(FAULT_SCHEMA)


def _severity(code: Code) -> str:
    return "warning" if code in _WARNINGS else "error"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CheckReport:
    """Outcome of `Table.check`; prints well.

    Attributes
    ----------
    uri : str
        The table.
    version : int
        Its version.
    data : bool
        Whether data files were read; else only the log was checked, and that the files exist.
    files, blocks, rows : int
        What was checked: live files, blocks that could be read, rows by the log.
    faults : polars.DataFrame
        One row a fault, empty when the table is sound: `code` (stable), `severity` (``"error"``: some reader may
        return wrong rows or fail; ``"warning"``: reads are right), `path` (decoded), `revision`, `cube` of the
        block, `row_group` and `row` (the first one concerned, from 0 in its file), `message`; null where it does
        not apply.
    notes : tuple of str
        Facts that are not faults: staged files, and checks that were skipped.
    """

    uri: str
    version: int
    data: bool
    files: int
    blocks: int
    rows: int
    faults: pl.DataFrame = field(repr=False)
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no fault."""
        return self.faults.is_empty()

    def __repr__(self) -> str:
        checked = "log and data" if self.data else "log"
        counts = f"{self.files:,} files, {self.blocks:,} blocks, {self.rows:,} rows"
        lines = [f"Check of {self.uri}, version {self.version} ({checked}): {counts}", self._verdict()]
        lines += [_line(fault) for fault in self.faults.head(_SHOWN).iter_rows(named=True)]
        if self.faults.height > _SHOWN:
            lines.append(f"  ... and {self.faults.height - _SHOWN:,} more, see .faults")
        lines += [f"  note: {note}" for note in self.notes]
        return in_lines(lines)

    def _repr_html_(self) -> str:
        facts = {
            "checked": "log and data" if self.data else "log",
            "files": f"{self.files:,}",
            "blocks": f"{self.blocks:,}",
            "rows": f"{self.rows:,}",
            "verdict": escape(self._verdict().strip()),
        }
        facts |= {f"note {number}": escape(note) for number, note in enumerate(self.notes, 1)}
        return html_of(f"Check of {self.uri}, version {self.version}", facts, self.faults)

    def _verdict(self) -> str:
        if self.ok:
            return "  sound: no fault"
        errors = self.faults.filter(pl.col("severity") == "error").height
        return f"  {self.faults.height:,} fault(s), {errors:,} of them error(s)"


def _line(fault: dict[str, Any]) -> str:
    where = [fault["path"] or "the table"]
    for name, shown in (("cube", "cube {!r}"), ("row_group", "row group {}"), ("row", "row {:,}")):
        if fault[name] is not None:
            where.append(shown.format(fault[name]))
    return f"  {fault['severity']:<7} {fault['code']}: {', '.join(where)}: {fault['message']}"

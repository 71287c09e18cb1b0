"""The faults that a check can find: codes, severity, and the frame that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import polars as pl

from qbeast_core.results import Hinted
from qbeast_core.support.frames import html_of
from qbeast_core.support.text import in_lines, short_name

# An entry of the log that repairs a fault. `drop index`: the file is staged, and optimize indexes it again.
# `drop layout`: it is read by row groups. `restore tags`: from the copy in the file. `set settings`: unreadable keys
# of the table are removed; it continues with the newest readable revision. `replace checkpoint`: broken checkpoints and
# the hint to the newest one are deleted, and a new checkpoint is written. `rewrite block tags`: in the table's
# dialect. `set path`: add the file again, its path encoded as Spark does. `set size`: to the real bytes. `set
# statistics`: to the number of rows alone. `set vector count`: to the number of rows that the deletion vector lists.
Action: TypeAlias = Literal[
    "drop index",
    "drop layout",
    "replace checkpoint",
    "restore tags",
    "set settings",
    "rewrite block tags",
    "set path",
    "set size",
    "set statistics",
    "set vector count",
]

_OPTIMIZE: Final = "optimize(full=True) builds a new tree"


class Kind(NamedTuple):
    """Facts about all faults of one code."""

    # What to do about it if no repair is possible.
    advice: str | None = None
    # The entry of the log that repairs it; None: the log alone cannot.
    repair: Action | None = None
    # A warning: reads are right but slower, or the cause is unclear. Else some reader may return wrong rows or fail.
    severity: Literal["error", "warning"] = "error"


# Codes are stable: some may be added, none is renamed.
KINDS: Final[Mapping[str, Kind]] = {
    "block-rows": Kind(repair="drop index"),
    "blocks-count": Kind(repair="drop index"),
    "checkpoint": Kind(repair="replace checkpoint"),
    "commit-unreadable": Kind("restore the file from a copy: its version and some later ones cannot be read"),
    "copies-misplaced": Kind("restore the table, or the file: no reader can separate its rows", "drop index"),
    "copy-alone": Kind("restore an older version: the originals of these rows were lost"),
    "cube-unreadable": Kind(repair="drop index"),
    "deletion-vector": Kind("restore the deletion vector's file, or an older version"),
    "file-missing": Kind("put the file back, restore an older version, or delete its rows from the log"),
    "file-outside": Kind(
        "if you trust it, open the table with allow_absolute_paths=True; else copy the file into the table"
    ),
    "file-size": Kind(repair="set size"),
    "file-unreadable": Kind("put the file back, or restore an older version"),
    "hidden-weight": Kind("run optimize(files=[...]): until then samples of other engines may lack rows"),
    "indexed-columns": Kind(
        "write it again: write_table(read_table(path), path, columns=[...], mode='overwrite', "
        "schema_mode='overwrite')",
    ),
    "last-revision": Kind("append rows: a newer revision is made where they need one"),
    "layout": Kind(repair="drop layout"),
    "layout-unreadable": Kind(repair="drop layout", severity="warning"),
    "leaf-threshold": Kind(_OPTIMIZE, severity="warning"),
    "min-weight": Kind(repair="drop index"),
    "pages": Kind(repair="drop layout"),
    "path-encoding": Kind(repair="set path"),
    "reserved-column": Kind("rename it, or drop it, with the program that added it"),
    "revision-types": Kind(repair="drop index", severity="warning"),
    "revision-unknown": Kind(repair="drop index"),
    "row-cube": Kind(repair="drop index"),
    "row-range": Kind(repair="drop index"),
    "row-weight": Kind(repair="drop index"),
    "rows-count": Kind(repair="set statistics"),
    "rows-doubled": Kind("compare the rows by a key of your own", severity="warning"),
    "sample-column": Kind("run optimize(files=[...]): until then samples of other engines have other rows"),
    "settings-unreadable": Kind(
        "the indexed columns are unknown: begin a new index, which moves no data, by convert_table(path, "
        "columns=[...]), or restore an older version",
    ),
    "stats-bounds": Kind(repair="set statistics"),
    "stats-missing": Kind(repair="set statistics", severity="warning"),
    "stats-nulls": Kind(repair="set statistics"),
    "tags-incomplete": Kind(repair="drop index", severity="warning"),
    "tags-lost": Kind(repair="restore tags", severity="warning"),
    "tags-spelling": Kind(repair="rewrite block tags"),
    "tags-unreadable": Kind(repair="drop index"),
    "threshold-order": Kind(_OPTIMIZE),
    "vector-count": Kind(repair="set vector count"),
    "weight-order": Kind(f"{_OPTIMIZE}; our reads are right meanwhile"),
}

# The faults that each of these actions repairs.
OF_INDEX, OF_LAYOUT, OF_STATISTICS = (
    frozenset(code for code, kind in KINDS.items() if kind.repair == action)
    for action in ("drop index", "drop layout", "set statistics")
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

# Nearly every check finds no fault: made once, for an empty frame costs as much as a query.
NO_FAULTS: Final = pl.DataFrame(schema=FAULT_SCHEMA)

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks the format."""

    # One of `KINDS`.
    code: str
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
        return KINDS[self.code].severity


def fault_frame(faults: Iterable[Fault]) -> pl.DataFrame:
    """List faults in a frame of `FAULT_SCHEMA`.

    >>> fault_frame([Fault(code="file-missing", message="gone", path="a.parquet")]).row(0)[:3]
    ('file-missing', 'error', 'a.parquet')
    """
    listed = list(faults)
    if not listed:
        return NO_FAULTS
    columns = {name: [getattr(fault, name) for fault in listed] for name in FAULT_SCHEMA}
    return pl.DataFrame(columns, schema=FAULT_SCHEMA)


def faults_at(code: str, places: pl.DataFrame, message: pl.Expr | str) -> pl.DataFrame:
    """Return a fault for every row of a frame."""
    if places.is_empty():
        return NO_FAULTS
    text = pl.lit(message) if isinstance(message, str) else message
    fixed = {"code": pl.lit(code), "severity": pl.lit(KINDS[code].severity), "message": text}
    columns = {name: pl.col(name) if name in places.columns else pl.lit(None) for name in FAULT_SCHEMA}
    return places.select(**columns | fixed).cast(FAULT_SCHEMA)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CheckReport(Hinted):
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
        counts = {"files": self.files, "blocks": self.blocks, "rows": self.rows}
        facts = {"checked": "log and data" if self.data else "log"}
        facts |= {name: f"{count:,}" for name, count in counts.items()}
        facts["verdict"] = escape(self._verdict().strip())
        facts |= {f"note {number}": escape(note) for number, note in enumerate(self.notes, 1)}
        return html_of(f"Check of {short_name(self.uri)}, version {self.version}", facts, self.faults)

    def _verdict(self) -> str:
        if self.ok:
            return "  OK: no faults"
        errors = self.faults.filter(pl.col("severity") == "error").height
        return f"  {self.faults.height:,} fault(s), {errors:,} of them error(s)"


def _line(fault: dict[str, Any]) -> str:
    where = [fault["path"] or "the table"]
    for name, shown in (("cube", "cube {!r}"), ("row_group", "row group {}"), ("row", "row {:,}")):
        if fault[name] is not None:
            where.append(shown.format(fault[name]))
    return f"  {fault['severity']:<7} {fault['code']}: {', '.join(where)}: {fault['message']}"

"""What a check of a table found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

__all__ = ["CheckReport"]

_SHOWN: Final = 20


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
        Whether data files were read; else the log alone was looked at, and that files are there.
    files, blocks, rows : int
        What was checked: live files, blocks that could be read, rows by the log.
    faults : polars.DataFrame
        One row a fault, empty when the table is sound: `code` (stable), `severity` (``"error"``: some reader may
        return wrong rows or fail; ``"warning"``: reads are right), `path` (decoded), `revision`, `cube` of the
        block, `row_group` and `row` (the first one concerned, from 0 in its file), `message`; null where it does
        not apply.
    notes : tuple of str
        What is no fault and worth knowing: staged files, what was left out and why.
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
        return "\n".join(lines)

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

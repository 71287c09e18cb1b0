"""A figure beside its target, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `most` is the target it must not exceed, None where it is only reported."""

    what: str
    value: float
    unit: str = "x"
    most: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether the target is met; empty without one."""
        if self.most is None:
            return ""
        return "met" if self.value <= self.most else "MISSED"


def table(figures: Iterable[Figure]) -> str:
    """Lay figures out as a Markdown table."""
    rows = [("what", "figure", "target", "", "note"), ("---", "---:", "---:", "---", "---")]
    for figure in figures:
        target = "" if figure.most is None else f"<= {figure.most:.4g} {figure.unit}"
        rows.append((figure.what, f"{figure.value:.4g} {figure.unit}", target, figure.verdict, figure.note))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)

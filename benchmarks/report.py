"""A figure and its target, tables of figures, and the page of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number; `most` is the maximum allowed, or None without a target."""

    what: str
    value: float
    unit: str = "x"
    most: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``"met"`` or ``"missed"``; empty without a target."""
        if self.most is None:
            return ""
        return "met" if self.value <= self.most else "missed"


def table(figures: Iterable[Figure]) -> str:
    """Return figures as a Markdown table."""
    rows = [("what", "figure", "target", "", "note"), ("---", "---:", "---:", "---", "---")]
    for figure in figures:
        target = "" if figure.most is None else f"<= {figure.most:.4g} {figure.unit}"
        rows.append((figure.what, f"{figure.value:.4g} {figure.unit}", target, figure.verdict, figure.note))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)


INTRODUCTION = """# Results

This page is written by `make bench` from `benchmarks/results.json`; [the notes](../docs/measurements.md) describe what
was tried and explain the figures. Data, unless a table says otherwise: TPC-H lineitem at scale 1 (6,001,215 rows, 16
columns), indexed by l_shipdate, l_partkey and l_extendedprice with all defaults. Bytes count everything that is read
from data files: pages, dictionaries, page directories and footers. Candidates take turns within one run. Seconds differ
by 10 to 20 % from run to run; bytes do not.
"""


def results_page(records: Mapping[str, Mapping[str, Any]], order: Sequence[str]) -> str:
    """Return the page: the missed targets, then a section for each benchmark with figures."""
    sections = [INTRODUCTION]
    tables = {
        name: [Figure(**figure) for figure in records[name]["figures"]] for name in order if name in records
    }
    missed = [
        f"- {figure.what}: {figure.value:.4g}, target {figure.most:.4g} {figure.unit}"
        for figures in tables.values()
        for figure in figures
        if figure.verdict == "missed"
    ]
    if missed:
        sections.append("\n".join(["## Missed targets", "", *missed, ""]))
    for name, figures in tables.items():
        entry = records[name]
        measured = f"{entry['date']}, {entry['machine']}, load {entry['load']}"
        sections.append(
            f"## {entry['question']}\n\n`python -m benchmarks.run_all {name}`; {measured}\n\n{table(figures)}\n"
        )
    return "\n".join(sections)

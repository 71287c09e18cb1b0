"""The tables of docs/working-day.md, made from the figures of `bench_day` in results.json.

    python -m benchmarks.day_page

A table stands between `<!-- table: name -->` and `<!-- end -->`. A test compares the page with results.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Figure

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "working-day.md"
RECORDS = ROOT / "benchmarks" / "results.json"

ENGINES = ("qbeast", "deltalake", "DuckDB", "Lance", "PyIceberg")
PLAIN = "qbeast, no deletion vectors"
SHARED = ("write", "sample", "month", "point", "rename", "dashboard", "epoch")
"""Operations on tables whose rows did not change: both kinds have the same files, so one is measured."""
COLUMNS = {PLAIN: "qbeast", "qbeast": "qbeast, vectors"} | {name: name for name in ENGINES[1:]}
LEAST = {"cpu_seconds": 0.001, "read_mb": 0.01, "written_mb": 0.01}  # the records have these digits
OPERATIONS = {
    "write": "first write",
    "sample": "sample of 1 %",
    "month": "a month, two columns",
    "point": "one id",
    "upsert": "upsert of 6,000 rows",
    "replace": "replace a day",
    "delete": "delete by another column",
    "rename": "rename a column",
    "changes": "changes of the last version",
    "dashboard": "mean and count by group",
    "epoch": "shuffled epoch",
    "undo": "undo the last change",
}
START = "start"
SIZE = "size"
COLD = "cold"
COLD_OPERATIONS = ("sample", "month", "point", "dashboard")
_BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NOTE = re.compile(r"([\d.]+) MB read, ([\d.]+) MB written, (\d+) lines?(, by hand)?")


@dataclass(frozen=True, slots=True)
class Cost:
    """What an operation costs, and the lines of code that a user writes for it."""

    cpu_seconds: float
    read_mb: float
    written_mb: float
    lines: int
    by_hand: bool

    def figure(self, operation: str, name: str) -> Figure:
        """Return the cost as a figure of the benchmark."""
        lines = (
            f"{self.lines} line" + ("" if self.lines == 1 else "s") + (", by hand" if self.by_hand else "")
        )
        note = f"{self.read_mb:.2f} MB read, {self.written_mb:.2f} MB written, {lines}"
        return Figure(f"{OPERATIONS[operation]}: {name}", round(self.cpu_seconds, 3), "s", note=note)


def costs(figures: Iterable[Figure]) -> dict[tuple[str, str], Cost]:
    """Return the costs by title of the operation and name of the engine or variant."""
    result = {}
    for figure in figures:
        if match := _NOTE.fullmatch(figure.note):
            title, name = figure.what.split(": ", 1)
            read, written, lines, hand = match.groups()
            result[title, name] = Cost(
                figure.value, float(read), float(written), int(lines), by_hand=bool(hand)
            )
    return result


def with_tables(text: str, figures: list[Figure]) -> str:
    """Return the text of the page with the tables of these figures."""
    return _BLOCK.sub(lambda match: match[1] + TABLES[match[2]](figures) + match[3], text)


def figures_of(records: Mapping[str, Mapping[str, list]]) -> list[Figure]:
    """Return the figures of the benchmark."""
    return [Figure(**figure) for figure in records["day"]["figures"]]


def cpu_table(figures: list[Figure]) -> str:
    """CPU seconds."""
    return _part_table(figures, "cpu_seconds", "CPU s", _cpu)


def read_table(figures: list[Figure]) -> str:
    """MB read."""
    return _part_table(figures, "read_mb", "MB read", _megabytes)


def written_table(figures: list[Figure]) -> str:
    """MB written by the operations that write."""
    return _part_table(figures, "written_mb", "MB written", _megabytes)


def _part_table(figures: list[Figure], part: str, head: str, text: Callable[[float], str]) -> str:
    """A number of each operation; the best is bold, and others have their ratio to it below."""
    actual, least = costs(figures), LEAST[part]
    rows = []
    for title in OPERATIONS.values():
        row = [actual.get((title, _measured(title, name))) for name in COLUMNS]
        numbers = [None if cost is None else getattr(cost, part) for cost in row]
        known = [number for number in numbers if number is not None]
        if max(known, default=0) >= least:
            bold = _with_bold([None if number is None else text(number) for number in numbers])
            ratios = [None if number is None else number / max(min(known), least) for number in numbers]
            rows.append([title, *map(_cell, row, bold, ratios)])
    return _markdown([head, *COLUMNS.values()], rows)


def _measured(title: str, name: str) -> str:
    return "qbeast" if name == PLAIN and title in {OPERATIONS[each] for each in SHARED} else name


def _cell(cost: Cost | None, number: str, ratio: float | None) -> str:
    if cost is None or ratio is None:
        return "none"
    star = "\\*" if cost.by_hand else ""
    below = "" if number.startswith("**") or ratio < 1.05 else f"<br>{_ratio(ratio)}x"
    return f"{number}{star}{below}"


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{float(f'{value:.2g}'):,.0f}"


def line_table(figures: list[Figure]) -> str:
    """Lines of code."""
    actual = costs(figures)
    rows = []
    for title in OPERATIONS.values():
        row = [actual.get((title, name)) for name in ENGINES]
        cells = [
            "none" if cost is None else f"{cost.lines}" + ("\\*" if cost.by_hand else "") for cost in row
        ]
        rows.append([title, *cells])
    return _markdown(["lines of code", *ENGINES], rows)


def option_table(figures: list[Figure]) -> str:
    """The costs of other options."""
    rows = [
        [name, title, _cpu(cost.cpu_seconds), _megabytes(cost.read_mb), _megabytes(cost.written_mb)]
        for (title, name), cost in sorted(costs(figures).items(), key=lambda item: item[0][1])
        if name not in COLUMNS
    ]
    return _markdown(["option", "operation", "CPU s", "MB read", "MB written"], rows, texts=2)


def size_table(figures: list[Figure]) -> str:
    """MB on disk after the first write."""
    return _single(figures, SIZE, "MB on disk after the first write", "{:.1f}")


def cold_table(figures: list[Figure]) -> str:
    """MB that come from a cold disk."""
    values = {figure.what: figure.value for figure in figures}
    titles = [OPERATIONS[operation] for operation in COLD_OPERATIONS]
    rows = [
        [title, *_with_bold([_megabytes(values[f"{COLD}: {title}: {name}"]) for name in ENGINES])]
        for title in titles
    ]
    return _markdown(["MB from a cold disk", *ENGINES], rows)


def start_table(figures: list[Figure]) -> str:
    """CPU seconds of a new process."""
    return _single(figures, START, "CPU seconds of a program that reads one id of 2,800 rows", "{:.2f}")


def _single(figures: list[Figure], kind: str, title: str, form: str) -> str:
    chosen = [figure for figure in figures if figure.what.startswith(f"{kind}: ")]
    rows = [[figure.what.removeprefix(f"{kind}: "), form.format(figure.value)] for figure in chosen]
    return _markdown(["", title], rows)


def _cpu(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= 0.0995 else f"{seconds:.3f}"


def _megabytes(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.095 else f"{value:.2f}"


def _with_bold(texts: list[str | None]) -> list[str]:
    """Mark the lowest numbers as printed; none of them if all are equal."""
    values = [float(text) for text in texts if text is not None]
    lowest = min(values) if len(set(values)) > 1 else None
    return ["" if text is None else f"**{text}**" if float(text) == lowest else text for text in texts]


def _markdown(head: list[str], rows: list[list[str]], *, texts: int = 1) -> str:
    lines = [head, ["---"] * texts + ["--:"] * (len(head) - texts), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


TABLES: dict[str, Callable[[list[Figure]], str]] = {
    "cpu": cpu_table,
    "read": read_table,
    "written": written_table,
    "lines": line_table,
    "options": option_table,
    "sizes": size_table,
    "cold": cold_table,
    "starts": start_table,
}


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(), figures_of(json.loads(RECORDS.read_text()))))

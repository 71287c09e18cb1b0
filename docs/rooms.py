"""Draw docs/images/rooms.svg: the packages and the rooms of the table, from the contracts that `make lint` holds.

python docs/rooms.py
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

WIDTH, EDGE, GAP, HIGH = 980, 20, 10, 36
ABOVE = [
    [
        ("b", "qbeast_spark_bridge", "Spark: sessions, sources, SparkEngine, workers"),
        ("b", "qbeast_core.cli", "the command qbeast"),
    ],
    [
        ("b", "qbeast", "public names, each loaded at its first use"),
        ("b", "qbeast_carbondata", "tables of CarbonData: files as Arrow, imports"),
    ],
    [("b", "qbeast_core.api", "public functions, the class Table, their documentation")],
]
ROOMS = {
    "advise": "which index filters would open least of",
    "estimate": "aggregates to a promised error: questions, rounds, tasks",
    "dml": "delete, update, merge",
    "inspect": "metrics, plots, history",
    "maintenance": "convert, vacuum, restore",
    "check": "faults and repair",
    "rewrite": "live files written anew: optimize, changes of rows",
    "write": "new rows: what fits, the revision, the commit",
    "engine": "who moves rows: protocol, memory, spill, distributed, tasks of workers",
    "read": "scan plan, scan tasks, explain",
    "commit": "the one optimistic loop",
    "index": "live blocks, revisions",
    "snapshot": "a version, as its log tells it",
    "data": "rows in files; no log",
}
BELOW = [
    [("b", "sampling", "sums of samples, intervals and their checks (pure)")],
    [
        ("b", "plan · sql", "reads and SQL texts (pure)"),
        ("b", "log", "the Delta log as values (pure)"),
        ("b", "io", "bytes: stores, Parquet, pages"),
    ],
    [("b", "tree", "the OTree on NumPy and Polars (pure)")],
    [("b", "space", "hashes, weights, coordinates, cubes (pure NumPy)")],
    [
        ("b", "spec · errors", "the format as frozen values; one tree of errors"),
        ("b", "support", "texts, joins, the process"),
    ],
]
FONT = 'font-family="system-ui, sans-serif" font-size="13"'
STYLE = (
    ".b{fill:#f4f6f8;stroke:#5b6b7b}.r{fill:#fff;stroke:#8797a7}.e{fill:#fdf3e1;stroke:#b98a2f}"
    ".t{fill:#1c2733}.s{fill:#51606f;font-size:11px}"
)

Box = tuple[str, str, str]


def main() -> None:
    PICTURE.write_text(rooms_svg())
    print(f"saved {PICTURE.relative_to(ROOT)}")


def rooms_svg() -> str:
    """Return the picture; a room without words is a KeyError."""
    inner = [[("e" if name == "engine" else "r", name, ROOMS[name]) for name in floor] for floor in floors()]
    above, rooms_at = list(drawn(ABOVE, EDGE, 14)), 14 + len(ABOVE) * (HIGH + GAP)
    around = len(inner) * (HIGH + 6) + 34
    below_at = rooms_at + around + GAP
    high = below_at + len(BELOW) * (HIGH + GAP) + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" {FONT}>',
        f'<rect width="{WIDTH}" height="{high}" fill="#ffffff"/>',
        f"<style>{STYLE}</style>",
    )
    hall = (
        f'<rect class="b" x="{EDGE}" y="{rooms_at}" width="{WIDTH - 2 * EDGE}" height="{around}" rx="5"/>',
        f'<text class="t" x="36" y="{rooms_at + 20}">qbeast_core.table: the shell (clock, ids, storage)</text>',
    )
    rooms = drawn(inner, 36, rooms_at + 30, gap=6)
    return "\n".join([*head, *above, *hall, *rooms, *drawn(BELOW, EDGE, below_at), "</svg>", ""])


def floors() -> list[list[str]]:
    """Return the rooms of the table from the top down, as the contracts of import-linter list them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (table,) = [item for item in contracts if item.get("containers") == ["qbeast_core.table"]]
    return [floor.split(" | ") for floor in table["layers"]]


def drawn(lines: Iterable[Sequence[Box]], left: int, top: int, *, gap: int = GAP) -> Iterator[str]:
    """Draw boxes side by side, line below line."""
    for number, boxes in enumerate(lines):
        y = top + number * (HIGH + gap)
        wide = (WIDTH - 2 * left - GAP * (len(boxes) - 1)) / len(boxes)
        for at, (kind, name, words) in enumerate(boxes):
            x = left + at * (wide + GAP)
            middle = f'x="{x + wide / 2:.1f}" text-anchor="middle"'
            yield f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{HIGH}" rx="5"/>'
            yield f'<text class="t" y="{y + 16}" {middle}>{name}</text>'
            yield f'<text class="s" y="{y + 30}" {middle}>{words}</text>'


if __name__ == "__main__":
    main()

"""The pictures of the idea: what a filter, a sample and a page are, and what they read, from real tables.

python -m benchmarks.idea
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import polars as pl

import qbeast
from benchmarks import drawn
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.tree.grid import frame_weights

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

INK, FAINT, READ, BOX = "#333333", "#b8c4cc", "#f6c28b", "#c8385a"
BLUES = ["#0b3c5d", "#2176ae", "#7fb7de"]
PAGES = {(False, False): "white", (True, False): READ, (False, True): BLUES[0], (True, True): BOX}
COLUMNS = ["price", "date"]
BOX_PRICE, BOX_DATE = (0.56, 0.72), (0.55, 0.80)
LEVELS = 3
SHEET_GAP = 0.62
BYTES_READ = {  # as in the README: 6 million rows of TPC-H lineitem, each figure from bench_layouts
    "full scan": 100.0,
    "filter on two columns": 8.0,
    "1 % sample": 1.1,
    "1 % sample of one month": 0.5,
}


def main() -> None:
    rows, cubes = indexed_rows()
    with mpl.rc_context({"font.size": 14}):
        save("tree.png", lambda axes: draw_square(axes, rows, cubes), (6.4, 5.6))
        save("sample.png", lambda axes: draw_tree(axes, rows, cubes), (7.2, 5.6))
        save("bytes.png", draw_bytes, (7.2, 2.9))
        save("page.png", draw_pages, (7.2, 5.2))


def save(name: str, draw: Callable[[Axes], None], size: tuple[float, float]) -> None:
    """Draw a picture that can be read on a phone: 390 pixels wide, its letters have 11."""
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    draw(axes)
    drawn.save(figure, name, dpi=120)
    plt.close(figure)


def indexed_rows() -> tuple[pl.DataFrame, list[Cube]]:
    """Write a small table; return its rows with the depth of their cubes, and the cubes."""
    rng = np.random.default_rng(7)
    crowd, spread = rng.normal((0.25, 0.3), 0.09, (1100, 2)), rng.random((1300, 2))
    points = np.concatenate([[[0.0, 0.0], [1.0, 1.0]], crowd, spread])
    points = points[((points >= 0) & (points <= 1)).all(axis=1)]
    rows = pl.DataFrame(points, schema=COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        qbeast.write_table(rows, f"{folder}/t", columns=["price:linear", "date:linear"], cube_size=60)
        blocks = qbeast.open_table(f"{folder}/t").blocks()
    tree = blocks.group_by("cube").agg(pl.col("max_weight").max())
    boxes = decode_cubes(tree["cube"].to_list(), dimensions=2)
    cubes = {
        (int(depth), *map(int, cells)): Cube(int(depth), *map(int, cells), int(weight))
        for depth, cells, weight in zip(boxes.depth, boxes.cells, tree["max_weight"], strict=True)
    }
    weights = frame_weights(rows, COLUMNS)
    depths = [depth_of(point, weight, cubes) for point, weight in zip(points, weights, strict=True)]
    return rows.with_columns(depth=pl.Series(depths)), list(cubes.values())


def depth_of(point: np.ndarray, weight: int, cubes: dict[tuple[int, int, int], Cube]) -> int:
    """Return the depth of the first cube from the root whose maximum weight is at least the row's weight."""
    for depth in range(32):
        column, line = np.minimum(point * 2**depth, 2**depth - 1).astype(int)
        cube = cubes.get((depth, column, line))
        if cube is None or weight <= cube.max_weight:
            return depth
    raise AssertionError


@dataclass(frozen=True)
class Cube:
    """A cell of the square at a depth; its rows have at most the maximum weight."""

    depth: int
    column: int
    line: int
    max_weight: int

    @property
    def corners(self) -> np.ndarray:
        size = 0.5**self.depth
        left, bottom = self.column * size, self.line * size
        return np.array(
            [[left, bottom], [left + size, bottom], [left + size, bottom + size], [left, bottom + size]]
        )

    @property
    def is_read(self) -> bool:
        """Whether the cube overlaps the box of the filter."""
        (left, bottom), (right, top) = self.corners[0], self.corners[2]
        return left < BOX_PRICE[1] and right > BOX_PRICE[0] and bottom < BOX_DATE[1] and top > BOX_DATE[0]


def draw_square(axes: Axes, rows: pl.DataFrame, cubes: list[Cube]) -> None:
    for cube in sorted(cubes, key=lambda cube: cube.depth):
        colour = READ if cube.is_read and cube.depth >= 2 else "none"
        axes.add_patch(Polygon(cube.corners, facecolor=colour, edgecolor=FAINT, lw=0.7))
    axes.scatter(rows["price"], rows["date"], s=5, color=BLUES[1], lw=0)
    axes.add_patch(Polygon(box_corners(), fill=False, edgecolor=BOX, lw=2.2))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal", xticks=[], yticks=[])
    axes.set_xlabel("price", color=INK)
    axes.set_ylabel("date", color=INK)
    axes.spines[:].set_visible(False)
    axes.set_title("Each row is a point.\nA filter reads the cells it touches.", color=INK, fontsize=15)


def draw_tree(axes: Axes, rows: pl.DataFrame, cubes: list[Cube]) -> None:
    """Draw the levels of the tree as sheets, the root above."""
    levels = range(LEVELS)
    for level in reversed(levels):
        sheet = rows.filter(pl.col("depth") == level if level < LEVELS - 1 else pl.col("depth") >= level)
        axes.add_patch(Polygon(lift(UNIT, level), facecolor="white", edgecolor=FAINT, lw=0.9))
        for cube in cubes:
            if cube.depth == level:
                colour = READ if cube.is_read else "none"
                axes.add_patch(Polygon(lift(cube.corners, level), facecolor=colour, edgecolor=FAINT, lw=0.7))
        x, y = lift(sheet.select(COLUMNS).to_numpy(), level).T
        axes.scatter(x, y, s=(14, 7, 3)[level], color=BLUES[level], lw=0)
        axes.add_patch(Polygon(lift(box_corners(), level), fill=False, edgecolor=BOX, lw=1.4))
    above = [(rows["depth"] <= level).sum() / rows.height for level in levels]
    notes = (
        (BLUES[0], f"A {100 * above[0]:.0f} % sample\nreads this sheet."),
        (BLUES[0], f"A {100 * above[1]:.0f} % sample\nreads these two."),
        (BOX, "A filter reads the\ncoloured cells\nof each sheet."),
    )
    for level, (colour, text) in enumerate(notes):
        x, y = lift(np.array([[1.0, 0.5]]), level)[0]
        axes.text(x + 0.16, y, text, va="center", color=colour, fontsize=13)
    axes.set(xlim=(-0.05, 2.15), ylim=(-0.1, 0.42 + SHEET_GAP * (LEVELS - 1) + 0.1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title(
        "Random rows of each cell are on upper sheets.\nA sample reads from the top down.",
        color=INK,
        fontsize=15,
    )


def draw_bytes(axes: Axes) -> None:
    names, shares = list(BYTES_READ), list(BYTES_READ.values())
    colours = [FAINT, READ, BLUES[0], BLUES[0]]
    axes.barh(names[::-1], shares[::-1], color=colours[::-1], height=0.62)
    for line, share in enumerate(shares[::-1]):
        axes.text(share + 2, line, f"{share:g} %", va="center", color=INK, fontsize=14)
    axes.set(xlim=(0, 125), xticks=[])
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title("Bytes read of a table of 6 million rows", color=INK, fontsize=15)


def draw_pages(axes: Axes) -> None:
    """Draw a file: a line of pages for each band, coloured by who reads them: a filter, a sample, or both."""
    rng = np.random.default_rng(3)
    points = pl.DataFrame(rng.random((60_000, 2)), schema=COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        qbeast.write_table(points, f"{folder}/t", columns=COLUMNS)
        table = qbeast.open_table(f"{folder}/t")
        pages = table.snapshot.blocks.pages
        box = pl.col("price").is_between(*BOX_PRICE) & pl.col("date").is_between(*BOX_DATE)
        by_filter = table.planner.plan(box, None).selection.page_mask
        by_sample = table.planner.plan(None, 0.02).selection.page_mask
    bands = pages.bands_of(np.arange(pages.count))
    shown = int(bands.max()) + 1
    for band in range(shown):
        mine = np.flatnonzero(bands == band)
        for place, page in enumerate(mine):
            colour = PAGES[bool(by_filter[page]), bool(by_sample[page])]
            left, width = place / len(mine), 1 / len(mine)
            axes.add_patch(
                plt.Rectangle((left, shown - band), width, 0.8, facecolor=colour, edgecolor=FAINT, lw=0.6)
            )
    axes.text(
        1.02, shown - 0.1, "a 2 % sample reads\nthe first bands", va="center", color=BLUES[0], fontsize=13
    )
    axes.text(
        1.02, 3.5, "a filter reads\na few pages\nof each band", va="center", color="#a8661c", fontsize=13
    )
    axes.text(1.02, shown - 1.4, "both together\nread these", va="center", color=BOX, fontsize=13)
    axes.set(xlim=(-0.01, 1.5), ylim=(0.6, shown + 1), xticks=[], yticks=[])
    axes.set_ylabel("bands: ranges of weights", color=INK)
    axes.spines[:].set_visible(False)
    axes.set_title(
        "A file: bands of random rows, and pages\nof neighbours in each of them", color=INK, fontsize=15
    )


UNIT = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def lift(points: np.ndarray, level: int) -> np.ndarray:
    """Project points of the square onto the sheet of a level."""
    x, y = points.T
    return np.stack([x + 0.45 * y, 0.42 * y + SHEET_GAP * (LEVELS - 1 - level)], axis=1)


def box_corners() -> np.ndarray:
    (left, right), (bottom, top) = BOX_PRICE, BOX_DATE
    return np.array([[left, bottom], [right, bottom], [right, top], [left, top]])


if __name__ == "__main__":
    main()

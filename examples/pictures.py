"""Two pictures of a table: its tree, and the bytes that samples open."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import qbeast

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
FRACTIONS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
INK, BLUE, ORANGE = "#333333", "#1f6f8b", "#e07a3f"


def draw(table: qbeast.Table, folder: Path) -> list[Path]:
    """Save both pictures as one file and return where."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), width_ratios=(1.35, 1))
    draw_tree(left, table)
    draw_bytes(right, table)
    figure.tight_layout()
    path = folder / "demo.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return [path]


def draw_tree(axes: plt.Axes, table: qbeast.Table) -> None:
    """An icicle: a row per depth, a box per cube over its children, darker where it holds more rows."""
    cubes = table.blocks().group_by("cube", "depth").agg(pl.col("element_count").sum().alias("rows"))
    most = cubes["rows"].max()
    dimensions = len(table.indexed_columns)
    for cube, depth, rows in cubes.iter_rows():
        start, width = place(cube, dimensions)
        shade = plt.get_cmap("GnBu")(0.2 + 0.8 * rows / most)
        axes.add_patch(plt.Rectangle((start, depth), width, 0.94, facecolor=shade, edgecolor="white", lw=0.4))
    deepest = cubes["depth"].max()
    held = cubes.group_by("depth").agg(pl.len(), pl.col("rows").sum()).sort("depth")
    labels = [
        f"depth {depth}\n{count:,} cube{'s' * (count > 1)}\n{rows:,} rows"
        for depth, count, rows in held.iter_rows()
    ]
    axes.set(xlim=(0, 1), ylim=(deepest + 1, 0), xticks=[], yticks=np.arange(deepest + 1) + 0.5)
    axes.set_yticklabels(labels, fontsize=8, color=INK)
    axes.tick_params(length=0)
    axes.set_title(
        "The tree: lower weights above, every cube over its parts of space", fontsize=10, color=INK
    )
    for side in axes.spines.values():
        side.set_visible(False)


def place(cube: str, dimensions: int) -> tuple[float, float]:
    """Where a cube stands among its siblings, all levels down; one character names a child up to 6 columns."""
    start, width = 0.0, 1.0
    for character in cube:
        width /= 2**dimensions
        start += width * (ALPHABET.index(character) >> (6 - dimensions))
    return start, width


def draw_bytes(axes: plt.Axes, table: qbeast.Table) -> None:
    shares = [table.explain(sample=fraction).share for fraction in FRACTIONS]
    percent = [100 * fraction for fraction in FRACTIONS]
    axes.plot(percent, percent, color=INK, lw=1, ls="--", label="bytes = fraction")
    axes.plot(percent, [100 * s for s in shares], color=BLUE, marker="o", ms=4, label="qbeast opens")
    axes.axhline(100, color=ORANGE, lw=1.2, label="a reader without index opens")
    axes.set(xscale="log", yscale="log", xlabel="sample, % of the rows", ylabel="opened, % of the bytes")
    axes.set_title(f"Bytes opened by a sample of {table.explain().rows_total:,} rows", fontsize=10, color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlim(0.4, 120)
    axes.grid(visible=True, which="major", color="#dddddd", lw=0.6)
    axes.legend(frameon=False, fontsize=8, loc="lower right")

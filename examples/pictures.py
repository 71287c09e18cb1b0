"""Pictures of a table: its tree, the bytes that samples open, and the part of space that a filter opens."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

import qbeast


def draw(table: qbeast.Table, folder: Path, *, predicate: pl.Expr | None = None) -> list[Path]:
    """Save the pictures and return where: tree and samples in one file, the space in another."""
    figure = Figure(figsize=(7.2, 8), layout="constrained")
    figure.get_layout_engine().set(hspace=0.06)
    upper, lower = figure.subplots(2, 1)
    table.plot("tree", axes=upper)
    table.plot("fraction", axes=lower)
    for axes in figure.axes:
        axes.tick_params(labelsize=10)
    paths = [folder / "demo.png", folder / "space.png"]
    figure.savefig(paths[0], dpi=130)
    table.plot("space", where=predicate).savefig(paths[1], dpi=130)
    return paths

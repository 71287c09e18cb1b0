"""Pictures of a table: its tree, the bytes that samples open, and the part of space that a filter opens."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

import qbeast


def draw(table: qbeast.Table, folder: Path, *, predicate: pl.Expr | None = None) -> list[Path]:
    """Save the pictures and return where: tree and samples in one file, the space in another."""
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    table.plot("tree", axes=left)
    table.plot("fraction", axes=right)
    paths = [folder / "demo.png", folder / "space.png"]
    figure.savefig(paths[0], dpi=130)
    table.plot("space", where=predicate).savefig(paths[1], dpi=130)
    return paths

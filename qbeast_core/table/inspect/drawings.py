"""Draw the tree and the cost of samples; figures, colours and titles of all drawings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.space.values import F64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.tree.grid import child_codes

_HEIGHT: Final = 0.94

# Maximum number of boxes with white edges. More boxes are so narrow that edges would hide them.
_EDGES: Final = 2_000

INK: Final = "#333333"

OPENED: Final = "#1f6f8b"

ACCENT: Final = "#e07a3f"

FAINT: Final = "#c9ced3"

# Options of a legend.
LEGEND: Final[dict[str, Any]] = {"frameon": False, "fontsize": 8, "labelcolor": INK}

# Colour map from few rows to many.
MAP: Final = "GnBu"

# Background colour. Fixed, because lines and texts are dark in any style of matplotlib.
_PAPER: Final = "white"


def draw_tree(axes: Axes, blocks: pl.DataFrame, revision: Revision) -> None:
    """Draw the tree of a revision."""
    if not blocks.height:
        draw_text(axes, f"revision {revision.revision_id} has no cubes")
        return
    cubes = blocks.group_by("cube", "depth").agg(pl.col("rows").sum()).sort("depth", "cube")
    start, width = _places(decode_cubes(cubes["cube"].to_list(), dimensions=len(revision.columns)))
    depth = cubes["depth"].to_numpy().astype(np.float64)
    edges = "white" if cubes.height <= _EDGES else "none"
    rows = cubes["rows"].to_numpy()
    sides = corners(start, depth, start + width, depth + _HEIGHT)
    boxes = PolyCollection(sides, cmap=MAP, edgecolors=edges, linewidths=0.4)
    boxes.set_array(rows)
    boxes.set_clim(-0.25 * float(rows.max()), None)  # avoid white boxes
    axes.add_collection(boxes)
    deepest = int(depth.max())
    axes.set(xlim=(0, 1), ylim=(deepest + 1, 0), xticks=[], yticks=np.arange(deepest + 1) + 0.47)
    axes.set_yticklabels(_labels(cubes, deepest), fontsize=8, color=INK)
    quiet(axes)
    colour_bar(axes, boxes, "rows per cube", [0, rows.max() / 2, rows.max()])
    title(
        axes,
        f"The tree of revision {revision.revision_id}: lower weights above, cubes over their parts of space",
    )


def _places(cubes: Cubes) -> tuple[F64Array, F64Array]:
    """Return the start and the width of each cube: each level divides the width among siblings."""
    start, width = np.zeros(len(cubes)), np.ones(len(cubes))
    for level in range(1, int(cubes.depth.max()) + 1):
        reaching = cubes.depth >= level
        below = (cubes.depth[reaching] - np.uint8(level)).astype(np.uint64)
        width[reaching] /= 1 << cubes.dimensions
        start[reaching] += width[reaching] * child_codes(list(cubes.cells[reaching].T >> below))
    return start, width


def _labels(cubes: pl.DataFrame, deepest: int) -> list[str]:
    levels = cubes.group_by("depth").agg(pl.len(), pl.col("rows").sum())
    counts = {depth: (count, rows) for depth, count, rows in levels.iter_rows()}
    texts: list[str] = []
    for depth in range(deepest + 1):
        count, rows = counts.get(depth, (0, 0))
        texts.append(f"depth {depth}\n{count:,} cube{'' if count == 1 else 's'}\n{rows:,} rows")
    return texts


def corners(left: F64Array, bottom: F64Array, right: F64Array, top: F64Array) -> list[F64Array]:
    """Return the corners of boxes, each of shape (4, 2)."""
    across, up = np.stack([left, right, right, left], axis=1), np.stack([bottom, bottom, top, top], axis=1)
    return list(np.stack([across, up], axis=2))


def colour_bar(axes: Axes, picture: ScalarMappable, label: str, ticks: Sequence[float]) -> None:
    """Draw a bar of the colours from 0 to the last tick."""
    figure = axes.get_figure(root=True)
    if figure is None:
        return
    boundaries = np.linspace(0, ticks[-1], 65)
    bar = figure.colorbar(picture, ax=axes, fraction=0.04, pad=0.02, boundaries=boundaries)
    bar.set_ticks(ticks, labels=[f"{tick:,.0f}" for tick in ticks])
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=INK)
    bar.outline.set_visible(False)
    bar.set_label(label, fontsize=8, color=INK)


def title(axes: Axes, text: str) -> None:
    """Set a small title."""
    axes.set_title(text, fontsize=10, color=INK)


def quiet(axes: Axes) -> None:
    """Remove the frame and tick marks, and colour the labels."""
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)
    for side in axes.spines.values():
        side.set_visible(False)


def draw_text(axes: Axes, text: str) -> None:
    """Draw a text in an empty picture."""
    quiet(axes)
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, text, ha="center", va="center", color=INK, transform=axes.transAxes)


def draw_fraction(
    axes: Axes, fractions: Sequence[float], shares: Sequence[float], *, caption: str, whole: bool
) -> None:
    """Draw one point per sample."""
    points = [(100 * f, 100 * share) for f, share in zip(fractions, shares, strict=True) if share > 0]
    if not points:
        draw_text(axes, "no sample opens a byte")
        return
    percent = sorted({100 * fraction for fraction in fractions})
    if whole:
        axes.plot(percent, percent, color=INK, lw=1, ls="--", label="bytes = fraction")
    axes.plot(*zip(*points, strict=True), color=OPENED, marker="o", ms=4, label="qbeast opens")
    axes.axhline(100, color=ACCENT, lw=1.2, label="a reader without index opens")
    axes.set(xscale="log", yscale="log", xlabel="sample, % of the rows", ylabel="opened, % of the bytes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlim(percent[0] * 0.8, percent[-1] * 1.2)
    quiet(axes)
    axes.grid(visible=True, which="major", color="#dddddd", lw=0.6)
    axes.legend(**LEGEND, loc="lower right")
    title(axes, caption)


class Picture(Figure):
    """A matplotlib Figure that a notebook displays if it is the last value of a cell.

    Notebooks display plain figures only after ``%matplotlib inline``, or if pyplot made them.
    """

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG, for notebooks."""
        data = io.BytesIO()
        self.savefig(data, format="png", facecolor=_PAPER)
        return data.getvalue()


def new_axes(size: tuple[float, float]) -> Axes:
    """Return the axes of a new picture that is not registered with pyplot."""
    return Picture(figsize=size, layout="constrained", facecolor=_PAPER).add_subplot(facecolor=_PAPER)

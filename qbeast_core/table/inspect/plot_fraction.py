"""Draw the cost of samples: bytes opened by fraction."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from qbeast_core.table.inspect.plot_tree import ACCENT, INK, LEGEND, OPENED, draw_text, quiet, title


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

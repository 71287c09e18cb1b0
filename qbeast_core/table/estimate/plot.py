"""Draw an estimate: a point for each group, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qbeast_core.table.inspect.plot_figure import new_axes
from qbeast_core.table.inspect.plot_tree import FAINT, LEGEND, OPENED, quiet, title


def draw_estimate(
    frame: pl.DataFrame, name: str, names: Sequence[str], caption: str, axes: Axes | None
) -> Figure:
    """Draw an answer for each group."""
    if axes is None:
        axes = new_axes((6.4, 0.9 + 0.28 * max(frame.height, 3)))
    by = frame.columns[: frame.columns.index(names[0])]
    answered = frame.filter(pl.col(name).is_not_null()).reverse()
    labels = answered.select(
        pl.concat_str(pl.col(by).cast(pl.String).fill_null("null"), separator=", ") if by else pl.lit(name)
    )
    for reliable, colour, label in ((True, OPENED, "reliable"), (False, FAINT, "not reliable")):
        rows = [index for index, value in enumerate(answered["reliable"]) if value is reliable]
        part = answered[rows]
        if rows:
            ends = [
                part[name] - part[f"{name}_low"].fill_null(part[name]),
                part[f"{name}_high"].fill_null(part[name]) - part[name],
            ]
            bars = [value.to_numpy() for value in ends]
            axes.errorbar(
                part[name].to_numpy(), rows, xerr=bars, fmt="o", ms=4, capsize=2, color=colour, label=label
            )
    axes.set_yticks(range(answered.height), labels.to_series().head(answered.height).to_list())
    axes.set_xlabel(name)
    quiet(axes)
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    if not answered["reliable"].all():
        axes.legend(**LEGEND)
    title(axes, fill(caption, 72))
    return cast("Figure", axes.figure)

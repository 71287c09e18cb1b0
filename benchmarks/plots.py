"""A picture of all figures with a target, relative to the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from benchmarks.report import Figure

mpl.use("Agg")

import matplotlib.pyplot as plt


def save(figures: Sequence[Figure], folder: Path) -> None:
    """Draw figure / target as bars; bars beyond the line miss their target."""
    with_target = [figure for figure in reversed(figures) if figure.most]
    if not with_target:
        return
    drawn, axes = plt.subplots(figsize=(9, 0.32 * len(with_target) + 1.2), layout="constrained")
    ratios = [figure.value / (figure.most or 1) for figure in with_target]
    colours = ["#2a9d8f" if ratio <= 1 else "#e76f51" for ratio in ratios]
    bars = axes.barh([figure.what for figure in with_target], ratios, color=colours)
    axes.bar_label(
        bars, [f"{figure.value:.3g} {figure.unit}" for figure in with_target], padding=3, fontsize=8
    )
    axes.axvline(1, color="#333333", linewidth=1)
    axes.set_xlabel("measured over target (lower is better)")
    axes.set_xlim(0, max(*ratios, 1) * 1.15)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.savefig(folder / "targets.png", dpi=130)
    plt.close(drawn)

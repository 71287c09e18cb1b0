"""What the pictures of a table share: colours, quiet axes, titles."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

__all__ = ["ACCENT", "FAINT", "INK", "MAP", "OPENED", "quiet", "say_nothing", "title"]

INK: Final = "#333333"
OPENED: Final = "#1f6f8b"
ACCENT: Final = "#e07a3f"
FAINT: Final = "#c9ced3"
MAP: Final = "GnBu"
"""Colour map from few rows to many."""


def title(axes: Axes, text: str) -> None:
    """Write a small title."""
    axes.set_title(text, fontsize=10, color=INK)


def quiet(axes: Axes) -> None:
    """Take frame and tick marks away; what is drawn speaks."""
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=INK)
    for side in axes.spines.values():
        side.set_visible(False)


def say_nothing(axes: Axes, text: str) -> None:
    """Say in an empty picture why it is empty."""
    quiet(axes)
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, text, ha="center", va="center", color=INK, transform=axes.transAxes)

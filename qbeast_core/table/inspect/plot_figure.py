"""A figure that notebooks display."""

from __future__ import annotations

import io
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Background colour. Fixed, because lines and texts are dark in any style of matplotlib.
_PAPER: Final = "white"


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

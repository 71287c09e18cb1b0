"""A figure that notebooks show by themselves."""

from __future__ import annotations

import io
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Behind all of a picture, whatever the page and matplotlib's style: its ink is dark.
_PAPER: Final = "white"


class Picture(Figure):
    """A matplotlib Figure that shows itself when it is the last value of a notebook's cell.

    Plain figures do so only after ``%matplotlib inline``, or when pyplot made them.
    """

    def _repr_png_(self) -> bytes:
        """Return the picture as a PNG; asked for by notebooks."""
        data = io.BytesIO()
        self.savefig(data, format="png", facecolor=_PAPER)
        return data.getvalue()


def new_axes(size: tuple[float, float]) -> Axes:
    """Return the axes of a new picture, known to no part of pyplot."""
    return Picture(figsize=size, layout="constrained", facecolor=_PAPER).add_subplot(facecolor=_PAPER)

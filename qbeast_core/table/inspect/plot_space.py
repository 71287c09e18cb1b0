"""Draw the space along two columns, with the share of rows at each place that a query opens."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from qbeast_core.plan.select import Selection
from qbeast_core.space.values import F64Array
from qbeast_core.spec.revision import HashTransformation, Revision, Transformation
from qbeast_core.table.inspect.drawings import (
    ACCENT,
    FAINT,
    LEGEND,
    MAP,
    OPENED,
    colour_bar,
    corners,
    draw_text,
    quiet,
)

# Number of cells along each axis. A smaller box covers a whole cell.
_CELLS: Final = 128

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CHARACTERS: Final = 14
_MANY: Final = 1e5
_MS_PER_DAY: Final = 86_400_000


def draw_space(
    axes: Axes,
    selection: Selection,
    box: tuple[float, float, float, float] | None,
    revision: Revision,
    columns: tuple[str, str],
) -> None:
    """Draw the space of a revision along two of its columns. Cubes behind each other are added up.

    `box` is the box of possible matches: from and to along the first column, then along the second. None: anywhere.
    """
    first, second = (revision.columns.index(name) for name in columns)
    ends, rows, rows_opened = _boxes(selection, revision, first, second)
    if not len(rows):
        draw_text(axes, f"revision {revision.revision_id} has no blocks")
        return
    _shade(axes, ends, rows, rows_opened)
    opened = rows_opened > 0
    width = 0.8 if len(rows) < 1000 else 0.3
    for chosen, colour in ((~opened, FAINT), (opened, OPENED)):
        boxes = corners(*ends[chosen].T)
        axes.add_collection(PolyCollection(boxes, facecolors="none", edgecolors=colour, linewidths=width))
    handles = [
        Line2D([], [], color=OPENED, label=f"opened: {int(opened.sum()):,} cube(s)"),
        Line2D([], [], color=FAINT, label=f"closed: {int((~opened).sum()):,} cube(s)"),
    ]
    if box is not None:
        left, right, bottom, top = box
        frame = Rectangle((left, bottom), right - left, top - bottom, fill=False, linewidth=1.6, zorder=5)
        frame.set(edgecolor=ACCENT, linestyle="--")
        axes.add_patch(frame)
        handles.append(Line2D([], [], color=ACCENT, ls="--", label="where matches can lie"))
    axes.legend(**LEGEND, handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)
    _label(axes, revision, columns, (first, second))


def _boxes(
    selection: Selection, revision: Revision, first: int, second: int
) -> tuple[F64Array, F64Array, F64Array]:
    """Return the ends of cubes along two dimensions, and their number of rows and of rows in opened blocks."""
    table, d = selection.table, len(revision.columns)
    parts: list[F64Array] = [np.zeros((0, 2 * d + 2))]
    for space in table.spaces:
        if space.revision == revision:
            rows = table.rows[space.blocks].astype(np.float64)
            opened = np.where(selection.blocks[space.blocks], rows, 0.0)
            ends = [np.minimum(upper, 1.0) for upper in space.upper]
            parts.append(np.stack([*space.lower, *ends, rows, opened], axis=1)[rows > 0])
    blocks = np.concatenate(parts)
    cubes, index = np.unique(blocks[:, : 2 * d], axis=0, return_inverse=True)
    sums = np.zeros((len(cubes), 2))
    np.add.at(sums, index.reshape(-1), blocks[:, 2 * d :])
    return cubes[:, [first, second, d + first, d + second]], sums[:, 0], sums[:, 1]


def _shade(axes: Axes, ends: F64Array, rows: F64Array, opened: F64Array) -> None:
    """Colour each place by the share of its rows in opened blocks."""
    density = _density(ends, rows)
    share = np.divide(100 * _density(ends, opened), density, out=np.zeros_like(density), where=density > 1e-9)
    picture = axes.imshow(
        share.T, extent=(0, 1, 0, 1), origin="lower", aspect="auto", cmap=MAP, vmin=0, vmax=115, zorder=0
    )
    colour_bar(axes, picture, "rows in opened blocks, % of those that lie here", [0, 25, 50, 75, 100])


def _density(ends: F64Array, rows: F64Array) -> F64Array:
    """Spread the rows of each cube evenly over the cells it covers; shape (cells, cells)."""
    low = np.minimum((ends[:, :2] * _CELLS).astype(np.int64), _CELLS - 1)
    high = np.maximum(np.ceil(ends[:, 2:] * _CELLS).astype(np.int64), low + 1)
    each = rows / np.prod(high - low, axis=1)
    steps = np.zeros((_CELLS + 1, _CELLS + 1))
    # Add steps at the corners of each cube; their cumulative sums are the densities.
    for x, y, sign in ((low, low, 1), (high, low, -1), (low, high, -1), (high, high, 1)):
        np.add.at(steps, (x[:, 0], y[:, 1]), sign * each)
    summed: F64Array = steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return summed


def _label(axes: Axes, revision: Revision, columns: tuple[str, str], dimensions: tuple[int, int]) -> None:
    axes.set(xlim=(-0.004, 1.004), ylim=(-0.004, 1.004))
    for axis, name, dimension in zip((axes.xaxis, axes.yaxis), columns, dimensions, strict=True):
        hashed = isinstance(revision.transformations[dimension], HashTransformation)
        axis.set_label_text(f"{name}, hashed" if hashed else name)
        kind = str(getattr(revision.column_transformers[dimension], "data_type", ""))
        ticks = axis_ticks(revision.transformations[dimension], kind)
        axis.set_ticks([place for place, _ in ticks], [text for _, text in ticks])
    quiet(axes)


def axis_ticks(transformation: Transformation, data_type: str, *, count: int = 5) -> list[tuple[float, str]]:
    """Return the places and texts of the ticks of an axis.

    >>> from qbeast_core.spec.revision import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> axis_ticks(linear, "LongDataType", count=3)
    [(0.0, '0'), (0.5, '4'), (1.0, '8')]
    """
    places = [step / (count - 1) for step in range(count)]
    knots = transformation.knots
    if not knots:
        return [(place, f"{place:g}") for place in places]
    if transformation.holds_texts:  # texts cannot be interpolated: use the nearest ones
        last = len(knots) - 1
        indexes = sorted({round(place * last) for place in places})
        return [(index / last, _short(str(knots[index]))) for index in indexes]
    ends = np.linspace(0, 1, len(knots))
    # Halves, because the difference of two knots may be infinite.
    numbers = (2 * np.interp(places, ends, [float(knot) / 2 for knot in knots])).tolist()
    if data_type in {"DateDataType", "TimestampDataType"}:
        dated = data_type == "DateDataType" or abs(numbers[-1] - numbers[0]) > count * _MS_PER_DAY
        labels = [_moment(number, dated=dated) for number in numbers]
    else:
        labels = [
            _number(number, whole=data_type in {"IntegerDataType", "LongDataType"}) for number in numbers
        ]
    return list(zip(places, labels, strict=True))


def _short(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return shown if len(shown) <= _MAX_CHARACTERS else f"{shown[: _MAX_CHARACTERS - 1]}…"


def _number(number: float, *, whole: bool) -> str:
    if whole and abs(number) < _MANY:
        return f"{number:.0f}"
    return f"{number:.3g}" if abs(number) < 1 or abs(number) >= _MANY else f"{number:,.4g}"


def _moment(milliseconds: float, *, dated: bool) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=math.floor(milliseconds))
    except OverflowError:
        return f"{milliseconds:.3g} ms"
    return moment.strftime("%Y-%m-%d") if dated else moment.strftime("%m-%d %H:%M:%S")

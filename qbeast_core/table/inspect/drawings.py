"""Draw trees, samples, the index space, and answers of estimates with matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from textwrap import fill
from typing import Any, Final, cast

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from qbeast_core.plan.select import Selection
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.space.values import F64Array
from qbeast_core.spec.revision import HashTransformation, Revision, Transformation
from qbeast_core.support.frames import has_text, short_text, time_texts
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
        _draw_text(axes, f"revision {revision.revision_id} has no cubes")
        return
    cubes = blocks.group_by("cube", "depth").agg(pl.col("rows").sum()).sort("depth", "cube")
    start, width = _places(decode_cubes(cubes["cube"].to_list(), dimensions=len(revision.columns)))
    depth = cubes["depth"].to_numpy().astype(np.float64)
    edges = "white" if cubes.height <= _EDGES else "none"
    rows = cubes["rows"].to_numpy()
    sides = _corners(start, depth, start + width, depth + _HEIGHT)
    boxes = PolyCollection(sides, cmap=MAP, edgecolors=edges, linewidths=0.4)
    boxes.set_array(rows)
    boxes.set_clim(-0.25 * float(rows.max()), None)  # avoid white boxes
    axes.add_collection(boxes)
    deepest = int(depth.max())
    axes.set(xlim=(0, 1), ylim=(deepest + 1, 0), xticks=[], yticks=np.arange(deepest + 1) + 0.47)
    axes.set_yticklabels(_labels(cubes, deepest), fontsize=8, color=INK)
    _quiet(axes)
    _colour_bar(axes, boxes, "rows per cube", [0, rows.max() / 2, rows.max()])
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


def _corners(left: F64Array, bottom: F64Array, right: F64Array, top: F64Array) -> list[F64Array]:
    """Return the corners of boxes, each of shape (4, 2)."""
    across, up = np.stack([left, right, right, left], axis=1), np.stack([bottom, bottom, top, top], axis=1)
    return list(np.stack([across, up], axis=2))


def _colour_bar(axes: Axes, picture: ScalarMappable, label: str, ticks: Sequence[float]) -> None:
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


def _quiet(axes: Axes) -> None:
    """Remove the frame and tick marks, and colour the labels."""
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_text(axes: Axes, text: str) -> None:
    """Draw a text in an empty picture."""
    _quiet(axes)
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, text, ha="center", va="center", color=INK, transform=axes.transAxes)


def draw_fraction(
    axes: Axes, fractions: Sequence[float], shares: Sequence[float], *, caption: str, whole: bool
) -> None:
    """Draw one point per sample."""
    points = [(100 * f, 100 * share) for f, share in zip(fractions, shares, strict=True) if share > 0]
    if not points:
        _draw_text(axes, "no sample opens a byte")
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
    _quiet(axes)
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
        _draw_text(axes, f"revision {revision.revision_id} has no blocks")
        return
    _shade(axes, ends, rows, rows_opened)
    opened = rows_opened > 0
    width = 0.8 if len(rows) < 1000 else 0.3
    for chosen, colour in ((~opened, FAINT), (opened, OPENED)):
        boxes = _corners(*ends[chosen].T)
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
    _colour_bar(axes, picture, "rows in opened blocks, % of those that lie here", [0, 25, 50, 75, 100])


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
    _quiet(axes)


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


# Inches of a list, per group; the heights of pictures end here, and labels are left out.
_ROW: Final = 0.28
_MAX_ROWS: Final = 60
_MAX_LABEL: Final = 40
# Labels below an axis, at most.
_MAX_TICKS: Final = 12
# Characters of all labels below an axis that fit side by side.
_MAX_WIDTH: Final = 72
_SMALL: Final = 8
# Times are written up to the first part that all of them leave out: each rule keeps a time if nothing is lost.
_TIMES: Final = (("1y", "%Y"), ("1mo", "%Y-%m"), ("1d", "%Y-%m-%d"), ("1m", "%Y-%m-%d %H:%M"))


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """Where the groups are, and their labels."""

    places: Sequence[float]
    labels: Sequence[str]
    # Whether places are numbers or times along the x axis, and not the rows of a list.
    is_scale: bool


def draw_estimate(
    frame: pl.DataFrame, name: str, names: Sequence[str], caption: str, axes: Axes | None
) -> Figure:
    """Draw an answer for each group, with its interval as a bar."""
    by = frame.columns[: frame.columns.index(names[0])]
    answered = frame.filter(pl.col(name).is_not_null())
    points = _points_of(answered, by, name)
    if axes is None:
        rows = min(max(len(points.labels), 3), _MAX_ROWS)
        axes = new_axes((6.4, 4.2 if points.is_scale else 1.0 + _ROW * rows))
    _draw_points(axes, answered, name, points)
    _label_groups(axes, points, by, name)
    _quiet(axes)
    axes.grid(visible=True, axis="y" if points.is_scale else "x", color="#dddddd", lw=0.6)
    if not answered["reliable"].all():
        axes.legend(**LEGEND)
    what = f"{name} by {', '.join(by)}" if by else name
    title(axes, "\n".join(fill(line, 72) for line in (what, *caption.split("\n"))))
    return cast("Figure", axes.get_figure(root=True))


def _draw_points(axes: Axes, answered: pl.DataFrame, name: str, points: _Points) -> None:
    for reliable, colour, label in ((True, OPENED, "reliable"), (False, FAINT, "not reliable")):
        rows = [index for index, value in enumerate(answered["reliable"]) if value is reliable]
        if not rows:
            continue
        some = answered[rows]
        values, places = some[name].to_numpy(), [points.places[row] for row in rows]
        bars = [_lengths(some[name] - some[f"{name}_low"]), _lengths(some[f"{name}_high"] - some[name])]
        style: dict[str, Any] = {"fmt": "o", "ms": 4, "capsize": 2, "color": colour, "label": label}
        if points.is_scale:
            axes.errorbar(places, values, yerr=bars, **style)
        else:
            axes.errorbar(values, places, xerr=bars, **style)


def _lengths(values: pl.Series) -> list[float]:
    """Return the lengths of bars, 0 without a bound. An array of one length warns in Matplotlib 3.10."""
    return values.fill_null(0.0).replace(float("inf"), 0.0).to_list()


def _points_of(answered: pl.DataFrame, by: Sequence[str], name: str) -> _Points:
    if len(by) == 1 and answered.height > 1:
        scale = _scale_of(answered[by[0]])
        if scale is not None:
            return scale
    texts = [_texts_of(answered[column]) for column in by]
    rows = zip(*texts, strict=True) if by else [(name,)] * answered.height
    labels = [_shortened(", ".join(row)) for row in rows]
    return _Points([-float(at) for at in range(len(labels))], labels, is_scale=False)


def _scale_of(groups: pl.Series) -> _Points | None:
    """Return groups of numbers or times along an axis. None: groups of other types, or with a null."""
    is_number, is_time = groups.dtype.is_numeric(), isinstance(groups.dtype, pl.Date | pl.Datetime)
    if groups.has_nulls() or not (is_number or is_time):
        return None
    places = groups.cast(pl.Float64) if is_number else groups.to_physical().cast(pl.Float64)
    if not places.is_finite().all():
        return None
    labels = [short_text(place) for place in places] if is_number else _time_labels(groups)
    return _Points(places.to_list(), labels, is_scale=True)


def _time_labels(groups: pl.Series) -> list[str]:
    """Return dates and times without the parts that all of them lack.

    >>> _time_labels(pl.Series(["2026-01-01", "2026-02-01"]).str.to_date())
    ['2026-01', '2026-02']
    """
    if has_text(groups):
        for every, pattern in _TIMES:
            if (groups.dt.truncate(every) == groups).all():
                return groups.dt.strftime(pattern).to_list()
    return time_texts(groups).to_list()


def _texts_of(groups: pl.Series) -> list[str]:
    is_time = isinstance(groups.dtype, pl.Date | pl.Datetime)
    present = _time_labels(groups.drop_nulls()) if is_time else groups.drop_nulls().cast(pl.String).to_list()
    texts = iter(present)
    return ["null" if missing else next(texts) for missing in groups.is_null()]


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"


def _tick_text(value: float, _position: int | None) -> str:
    return short_text(value)


def _label_groups(axes: Axes, points: _Points, by: Sequence[str], name: str) -> None:
    """Label both axes. Of many groups only some have a label."""
    numbers = FuncFormatter(_tick_text)
    count = len(points.labels)
    if not points.is_scale:
        step = -(-count // _MAX_ROWS)
        axes.set_yticks(points.places[::step], points.labels[::step])
        axes.xaxis.set_major_formatter(numbers)
        axes.set_xlabel(name)
        return
    axes.yaxis.set_major_formatter(numbers)
    axes.set(xlabel=by[0], ylabel=name)
    order = sorted(range(count), key=points.places.__getitem__)
    step = -(-count // _MAX_TICKS)
    shown = [order[at] for at in range(0, count, step)]
    labels = [points.labels[at] for at in shown]
    is_wide = sum(map(len, labels)) + 2 * len(labels) > _MAX_WIDTH
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_wide else {}
    axes.set_xticks([points.places[at] for at in shown], labels, **turned)
    axes.yaxis.set_major_locator(MaxNLocator(_SMALL))

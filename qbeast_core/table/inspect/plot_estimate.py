"""Draw an answer for each group: along an axis of numbers or times, or as a list of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final, cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from qbeast_core.support.frames import has_text, short_text, time_texts
from qbeast_core.table.inspect.drawings import FAINT, LEGEND, OPENED, new_axes, quiet, title

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
    quiet(axes)
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

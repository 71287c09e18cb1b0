"""Collect the data of a picture of a table. Other modules, which need matplotlib, draw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import polars as pl

from qbeast_core.errors import InvalidInputError, invalid_argument
from qbeast_core.plan.bounds import reach
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.weights import Sample
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import require
from qbeast_core.table.index.counts import latest_revision
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.read.explain import Plan, explain
from qbeast_core.table.read.planner import Planner

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PlotKind: TypeAlias = Literal["tree", "space", "fraction"]

_FRACTIONS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotOptions:
    """Options of `Table.plot`."""

    columns: Sequence[str] | None = None
    predicate: pl.Expr | None = None
    sample: Sample | None = None
    revision: int | None = None
    fractions: Sequence[float] | None = None
    axes: Axes | None = None


def plot_table(planner: Planner, kind: PlotKind, options: PlotOptions) -> Figure:
    """Draw a picture of a version; see `Table.plot`."""
    kinds = get_args(PlotKind)
    if kind not in kinds:
        problem = f"must be one of {', '.join(kinds)}"
        invalid_argument("kind", problem, value=kind, known=kinds)
    require("matplotlib", "drawing")
    from qbeast_core.table.inspect.drawings import new_axes  # noqa: PLC0415 - loads matplotlib

    draw, size = _KINDS[kind]
    axes = options.axes if options.axes is not None else new_axes(size)
    draw(planner, axes, options)
    figure = axes.get_figure(root=True)
    if figure is None:
        msg = "these axes do not belong to a figure"
        raise InvalidInputError(msg, argument="axes")
    return figure


def _tree(planner: Planner, axes: Axes, options: PlotOptions) -> None:
    from qbeast_core.table.inspect.drawings import draw_tree  # noqa: PLC0415 - loads matplotlib

    revision = _drawn_revision(planner, options.revision)
    draw_tree(axes, Index(planner.snapshot).binding(revision), revision)


def _space(planner: Planner, axes: Axes, options: PlotOptions) -> None:
    from qbeast_core.table.inspect.drawings import title  # noqa: PLC0415 - loads matplotlib
    from qbeast_core.table.inspect.plot_space import draw_space  # noqa: PLC0415 - loads matplotlib

    revision = _drawn_revision(planner, options.revision)
    columns = _two_columns(revision, options.columns)
    plan = explain(planner, options.predicate, options.sample, None)
    caption = f"{_query_text(plan)}: {plan.share:.1%} of the bytes"
    box = _box(planner, options.predicate, revision, columns)
    # Plan again: the first plan of a version may not have decoded the cubes of skipped files.
    all_blocks = planner.plan(plan.scan_plan.predicate, options.sample)
    draw_space(axes, all_blocks.selection, box, revision, columns)
    title(axes, caption)


def _box(
    planner: Planner, predicate: pl.Expr | None, revision: Revision, columns: tuple[str, str]
) -> tuple[float, float, float, float] | None:
    """Return the box of possible matches along two columns. None: anywhere, or nowhere."""
    if predicate is None or not revision.transformations:
        return None
    node = parse_predicate(predicate, planner.snapshot.schema)
    spaces = dict(zip(revision.columns, revision.transformations, strict=True))
    (left, right), (bottom, top) = (reach(node, name, spaces[name]) for name in columns)
    whole = (left, right, bottom, top) == (0.0, 1.0, 0.0, 1.0)
    return None if whole or left > right or bottom > top else (left, right, bottom, top)


def _fraction(planner: Planner, axes: Axes, options: PlotOptions) -> None:
    from qbeast_core.table.inspect.drawings import draw_fraction  # noqa: PLC0415 - loads matplotlib

    fractions = sorted(_FRACTIONS if options.fractions is None else options.fractions)
    if not fractions or fractions[0] <= 0:
        invalid_argument("fractions", "must be above 0, one at least", value=fractions)
    columns = None if options.columns is None else list(options.columns)
    plans = [explain(planner, options.predicate, fraction, columns) for fraction in fractions]
    rows = f"{plans[0].rows_total:,} rows" + (
        "" if options.predicate is None else f" where {_shown(options.predicate)}"
    )
    draw_fraction(
        axes,
        fractions,
        [plan.share for plan in plans],
        caption=f"Bytes opened by samples of {rows}",
        whole=options.predicate is None and columns is None,
    )


def _drawn_revision(planner: Planner, number: int | None) -> Revision:
    """Return a revision, by default the newest one that has files."""
    revisions = planner.snapshot.config.revisions
    if number is None:
        live = {*planner.snapshot.files["revision"].drop_nulls()} & {*revisions}
        return revisions[max(live)] if live else latest_revision(planner.snapshot)
    if number not in revisions:
        problem = f"must be one of the table's, {list(revisions)}"
        invalid_argument("revision", problem, value=number, known=list(revisions))
    return revisions[number]


def _two_columns(revision: Revision, columns: Sequence[str] | None) -> tuple[str, str]:
    chosen = tuple(revision.columns[:2] if columns is None else columns)
    unknown = [name for name in chosen if name not in revision.columns]
    if len(chosen) != 2 or unknown:
        msg = (
            f"give two indexed columns of {', '.join(revision.columns)} to draw the space, got {list(chosen)}"
        )
        raise InvalidInputError(msg, argument="columns")
    return chosen[0], chosen[1]


def _query_text(plan: Plan) -> str:
    parts = [] if plan.scan_plan.predicate is None else [_shown(plan.scan_plan.predicate)]
    if plan.sample is not None:
        parts.append(f"a sample of {plan.sample}")
    return ", ".join(parts) or "everything"


def _shown(predicate: pl.Expr) -> str:
    text = str(predicate)
    return text if len(text) <= 70 else f"{text[:69]}…"


_KINDS: Final[dict[PlotKind, tuple[Callable[[Planner, Axes, PlotOptions], None], tuple[float, float]]]] = {
    "tree": (_tree, (9.0, 4.8)),
    "space": (_space, (7.0, 6.2)),
    "fraction": (_fraction, (6.4, 4.8)),
}

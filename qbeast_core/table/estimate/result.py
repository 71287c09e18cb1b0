"""The result of an estimate: a frame of answers with their intervals, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.sampling.intervals import Interval
from qbeast_core.sampling.rules import MAX_SHARE, MIN_KEYS, is_reliable
from qbeast_core.sampling.sample import KeySample
from qbeast_core.sampling.sums import GROUP
from qbeast_core.space.arrays import BoolArray, F64Array
from qbeast_core.support.as_json import to_json
from qbeast_core.support.html import html_of
from qbeast_core.support.optional import require
from qbeast_core.support.plain_text import in_lines
from qbeast_core.table.estimate.question import Question

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Estimate:
    """Aggregates of a table, estimated from a sample of its keys, with intervals.

    Attributes
    ----------
    frame : polars.DataFrame
        One row a group: the columns of groups; for every answer its value, ``<name>_low`` and ``<name>_high``, in
        Float64, null where there is none; ``rows_sampled`` of the group; ``reliable``, whether its intervals are
        believed: exact, or of at least 100 sampled keys, none of which brings more than 30 % of the variance, in a
        sample that has as many rows as the log lets expect.
    uri : str
        The table.
    version : int
        Of the table.
    fraction : float
        Of the keys that were read; 1.0: all, so that answers are exact; 0.0: the log alone told.
    rows_read, bytes_opened : int
        Rows that were looked at, and bytes of data files read for them.
    bytes_total : int
        Of all live data files.
    confidence : float
        Of each interval; with `simultaneous`, of all at once.
    simultaneous : bool
        Whether it is that of all of them.
    met : bool or None
        Whether every answer (of groups of at least `min_group_rows`) is reliable and as near as was asked for. None:
        no error was asked for.
    complete : bool
        Whether all groups are known: one that no sampled row belongs to is not listed.
    design_effect : float
        How clustered samples of the table are, at least; see `Table.design_effect`.
    names : tuple of str
        Of the answers.
    notes : tuple of str
        What has no bound, and why; and what was read twice.
    """

    frame: pl.DataFrame
    uri: str
    version: int
    fraction: float
    rows_read: int
    bytes_opened: int
    bytes_total: int
    confidence: float
    simultaneous: bool
    met: bool | None
    complete: bool
    design_effect: float
    names: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def share(self) -> float:
        """Bytes read over bytes in all; more than 1.0 where pages were read twice."""
        return self.bytes_opened / self.bytes_total if self.bytes_total else 0.0

    def to_json(self) -> str:
        """Return everything as JSON text; `frame` is a list of objects."""
        facts = {one.name: getattr(self, one.name) for one in fields(self)}
        return to_json({**facts, "share": self.share, "frame": self.frame.to_dicts()})

    def to_pandas(self) -> Any:
        """Return `frame` for pandas.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        require("pandas", "to_pandas")
        return self.frame.to_pandas()

    def plot(self, name: str | None = None, *, axes: Axes | None = None) -> Figure:
        """Draw an answer of every group as a point, with its interval as a bar.

        Parameters
        ----------
        name : str, optional
            Of the answer; the first by default.
        axes : matplotlib Axes, optional
            Where to draw; a new picture by default.

        Raises
        ------
        InvalidInputError
            If there is no answer of this name.
        MissingDependencyError
            If matplotlib is not installed.
        """
        chosen = self.names[0] if name is None else name
        if chosen not in self.names:
            msg = f"there is no answer {name!r}; there are {list(self.names)}"
            raise InvalidInputError(msg, argument="name")
        require("matplotlib", "drawing")
        from qbeast_core.table.estimate.plot import draw_estimate  # noqa: PLC0415 - matplotlib is loaded where it draws

        return draw_estimate(self.frame, chosen, self.names, self.summary, axes)

    @property
    def summary(self) -> str:
        """How sure the answers are and what they cost, in a line."""
        if self.fraction in (0.0, 1.0):
            sure = "exact, by the log alone" if self.fraction == 0.0 else "exact: everything was read"
        else:
            of = "all intervals at once" if self.simultaneous else "each interval"
            kept = {
                True: ", the error asked for is kept",
                False: ", the error asked for is NOT kept",
                None: "",
            }[self.met]
            sure = f"{self.confidence:.10g} confidence of {of}{kept}, from {self.fraction:.2%} of the keys"
        groups = "" if self.complete else "; groups that no sampled row belongs to are not listed"
        size = f"{self.bytes_opened:,} of {self.bytes_total:,} bytes"
        cost = f"{self.rows_read:,} rows and {size} read ({self.share:.2%})"
        return f"{sure}; {cost}{groups}"

    def __repr__(self) -> str:
        head = f"Estimate of {self.uri}, version {self.version}: {self.summary}"
        return in_lines([head, *(f"  {note}" for note in self.notes), *str(self.frame).split("\n")])

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        facts = {"how sure": escape(self.summary)}
        if self.notes:
            facts["notes"] = "<br>".join(map(escape, self.notes))
        return html_of(f"Estimate of {self.uri}, version {self.version}", facts, self.frame)


def frame_of(question: Question, sample: KeySample, intervals: Sequence[Interval]) -> pl.DataFrame:
    """Return the answers with their intervals, one row per group."""
    columns: list[pl.Series] = []
    for answer, interval in zip(question.aggregates.answers, intervals, strict=True):
        columns += [
            _column(answer.name, interval.value, ~interval.finite),
            _column(f"{answer.name}_low", interval.low),
            _column(f"{answer.name}_high", interval.high),
        ]
    rows = (sample.whole[:, 0] + sample.sampled[:, 0]).astype(np.int64)
    reliable = np.logical_and.reduce([is_reliable(interval) for interval in intervals])
    columns += [pl.Series("rows_sampled", rows), pl.Series("reliable", reliable)]
    return sample.groups.drop(GROUP).hstack(columns)


def _column(name: str, values: F64Array, stays: BoolArray | None = None) -> pl.Series:
    """Return numbers, with null for NaN except where NaN is the value itself."""
    missing = np.isnan(values) if stays is None else np.isnan(values) & ~stays
    return pl.Series(name, values, pl.Float64).set(pl.Series(missing, dtype=pl.Boolean), None)


def notes_of(
    question: Question, intervals: Sequence[Interval], *, rows_read: int, rows_total: int | None
) -> tuple[str, ...]:
    """Return which answers have no bound or no reliable one, and whether rows were read twice."""
    notes: list[str] = []
    for answer, interval in zip(question.aggregates.answers, intervals, strict=True):
        infinite = int((~interval.finite).sum())
        if infinite:
            notes.append(
                f"{answer.name}: rows of {infinite} group(s) hold NaN or infinities, for which there is no bound; "
                "leave them out with where="
            )
    reliable = np.logical_and.reduce([is_reliable(interval) for interval in intervals])
    few = int((~reliable).sum())
    if few:
        reason = (
            "the number of rows or keys in the sample deviates from the log by more than chance explains, so it lacks "
            "heavy keys or has too many; allow to read more"
            if any(interval.deviates for interval in intervals)
            else f"fewer than {MIN_KEYS} sampled keys, one of them with more than {MAX_SHARE:.0%} of the variance, "
            "or no bound at all"
        )
        notes.append(f"{few} of {len(reliable)} group(s) are not reliable: {reason}")
    if rows_total is not None and rows_read > rows_total:
        cure = "; min_group_rows= leaves out small groups, which need all rows" if question.by else ""
        notes.append(
            f"{rows_read:,} rows were read of {rows_total:,}: samples first, then everything, because the samples "
            f"were not near enough{cure}"
        )
    return tuple(notes)

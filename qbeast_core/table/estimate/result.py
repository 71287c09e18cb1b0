"""What an estimate says: a frame of answers with their intervals, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from qbeast_core.as_json import to_json
from qbeast_core.errors import InvalidInputError
from qbeast_core.estimate.intervals import Interval
from qbeast_core.estimate.rules import LEAST_KEYS, MOST_SHARE, is_reliable
from qbeast_core.estimate.sample import Sample
from qbeast_core.estimate.sums import GROUP
from qbeast_core.html import html_of
from qbeast_core.optional import require
from qbeast_core.plain_text import in_lines
from qbeast_core.space.arrays import BoolArray, F64Array
from qbeast_core.table.estimate.question import Question

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read, and how good it is; the attributes of `Estimate` of the same names."""

    uri: str
    version: int
    fraction: float
    rows_read: int
    rows_total: int | None
    bytes_opened: int
    bytes_total: int
    met: bool | None
    design_effect: float


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


def estimate_of(asked: Question, sample: Sample, intervals: Sequence[Interval], facts: Facts) -> Estimate:
    """Put intervals into a frame."""
    names = tuple(one.name for one in asked.aggregates.answers)
    columns: list[pl.Series] = []
    for name, found in zip(names, intervals, strict=True):
        columns += [
            _column(name, found.value, ~found.finite),
            _column(f"{name}_low", found.low),
            _column(f"{name}_high", found.high),
        ]
    rows = sample.whole[:, 0] + sample.sampled[:, 0]
    reliable = np.logical_and.reduce([is_reliable(one) for one in intervals])
    frame = sample.groups.drop(GROUP).hstack(
        [*columns, pl.Series("rows_sampled", rows.astype(np.int64)), pl.Series("reliable", reliable)]
    )
    return Estimate(
        frame=frame,
        uri=facts.uri,
        version=facts.version,
        fraction=facts.fraction,
        rows_read=facts.rows_read,
        bytes_opened=facts.bytes_opened,
        bytes_total=facts.bytes_total,
        confidence=asked.confidence,
        simultaneous=asked.simultaneous,
        met=facts.met,
        complete=not asked.by or sample.probability == 1.0,
        design_effect=facts.design_effect,
        names=names,
        notes=(*_notes(names, intervals, reliable), *_notes_of_cost(asked, facts)),
    )


def _column(name: str, values: F64Array, stays: BoolArray | None = None) -> pl.Series:
    """Return numbers, null where there is none; NaN stays where it is what the rows come to."""
    missing = np.isnan(values) if stays is None else np.isnan(values) & ~stays
    return pl.Series(name, values, pl.Float64).set(pl.Series(missing, dtype=pl.Boolean), None)


def _notes(names: Sequence[str], intervals: Sequence[Interval], reliable: BoolArray) -> list[str]:
    notes: list[str] = []
    for name, found in zip(names, intervals, strict=True):
        endless = int((~found.finite).sum())
        if endless:
            notes.append(
                f"{name}: rows of {endless} group(s) hold NaN or infinities, which no bound holds for; leave them out "
                "with where="
            )
    few = int((~reliable).sum())
    if few and any(found.deviates for found in intervals):
        notes.append(
            f"{few} of {len(reliable)} group(s) are not reliable: the sample does not fit what the log knows of rows "
            "and keys, by more than chance explains, so keys of many rows are not in it or too many of them; allow to "
            "read more"
        )
    elif few:
        notes.append(
            f"{few} of {len(reliable)} group(s) are not reliable: fewer than {LEAST_KEYS} sampled keys, one of them "
            f"with more than {MOST_SHARE:.0%} of the variance, or no bound at all"
        )
    return notes


def _notes_of_cost(asked: Question, facts: Facts) -> list[str]:
    if facts.rows_total is None or facts.rows_read <= facts.rows_total:
        return []
    cure = "; min_group_rows= leaves out groups of few rows, which ask for everything" if asked.by else ""
    rows = f"{facts.rows_read:,} rows were read of {facts.rows_total:,}"
    return [f"{rows}: samples first, then everything, since they were not near enough{cure}"]

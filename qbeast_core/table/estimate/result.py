"""The result of an estimate: a frame of answers with their intervals, and their cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.results import Hinted
from qbeast_core.sampling.certain import Kept
from qbeast_core.sampling.confidence import MAX_SHARE, MIN_KEYS, Interval, is_reliable
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sampling.sums import GROUP
from qbeast_core.space.values import BoolArray, F64Array
from qbeast_core.support.frames import estimate_text, html_of, percent_text, to_json
from qbeast_core.support.process import require, terminal_columns
from qbeast_core.support.text import in_lines, short_name, wrapped
from qbeast_core.table.estimate.question import CERTAIN, Question

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Follows a value whose error the sampled rows do not show: there is one only, or they do not differ.
_UNKNOWN: Final = " ± ?"
_MAX_SHARE: Final = percent_text(MAX_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Estimate(Hinted):
    """Aggregates of a table, estimated from a sample of its keys, with intervals.

    It prints each answer with the half width of its interval: ``8.01 M ± 1.0 %``, or ``0.3 ± 4.2`` if zero is in the
    interval. k, M, G and T are thousands, millions, and so on; an exact answer has no ``±``. ``5.00 ± ?``: the sampled
    rows do not differ, or there is one only, so they do not show the error. `frame` has all digits.

    Attributes
    ----------
    frame : polars.DataFrame
        One row per group: the columns of groups; for each answer its value, ``<name>_low`` and ``<name>_high`` as
        Float64, null if there is none; ``rows_sampled``, the sampled rows of the group (with values per key: its
        sampled keys); ``reliable``, whether all
        intervals of the group are exact, or have at least 100 sampled keys, of which none has more than 30 % of the
        variance, in a sample whose number of rows agrees with the log; and meet the requested error, in a group that
        does not decide how much is read. With HAVING or LIMIT also ``certain``, whether
        the row is certain to be in the answer, also if groups are missing that have no sampled row: all these
        statements and `certain_order` hold at once with the confidence.
    uri : str
        Location of the table.
    version : int
        Version of the table.
    fraction : float
        Fraction of the keys that was read. 1.0: all keys, so answers are exact. 0.0: the log had the answers.
    rows_read, bytes_opened : int
        Number of rows read, and bytes of data files read for them.
    bytes_total : int
        Bytes of all live data files.
    confidence : float
        Confidence of each interval; with `simultaneous`, of all intervals at once.
    simultaneous : bool
        Whether `confidence` applies to all intervals at once, also to those of groups that are not listed. True if it
        was requested, or if HAVING, or ORDER BY with LIMIT, chose the groups by an aggregate.
    met : bool or None
        Whether all answers of the groups that decide how much is read, see `min_group_rows`, are reliable and meet the
        requested error. None if no error was requested.
    met_groups : int or None
        Number of listed groups whose answers are reliable and meet the requested error.
    met_share : float or None
        Estimated share of these groups in the rows (with values per key: the keys) of all listed groups.
    complete : bool
        Whether all groups are listed. Groups without sampled rows are missing.
    design_effect : float
        Minimum design effect of samples of the table, see `Table.design_effect`; of a table with many files, of
        samples of the files that the filter may open.
    names : tuple of str
        Names of the answers.
    notes : tuple of str
        Answers without a bound, with the reason, rows that were read twice, and what HAVING and LIMIT leave open.
    certain_order : bool or None
        Whether the order of the listed rows among themselves is certain, at the confidence; other groups may belong
        between them. None without ORDER BY.
    exact : tuple of str
        Names of the answers without error: all rows were read, or the log has them.
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
    certain_order: bool | None = None
    met_groups: int | None = None
    met_share: float | None = None
    exact: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Bytes read divided by all bytes; above 1.0 if pages were read twice."""
        return self.bytes_opened / self.bytes_total if self.bytes_total else 0.0

    def to_json(self) -> str:
        """Return the estimate as JSON text; `frame` is a list of objects."""
        facts = {item.name: getattr(self, item.name) for item in fields(self)}
        return to_json({**facts, "share": self.share, "frame": self.frame.to_dicts()})

    def to_pandas(self) -> Any:
        """Return `frame` as a pandas data frame.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        require("pandas", "to_pandas")
        return self.frame.to_pandas()

    def plot(self, name: str | None = None, *, axes: Axes | None = None) -> Figure:
        """Draw an answer for each group as a point, with its interval as a bar.

        Groups by one number, date or time are along the x axis, others are listed at the side.

        Parameters
        ----------
        name : str, optional
            Name of the answer; the first by default.
        axes : matplotlib Axes, optional
            Axes to draw on; a new figure by default.

        Raises
        ------
        InvalidInputError
            If no answer has this name.
        MissingDependencyError
            If matplotlib is not installed.
        """
        answer = self.names[0] if name is None else name
        if answer not in self.names:
            msg = f"there is no answer {name!r}; the answers are {list(self.names)}"
            raise InvalidInputError(msg, argument="name")
        require("matplotlib", "drawing")
        from qbeast_core.table.inspect.drawings import draw_estimate  # noqa: PLC0415 - matplotlib is slow to import

        return draw_estimate(self.frame, answer, self.names, self._caption, axes)

    @property
    def _caption(self) -> str:
        """Confidence and cost of the answers, for the title of a picture."""
        if self.fraction == 0.0:
            precision = "exact"
        elif self.fraction == 1.0:
            precision = "exact: all rows were read"
        else:
            at_once = " at once" if self.simultaneous else ""
            precision = f"{100 * self.confidence:.10g} % confidence{at_once}"
        read = f"{percent_text(self.share)} of the bytes read"
        notes = ["the requested error is NOT met"] * (self.met is False)
        notes += [] if self.complete else ["groups without sampled rows are missing"]
        return "\n".join([f"{precision}, {read}", *notes])

    @property
    def summary(self) -> str:
        """Precision and cost of the answers, in a short line."""
        if self.fraction in (0.0, 1.0):
            precision = "exact, from the log" if self.fraction == 0.0 else "exact: all rows were read"
        else:
            target = {True: "error met", False: "error NOT met", None: ""}[self.met]
            at_once = " of all at once" if self.simultaneous else ""
            confidence = f"{100 * self.confidence:.10g} % confidence{at_once}"
            precision = ", ".join(filter(None, [target, confidence]))
        return f"{precision}; {percent_text(self.share)} of bytes read"

    @property
    def groups(self) -> str:
        """Number of listed groups in words, empty for one answer: "9 sampled groups" if others have no sampled row."""
        if self.complete and self.frame.height == 1:
            return ""
        # The column `certain` considers missing groups.
        is_whole = self.complete or self._has_certain or self.certain_order is not None
        return _plural(self.frame.height, "group" if is_whole else "sampled group")

    @property
    def _has_certain(self) -> bool:
        return CERTAIN in self.frame.columns and CERTAIN not in self.names

    @property
    def _falls_short(self) -> bool:
        return self.met_groups is not None and self.met_groups < self.frame.height

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the answers leave open: groups that are less precise, and what HAVING and LIMIT drop."""
        remarks = list[str]()
        if self._falls_short:
            cure = "; min_group_rows=0 requests it for all" if self.met else ""
            share = math.floor(1000 * (self.met_share or 0.0)) / 10
            groups = f"{self.met_groups:,} of {_plural(self.frame.height, 'group')}"
            remarks.append(f"the error holds for {groups}, {share:.10g} % of the rows{cure}")
        parts = list[str]()
        if self._has_certain:
            parts.append(f"{self.frame[CERTAIN].sum()} of {self.frame.height} rows are certain")
        if self.certain_order is not None:
            parts.append(f"the order of the rows is {'certain' if self.certain_order else 'NOT certain'}")
        return (*remarks, *([", ".join(parts)] if parts else []), *self.notes)

    @property
    def _title(self) -> str:
        return f"Estimate of {short_name(self.uri)}, version {self.version}"

    def __repr__(self) -> str:
        width = terminal_columns()
        with pl.Config(tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True, tbl_width_chars=width):
            table = str(readable(self.frame, self.names, self.exact))
        head = [f"{self._title}: {self.summary}", *(f"  {remark}" for remark in self.remarks)]
        head += [self.groups] if self.groups else []
        return in_lines([*wrapped(head, width), *table.split("\n")])

    def _repr_html_(self) -> str:
        """Return the estimate as HTML for notebooks."""
        facts = {"precision": escape(self.summary)}
        if self.groups:
            facts["listed"] = self.groups
        if self.remarks:
            facts["notes"] = "<br>".join(map(escape, self.remarks))
        return html_of(self._title, facts, readable(self.frame, self.names, self.exact))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def readable(frame: pl.DataFrame, names: Sequence[str], exact: Collection[str] | None = None) -> pl.DataFrame:
    """Return a frame of answers with a text for each answer and its interval; other columns stay.

    `exact` are the names of answers without error; None: of all whose interval has no width.

    >>> frame = pl.DataFrame({"day": [1], "n": [800.0], "n_low": [792.0], "n_high": [808.0], "reliable": [True]})
    >>> readable(frame, ["n"]).rows()
    [(1, '800 ± 1.0 %', True)]
    """
    texts: list[pl.Series] = []
    for name in names:
        is_exact = exact is None or name in exact
        no_widths = [""] * frame.height
        if not is_exact:
            no_widths = [" ± 0 %" if reliable else _UNKNOWN for reliable in frame["reliable"]]
        rows = zip(frame.select(name, f"{name}_low", f"{name}_high").rows(), no_widths, strict=True)
        answers = [None if row[0] is None else estimate_text(*row, no_width=text) for row, text in rows]
        texts.append(pl.Series(name, answers, pl.String))
    return frame.with_columns(texts).drop(f"{name}_{end}" for name in names for end in ("low", "high"))


def exact_names(question: Question, intervals: Sequence[Interval]) -> tuple[str, ...]:
    """Return the names of the answers without error."""
    pairs = zip(question.aggregates.answers[: question.shown], intervals, strict=False)
    return tuple(answer.name for answer, interval in pairs if (interval.exact | ~interval.finite).all())


def frame_of(
    question: Question, sample: KeySample, intervals: Sequence[Interval], kept: Kept, can_trust: BoolArray
) -> pl.DataFrame:
    """Return the answers with their intervals, one row per group; groups that are not in `can_trust` are unreliable."""
    columns: list[pl.Series] = []
    intervals = [interval.of_groups(kept.rows) for interval in intervals[: question.shown]]
    for answer, interval in zip(question.aggregates.answers[: question.shown], intervals, strict=True):
        columns += [
            _column(answer.name, interval.value, ~interval.finite),
            _column(f"{answer.name}_low", interval.low),
            _column(f"{answer.name}_high", interval.high),
        ]
    rows = (sample.whole[:, 0] + sample.sampled[:, 0]).astype(np.int64)[kept.rows]
    reliable = np.logical_and.reduce([can_trust[kept.rows], *map(is_reliable, intervals)])
    columns += [pl.Series("rows_sampled", rows), pl.Series("reliable", reliable)]
    if question.cut is not None and question.cut.drops:
        columns.append(pl.Series(CERTAIN, kept.certain))
    return sample.groups.drop(GROUP)[kept.rows].hstack(columns)


def _column(name: str, values: F64Array, stays: BoolArray | None = None) -> pl.Series:
    """Return numbers, with null for NaN except where `stays` marks NaN as the value."""
    missing = np.isnan(values) if stays is None else np.isnan(values) & ~stays
    return pl.Series(name, values, pl.Float64).set(pl.Series(missing, dtype=pl.Boolean), None)


def notes_of(
    question: Question,
    intervals: Sequence[Interval],
    kept: Kept,
    decides: BoolArray,
    *,
    rows_read: int,
    rows_total: int | None,
) -> tuple[str, ...]:
    """Return notes on answers without a bound or a reliable one, and on rows that were read twice."""
    notes: list[str] = []
    rows = "rows" if question.per is None else "keys"
    intervals = [interval.of_groups(kept.rows) for interval in intervals[: question.shown]]
    for answer, interval in zip(question.aggregates.answers[: question.shown], intervals, strict=True):
        infinite = int((~interval.finite).sum())
        if infinite:
            notes.append(
                f"{answer.name}: {rows} of {_plural(infinite, 'group')} hold NaN or infinities, without a bound; "
                "exclude them with where="
            )
    reliable = np.logical_and.reduce([is_reliable(interval) for interval in intervals])
    unreliable = int((~reliable & decides[kept.rows]).sum())
    if unreliable:
        reason = (
            "the number of rows or keys in the sample deviates from the log by more than chance explains, so it lacks "
            "heavy keys or has too many; increase the limits to read more"
            if any(interval.deviates for interval in intervals)
            else f"fewer than {MIN_KEYS} sampled keys, one key with more than {_MAX_SHARE} of the variance, or no bound"
        )
        verb = "is" if unreliable == 1 else "are"
        notes.append(f"{unreliable:,} of {_plural(len(reliable), 'group')} {verb} not reliable: {reason}")
    if kept.doubtful:
        dropped = _plural(kept.doubtful, "group")
        notes.append(f"HAVING drops {dropped} whose intervals include values that it keeps")
    if rows_total is not None and rows_read > rows_total:
        is_all = question.limits.min_group_rows == 0
        cure = "; without min_group_rows=0, small groups do not decide how much is read" if is_all else ""
        notes.append(
            f"{rows_read:,} rows were read of {rows_total:,}: samples first, then all rows, because the samples "
            f"were not precise enough{cure}"
        )
    return tuple(notes)

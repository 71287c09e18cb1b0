"""Run the rounds of an estimate: a pilot, the fraction that its variance requires, and the groups to keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.weights import fractions_of, sample_to_weights
from qbeast_core.sampling.certain import Bounds, Kept, keep
from qbeast_core.sampling.confidence import (
    WIDENED,
    Interval,
    Target,
    factor_of,
    interval_of,
    is_met,
    next_fraction,
)
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sampling.recognise import TOTAL, Quantile, Smooth
from qbeast_core.sampling.sums import GROUP, Sums
from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.estimate.question import Limits, Question
from qbeast_core.table.estimate.reading import Reading, Window
from qbeast_core.table.estimate.result import Estimate, exact_names, frame_of, notes_of
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.read.scan import known_rows


def intervals_and_kept(question: Question, sample: KeySample) -> tuple[list[Interval], Kept]:
    """Return the intervals of all answers for all groups, and the groups that an estimate keeps.

    If answers choose the groups, they choose those with the luckiest samples. The intervals of these hold only if the
    intervals of all groups hold at once.
    """
    cut, limits, answers = question.cut, question.limits, question.aggregates.answers
    groups = max(len(sample.whole), 1)
    used = [] if cut is None else [answer for answer in answers if answer.name in cut.names]
    if cut is not None and cut.chooses:
        # One more for all groups without a sampled row.
        at_once = groups * len(answers) + question.may_lack_groups(sample)
        intervals = compared = _intervals(sample, answers, limits, at_once)
    else:
        at_once = max(groups * len(used), 1)
        intervals = _intervals(sample, answers, limits, groups * question.shown if limits.simultaneous else 1)
        compared = _intervals(sample, used, limits, at_once)
    if cut is None:
        kept = Kept(np.arange(len(sample.whole)), np.ones(len(sample.whole), np.bool_), None, 0)
    else:
        estimates = {answer.name: Bounds.exactly(intervals[answer.name]) for answer in used}
        missing = sample.missing((1 - limits.confidence) / at_once) if used else np.zeros(0)
        bounds = {answer.name: Bounds.of(compared[answer.name], answer, missing) for answer in used}
        lacks = cut.limit is not None and question.may_lack_groups(sample)
        unseen = {answer.name: Bounds.unseen(answer, missing) for answer in used} if lacks else None
        kept = keep(cut, estimates, bounds, sample.groups.drop(GROUP), unseen)
    return [*intervals.values()], kept


def _intervals(
    sample: KeySample, answers: Iterable[Smooth | Quantile], limits: Limits, at_once: int
) -> dict[str, Interval]:
    """Return the intervals of answers by name, of which this number hold at once with the confidence."""
    factor = factor_of(limits.confidence, answers=at_once)
    factor *= WIDENED if limits.sample is None else 1.0
    return {answer.name: interval_of(sample, answer, factor) for answer in answers}


def _deciding(rows: F64Array, listed: I64Array, min_rows: int | None) -> BoolArray:
    """Return which groups decide how much is read: listed ones of at least this number of rows.

    None: of at least a share of all rows; if all listed ones are smaller, they all decide.

    >>> _deciding(np.array([9_000.0, 8.0, 992.0]), np.array([0, 1]), None)
    array([ True, False, False])
    """
    is_listed = np.zeros(len(rows), np.bool_)
    is_listed[listed] = True
    large = is_listed & (rows >= (sizing().deciding_share * rows.sum() if min_rows is None else min_rows))
    return large if large.any() or min_rows is not None else is_listed


def _share(rows: F64Array, chosen: BoolArray) -> float:
    """Return the share of the rows that chosen groups have; 1.0 without rows."""
    total = float(rows.sum())
    return float(rows[chosen].sum()) / total if total else 1.0


# Maximum growth of the fraction from round to round of a progressive estimate.
_STEP: Final = 2.0

# A round that needs this fraction of all bytes is not worth its error: all rows are read instead.
MAX_ROUND_BYTES: Final = 0.8

# Copies of the sums by key in memory while new sums are added and evaluated.
_COPIES: Final = 4

# Maximum number of reductions of a round to keep `max_bytes`.
MAX_REDUCTIONS: Final = 8


def rounds(
    planner: Planner, question: Question, *, progressive: bool = False, engine: Engine | None = None
) -> Iterator[Estimate]:
    """Yield better estimates until one is precise enough or a limit is reached."""
    state = _Rounds(Reading(planner, question, engine=engine), progressive=progressive)
    rows = known_rows(planner) if question.counts_rows and question.condition is None else None
    if rows is not None:  # the log has the answer
        state.take_count(rows)
        state.look(probability=1.0)
        yield state.estimate()
        return
    end: float | None = state.first_end()
    while end is not None:
        state.read_to(end)
        state.look()
        if progressive:
            yield state.estimate()
        end = state.next_end()
    if not progressive:
        yield state.estimate()


@dataclass(eq=False)
class _Rounds:
    """The rows read so far, and their results."""

    reading: Reading
    progressive: bool
    start: float = 0.0
    fraction: float = 0.0
    whole: list[Sums] = field(default_factory=list[Sums])
    sampled: list[Sums] = field(default_factory=list[Sums])
    apart: list[Sums] | None = None
    seen: KeySample = field(init=False)
    intervals: list[Interval] = field(default_factory=list[Interval])
    kept: Kept = field(init=False)
    # Which groups decide how much is read, and which are precise enough.
    decides: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_precise: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_met: bool = False
    is_stopped: bool = False

    @property
    def question(self) -> Question:
        return self.reading.question

    @property
    def is_counted(self) -> bool:
        """Whether the number of rows is the answer."""
        question = self.question
        return question.limits.sample is None and question.counts_rows and self.reading.counted is not None

    def take_count(self, rows: int) -> None:
        """Add a known number of rows; no rows remain to sample."""
        nothing, name = self.reading.nothing, f"{TOTAL}0"
        count = pl.lit(rows, nothing.groups.schema[name]).alias(name)
        self.whole.append(replace(nothing, groups=nothing.groups.with_columns(count)))
        self.sampled, self.apart = [nothing], None

    def first_end(self) -> float:
        """Read the files without index, and return the end of the first round."""
        question, reading = self.question, self.reading
        self.whole += reading.read(reading.without_index(), max_bytes=question.limits.memory_bytes)
        if question.limits.sample is not None:
            self.start, end = fractions_of(question.limits.sample)
            self.fraction = self.start
            reading.count(0)
            return end
        pilot = sizing().pilot_rows / max(*(table.rows_opened for table in reading.tables), 1)
        end = min(self.worth(pilot if pilot < 0.5 else 1.0), question.limits.max_fraction)
        return 1.0 if self.counts(end) else end

    def counts(self, end: float) -> bool:
        """Count the matching rows if that is not more expensive than a round; return whether that is the answer."""
        max_bytes, window = self.question.limits.max_bytes, self.window(end)
        remaining = math.inf if max_bytes is None else max_bytes - self.reading.bytes_opened
        cost = 0 if window is None else window.bytes_opened
        return self.reading.count(min(cost, remaining)) and self.question.counts_rows

    def worth(self, end: float) -> float:
        """Return the end of a round: 1.0 if reading all rows costs hardly more.

        Samples also read the indexed columns, and use only parts of the pages they read.
        """
        if end == 1.0:
            return end
        window, everything = self.window(end), self.everything()
        if window is None or everything is None:
            return end
        cost = window.bytes_opened + (self.reading.bytes_apart if self.apart is None else 0)
        return 1.0 if cost >= MAX_ROUND_BYTES * everything.bytes_opened else end

    def everything(self) -> Window | None:
        """Return the cheaper read of all rows: the rest, or all rows again without weights."""
        all_rows = self.reading.between(0.0, 1.0, by_key=False)
        if not self.sampled:
            return all_rows
        remaining = self.reading.between(self.fraction, 1.0, by_key=False)
        if remaining is None or all_rows is None:
            return remaining
        return remaining if remaining.bytes_opened < all_rows.bytes_opened else all_rows

    def read_to(self, end: float) -> None:
        """Read the rows up to a fraction, or fewer if `max_bytes` requires it."""
        if self.is_counted:
            self.take_count(self.reading.counted or 0)
            self.fraction = 1.0
            return
        end = self.within_bytes(end)
        if end <= self.fraction or not self.fits(end):
            self.is_stopped = True
            return
        window = self.window(end)
        if window is not None and window.plan.sample is None:
            self.sampled, self.apart = [], None  # all rows are read again
        question, is_all = self.question, self.is_all(end)
        if not is_all and self.apart is None:
            self.apart = self.reading.read_apart(max_bytes=question.limits.memory_bytes)
        # For a target, `fits` estimates the memory of a round before the read.
        max_bytes = question.limits.memory_bytes if is_all or question.limits.sample is not None else None
        (self.whole if is_all else self.sampled).extend(self.reading.read(window, max_bytes=max_bytes))
        self.fraction = end

    def is_all(self, end: float) -> bool:
        """Return whether a round up to this fraction leaves no row unread."""
        return self.start == 0.0 and end == 1.0

    def window(self, end: float) -> Window | None:
        """Return the next read."""
        return (
            self.everything() if self.is_all(end) else self.reading.between(self.fraction, end, by_key=True)
        )

    def fits(self, end: float) -> bool:
        """Return whether the sums of all keys up to a fraction fit in memory; at 1.0, only groups are in memory."""
        read = self.fraction - self.start
        if self.is_all(end) or not read:
            return True
        size_bytes = sum(sums.size_bytes for sums in self.sampled) * (end - self.start) / read
        return _COPIES * size_bytes <= self.question.limits.memory_bytes

    def within_bytes(self, end: float) -> float:
        """Return the end of a round that keeps `max_bytes`."""
        max_bytes = self.question.limits.max_bytes
        if max_bytes is None:
            return end
        remaining = max_bytes - self.reading.bytes_opened
        for _ in range(MAX_REDUCTIONS if remaining > 0 else 0):
            window = self.window(end)
            if window is None and self.is_stopped:
                break  # the rest of the round has no rows
            cost = 0 if window is None else self.reading.bytes_of(window)
            if self.apart is None and not self.is_all(end):
                cost += self.reading.bytes_apart
            if cost <= remaining:
                return end
            self.is_stopped = True
            end = self.fraction + (end - self.fraction) * min(0.8 * remaining / cost, 0.9)
        if self.fraction == self.start:
            msg = (
                f"max_bytes={max_bytes:,} is too small for any sample: it needs the files without index, and a few "
                f"pages of the others; {self.reading.bytes_opened:,} bytes were read. Increase it, or optimize the "
                "table"
            )
            raise InvalidInputError(msg, argument="max_bytes")
        self.is_stopped = True
        return self.fraction

    def look(self, probability: float | None = None) -> None:
        """Compute the intervals of all rows read so far."""
        question, reading = self.question, self.reading
        if probability is None:
            probability = reading.probability(self.start, self.fraction)
        sample = self.seen = self.sample(probability)
        self.intervals, self.kept = intervals_and_kept(question, sample)
        rows = sample.totals[:, 0]
        min_rows = question.limits.min_group_rows if question.limits.sample is None else 0
        self.decides = _deciding(rows, self.kept.rows, min_rows)
        met = [is_met(interval, target) for interval, target in self.answers()]
        self.is_precise = np.logical_and.reduce(met)
        # No sampled row matches, but unread rows may.
        unseen = len(rows) == 0 and probability < 1.0
        self.is_met = not unseen and bool((self.is_precise | ~self.decides).all())

    def estimate(self) -> Estimate:
        """Return the estimate of the last intervals."""
        question, reading = self.question, self.reading
        snapshot = reading.planner.snapshot
        rows_read = sum(table.rows_read for table in reading.tables)
        rows = [known_rows(table.planner.whole) for table in reading.tables]
        known = [count for count in rows if count is not None]
        rows_total = sum(known) if len(known) == len(rows) else None
        is_precise, group_rows = self.is_precise[self.kept.rows], self.seen.totals[self.kept.rows, 0]
        has_target = question.limits.sample is None
        return Estimate(
            frame=frame_of(question, self.seen, self.intervals, self.kept, self.is_precise | self.decides),
            uri=snapshot.uri,
            version=snapshot.version,
            fraction=0.0 if self.is_counted and not reading.bytes_opened else self.fraction - self.start,
            rows_read=rows_read,
            bytes_opened=reading.bytes_opened,
            bytes_total=sum(table.planner.snapshot.data_bytes for table in reading.tables),
            confidence=question.limits.confidence,
            simultaneous=question.limits.simultaneous or (question.cut is not None and question.cut.chooses),
            met=self.is_met if has_target else None,
            met_groups=int(is_precise.sum()) if has_target else None,
            met_share=_share(group_rows, is_precise) if has_target else None,
            complete=not question.may_lack_groups(self.seen),
            design_effect=reading.design_effect,
            names=tuple(answer.name for answer in question.aggregates.answers[: question.shown]),
            exact=exact_names(question, self.intervals),
            notes=notes_of(
                question, self.intervals, self.kept, self.decides, rows_read=rows_read, rows_total=rows_total
            ),
            certain_order=self.kept.is_ordered,
        )

    def answers(self) -> Iterator[tuple[Interval, Target]]:
        """Yield each interval with its target."""
        for interval, answer in zip(self.intervals, self.question.aggregates.answers, strict=True):
            yield interval, self.question.targets[answer.name]

    def sample(self, probability: float) -> KeySample:
        """Return all rows read so far as one sample."""
        question, reading = self.question, self.reading
        whole, sampled = (
            Sums.concat(parts or [reading.nothing], question.by)
            for parts in ([*self.whole, *(self.apart or ())], self.sampled)
        )
        self.sampled = [sampled]
        sample = KeySample.of(
            question.aggregates,
            question.by,
            sampled,
            whole,
            probability=probability,
            known_rows=reading.rows_known if reading.is_calibrated else None,
            filtered=question.condition is not None or question.changes_rows,
            counted=reading.counted is not None,
            bounds=reading.bounds,
            repeats=reading.repeats,
            farthest=lambda: reading.farthest,
            # The rows of a part may have fewer matches than others.
            weights=None
            if question.changes_rows or question.per is not None
            else sample_to_weights((self.start, self.fraction)),
            compared=question.per is not None,
        )
        counts_keys = question.aggregates.counts_keys  # then the rows per key do not matter
        others_deviate = not counts_keys and any(other.deviates(probability) for other in reading.others)
        return replace(sample, deviates=True) if others_deviate else sample

    def next_end(self) -> float | None:
        """Return the end of the next round; None if the answer is precise enough or a limit is reached."""
        question = self.question
        done = self.is_met or self.is_stopped or self.fraction >= min(question.limits.max_fraction, 1.0)
        if question.limits.sample is not None or done:
            return None
        growth = {"max_growth": _STEP} if self.progressive else {}
        following = max(
            next_fraction(self.fraction, interval, target, self.decides, **growth)
            for interval, target in self.answers()
        )
        if len(self.decides) == 0:
            following = min(_STEP * self.fraction, 1.0)
        if not self.fits(following):
            following = 1.0
        elif not self.progressive:
            following = self.worth(min(following, 1.0))
        end = min(following, question.limits.max_fraction)
        if end <= self.fraction or not self.fits(end):
            return None
        return 1.0 if self.question.counts_rows and self.counts(end) else end

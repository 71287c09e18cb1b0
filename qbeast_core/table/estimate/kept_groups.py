"""Compute the intervals of an estimate, and keep the groups that its HAVING, ORDER BY and LIMIT name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from qbeast_core.sampling.certain import Bounds, Kept, keep
from qbeast_core.sampling.confidence import WIDENED, Interval, factor_of, interval_of
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sampling.recognise import Quantile, Smooth
from qbeast_core.sampling.sums import GROUP
from qbeast_core.table.estimate.question import Limits, Question


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

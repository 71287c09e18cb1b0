"""Keep the groups of an estimate that its HAVING, ORDER BY and LIMIT name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbeast_core.sampling.certain import Bounds, Kept, keep
from qbeast_core.sampling.confidence import Interval, factor_of, interval_of
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sampling.stopping import WIDENED
from qbeast_core.sampling.sums import GROUP
from qbeast_core.table.estimate.question import Question


def kept_groups(question: Question, sample: KeySample, intervals: Sequence[Interval]) -> Kept:
    """Return the groups that an estimate keeps; all of them without a cut."""
    cut = question.cut
    if cut is None:
        rows = np.arange(len(sample.whole))
        return Kept(rows, np.ones(len(rows), np.bool_), None, 0)
    answers = question.aggregates.answers
    used = [index for index, answer in enumerate(answers) if answer.name in cut.names]
    factor = factor_of(question.limits.confidence, answers=max(len(sample.whole) * len(used), 1))
    factor *= WIDENED if question.limits.sample is None else 1.0
    estimates = {answers[index].name: Bounds.exactly(intervals[index]) for index in used}
    bounds = {
        answers[index].name: Bounds.of(interval_of(sample, answers[index], factor), answers[index])
        for index in used
    }
    return keep(cut, estimates, bounds, sample.groups.drop(GROUP))

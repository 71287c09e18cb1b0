"""How often does the interval of a function hold the true value? A trial draws other users.

Users have few rows (light), Pareto rows with exponent 1.5 or 2.2, and perhaps one key with a tenth (null) or a
quarter (giant) of all rows. Each user has a level and a slope, so the rows of a user are alike. Functions are computed
from sums by user: the result is the same as from rows, and faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.sampling.sums import Repeats, SeenRows
from qbeast_core.space.values import F64Array
from qbeast_core.table.estimate.functions import PARTS, Jackknifed, jackknife, student_factor

USERS: Final = 20_000
GROUPS: Final = 64
SHAPES: Final = ("light", "Pareto 1.5", "Pareto 2.2", "null", "giant")
_BIGGEST: Final = {"null": 0.1, "giant": 0.25}

# Columns of sums by user.
N, X, Y, XX, XY, YY, WEIGHT, WEIGHTED = range(8)


def correlation(t: F64Array) -> float:
    """Return the correlation of x and y."""
    spread = (t[XX] * t[N] - t[X] ** 2) * (t[YY] * t[N] - t[Y] ** 2)
    return float((t[XY] * t[N] - t[X] * t[Y]) / np.sqrt(spread))


def slope(t: F64Array) -> float:
    """Return the coefficient of x in the regression of y."""
    return float((t[XY] * t[N] - t[X] * t[Y]) / (t[XX] * t[N] - t[X] ** 2))


def gini(values: F64Array) -> float:
    """Return the Gini coefficient of positive values."""
    count = len(values)
    ranks = np.arange(1, count + 1)
    return float(2 * (ranks * np.sort(values)).sum() / (count * values.sum()) - (count + 1) / count)


# Functions of the sums by user, shape (users, columns).
FUNCTIONS: Final[dict[str, Callable[[F64Array], float]]] = {
    "correlation": lambda users: correlation(users.sum(axis=0)),
    "slope": lambda users: slope(users.sum(axis=0)),
    "ratio": lambda users: float(users[:, Y].sum() / users[:, X].sum()),
    "weighted mean": lambda users: float(users[:, WEIGHTED].sum() / users[:, WEIGHT].sum()),
    "Gini of spend": lambda users: gini(users[:, X]),
    "sum": lambda users: float(users[:, X].sum()),
    "rows": lambda users: float(users[:, N].sum()),
    "users": lambda users: float(len(users)),
    "largest user": lambda users: float(users[:, X].max()),
    "smallest user": lambda users: float(users[:, X].min()),
}


@dataclass(frozen=True, slots=True)
class Coverage:
    """The results of trials."""

    # Share of the reliable answers whose interval holds the true value; NaN without any.
    kept: float
    # Share of reliable answers.
    reliable: float


def users_of(shape: str, random: np.random.Generator) -> F64Array:
    """Return sums by user, shape (users, columns)."""
    rows = random.integers(1, 21, USERS)
    if shape.startswith("Pareto"):
        rows = np.ceil((1 - random.random(USERS)) ** (-1 / float(shape.split()[1]))).astype(np.int64)
    rows[0] = max(int(_BIGGEST.get(shape, 0) * rows.sum()), rows[0])
    key = np.repeat(np.arange(USERS), rows)
    x = np.exp(0.4 * random.normal(size=USERS)[key] + 0.5 * random.normal(size=len(key)))
    y = 1 + (0.5 + 0.3 * random.normal(size=USERS)[key]) * x + random.normal(size=len(key))
    weight = random.random(len(key))
    columns = (np.ones(len(key)), x, y, x * x, x * y, y * y, weight, weight * y)
    return np.stack([np.bincount(key, column, USERS) for column in columns], axis=1)


def trials(shape: str, name: str, *, fraction: float, count: int, confidence: float = 0.95) -> Coverage:
    """Draw samples of users; every hundred samples are of another population."""
    random = np.random.default_rng([SHAPES.index(shape), [*FUNCTIONS].index(name), round(fraction * 1e4)])
    kept = reliable = 0
    for trial in range(count):
        if trial % 100 == 0:
            users = users_of(shape, random)
            true = FUNCTIONS[name](users)
        answer = answer_of(users, name, fraction, confidence, random)
        if answer.reason is None:
            reliable += 1
            kept += bool(answer.interval.low.item() <= true <= answer.interval.high.item())
    return Coverage(kept / reliable if reliable else np.nan, reliable / count)


def answer_of(
    users: F64Array, name: str, fraction: float, confidence: float, random: np.random.Generator
) -> Jackknifed:
    """Draw a sample, and return the answer of a function."""
    sampled = users[random.random(len(users)) < fraction]
    group = random.integers(0, GROUPS, len(sampled))
    function, part = FUNCTIONS[name], group * PARTS // GROUPS
    without = np.array([function(sampled[group != number]) for number in range(GROUPS)])
    parts = np.array([function(sampled[part == number]) for number in range(PARTS)])
    rows, total = sampled[:, N], users[:, N].sum()
    seen = SeenRows(rows.sum(), (rows**2).sum(), fraction, ((rows**2 - rows) ** 2).sum())
    repeats = Repeats(total, float((users[:, N] ** 2 - users[:, N]).sum()))
    return jackknife(
        function(sampled),
        without,
        parts,
        factor=student_factor(confidence, GROUPS - 1),
        probability=fraction,
        keys=len(sampled),
        deviates=seen.deviates(total, total) or seen.lacks_keys(repeats),
    )

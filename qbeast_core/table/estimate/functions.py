"""Estimate a function of rows: rounds of growing samples, and intervals by the jackknife.

The variance of a function of the sample is estimated from its values without each of G groups of keys: (G - 1) / G
times the sum of their squared deviations from their mean. This holds for smooth functions of averages, such as ratios,
correlations and regression coefficients. It fails for functions that grow with the number of rows, and for functions
that a few rows decide. The code of a function does not show either, so its values on parts of the sample are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from numbers import Real
from statistics import NormalDist
from typing import Any, Final, NoReturn, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError, check_whole_number
from qbeast_core.plan.nodes import named_columns
from qbeast_core.plan.weights import fractions_of
from qbeast_core.sampling.confidence import (
    MAX_SHARE,
    MIN_KEYS,
    ROUNDING,
    UNSEEN,
    WIDENED,
    Interval,
    Target,
    is_met,
    is_reliable,
    next_fraction,
)
from qbeast_core.sampling.sums import GROUP, WEIGHT, KeySizes, Repeats, SeenRows
from qbeast_core.space.values import F64Array, I32Array, I64Array
from qbeast_core.support.frames import own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.expressions import Predicate, evaluating
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.estimate.join import Joins
from qbeast_core.table.estimate.question import RESERVED, Function, Limits, Question, question_of
from qbeast_core.table.estimate.reading import NO_HEAVY_ROWS, HeavyRows, Reading, Window
from qbeast_core.table.estimate.result import Estimate
from qbeast_core.table.estimate.rounds import MAX_REDUCTIONS, MAX_ROUND_BYTES, rounds
from qbeast_core.table.estimate.sum_task import Expressions, refuse
from qbeast_core.table.read.planner import Planner, scans_of, warn_of_full_read
from qbeast_core.table.read.scan import known_rows
from qbeast_core.table.read.tasks import read_scans
from qbeast_core.tree.keys import mixed

# Number of parts of the sample, some groups each, on which a function must return about the same value.
PARTS: Final = 8

# Minimum number of groups of keys: of fewer, one often has much of the variance by chance.
MIN_REPLICATES: Final = 4 * PARTS

# Maximum shift from the parts to the whole sample, in standard errors. In simulations, the median shift of ratios,
# correlations and slopes is 0.05 to 0.35. The shift of a sum is most of its value.
_MAX_SHIFT: Final = 1.0

# Minimum fraction of different values among the replicates: with fewer, most groups of keys do not matter.
_MIN_DIFFERENT: Final = 0.5

# Changes the bits of weights: then the group of a key does not depend on its place in the order of weights, nor on
# other uses of `mixed`.
_SALT: Final = np.uint32(0x5BD1E995)

_NO_NUMBER: Final = "the function returned NaN or an infinity for all rows or for a part of them"


@dataclass(frozen=True, slots=True, eq=False)
class Jackknifed:
    """An answer of a function. The arrays of the interval have one item."""

    interval: Interval
    # Why the answer is not reliable. None: it is.
    reason: str | None


def replicates_of(
    function: Callable[[pl.DataFrame], F64Array], rows: pl.DataFrame, groups: int
) -> tuple[F64Array, F64Array, F64Array]:
    """Call a function for all rows, for all rows without each group of keys, and for each of the `PARTS`.

    Return arrays of shape (answers,), (groups, answers) and (PARTS, answers). `rows` has the columns of the function
    and `WEIGHT`. The rows of a group are contiguous, so that no row is copied.

    >>> rows = pl.DataFrame({"x": range(1_000), WEIGHT: pl.Series(range(1_000), dtype=pl.Int32)})
    >>> values, without, parts = replicates_of(lambda frame: np.array([frame["x"].sum()]), rows, 64)
    >>> without.shape, values == parts.sum(axis=0)
    ((64, 1), array([ True]))
    """
    group = groups_of(rows[WEIGHT].to_numpy(), groups)
    ordered = rows.drop(WEIGHT).with_columns(pl.Series(GROUP, group)).sort(GROUP)
    edges = np.searchsorted(ordered[GROUP].to_numpy(), np.arange(groups + 1)).tolist()
    ordered = ordered.drop(GROUP)
    parts = np.searchsorted(np.arange(groups) * PARTS // groups, np.arange(PARTS + 1)).tolist()
    return (
        function(ordered),
        np.array([function(pl.concat([ordered[:start], ordered[end:]])) for start, end in pairwise(edges)]),
        np.array(
            [function(ordered[edges[first] : edges[following]]) for first, following in pairwise(parts)]
        ),
    )


def groups_of(weights: I32Array, groups: int) -> I64Array:
    """Return the number of the group of each key, which does not depend on the order of weights.

    >>> groups_of(np.array([1, 2, 2, 3], dtype=np.int32), 64).tolist()
    [39, 17, 17, 42]
    """
    bits = mixed(weights.view(np.uint32) ^ _SALT)
    return (bits % np.uint32(groups)).astype(np.int64)


def student_factor(confidence: float, degrees: int, *, answers: int = 1) -> float:
    """Return the half width of an interval in standard errors by Student's t; for several answers, by Bonferroni.

    The expansion of Cornish and Fisher is precise to a thousandth from 15 degrees of freedom on.

    >>> round(student_factor(0.95, 63), 3), round(student_factor(0.99, 15), 3)
    (1.998, 2.946)
    """
    z = NormalDist().inv_cdf(1 - (1 - confidence) / (2 * answers))
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def exact(value: float) -> Jackknifed:
    """Return an answer from all rows."""
    is_finite = np.isfinite(value)
    interval = replace(_interval(value, 0.0), exact=np.array([is_finite]), finite=np.array([is_finite]))
    return Jackknifed(interval, None if is_finite else _NO_NUMBER)


def _without_bound(value: float, keys: int) -> Jackknifed:
    """Return an answer from a sample with too few keys for a jackknife."""
    reason = f"{keys} keys were sampled, and at least {MIN_KEYS} are needed"
    return Jackknifed(replace(_interval(value, np.nan), keys=np.array([keys])), reason)


def jackknife(
    value: float,
    without: F64Array,
    parts: F64Array,
    *,
    factor: float,
    probability: float,
    keys: int,
    deviates: bool,
) -> Jackknifed:
    """Return an answer with its interval, from its values without each group of keys and for parts of the sample.

    `factor` is the half width in standard errors, `probability` that of a key to be in the sample, and `keys` the
    number of sampled keys. `deviates`: the sample differs from the log by more than chance explains.

    >>> x = np.random.default_rng(1).normal(10, 1, (64, 100))
    >>> without, parts = (x.sum() - x.sum(axis=1)) / 6_300, x.reshape(8, 800).mean(axis=1)
    >>> mean = jackknife(x.mean(), without, parts, factor=2.0, probability=0.01, keys=6_400, deviates=False)
    >>> mean.reason, 0.02 < mean.interval.half_width.item() < 0.05  # about 2 / sqrt(6_400)
    (None, True)
    """
    if not all(np.isfinite(numbers).all() for numbers in (value, without, parts)):
        interval = replace(_interval(value, np.nan), finite=np.zeros(1, np.bool_))
        return Jackknifed(interval, _NO_NUMBER)
    variance, largest, skewness, different = _jackknife_moments(without - value, value)
    # As for other answers, intervals are wider if few keys decide, see `confidence`.
    error = float(np.sqrt((1 - probability) * variance * (1 + UNSEEN * largest)))
    shift = float(parts.mean() - value)
    reason = None
    if abs(shift) > _MAX_SHIFT * error:
        reason = (
            f"it depends on the number of rows, as a sum or a maximum does: {value:.4g} for the sample, and on average "
            f"{parts.mean():.4g} for {PARTS} parts of it"
        )
    elif different < _MIN_DIFFERENT:
        reason = "most groups of keys do not change it, or all of them by the same amount"
    elif deviates:
        reason = "the sample lacks keys with many rows, or has too many"
    # The change from a part of the sample to the sample may repeat from the sample to the table.
    half_width = factor * error * (1 + skewness) + abs(shift)
    interval = replace(
        _interval(value, half_width),
        keys=np.array([keys]),
        largest_share=np.array([largest]),
        skewness=np.array([skewness]),
        deviates=reason is not None,  # a larger sample does not help: all rows are needed
    )
    if reason is None and largest > MAX_SHARE:
        reason = f"one group of keys has more than {MAX_SHARE:.0%} of the variance"
    return Jackknifed(interval, reason)


def _interval(value: float, half_width: float) -> Interval:
    values, zeros = np.array([value]), np.zeros(1)
    return Interval(
        value=values,
        low=np.where(np.isfinite(values), values - half_width, np.nan),
        high=np.where(np.isfinite(values), values + half_width, np.nan),
        keys=zeros.astype(np.int64),
        largest_share=zeros,
        exact=np.zeros(1, np.bool_),
        finite=np.ones(1, np.bool_),
        skewness=zeros,
    )


def _jackknife_moments(changes: F64Array, value: float) -> tuple[float, float, float, float]:
    """Return the variance of an answer with this value, from its changes when groups of keys are left out one by one.

    Also return the fraction of the variance from one group, the absolute skewness, and the fraction of different
    changes.
    """
    groups = len(changes)
    changes = np.where(np.abs(changes) <= ROUNDING * abs(value), 0.0, changes)
    deviations = changes - changes.mean()
    squares = deviations**2
    total = float(squares.sum())
    different = len(np.unique(changes)) / groups
    if total == 0:
        return 0.0, 1.0, 0.0, different
    skewness = abs(float((squares * deviations).sum())) / total**1.5
    return (groups - 1) / groups * total, float(squares.max()) / total, skewness, different


# Copies of the rows in memory: as they were read, in order of their groups, and in the function.
_COPIES: Final = 3

# Key of the target of all answers without an absolute error.
_OTHERS: Final = own_column("others")

# Growth of a sample without a matching row.
_STEP: Final = 2.0


def estimates_of(
    planner: Planner,
    aggregates: Expressions | Function,
    *,
    where: Predicate | None,
    columns: Sequence[str] | None,
    engine: Engine | None,
    progressive: bool,
    replicates: int = 64,
    per: Expressions | None = None,
    by: Expressions | None = None,
    join: Joins | None = None,
    **limits: Any,
) -> Iterator[Estimate]:
    """Estimate aggregates, or a function of rows: the last answer, or all of them; see `Read.estimates`."""
    parts: dict[str, Any] = {"per": per, "by": by, "join": join}
    checked = Limits.of(**limits)
    planner.weights_of(checked.sample)  # raises if a sample needs other arguments
    warn_of_full_read(planner)
    if callable(aggregates) and not progressive:
        return iter(
            [
                _estimate_function(
                    planner, aggregates, checked, where, replicates=replicates, columns=columns, **parts
                )
            ]
        )
    if columns is not None:
        refuse("columns", "lists the columns of a function, and `aggregates` is not a function")
    question = question_of(planner, aggregates, checked, where=where, **parts)
    return rounds(planner, question, progressive=progressive, engine=engine)


def _estimate_function(
    planner: Planner,
    function: Function,
    limits: Limits,
    where: Predicate | None,
    *,
    replicates: int,
    columns: Sequence[str] | None,
    **others: object,
) -> Estimate:
    """Estimate the answers of a function, from rounds of growing samples; it has no `others`."""
    for name, value in others.items():
        if value is not None:
            cure = " Group or join in the function; it may return several numbers."
            refuse(name, "cannot be combined with a function", cure=cure)
    check_whole_number("replicates", replicates, MIN_REPLICATES)
    names = [*limits.absolute] if isinstance(limits.absolute, Mapping) else []
    names.append(_OTHERS)
    # The other arguments are those of a count of rows.
    question = question_of(planner, dict.fromkeys(names, pl.len()), limits, where=where)
    read = tuple(planner.names_of(columns)) or question.columns[:1]
    question = replace(question, columns=read, whole_keys=True)
    state = _FunctionRounds(_WholeKeys(planner, question), _Call(function), replicates)
    state.run()
    return state.estimate()


class _WholeKeys(Reading):
    """Reads all rows of sampled keys."""

    @cached_property
    def heavy(self) -> HeavyRows:
        """No key is read apart: in a frame of rows, it would have the weight of one sampled key."""
        return NO_HEAVY_ROWS

    def frames(self, window: Window) -> Iterator[tuple[I32Array, pl.DataFrame]]:
        """Yield the weights of all rows that are read, and the matching rows with their weights."""
        condition = window.left.condition
        columns = tuple(dict.fromkeys([*self.question.columns, *named_columns(condition)]))
        plan = window.plan.scan_plan
        keep = replace(self.planner.row_filter(plan, columns), weight_column=WEIGHT)
        with evaluating(self.question.condition, "where"):
            for frame in read_scans(scans_of(self.planner, plan), keep, self.planner.files):
                self.rows_read += frame.height
                rows = frame if condition is None else frame.filter(condition)
                yield frame[WEIGHT].to_numpy(), rows.select(*self.question.columns, WEIGHT)
        self.bytes_opened += window.plan.bytes_opened


@dataclass(eq=False)
class _FunctionRounds:
    """The rows read so far, and the answers of the function."""

    reading: _WholeKeys
    call: _Call
    replicates: int
    start: float = 0.0
    fraction: float = 0.0
    # Matching rows with their weights.
    frames: list[pl.DataFrame] = field(default_factory=list[pl.DataFrame])
    # Weights of all rows that were read.
    weights: list[I32Array] = field(default_factory=list[I32Array])
    answers: list[Jackknifed] = field(default_factory=list[Jackknifed])
    is_stopped: bool = False

    @property
    def question(self) -> Question:
        return self.reading.question

    @property
    def rows(self) -> pl.DataFrame:
        """The matching rows, with their weights."""
        schema = self.reading.planner.snapshot.schema
        types = {name: schema[name] for name in self.question.columns} | {WEIGHT: pl.Int32()}
        return pl.concat([pl.DataFrame(schema=types), *self.frames])

    @property
    def is_met(self) -> bool:
        """Whether all answers are reliable and precise enough."""
        return bool(self.answers) and all(
            is_met(item.interval, target).all() for item, target in self.targets()
        )

    @property
    def can_grow(self) -> bool:
        """Whether no limit is reached."""
        question = self.question
        is_fixed = question.limits.sample is not None or self.is_stopped
        return not is_fixed and self.fraction < min(question.limits.max_fraction, 1.0)

    def targets(self) -> Iterator[tuple[Jackknifed, Target]]:
        """Yield each answer with its target."""
        targets = self.question.targets
        for name, item in zip(self.call.names, self.answers, strict=True):
            yield item, targets[name if name in targets else _OTHERS]

    def run(self) -> None:
        """Read and answer in rounds."""
        question, reading = self.question, self.reading
        end: float | None
        if question.limits.sample is not None:
            self.start, end = fractions_of(question.limits.sample)
            self.fraction = self.start
        else:
            pilot = sizing().pilot_rows / max(reading.rows_opened, 1)
            end = min(self.worth(pilot if pilot < 0.5 else 1.0), question.limits.max_fraction)
        self.read(reading.without_index())
        while end is not None:
            self.read_to(end)
            self.look()
            end = None if self.is_met else self.next_end()

    def worth(self, end: float) -> float:
        """Return the end of a round: 1.0 if reading all rows costs hardly more."""
        window, everything = self.window(end), self.window(1.0)
        if window is None or everything is None:
            return end
        is_cheap = window.plan.bytes_opened < MAX_ROUND_BYTES * everything.plan.bytes_opened
        return end if is_cheap else 1.0

    def window(self, end: float) -> Window | None:
        """Return the read of the rows up to a fraction."""
        return self.reading.between(self.fraction, end, by_key=(self.start, end) != (0.0, 1.0))

    def read_to(self, end: float) -> None:
        """Read the rows up to a fraction, or fewer if `max_bytes` requires it."""
        end = self.within_bytes(end)
        self.read(self.window(end) if end > self.fraction else None)
        self.fraction = end

    def read(self, window: Window | None) -> None:
        """Read rows."""
        max_bytes = self.question.limits.memory_bytes // _COPIES
        used_bytes = sum(int(frame.estimated_size()) for frame in self.frames)
        for weights, rows in () if window is None else self.reading.frames(window):
            self.weights.append(weights)
            self.frames.append(rows)
            used_bytes += int(rows.estimated_size()) + weights.nbytes
            if used_bytes > max_bytes:
                message = (
                    f"the rows of the sampled keys take more than {max_bytes:,} bytes, a third of the memory. "
                    "Increase `memory_bytes`, request a larger error or a smaller sample, limit "
                    "`max_fraction`, or list fewer `columns`"
                )
                raise InvalidInputError(message, argument="memory_bytes")

    def within_bytes(self, end: float) -> float:
        """Return the end of a round that keeps `max_bytes`."""
        max_bytes = self.question.limits.max_bytes
        for _ in range(MAX_REDUCTIONS):
            window = self.window(end)
            if window is None and self.is_stopped:
                break  # the rest of the round has no rows
            remaining = np.inf if max_bytes is None else max_bytes - self.reading.bytes_opened
            if window is None or window.plan.bytes_opened <= remaining:
                return end
            self.is_stopped = True
            share = max(0.8 * remaining / window.plan.bytes_opened, 0.0)
            end = self.fraction + (end - self.fraction) * min(share, 0.9)
        if self.fraction == self.start:
            message = (
                f"max_bytes={max_bytes:,} is too small for any sample; {self.reading.bytes_opened:,} bytes were read. "
                "Increase it"
            )
            raise InvalidInputError(message, argument="max_bytes")
        return self.fraction

    def look(self) -> None:
        """Compute the answers from all rows read so far."""
        rows, probability = self.rows, self.reading.probability(self.start, self.fraction)
        is_all, keys = probability == 1.0, rows[WEIGHT].n_unique()
        if not rows.height and self.can_grow:
            return
        if is_all or keys < MIN_KEYS:
            values = self.call(rows.drop(WEIGHT))
            self.answers = [
                exact(value) if is_all else _without_bound(value, keys) for value in values.tolist()
            ]
        else:
            self.answers = self.intervals(rows, keys, probability)
        self.call.check_names(self.question.targets)

    def intervals(self, rows: pl.DataFrame, keys: int, probability: float) -> list[Jackknifed]:
        """Return the answers of a sample."""
        question = self.question
        values, without, parts = replicates_of(self.call, rows, self.replicates)
        answers = len(values) if question.limits.simultaneous else 1
        factor = student_factor(question.limits.confidence, self.replicates - 1, answers=answers)
        factor *= WIDENED if question.limits.sample is None else 1.0
        deviates = self.deviates(probability)
        return [
            jackknife(*numbers, factor=factor, probability=probability, keys=keys, deviates=deviates)
            for numbers in zip(values.tolist(), without.T, parts.T, strict=True)
        ]

    def deviates(self, probability: float) -> bool:
        """Return whether the number of rows, or of rows of heavy keys, deviates from the log."""
        reading = self.reading
        seen = SeenRows.of(KeySizes(np.concatenate(self.weights)).counted(), probability)
        total, bounds = reading.rows_known if reading.is_calibrated else None, reading.bounds
        if total is not None:
            bounds = (total, total)
        # The log has the squared row counts of all keys of the table. Below a filter, heavy keys are assumed to match
        # as often as others.
        rows = known_rows(reading.planner)
        repeats = Repeats(rows or 0, (reading.design_effect - 1) * (rows or 0))
        return seen.differs(bounds, repeats)

    def next_end(self) -> float | None:
        """Return the end of the next round; None if a limit is reached."""
        if not self.can_grow:
            return None
        everything = np.ones(1, np.bool_)
        following = max(
            (
                next_fraction(self.fraction, item.interval, target, everything)
                for item, target in self.targets()
            ),
            default=_STEP * self.fraction,
        )
        end = min(self.worth(min(following, 1.0)), self.question.limits.max_fraction)
        return end if end > self.fraction else None

    def estimate(self) -> Estimate:
        """Return the last answers."""
        question, reading = self.question, self.reading
        snapshot, intervals = reading.planner.snapshot, [item.interval for item in self.answers]
        reliable = all(bool(is_reliable(interval).all()) for interval in intervals)
        columns = {
            f"{name}{end}": [None if np.isnan(number) and end else number]
            for name, interval in zip(self.call.names, intervals, strict=True)
            for end, number in (
                ("", interval.value.item()),
                ("_low", interval.low.item()),
                ("_high", interval.high.item()),
            )
        }
        frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64)).with_columns(
            rows_sampled=pl.lit(sum(frame.height for frame in self.frames), pl.Int64),
            reliable=pl.lit(reliable),
        )
        return Estimate(
            frame=frame,
            uri=snapshot.uri,
            version=snapshot.version,
            fraction=self.fraction - self.start,
            rows_read=reading.rows_read,
            bytes_opened=reading.bytes_opened,
            bytes_total=snapshot.data_bytes,
            confidence=question.limits.confidence,
            simultaneous=question.limits.simultaneous,
            met=self.is_met if question.limits.sample is None else None,
            complete=True,
            design_effect=reading.design_effect,
            names=self.call.names,
            exact=tuple(
                name for name, item in zip(self.call.names, intervals, strict=True) if item.exact.all()
            ),
            notes=tuple(
                f"{name} is not reliable: {item.reason}"
                for name, item in zip(self.call.names, self.answers, strict=True)
                if item.reason is not None
            ),
        )


@dataclass(eq=False)
class _Call:
    """Calls a function, and checks what it returns."""

    function: Function
    # Names of the answers, from the first call.
    names: tuple[str, ...] = ()

    def __call__(self, rows: pl.DataFrame) -> F64Array:
        """Return the numbers of the function for some rows, shape (answers,)."""
        try:
            returned = self.function(rows)
        except Exception as error:  # the function is of the caller
            what = f"raised {type(error).__name__}: {error}, for a sample of {rows.height:,} rows"
            raise self.error(what) from error
        numbers = self.numbers(returned)
        if not self.names:
            self.names = tuple(numbers)
        if tuple(numbers) != self.names:
            self.refuse(f"returned {list(self.names)} first, and then {list(numbers)}")
        return np.array([*numbers.values()], np.float64)

    def numbers(self, returned: object) -> dict[str, float]:
        """Return numbers by name."""
        name = getattr(self.function, "__name__", "")
        name = name if name.isidentifier() else "value"
        if isinstance(returned, pl.DataFrame):
            if returned.height != 1:
                self.refuse(f"returned a frame of {returned.height} rows, not of one row")
            returned = returned.row(0, named=True)
        if isinstance(returned, np.ndarray | pl.Series):
            returned = cast("object", returned.tolist() if isinstance(returned, np.ndarray) else [*returned])
        if isinstance(returned, Mapping):
            items = {**cast("Mapping[object, object]", returned)}
        elif isinstance(returned, Sequence) and not isinstance(returned, str | bytes):
            items = {f"{name}_{place}": item for place, item in enumerate(cast("Sequence[object]", returned))}
        else:
            items = {name: returned}
        if not items:
            self.refuse("returned no number")
        return {self.name(key): self.number(item) for key, item in items.items()}

    def name(self, key: object) -> str:
        """Return the name of an answer."""
        if not isinstance(key, str):
            self.refuse(f"returned a mapping with the key {key!r}, which is not a text")
        return key

    def number(self, item: object) -> float:
        """Return a number; null is NaN."""
        if item is None:
            return np.nan
        if isinstance(item, bool) or not isinstance(item, Real | Decimal):
            self.refuse(f"returned {item!r}, and must return a number, numbers by name, or a list of numbers")
        return float(item)

    def check_names(self, targets: Mapping[str, Target]) -> None:
        """Refuse names that cannot be columns of a result, and targets of other answers."""
        columns = [*RESERVED, *(f"{name}{end}" for name in self.names for end in ("", "_low", "_high"))]
        duplicates = [name for place, name in enumerate(columns) if name in columns[:place]]
        if duplicates:
            self.refuse(f"names an answer so that the result has two columns {duplicates[0]!r}")
        unknown = [name for name in targets if name not in (*self.names, _OTHERS)]
        missing = [name for name in self.names if name not in targets and _OTHERS not in targets]
        if unknown or missing:
            what = f"unknown answers {unknown}" if unknown else f"no error for {missing}"
            message = f"`absolute` has {what}; the function returns {list(self.names)}"
            raise InvalidInputError(message, argument="absolute")

    def refuse(self, what: str) -> NoReturn:
        """Refuse what the function did."""
        raise self.error(what)

    def error(self, what: str) -> InvalidInputError:
        """Return the error of a function."""
        return InvalidInputError(f"the function in `aggregates` {what}", argument="aggregates")

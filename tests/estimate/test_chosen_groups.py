"""Groups that HAVING, or ORDER BY with LIMIT, chose by their estimates keep the promise; what is certain is true.

A trial draws the keys of a frame anew, and follows the rules of `estimate`. The truth comes from Polars.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from math import comb
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest

import qbeast
from benchmarks.trials import Population
from qbeast_core.sampling.certain import Kept
from qbeast_core.sampling.confidence import Interval, Target, is_met, next_fraction
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sql.cut import Cut, Having, SortTerm
from qbeast_core.table.estimate.question import Limits, Question
from qbeast_core.table.estimate.rounds import intervals_and_kept

ROWS, PILOT = 24_000, 4_000
FRACTIONS, ERRORS = (0.04, 0.15, 0.4), (0.1, 0.3)
MIN_CHANCE = 0.01
ASKED = {"n": pl.len(), "s": pl.col("v").sum(), "m": pl.col("v").mean(), "q": pl.col("v").median()}
Random = np.random.Generator


def groups_of(random: Random, count: int, rows: int = ROWS) -> np.ndarray:
    return random.integers(0, count, rows)


def framed(g: np.ndarray, v: np.ndarray, key: np.ndarray | None = None) -> pl.DataFrame:
    return pl.DataFrame({"g": g, "v": v.astype(float), "key": np.arange(len(g)) if key is None else key})


def equal(random: Random) -> pl.DataFrame:
    return framed(groups_of(random, 40), random.normal(10, 5, ROWS))


def wide(random: Random) -> pl.DataFrame:
    return framed(groups_of(random, 30), random.normal(10, 15, ROWS))


def lognormal(random: Random) -> pl.DataFrame:
    return framed(groups_of(random, 24), random.lognormal(0, 1, ROWS))


def heavy(random: Random) -> pl.DataFrame:
    """Without a bound, single rows decide the mean of a group, and a sample that lacks them cannot know."""
    return framed(groups_of(random, 12), np.minimum(random.pareto(2.2, ROWS) + 1, 20))


def left(random: Random) -> pl.DataFrame:
    return framed(groups_of(random, 24), 20 - random.lognormal(0, 1, ROWS))


def flags(random: Random) -> pl.DataFrame:
    return framed(groups_of(random, 24), random.random(ROWS) < 0.08)


def signs(random: Random) -> pl.DataFrame:
    g = groups_of(random, 16)
    return framed(g, random.normal((g - 8) / 4, 3))


def steps(random: Random) -> pl.DataFrame:
    """Groups that differ clearly: most certificates are given here."""
    g = np.minimum(random.geometric(0.25, ROWS), 14)
    return framed(g, random.gamma(2.0, 3.0 + g))


def rare(random: Random) -> pl.DataFrame:
    """Three groups of two rows have the largest mean."""
    g, v = groups_of(random, 4) + 10, np.zeros(ROWS)
    v[:] = 5 * (g - 9) + random.random(ROWS)
    g[:6], v[:6] = np.arange(6) // 2, 100.0
    return framed(g, v)


def scarce(random: Random) -> pl.DataFrame:
    """Many groups of few rows beside ten large ones."""
    g, v = groups_of(random, 10) ** 2, random.normal(20, 4, ROWS)
    g[:600] = 1_000 + random.integers(0, 200, 600)
    v[:600] = random.lognormal(3, 1, 600)
    return framed(g, v)


def giants(random: Random) -> pl.DataFrame:
    """Some groups have one row, and its value is more than a large group has."""
    g, v = np.minimum(random.geometric(0.3, ROWS), 8), random.gamma(2.0, 5.0, ROWS)
    g[:5], v[:5] = np.arange(5) + 100, 1e6
    return framed(g, v)


def users(random: Random) -> pl.DataFrame:
    """Keys of several rows, with values of their own; a few rare groups belong to one or two keys each."""
    rows = np.minimum(random.geometric(0.2, ROWS), 25)
    key = np.repeat(np.arange(len(rows)), rows)[:ROWS]
    g = np.minimum(random.geometric(0.3, ROWS), 8)
    g = np.where(key < 6, 100 + key // 2, g)
    return framed(g, random.lognormal(0, 0.5, ROWS)[key] * random.gamma(2.0, 2.0, ROWS), key)


SHAPES: dict[str, Callable[[Random], pl.DataFrame]] = {
    shape.__name__: shape
    for shape in (equal, wide, lognormal, heavy, left, flags, signs, steps, rare, scarce, giants, users)
}


@dataclass(frozen=True, slots=True)
class Query:
    """A cut of the answers; `level`: HAVING compares its answer with this quantile of the truth."""

    order: str = ""
    descending: bool = True
    limit: int | None = None
    having: str = ""
    level: float = 0.0
    above: bool = True

    def cut(self, truth: pl.DataFrame) -> Cut:
        number = truth[self.having].quantile(self.level) if self.having else 0.0
        having = Having(">" if self.above else "<", self.having, float(number or 0)) if self.having else None
        term = self.order if self.order != "g" else pl.col("g")
        order = (SortTerm(term, descending=self.descending, nulls_last=True),) if self.order else ()
        return Cut(having, order, self.limit)


QUERIES = {
    "largest mean": Query("m", limit=1),
    "three largest means": Query("m", limit=3),
    "three least means": Query("m", descending=False, limit=3),
    "means above": Query(having="m", level=0.7),
    "largest medians": Query("q", limit=3),
    "largest sums": Query("s", limit=3),
    "least sums": Query("s", descending=False, limit=2),
    "largest counts": Query("n", limit=3),
    "least counts": Query("n", descending=False, limit=2),
    "first groups": Query("g", descending=False, limit=3),
    "first of large": Query("g", descending=False, limit=3, having="n", level=0.6),
    "means of large": Query("m", limit=2, having="n", level=0.6),
    "first of small": Query("g", descending=False, limit=3, having="n", level=0.4, above=False),
}
PROMISED = ("largest mean", "three largest means", "means above", "largest sums", "first groups")


class Trials:
    """Counts what the trials of a query said, and how much of it was true."""

    def __init__(self, population: Population, truth: pl.DataFrame, query: Query) -> None:
        self.population, self.truth, self.cut = population, truth, query.cut(truth)
        self.looks, self.said, self.kept = 0, dict[str, int](), dict[str, int]()
        names = {*self.cut.names} or {"n"}
        answers = tuple(answer for answer in population.aggregates.answers if answer.name in names)
        self.names = [answer.name for answer in answers]
        self.aggregates = replace(population.aggregates, answers=answers)
        self.best = self.exact()

    def exact(self) -> list[int]:
        """Return the groups of the exact answer, by Polars."""
        rows, having = self.truth, self.cut.having
        if having is not None:
            column = pl.col(having.answer)
            rows = rows.filter(column > having.number if having.function == ">" else column < having.number)
        for item in self.cut.order:
            rows = rows.sort(item.term, descending=item.descending, maintain_order=True)
        return rows.head(self.cut.limit or rows.height)["g"].to_list()

    def question(self, error: float | None, sample: float | None = None) -> Question:
        target = Target(error)
        return Question(
            aggregates=self.aggregates,
            groups={"g": pl.col("g")},
            pushed=None,
            late=None,
            joins=(),
            targets=dict.fromkeys(self.names, target.of_exact() if self.cut.chooses else target),
            limits=Limits.of(error=error, sample=sample),
            columns=("g", "v"),
            cut=self.cut,
        )

    def read(self, sample: Callable[[float], KeySample], error: float, max_growth: float) -> None:
        """Read until the rows of the answer are precise enough, as `estimate` and `estimates` do."""
        question, fraction = self.question(error), PILOT / ROWS
        while True:
            drawn = sample(fraction)
            intervals, kept = intervals_and_kept(question, drawn)
            chosen = np.zeros(len(drawn.whole), np.bool_)
            chosen[kept.rows] = True
            targets = [question.targets[name] for name in self.names]
            pairs = [*zip(intervals, targets, strict=True)]
            if fraction == 1.0 or all((is_met(*pair) | ~chosen).all() for pair in pairs):
                break
            fraction = max(next_fraction(fraction, *pair, chosen, max_growth=max_growth) for pair in pairs)
        self.count("promise", is_true=self.near(drawn, intervals, kept, error))
        if fraction < 1.0:
            self.count("promise of a sample", is_true=self.near(drawn, intervals, kept, error))
            self.look(drawn, intervals, kept)

    def look(self, drawn: KeySample, intervals: list[Interval], kept: Kept) -> None:
        """Count the statements about an answer, and those that are true."""
        self.looks += 1
        listed = drawn.groups["g"].to_numpy()[kept.rows].tolist()
        truth = self.truth_of(listed)
        for name, interval in zip(self.names, intervals, strict=True) if self.cut.chooses else ():
            shown = interval.of_groups(kept.rows)
            trusted = ~shown.exact & (shown.keys >= 100) & (shown.largest_share <= 0.3)
            if trusted.any():
                holds = (shown.low <= truth[name]) & (truth[name] <= shown.high)
                self.count("intervals", is_true=bool(holds[trusted].all()))
        if self.cut.drops and kept.certain.any():
            certain = {group for group, is_certain in zip(listed, kept.certain, strict=True) if is_certain}
            self.count("certain rows", is_true=certain <= {*self.best})
        if kept.is_ordered and len(listed) > 1:
            item = self.cut.order[0]
            values = truth[item.term] if isinstance(item.term, str) else np.array(listed)
            differences = np.diff(values) * (-1 if item.descending else 1)
            self.count("certain order", is_true=bool((differences >= -1e-9 * np.abs(values[1:])).all()))

    def near(self, drawn: KeySample, intervals: list[Interval], kept: Kept, error: float) -> bool:
        """Return whether all rows of an answer are within the error."""
        truth = self.truth_of(drawn.groups["g"].to_numpy()[kept.rows].tolist())
        pairs = [
            (interval.value[kept.rows], truth[name])
            for name, interval in zip(self.names, intervals, strict=True)
        ]
        return all(
            bool((np.abs(value - true) <= error * np.abs(true) * (1 + 1e-9)).all()) for value, true in pairs
        )

    def truth_of(self, listed: list[int]) -> dict[str, np.ndarray]:
        rows = pl.DataFrame({"g": listed}, schema={"g": self.truth["g"].dtype})
        rows = rows.join(self.truth, on="g", how="left", maintain_order="left")
        return {name: rows[name].to_numpy().astype(float) for name in ASKED}

    def count(self, kind: str, *, is_true: bool) -> None:
        self.said[kind] = self.said.get(kind, 0) + 1
        self.kept[kind] = self.kept.get(kind, 0) + is_true


def trials(shape: str, count: int, seed: int, queries: Collection[str] = QUERIES) -> dict[str, Trials]:
    """Draw samples of a frame, and look at the answers of queries."""
    frame = SHAPES[shape](np.random.default_rng(seed))
    population = Population(frame, ASKED, by=["g"], key=["key"])
    truth = frame.group_by("g").agg(**ASKED).sort("g")
    results = {name: Trials(population, truth, QUERIES[name]) for name in queries}
    for trial in range(count):
        drawn = np.random.default_rng((seed, trial)).random(population.keys)
        sample = cache(lambda fraction, drawn=drawn: population.sample(drawn, fraction))
        fraction = FRACTIONS[trial % len(FRACTIONS)]
        for name, result in results.items():
            if name in PROMISED:
                result.read(sample, ERRORS[trial % len(ERRORS)], 2.0 if trial % 4 < 2 else 200.0)
            elif trial % 4:
                continue  # of the others, 250 trials are enough
            result.look(
                sample(fraction), *intervals_and_kept(result.question(None, fraction), sample(fraction))
            )
    return results


def broken(results: dict[str, Trials]) -> dict[str, dict[str, str]]:
    """Return the statements of which more than 5 % are false, beyond chance.

    What is certain may be false in 5 % of all samples: where groups are equal, it is seldom said, and then by mistake.
    Fewer than 20 statements count as 20.
    """
    shares: dict[str, dict[str, str]] = {}
    for name, result in results.items():
        for kind, said in result.said.items():
            cases = result.looks if kind.startswith("certain") else said
            false, count = said - result.kept[kind], max(cases, 20)
            fewer = sum(
                comb(count, number) * 0.05**number * 0.95 ** (count - number) for number in range(false)
            )
            if 1 - fewer < MIN_CHANCE:
                shares.setdefault(name, {})[kind] = f"{false} of {cases} are false"
    return shares


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_chosen_groups_keep_the_promise(shape: str, sweep_seed: int) -> None:
    """1,000 trials, 250 of those without a promise: 95 % of the statements of each kind are true."""
    results = trials(shape, 1_000, sweep_seed)
    for name, result in results.items():
        kinds = (f"{kind}: {result.kept[kind]} of {said}" for kind, said in result.said.items())
        print(f"{shape}, {name}: {', '.join(kinds)}")
    assert broken(results) == {}


@pytest.mark.parametrize("shape", ["equal", "rare", "giants"])
def test_chosen_groups_are_near_in_few_trials(shape: str) -> None:
    queries = ("largest mean", "largest sums", "first groups", "first of large")
    assert broken(trials(shape, 4, 5, queries)) == {}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    """Two groups of one row with the largest value, and four of many rows."""
    path, n = tmp_path_factory.mktemp("chosen") / "t", pl.int_range(20_000)
    g = pl.when(n < 2).then(n).otherwise(10 + n % 4)
    v = pl.when(n < 2).then(900.0).otherwise(100 * (n % 4) + n * 31 % 101)
    qbeast.write_table(pl.select(id=n, g=g, v=v, w=2 * v), path, columns=["id:hash"])
    return qbeast.open_table(path)


ALL = "SELECT g, avg(v) AS m FROM self GROUP BY g"


@pytest.mark.parametrize(
    ("cut", "at_once"),
    [
        ("ORDER BY m DESC LIMIT 2", 5),  # four groups, and those that the sample lacks
        ("ORDER BY sum(v) LIMIT 2", 9),
        ("HAVING avg(v) > 120", 5),
        ("HAVING sum(v) > 0 ORDER BY g LIMIT 2", 9),
        ("ORDER BY m", 1),
        ("ORDER BY g LIMIT 2", 1),
        ("HAVING g > 10", 1),
    ],
)
def test_intervals_of_chosen_groups_hold_at_once(table: qbeast.Table, cut: str, at_once: int) -> None:
    plain = table.rows(sample=0.1).estimate(ALL)
    actual = table.rows(sample=0.1).estimate(f"{ALL} {cut}")
    both = actual.frame.join(plain.frame, on="g", suffix="_plain")
    ratio = (both["m_high"] - both["m_low"]) / (both["m_high_plain"] - both["m_low_plain"])
    normal = NormalDist()
    assert both.height == actual.frame.height >= 2
    assert ratio.to_list() == pytest.approx(
        [normal.inv_cdf(1 - 0.025 / at_once) / normal.inv_cdf(0.975)] * both.height
    )
    assert actual.simultaneous is (at_once > 1)
    assert ("of all at once" in actual.summary) is (at_once > 1)


@pytest.mark.parametrize("cut", ["ORDER BY m LIMIT 2", "HAVING avg(v) < 300"])
def test_error_of_chosen_groups_is_of_the_exact_answer(table: qbeast.Table, cut: str) -> None:
    """The exact answer may be as small as the lower end, and the estimate must be within the error of that."""

    def estimate(error: float) -> qbeast.Estimate:
        return table.rows().estimate(f"{ALL} {cut}", error=error, max_fraction=0.3)

    rows = estimate(0.001).frame
    half_widths = rows["m"] - rows["m_low"]
    of_estimate, of_exact = (float((half_widths / rows[name]).max() or 0) for name in ("m", "m_low"))
    assert 0 < of_estimate * 1.001 < of_exact < 0.2
    assert [bool(estimate(error * 1.001).met) for error in (of_estimate, of_exact)] == [False, True]


@pytest.mark.parametrize(
    ("query", "certain", "is_ordered"),
    [
        (f"{ALL} ORDER BY m DESC LIMIT 2", 0, True),
        (f"{ALL} ORDER BY m LIMIT 2", 0, True),
        (f"{ALL} ORDER BY g LIMIT 2", 0, True),
        ("SELECT g, count(*) AS n FROM self GROUP BY g ORDER BY n LIMIT 2", 0, False),
        ("SELECT g, sum(v) AS s FROM self GROUP BY g ORDER BY s DESC LIMIT 2", 2, True),
        ("SELECT g, count(v) AS n FROM self GROUP BY g ORDER BY n DESC LIMIT 4", 4, False),
        (
            "SELECT g, sum(v * 2) AS s FROM self GROUP BY g ORDER BY s DESC LIMIT 2",
            0,
            True,
        ),  # no bound in the log
        ("SELECT g, sum(w) - 3 * sum(v) AS s FROM self GROUP BY g ORDER BY s LIMIT 1", 1, True),
        (f"{ALL} HAVING count(*) > 1000 ORDER BY m DESC LIMIT 2", 2, True),
        (f"{ALL} HAVING count(*) > 1000 ORDER BY g LIMIT 2", 2, True),
        (f"{ALL} HAVING count(*) > 10 ORDER BY g LIMIT 2", 0, True),
        (f"{ALL} HAVING avg(v) > 120", 3, None),
        (f"{ALL} LIMIT 2", 2, None),
    ],
)
def test_rows_are_certain_unless_unseen_groups_decide(
    table: qbeast.Table, query: str, certain: int, *, is_ordered: bool | None
) -> None:
    answer = table.rows(sample=0.1).estimate(query)
    assert answer.frame.filter(pl.col("g") < 10).is_empty()
    assert not answer.complete
    assert answer.frame["certain"].sum() == certain
    assert answer.certain_order is is_ordered
    assert answer.certain_order is (
        True if "ORDER BY" in query and "n " not in query else answer.certain_order
    )
    assert table.rows(sample=1.0).estimate(query).frame["certain"].all()


def test_missing_keys_are_bounded_by_chance() -> None:
    """At most n / K groups of n rows have K keys, and a sample lacks K keys with the probability (1 - f)^K."""
    population = Population(equal(np.random.default_rng(1)), ASKED, by=["g"])
    sample = population.sample(np.random.default_rng(2).random(ROWS), 0.05)
    rows, total, *_ = sample.missing(0.01)
    assert ROWS / rows * 0.95**rows == pytest.approx(0.01, rel=0.1)
    largest = population.farthest[1]
    assert total == pytest.approx(rows * largest)
    assert np.isinf(replace(sample, deviates=True).missing(0.01)).all()
    assert not population.sample(np.zeros(ROWS), 1.0).missing(0.01).any()

"""Check that estimates keep their promise on tables with heavy keys: write, change and query many tables."""

from __future__ import annotations

import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np
import polars as pl

import qbeast
from tests.helpers.small_files import resized

__all__ = ["QUESTIONS", "SHAPES", "Kept", "Question", "rows_of", "shares", "trials"]

ERROR: Final = 0.06
STATES: Final = ("written", "appended", "deleted", "optimized")
ENGINES: Final[tuple[Literal["memory", "spill"], ...]] = ("memory", "spill")
SETS: Final = 5
"""Sets of values, filters and groups per table; each is a trial, and depends on the keys in another way."""

PILOT_ROWS: Final = 2_000
"""A tenth of the default, as the tables have a tenth of the rows of a large table."""

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question: a filter and groups; `{0}` is the number of a set."""

    where: str | None = None
    by: str | None = None


QUESTIONS: Final = {
    "all": Question(),
    "where": Question(where="w{0} < 0.5"),
    "where indexed": Question(where="x > -0.5 OR x IS NULL"),
    "by": Question(by="g{0}"),
    "where, by": Question(where="w{0} < 0.5", by="g{0}"),
}


def _keys(share: float, number: int, *, null: bool = False) -> Draw:
    def draw(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        values = np.full(1, np.nan) if null else random.normal(size=number)
        key = np.where(random.random(count) < share, random.integers(0, number, count), -1)
        return np.where(key >= 0, values[key], random.normal(size=count)), key

    return draw


def _zipf(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    rank = np.minimum(random.zipf(1.1, count), count) - 1
    values = random.normal(size=count)
    return values[rank], np.where(rank < count - 1, rank, -1)


SHAPES: Final[dict[str, Draw]] = {
    **{f"null {share:.0%}": _keys(share, 1, null=True) for share in (0.02, 0.1, 0.3, 0.6)},
    "a key of 30%": _keys(0.3, 1),
    "ten keys of 5%": _keys(0.5, 10),
    "Zipf 1.1": _zipf,
}


def rows_of(shape: str, seed: int, count: int) -> pl.DataFrame:
    """Return rows with several values, groups and filters that depend on the keys; `u` does not."""
    random = np.random.default_rng([seed, *shape.encode()])
    x, key = SHAPES[shape](random, count)
    heavy = key >= 0
    columns = {"x": pl.Series(x).fill_nan(None), "u": pl.Series(random.random(count))}
    for at in range(SETS):
        effect = random.random(count)[key]  # one effect per heavy key
        values = np.where(heavy, 1 + 2 * effect, 4.0) + random.gamma(4, 0.25, count)
        chance = np.where(heavy, 0.6 + 0.6 * effect, 1.0)
        group = np.where(random.random(count) < np.where(heavy, 0.7, 0.4), "a", "b")
        columns |= {f"v{at}": pl.Series(values), f"w{at}": pl.Series(random.random(count) * chance)}
        columns[f"g{at}"] = pl.Series(group)
    return pl.DataFrame(columns)


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of a question in a trial."""

    question: str
    state: str
    engine: str
    near: tuple[bool, ...]
    """Whether each answer of each group was within the requested error."""

    met: bool
    fraction: float
    share: float
    """Share of the bytes read."""


def trials(shape: str, count: int, *, rows: int = 40_000, first: int = 0, processes: int = 1) -> list[Kept]:
    """Write tables with different keys and states, and run all questions of every set on each.

    Parameters
    ----------
    shape : str
        A key of `SHAPES`.
    count : int
        Trials of each question, `SETS` per table.
    rows : int
        Rows per table.
    first : int
        The first seed.
    processes : int
        Number of processes.
    """
    trial = partial(_trial, shape, rows=rows)
    seeds = range(first, first + -(-count // SETS))
    if processes == 1:
        return [kept for seed in seeds for kept in trial(seed)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return [kept for results in pool.map(trial, seeds, chunksize=10) for kept in results]


def shares(results: Sequence[Kept]) -> dict[str, float]:
    """Return by question the share of trials in which the worst answer was within the requested error."""
    questions = dict.fromkeys(result.question for result in results)
    near = {name: [result.near for result in results if result.question == name] for name in questions}
    return {name: float(np.array(flags).mean(axis=0).min()) for name, flags in near.items()}


def _trial(shape: str, seed: int, *, rows: int) -> list[Kept]:
    frame, state = rows_of(shape, seed, rows), STATES[seed % len(STATES)]
    engine = ENGINES[seed // len(STATES) % len(ENGINES)]
    with (
        tempfile.TemporaryDirectory() as path,
        warnings.catch_warnings(),
        resized(pilot_rows=PILOT_ROWS),
    ):
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        parts = [frame] if state == "written" else frame.iter_slices(-(-rows // 3))
        for part in parts:
            qbeast.write_table(
                part,
                path,
                columns=["x"],
                mode="append",
                cube_size=1_000,
                resources=qbeast.Resources(engine=engine),
            )
        table = qbeast.open_table(path, resources=qbeast.Resources(engine=engine))
        if state in ("deleted", "optimized"):
            table.delete("u < 0.1")
            frame = frame.filter(pl.col("u") >= 0.1)
        if state == "optimized":
            table.optimize(full=True)
        return [
            Kept(name, state, engine, *_run(table, frame, question, number))
            for name, question in QUESTIONS.items()
            for number in range(SETS)
        ]


def _run(
    table: qbeast.Table, frame: pl.DataFrame, question: Question, number: int
) -> tuple[tuple[bool, ...], bool, float, float]:
    where, by = (None if text is None else text.format(number) for text in (question.where, question.by))
    value = pl.col(f"v{number}")
    answers = {"rows": pl.len(), "sum": value.sum(), "mean": value.mean(), "large": (value > 3).sum()}
    kept = frame if where is None else frame.filter(pl.sql_expr(where))
    truth = kept.group_by(by).agg(**answers).sort(by) if by else kept.select(**answers)
    result = table.rows(where).estimate(answers, by=by, error=ERROR)
    near = [
        abs(answer - right) <= ERROR * abs(right) * (1 + 1e-9)
        for name in answers
        for answer, right in zip(result.frame[name], truth[name], strict=True)
    ]
    return tuple(near), bool(result.met), result.fraction, result.share

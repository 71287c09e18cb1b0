"""Check that estimates of values per key keep their promise: write many tables with new keys, and query each."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

import qbeast
from tests.helpers.small_files import resized

__all__ = ["ANSWERS", "SHAPES", "Kept", "clicks", "shares", "trials"]

ERROR: Final = 0.08
PER: Final = {"spend": pl.col("fare").sum()}
ANSWERS: Final = {
    "median": pl.col("spend").median(),
    "p90": pl.col("spend").quantile(0.9),
    "mean": pl.col("spend").mean(),
    "buyers": (pl.col("spend") > 60).sum() / pl.len(),
}
SHAPES: Final = ("light", "Pareto 1.5", "Pareto 2.2", "null 20%", "giant 30%")

PILOT_ROWS: Final = 2_000
"""A tenth of the default, as the tables have a tenth of the rows of a large table."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of an answer in a trial."""

    answer: str
    near: bool
    met: bool
    fraction: float


def clicks(shape: str, seed: int, users: int) -> pl.DataFrame:
    """Return the rows of users; each seed has other users, with other hashes."""
    random = np.random.default_rng([seed, *shape.encode()])
    if shape.startswith("Pareto"):
        sizes = np.minimum(1 + random.pareto(float(shape.split()[1]), users) * 3, 50_000).astype(np.int64)
    else:
        sizes = 1 + random.poisson(5, users)
    heavy = {"null 20%": 0.25, "giant 30%": 0.43}.get(shape, 0.0)
    sizes = np.append(sizes, round(heavy * sizes.sum()))
    user = pl.Series(np.repeat(random.integers(0, 1 << 40, users + 1), sizes))
    if shape.startswith("null"):
        user = user.set(pl.Series(np.arange(len(user)) >= sizes[:-1].sum()), None)
    rate = np.repeat(random.lognormal(0, 0.5, users + 1), sizes)
    return pl.DataFrame(
        {"user": user, "fare": rate * random.gamma(2, 5, len(user)), "km": random.random(len(user))}
    )


def trials(shape: str, count: int, *, users: int = 15_000, first: int = 0, processes: int = 1) -> list[Kept]:
    """Write tables of new users, and estimate each answer of `ANSWERS`, without and with a filter of rows."""
    trial = partial(_trial, shape, users=users)
    seeds = range(first, first + count)
    if processes == 1:
        return [kept for seed in seeds for kept in trial(seed)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return [kept for results in pool.map(trial, seeds, chunksize=10) for kept in results]


def shares(results: Sequence[Kept]) -> dict[str, float]:
    """Return by answer the share of trials within the requested error."""
    answers = dict.fromkeys(result.answer for result in results)
    return {name: float(np.mean([r.near for r in results if r.answer == name])) for name in answers}


def _trial(shape: str, seed: int, *, users: int) -> list[Kept]:
    frame, results = clicks(shape, seed, users), list[Kept]()
    with tempfile.TemporaryDirectory() as path, resized(pilot_rows=PILOT_ROWS):
        for part in frame.sample(fraction=1.0, shuffle=True, seed=seed).iter_slices(-(-frame.height // 2)):
            qbeast.write_table(part, path, columns=["fare", "km"], sample_by="user", mode="append")
        table = qbeast.open_table(path)
        for end, where in (("", None), (", where", "km < 0.6")):
            kept = frame if where is None else frame.filter(pl.sql_expr(where))
            truth = kept.group_by("user").agg(**PER).select(**ANSWERS).row(0, named=True)
            for name, answer in ANSWERS.items():
                result = table.rows(where).estimate({name: answer}, per=PER, error=ERROR)
                near = abs(result.frame[name].item() - truth[name]) <= ERROR * abs(truth[name]) * (1 + 1e-9)
                results.append(Kept(f"{name}{end}", near, bool(result.met), result.fraction))
    return results


def main() -> None:
    """Print the share of kept promises, and the mean fraction read, by shape and answer."""
    for shape in SHAPES:
        results = trials(shape, 1_000, processes=2)
        for name, share in shares(results).items():
            fractions = [result.fraction for result in results if result.answer == name]
            print(f"{shape:<12} {name:<16} kept {share:.1%}  read {np.mean(fractions):.1%} of the keys")
        print(f"{shape:<12} met {np.mean([result.met for result in results]):.1%}", flush=True)


if __name__ == "__main__":
    main()

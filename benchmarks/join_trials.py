"""Check that estimates of joins keep their promise: write two tables of new users in each trial, and join them."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

import qbeast
from tests.helpers.small_files import resized

ERROR: Final = 0.1

# A tenth of the default, as the tables have a tenth of the rows of a large table.
PILOT_ROWS: Final = 2_000

Kind = Literal["1:n", "n:m"]
KINDS: Final[tuple[Kind, ...]] = ("1:n", "n:m")
SHAPES: Final = ("light", "Pareto 1.5", "Pareto 2.2", "null", "giant")


def sizes_of(shape: str, random: np.random.Generator, users: int) -> np.ndarray:
    """Return the number of rows of each user; the last one is null or a giant."""
    if shape.startswith("Pareto"):
        sizes = np.minimum(random.pareto(float(shape.split()[1]), users) + 1, 30_000)
    else:
        sizes = random.poisson(3, users).astype(float)
        if shape != "light":
            sizes[-1] = 0.2 * sizes.sum()
    return sizes.astype(np.int64)


def tables_of(shape: str, kind: Kind, seed: int, users: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames of users, whose values depend on the user; the numbers of users are new for each seed."""
    random = np.random.default_rng([seed, *f"{shape} {kind}".encode()])
    numbers = pl.Series(random.permutation(10 * users)[:users])
    if shape == "null":
        numbers = numbers.set(pl.Series(np.arange(users) == users - 1), None)
    spend = random.gamma(2, 1, users)
    left = np.ones(users, np.int64) if kind == "1:n" else sizes_of(shape, random, users)
    both = sizes_of(shape, random, users)
    both[random.random(users) < 0.1] = 0  # users in one table only
    frames = list[pl.DataFrame]()
    for name, sizes in (("x", left), ("y", both)):
        user = np.repeat(np.arange(users), sizes)
        values = spend[user] * random.gamma(4, 0.25, len(user))
        frames.append(pl.DataFrame({"user": numbers[user], name: values}))
    return frames[0], frames[1]


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of a trial."""

    # Whether each answer was within the requested error.
    near: tuple[bool, ...]
    met: bool
    fraction: float


def trial(shape: str, kind: Kind, seed: int, *, users: int = 8_000) -> Kept:
    """Estimate the rows and a sum of an inner join, and compare them with Polars."""
    left, right = tables_of(shape, kind, seed, users)
    truth = left.join(right, on="user").select(n=pl.len(), s=(pl.col("x") + pl.col("y")).sum()).row(0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        for name, rows in (("left", left), ("right", right)):
            qbeast.write_table(
                rows, Path(folder, name), columns=[rows.columns[1]], sample_by=["user"], cube_size=500
            )
        with resized(pilot_rows=PILOT_ROWS):
            answer = qbeast.estimate(
                Path(folder, "left"),
                {"n": pl.len(), "s": (pl.col("x") + pl.col("y")).sum()},
                join=(Path(folder, "right"), "user", "inner"),
                error=ERROR,
            )
    found = answer.frame.select("n", "s").row(0)
    near = tuple(abs(value - true) <= ERROR * true for value, true in zip(found, truth, strict=True))
    return Kept(near, bool(answer.met), answer.fraction)


def shares(results: list[Kept]) -> tuple[float, float]:
    """Return the share of near answers, in the worst answer, and the mean fraction of the keys."""
    near = np.array([item.near for item in results])
    return float(near.mean(axis=0).min()), float(np.mean([item.fraction for item in results]))

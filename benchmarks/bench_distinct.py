"""What does the number of distinct users cost within 5 %, and is the promise kept?

    python -m benchmarks.bench_distinct

Bytes: everything that `Table.estimate` reads of 10 million events of 200,000 users, indexed by time and fare, sampled
by user. Promise: 1,000 trials, each with other hashes of the users.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import polars as pl

import qbeast
from benchmarks.report import Figure, table
from benchmarks.trials import Population

__all__ = ["QUESTIONS", "SIZES", "population"]

USERS = 200_000
TRIAL_USERS = 20_000
USER = pl.col("user").n_unique()
PER_USER = pl.col("x").sum() / USER
LARGE = pl.col("user").filter(pl.col("x") > 1.5).n_unique()

SIZES = ("Poisson", "Pareto 1.5", "Pareto 2.2", "null", "giant")
QUESTIONS: dict[str, dict[str, Any]] = {
    "all": {"aggregates": {"n": USER}, "error": 0.05},
    "where": {"aggregates": {"n": USER}, "where": pl.col("y") < 0.2, "error": 0.05},
    "by": {"aggregates": {"n": USER}, "by": ["kind"], "error": 0.1},
    "where, by": {
        "aggregates": {"n": USER, "few": LARGE},
        "where": pl.col("y") < 0.5,
        "by": ["kind"],
        "error": 0.1,
    },
    "share": {"aggregates": {"it": LARGE / USER}, "error": 0.05},
    "rows": {"aggregates": {"it": pl.len() / USER}, "error": 0.05},
    "mixed": {"aggregates": {"it": PER_USER}, "error": 0.05},
    "mixed, where": {
        "aggregates": {"it": PER_USER},
        "where": pl.col("y") < 0.5,
        "known": False,
        "error": 0.05,
    },
    "mixed, by": {
        "aggregates": {"it": PER_USER, "n": USER, "sum": pl.col("x").sum()},
        "by": ["kind"],
        "error": 0.1,
    },
}

# Options of `estimate`, the maximum share of bytes in %.
ESTIMATES: dict[str, tuple[dict[str, Any], float]] = {
    "users": ({}, 5),
    "users, of 1 % of the time": ({"where": "ts < 10000000"}, 5),
    "users by kind of event (ten, of all users)": ({"by": "kind"}, 15),
    "users by country (ten, of a tenth of the users)": ({"by": "country"}, 15),
}


def population(sizes: str, question: str) -> tuple[Population, float]:
    """Return users to sample and the question, and its error."""
    options = dict(QUESTIONS[question])
    aggregates, error = options.pop("aggregates"), options.pop("error")
    # Estimates of distinct keys alone sample heavy keys like others.
    alone = question in ("all", "where", "by", "where, by", "share")
    return Population(_trial_events(sizes), aggregates, key=["user"], apart=not alone, **options), error


def _trial_events(sizes: str) -> pl.DataFrame:
    """Return events of users, with values that depend on the user."""
    random = np.random.default_rng([3, *sizes.encode()])
    counts = {
        "Poisson": random.poisson(5, TRIAL_USERS),
        "Pareto 1.5": np.minimum(np.ceil(random.pareto(1.5, TRIAL_USERS)), 1e5).astype(int),
        "Pareto 2.2": np.ceil(random.pareto(2.2, TRIAL_USERS)).astype(int),
        "null": np.append(random.poisson(5, TRIAL_USERS), 30_000),
        "giant": np.append(random.poisson(5, TRIAL_USERS), 60_000),
    }[sizes]
    user = np.repeat(np.arange(len(counts)), counts)
    x = random.lognormal(0, 0.5, len(counts))[user] * random.lognormal(0, 0.5, len(user))
    kind = np.where(random.random(len(user)) < 0.1, "a", "b")
    rows = pl.DataFrame({"user": user, "x": x, "y": random.random(len(user)), "kind": kind})
    return rows.with_columns(pl.col("user").replace(TRIAL_USERS, None)) if sizes == "null" else rows


def _events() -> pl.DataFrame:
    """Return 10 million events."""
    random = np.random.default_rng(8)
    user = np.repeat(np.arange(USERS), random.poisson(50, USERS))
    random.shuffle(user)
    return pl.DataFrame(
        {
            "user": user,
            "ts": random.integers(0, 10**9, len(user)),
            "fare": random.gamma(2, 5, len(user)).round(2),
            "km": random.gamma(2, 3, len(user)).round(2),
            "kind": random.integers(0, 10, len(user)),
            "country": user * 7919 % USERS // (USERS // 10),
        }
    )


def run() -> list[Figure]:
    """Return the figures."""
    return [*_costs(), *_promises()]


def _costs() -> list[Figure]:
    rows, figures = _events(), list[Figure]()
    with tempfile.TemporaryDirectory() as path:
        qbeast.write_table(rows, path, columns=["ts", "fare"], sample_by=["user"])
        for what, (options, most) in ESTIMATES.items():
            answer = qbeast.estimate(path, {"n": USER}, error=0.05, **options)
            by = options.get("by")
            kept = rows.filter(pl.sql_expr(options["where"])) if "where" in options else rows
            truth = kept.group_by(by).agg(n=USER).sort(by) if by else kept.select(n=USER)
            off = ((answer.frame.sort(by) if by else answer.frame)["n"] / truth["n"] - 1).abs().max()
            assert answer.met
            note = f"of the keys {answer.fraction:.1%}, off {off:.2%}"
            figures.append(Figure(f"{what}, 5 % error", 100 * answer.share, "%", most, note))
    return figures


def _promises() -> list[Figure]:
    """Return how often answers are outside of the error, for the worst group."""
    figures: list[Figure] = []
    for sizes in SIZES:
        for question in QUESTIONS:
            drawn, error = population(sizes, question)
            kept = drawn.promised(error, 0.95, pilot=2_000)
            what = f"{sizes}, {question}: outside of {error:.0%} at 95 %"
            note = f"reads {kept.fraction:.1%} of the keys"
            figures.append(Figure(what, 100 * (1 - min(kept.shares.values())), "%", 5, note))
    return figures


if __name__ == "__main__":
    print(table(run()))

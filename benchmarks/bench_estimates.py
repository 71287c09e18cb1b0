"""What does an aggregate with a promised error cost, and is the promise kept?

    python -m benchmarks.bench_estimates

Bytes: everything that `Table.estimate` reads of data files over the bytes of the table, on lineitem (scale 1, index on
three columns) and flights. Compared with block sampling for the same promise: row groups and pages of a plain Parquet
file, drawn independently. Block sampling gets the variance between blocks for free (it would need its own pilot), and
reads only the columns that it needs. Promise: 1,000 trials, each with other random keys.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

import qbeast
from benchmarks import block_sampling, data, measure, tables
from benchmarks.report import Figure, table
from benchmarks.trials import Population, trials

PRICE, DISCOUNT, QUANTITY = (pl.col(f"l_{name}") for name in ("extendedprice", "discount", "quantity"))
YEAR = (pl.col("l_shipdate") >= date(1994, 1, 1)) & (pl.col("l_shipdate") < date(1995, 1, 1))
Q6 = YEAR & DISCOUNT.cast(pl.Float64).is_between(0.0499, 0.0701) & (QUANTITY < 24)
Q1 = pl.col("l_shipdate") <= date(1998, 9, 2)
Q1_SUMS = {
    "quantity": QUANTITY.sum(),
    "price": PRICE.sum(),
    "discounted": (PRICE * (1 - DISCOUNT)).sum(),
    "mean quantity": QUANTITY.mean(),
    "rows": pl.len(),
}
FLAGS = ["l_returnflag", "l_linestatus"]
FLOWN = {
    "rows": pl.len(),
    "late": (pl.col("dep_delay") > 15).sum(),
    "miles": pl.col("distance").sum(),
    "delay": pl.col("dep_delay").mean(),
    "speed": pl.col("distance").sum() / pl.col("air_time").sum(),
    "spread": pl.col("distance").std(),
    "median": pl.col("air_time").median(),
    "long": pl.col("air_time").quantile(0.9),
}
FLIGHTS_COLUMNS = ("dep_time", "distance", "carrier", "tailnum")


@dataclass(frozen=True, slots=True)
class Question:
    """A call of `estimate`, and the maximum share of bytes that it may read, in %."""

    what: str
    options: dict[str, Any]
    most: float


QUESTIONS = (
    Question("Q6 sum at 2 %", {"aggregates": {"x": (PRICE * DISCOUNT).sum()}, "where": Q6, "error": 0.02}, 6),
    Question(
        "Q6 sum at 1 %", {"aggregates": {"x": (PRICE * DISCOUNT).sum()}, "where": Q6, "error": 0.01}, 15
    ),
    Question(
        "Q1 sums of four groups at 5 %", {"aggregates": Q1_SUMS, "by": FLAGS, "where": Q1, "error": 0.05}, 10
    ),
    Question("mean price of all rows at 1 %", {"aggregates": {"x": PRICE.mean()}, "error": 0.01}, 1),
)


def run() -> list[Figure]:
    folder = tables.lineitem_table()
    figures = [figure for question in QUESTIONS for figure in _asked(folder, question)]
    figures += [*_flights(), *_promises(folder), *_coverage(), *_appended()]
    return [*figures, *_blocks(folder), *_samplers(folder)]


def _estimate(
    table: qbeast.Table, aggregates: Any, where: str | None = None, **options: Any
) -> qbeast.Estimate:
    sample = options.pop("sample", None)
    return table.rows(where, sample=sample).estimate(aggregates, **options)


def _asked(folder: Path, question: Question) -> list[Figure]:
    lineitem = qbeast.open_table(str(folder))
    estimate = _estimate(lineitem, **question.options)
    exact_options = {name: value for name, value in question.options.items() if name != "error"}
    exact = _estimate(lineitem, sample=1.0, **exact_options)
    off = max((estimate.frame[name] / exact.frame[name] - 1).abs().max() for name in estimate.names)
    assert estimate.met
    assert exact.frame.height == estimate.frame.height
    seconds = measure.interleaved(
        {
            "estimate": lambda: _estimate(lineitem, **question.options),
            "all": lambda: _in_polars(lineitem, question),
        },
        rounds=3,
    )
    allowed = estimate.share / exact.share * seconds["all"] + 0.05
    return [
        Figure(
            question.what,
            100 * estimate.share,
            "%",
            question.most,
            f"of the keys {estimate.fraction:.1%}, off {off:.2%}",
        ),
        Figure(f"{question.what}: everything read by `estimate`", 100 * exact.share, "%"),
        Figure(
            f"{question.what}: time over what its bytes allow",
            seconds["estimate"] / allowed,
            "x",
            1,
            f"{seconds['estimate'] * 1e3:.0f} ms, full aggregate {seconds['all'] * 1e3:.0f} ms",
        ),
    ]


def _in_polars(lineitem: qbeast.Table, question: Question) -> pl.DataFrame:
    rows = lineitem.rows().lazy()
    kept = rows.filter(question.options["where"]) if "where" in question.options else rows
    by, aggregates = question.options.get("by"), question.options["aggregates"]
    return (kept.group_by(by).agg(**aggregates) if by else kept.select(**aggregates)).collect()


def _appended() -> list[Figure]:
    """Return the figures after ten appends in time order, each of different days."""
    folder = tables.indexed(
        "lineitem-appended", lambda: data.lineitem().sort("l_shipdate"), data.W1_COLUMNS, appends=10
    )
    lineitem = qbeast.open_table(str(folder))
    answers = [(question, _estimate(lineitem, **question.options)) for question in QUESTIONS]
    assert all(answer.met for _, answer in answers)
    return [
        Figure(f"{question.what}, after ten appends in time order", 100 * answer.share, "%", question.most)
        for question, answer in answers
    ]


def _coverage() -> list[Figure]:
    """Return the promises kept and intervals covered in 1,000 samples of flights, for the worst group."""
    figures = []
    for by, where in ((), None), (("origin",), pl.col("month") <= 6):
        flown = Population(data.flights(), FLOWN, by=by, where=where)
        what = "by origin, January to June" if by else "all flights"
        for confidence in (0.95, 0.99):
            covered = flown.covered(0.02, confidence)
            kept = flown.promised(0.1, confidence)
            name, share = min(covered.shares.items(), key=lambda item: item[1])
            note = f"{name}; all: {' '.join(f'{share:.3f}' for share in covered.shares.values())}"
            figures += [
                Figure(
                    f"{what}: reliable {confidence:.0%} intervals of 2 % that hold",
                    100 * share,
                    "%",
                    None,
                    note,
                ),
                Figure(
                    f"{what}: eight answers outside of 10 % at {confidence:.0%}",
                    100 * (1 - min(kept.shares.values())),
                    "%",
                    round(100 * (1 - confidence), 1),
                    f"reads {kept.fraction:.1%} of the keys",
                ),
            ]
    return figures


def _flights() -> list[Figure]:
    flown = qbeast.open_table(str(tables.indexed("flights", data.flights, FLIGHTS_COLUMNS)))
    estimate = flown.rows().estimate(
        {"delay": pl.col("dep_delay").mean()}, by="carrier", absolute={"delay": 2.0}, min_group_rows=10_000
    )
    assert estimate.met
    what = "mean delay of the larger carriers within 2 minutes"
    return [Figure(what, 100 * estimate.share, "%", 20, f"of the keys {estimate.fraction:.1%}")]


def _promises(folder: Path) -> list[Figure]:
    """Return how often answers are inside their intervals, for real values and random keys of realistic sizes."""
    rows = qbeast.scan_table(str(folder))
    q6 = _floats(rows.filter(Q6).select(PRICE * DISCOUNT))
    small = _floats(
        rows.filter(Q1, pl.col("l_returnflag") == "N", pl.col("l_linestatus") == "F").select(PRICE)
    )
    planes = (
        data.flights()
        .drop_nulls("dep_delay")
        .group_by("tailnum")
        .agg(x=pl.col("dep_delay").sum(), n=pl.len())
    )
    delays = data.flights()["dep_delay"].drop_nulls().cast(pl.Float64).to_numpy()
    runs: dict[str, Callable[[float], Any]] = {
        "Q6 sum at 2 %": lambda c: trials(
            q6, np.ones(len(q6)), error=0.02, confidence=c, pilot=len(q6) // 80
        ),
        "Q1 sum of the smallest group at 5 %": lambda c: trials(
            small, np.ones(len(small)), error=0.05, confidence=c, pilot=130
        ),
        "mean delay of flights at 5 %": lambda c: trials(
            delays, np.ones(len(delays)), error=0.05, confidence=c, answer="mean", known=True
        ),
        "the same, keys of one plane each, at 10 %": lambda c: trials(
            _floats(planes.select("x")),
            _floats(planes.select("n")),
            error=0.1,
            confidence=c,
            answer="mean",
            known=True,
            pilot=150,
        ),
    }
    results = {(what, c): run(c) for what, run in runs.items() for c in (0.95, 0.99)}
    return [
        # A figure must not exceed its target, so it counts the failures.
        Figure(
            f"answers outside of the promise, {what}, {c:.0%}",
            100 * (1 - kept.share),
            "%",
            round(100 * (1 - c), 1),
            f"reads {kept.fraction:.1%} of the keys",
        )
        for (what, c), kept in results.items()
    ]


def _floats(frame: pl.LazyFrame | pl.DataFrame) -> np.ndarray:
    return frame.lazy().collect().to_series().cast(pl.Float64).to_numpy()


def _blocks(folder: Path) -> list[Figure]:
    """Return the bytes of block sampling for the same promise, over the bytes of our table."""
    ours = qbeast.open_table(str(folder)).rows().explain().bytes_total
    small = Q1 & (pl.col("l_returnflag") == "N") & (pl.col("l_linestatus") == "F")
    q6 = ("l_extendedprice", "l_discount", "l_quantity", "l_shipdate")
    questions = (
        block_sampling.Question("Q6 sum at 2 %", PRICE * DISCOUNT, Q6, 0.02, q6),
        block_sampling.Question(
            "Q1 price of the smallest group at 5 %",
            PRICE,
            small,
            0.05,
            ("l_extendedprice", "l_shipdate", *FLAGS),
        ),
        block_sampling.Question(
            "price of all rows at 1 %", PRICE, pl.lit(value=True), 0.01, ("l_extendedprice",)
        ),
    )
    return block_sampling.figures(data.lineitem_path(), questions, ours)


def _samplers(folder: Path) -> list[Figure]:
    """Return the bytes that other samplers read for 1 %, over a full scan; none of them estimates an error."""
    plain = str(data.lineitem_path())
    mean = f"SELECT avg(l_extendedprice) FROM '{plain}'"  # noqa: S608 - our own file
    scans: dict[str, tuple[Callable[[str], int], str, str]] = {
        f"DuckDB, {kind}": (_bytes_of, f"{mean} USING SAMPLE 1% ({kind}, 7)", mean)
        for kind in ("bernoulli", "system")
    }
    scans["Polars, rows at random"] = (_bytes_of_polars, f"{plain}:sample", plain)
    scans["Spark, sample(0.01)"] = (_bytes_of_spark, f"{plain}:sample", plain)
    scans["qbeast, sample=0.01"] = (_bytes_of_ours, f"{folder}:sample", str(folder))
    return [
        Figure(
            f"mean price, {name}: bytes of 1 % over a full scan",
            100 * measure.in_child(read, some).result / measure.in_child(read, everything).result,
            "%",
        )
        for name, (read, some, everything) in scans.items()
    ]


def _bytes_of_polars(request: str) -> int:
    file, _, sampled = request.partition(":")
    before = measure.bytes_read()
    prices = pl.scan_parquet(file).select("l_extendedprice")
    chosen = prices.filter(pl.int_range(pl.len()).shuffle(7) < pl.len() // 100) if sampled else prices
    chosen.select(pl.col("l_extendedprice").mean()).collect()
    return measure.bytes_read() - before


def _bytes_of_ours(request: str) -> int:
    path, _, sampled = request.partition(":")
    before = measure.bytes_read()
    qbeast.scan_table(path, sample=0.01 if sampled else None).select(
        pl.col("l_extendedprice").mean()
    ).collect()
    return measure.bytes_read() - before


def _bytes_of_spark(request: str) -> int:
    """Return the bytes that the JVM requested from the system during the query."""
    from benchmarks.bench_spark_read import session  # noqa: PLC0415 - a session costs seconds

    file, _, sampled = request.partition(":")
    spark = session()
    rows = spark.read.parquet(file)
    rows = rows.sample(0.01, seed=7) if sampled else rows
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no public access
    numbers = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/io")
    before = int(numbers.read_text().split()[1])
    rows.selectExpr("avg(l_extendedprice)").collect()
    after = int(numbers.read_text().split()[1])
    spark.stop()
    return after - before


def _bytes_of(query: str) -> int:
    before = measure.bytes_read()
    duckdb.sql(query).fetchall()
    return measure.bytes_read() - before


if __name__ == "__main__":
    warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
    print(table(run()))

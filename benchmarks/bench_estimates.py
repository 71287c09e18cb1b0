"""What does an aggregate cost whose error is promised, and is the promise kept?

    python -m benchmarks.bench_estimates

Bytes: of `Table.estimate`, all that is read of data files over the bytes of the table, on lineitem (scale 1, index on
three columns) and flights; beside them what block sampling needs for the same promise: row groups and pages of a plain
Parquet file drawn independently, with the variance between blocks, which is given to it (it would have to find it by a
pilot of its own), and the bytes of the columns it needs alone. Promise: 1,000 trials, each with other random keys.
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
import pyarrow.parquet as pq

import qbeast
from benchmarks import data, measure, tables
from benchmarks.report import Figure, table
from benchmarks.trials import trials

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
FLIGHTS_COLUMNS = ("dep_time", "distance", "carrier", "tailnum")
PAGE_ROWS, GROUP_ROWS = 2_048, 32_768
Z = 1.96 * 1.1  # what our own intervals reach to, so that the rival keeps the same promise


@dataclass(frozen=True, slots=True)
class Question:
    """One call of `estimate`, and the share of bytes that it may take, in %."""

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
    return [*figures, *_flights(), *_promises(folder), *_blocks(folder), *_samplers()]


def _asked(folder: Path, question: Question) -> list[Figure]:
    lineitem = qbeast.open_table(str(folder))
    found = lineitem.estimate(**question.options)
    exact_options = {name: one for name, one in question.options.items() if name != "error"}
    exact = lineitem.estimate(**exact_options, sample=1.0)
    off = max((found.frame[name] / exact.frame[name] - 1).abs().max() for name in found.names)
    assert found.met
    assert exact.frame.height == found.frame.height
    seconds = measure.interleaved(
        {
            "estimate": lambda: lineitem.estimate(**question.options),
            "all": lambda: _in_polars(lineitem, question),
        },
        rounds=3,
    )
    allowed = found.share * seconds["all"] + 0.05
    return [
        Figure(
            question.what,
            100 * found.share,
            "%",
            question.most,
            f"of the keys {found.fraction:.1%}, off {off:.2%}",
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
    rows = lineitem.scan()
    kept = rows.filter(question.options["where"]) if "where" in question.options else rows
    by, asked = question.options.get("by"), question.options["aggregates"]
    return (kept.group_by(by).agg(**asked) if by else kept.select(**asked)).collect()


def _flights() -> list[Figure]:
    flown = qbeast.open_table(str(tables.indexed("flights", data.flights, FLIGHTS_COLUMNS)))
    found = flown.estimate(
        {"delay": pl.col("dep_delay").mean()}, by="carrier", absolute={"delay": 2.0}, min_group_rows=10_000
    )
    assert found.met
    what = "mean delay of the larger carriers within 2 minutes"
    return [Figure(what, 100 * found.share, "%", 20, f"of the keys {found.fraction:.1%}")]


def _promises(folder: Path) -> list[Figure]:
    """Of real values, how often answers are inside; keys are random, of the sizes that the index gives."""
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
    asked: dict[str, Callable[[float], Any]] = {
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
    found = {(what, c): ask(c) for what, ask in asked.items() for c in (0.95, 0.99)}
    return [
        # A figure must not exceed its target: here it is what goes wrong.
        Figure(
            f"answers outside of the promise, {what}, {c:.0%}",
            100 * (1 - kept.share),
            "%",
            round(100 * (1 - c), 1),
            f"reads {kept.fraction:.1%} of the keys",
        )
        for (what, c), kept in found.items()
    ]


def _floats(frame: pl.LazyFrame | pl.DataFrame) -> np.ndarray:
    return frame.lazy().collect().to_series().cast(pl.Float64).to_numpy()


def _blocks(folder: Path) -> list[Figure]:
    """What block sampling needs: a fraction of the blocks of the plain file, in bytes over those of our table."""
    plain = data.lineitem_path()
    rows = pl.read_parquet(
        plain, columns=["l_extendedprice", "l_discount", "l_quantity", "l_shipdate", *FLAGS]
    )
    ours = qbeast.open_table(str(folder)).explain().bytes_total
    sizes = _column_bytes(plain)
    asked = {
        "Q6 sum at 2 %": (
            Q6,
            PRICE * DISCOUNT,
            0.02,
            ["l_extendedprice", "l_discount", "l_quantity", "l_shipdate"],
        ),
        "Q1 price of the smallest group at 5 %": (
            Q1 & (pl.col("l_returnflag") == "N") & (pl.col("l_linestatus") == "F"),
            PRICE,
            0.05,
            ["l_extendedprice", "l_shipdate", *FLAGS],
        ),
    }
    orders = {
        "original order": rows,
        "time order": rows.sort("l_shipdate"),
        "shuffled": rows.sample(fraction=1.0, shuffle=True, seed=1),
    }
    figures = []
    for what, (condition, value, error, columns) in asked.items():
        for order, frame in orders.items():
            x = (
                frame.select(pl.when(condition).then(value).otherwise(0).cast(pl.Float64))
                .to_series()
                .to_numpy()
            )
            for blocks, block_rows in (("row groups", GROUP_ROWS), ("pages", PAGE_ROWS)):
                starts = np.arange(0, len(x), block_rows)
                sums = np.add.reduceat(x, starts)
                matter = np.add.reduceat((x != 0).astype(float), starts) > 0
                if order != "time order":
                    matter[:] = True  # no statistics tell blocks apart
                fraction = _fraction(sums[matter], error)
                share = fraction * matter.mean() * sum(sizes[name] for name in columns) / ours
                note = f"{fraction:.1%} of {int(matter.sum()):,} blocks that may match"
                figures.append(Figure(f"{what}, rival: {blocks}, {order}", 100 * share, "%", None, note))
    return figures


def _fraction(sums: np.ndarray, error: float) -> float:
    """Of blocks: the better of totals by 1 / f and of means calibrated to the number of blocks."""
    residuals = min(float((sums**2).sum()), float(((sums - sums.mean()) ** 2).sum()))
    odds = (error * sums.sum() / Z) ** 2 / residuals
    return float(1 / (1 + odds))


def _column_bytes(file: Path) -> dict[str, int]:
    metadata = pq.ParquetFile(file).metadata
    found: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            found[chunk.path_in_schema] = found.get(chunk.path_in_schema, 0) + chunk.total_compressed_size
    return found


def _samplers() -> list[Figure]:
    """What the samplers of others read for 1 % of the plain file, as the system saw it, over a full scan."""
    plain = str(data.lineitem_path())
    mean = f"SELECT avg(l_extendedprice) FROM '{plain}'"  # noqa: S608 - our own file
    whole = measure.in_child(_bytes_of, mean).result
    return [
        Figure(
            f"mean price, DuckDB, 1 % {kind}: bytes over a full scan",
            100 * measure.in_child(_bytes_of, f"{mean} USING SAMPLE 1% ({kind}, 7)").result / whole,
            "%",
        )
        for kind in ("bernoulli", "system")
    ]


def _bytes_of(query: str) -> int:
    before = measure.bytes_read()
    duckdb.sql(query).fetchall()
    return measure.bytes_read() - before


if __name__ == "__main__":
    warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
    print(table(run()))

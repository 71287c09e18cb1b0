"""Does `suggest_columns` propose the columns that brute force finds?

    python -m benchmarks.bench_suggest

Flights, and a sixth of the orders of lineitem (a million rows), each with 15 filters. Brute force writes a table for
every column and every pair of columns, with the kind that the library chooses and, for filters with equality, by hash
too; each filter is planned on each table. A proposal for one filter, made from all rows, from a random 5 % of them and
from the first 5 %, is written as well: its bytes opened over those of the best pair. Columns of one value are in no
pair: such a pair would be one column with another hash. Claims (`SuggestedColumns.opened`) are compared with the table
written, if the number of its rows is given.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import polars as pl

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table

PART = 0.05
MOST_RATIO, MOST_OFF_PERCENT, MOST_SECONDS = 1.15, 15.0, 5.0


class Workload(NamedTuple):
    make: Callable[[], pl.DataFrame]
    hashed: tuple[str, ...]
    filters: tuple[str, ...]


WORKLOADS = {
    "flights": Workload(
        data.flights,
        ("carrier", "day", "dest", "month", "origin", "tailnum"),
        (
            "sched_dep_time < 700",
            "dep_time < 700",
            "distance > 1500",
            "arr_delay > 60",
            "carrier = 'UA'",
            "dest = 'LAX'",
            "month = 7",
            "tailnum = 'N14228'",
            "origin = 'JFK' AND carrier = 'B6'",
            "dep_time BETWEEN 600 AND 800 AND distance > 1000",
            "arr_delay > 120 AND carrier = 'EV'",
            "air_time < 60",
            "month = 7 AND day BETWEEN 1 AND 7",
            "dest IN ('LAX', 'SFO') AND sched_dep_time > 1800",
            "flight < 100",
        ),
    ),
    "lineitem": Workload(
        lambda: data.lineitem().filter(pl.col("l_orderkey") // 32 % 6 == 0),
        ("l_shipmode", "l_suppkey"),
        (
            "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-04-01'",
            "l_shipdate >= DATE '1998-06-01'",
            "l_receiptdate < DATE '1992-06-01'",
            "l_partkey BETWEEN 50000 AND 60000",
            "l_extendedprice > 80000",
            "l_quantity < 3",
            "l_shipmode = 'AIR'",
            "l_orderkey < 300000",
            "l_suppkey = 77",
            (
                "l_shipdate BETWEEN DATE '1994-01-01' AND DATE '1994-12-31' "
                "AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24"
            ),
            "l_shipdate >= DATE '1997-01-01' AND l_shipdate < DATE '1998-01-01' AND l_partkey < 20000",
            "l_shipmode IN ('MAIL', 'SHIP') AND l_receiptdate BETWEEN DATE '1994-01-01' AND DATE '1994-12-31'",
            "l_returnflag = 'R' AND l_shipdate < DATE '1993-01-01'",
            "l_commitdate >= DATE '1998-06-01'",
            "l_extendedprice BETWEEN 30000 AND 35000 AND l_quantity > 40",
        ),
    ),
}


class BruteForce:
    """Tables of a workload, each written once, and the bytes that every filter reads."""

    def __init__(self, workload: Workload, folder: str) -> None:
        self.frame, self.filters, self._folder = workload.make(), workload.filters, Path(folder)
        self._opened: dict[tuple[str, ...], list[tuple[int, float]]] = {}
        varied = [name for name in self.frame.columns if self.frame[name].n_unique() > 1]
        kinds = [*varied, *(f"{name}:hash" for name in workload.hashed)]
        pairs = [
            item for item in combinations(kinds, 2) if len({name.partition(":")[0] for name in item}) == 2
        ]
        sets = [*((item,) for item in kinds), *pairs]
        self._best = [min(opened) for opened in zip(*(self.bytes_opened(item) for item in sets), strict=True)]

    def bytes_opened(self, columns: tuple[str, ...]) -> list[int]:
        return [size for size, _ in self._measured(columns)]

    def over_best(self, columns: tuple[str, ...], at: int) -> float:
        return float(self.bytes_opened(columns)[at] / self._best[at])

    def share(self, columns: tuple[str, ...], at: int) -> float:
        return self._measured(columns)[at][1]

    def _measured(self, columns: tuple[str, ...]) -> list[tuple[int, float]]:
        if columns not in self._opened:
            path = self._folder / "table"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
                qbeast.write_table(self.frame, path, columns=columns)
            opened = qbeast.open_table(path)
            plans = [opened.explain(predicate) for predicate in self.filters]
            self._opened[columns] = [(plan.bytes_opened, plan.share) for plan in plans]
            shutil.rmtree(path)
        return self._opened[columns]


def run() -> list[Figure]:
    figures: list[Figure] = []
    for name, workload in WORKLOADS.items():
        data.CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=data.CACHE) as folder:
            figures += _figures(name, BruteForce(workload, folder))
    return figures


def _figures(name: str, tables: BruteForce) -> list[Figure]:
    rows = tables.frame
    drawn = rows.sample(fraction=PART, seed=1)
    options = {"all rows": rows, "5 % of the rows": drawn, "the first 5 %": rows.head(drawn.height)}
    return [
        *(_over_best(f"{name}, {seen}", some, tables) for seen, some in options.items()),
        *(_claims(f"{name}, {seen}", some, tables) for seen, some in list(options.items())[:2]),
        _seconds(name, tables),
    ]


def _over_best(what: str, rows: pl.DataFrame, tables: BruteForce) -> Figure:
    ratios = [
        (tables.over_best(qbeast.suggest_columns(rows, [item]).columns, at), item)
        for at, item in enumerate(tables.filters)
    ]
    worst, query = max(ratios)
    return Figure(f"{what}: the worst proposal over the best pair", worst, "x", MOST_RATIO, query)


def _claims(what: str, rows: pl.DataFrame, tables: BruteForce) -> Figure:
    off: list[tuple[float, str]] = []
    for at, item in enumerate(tables.filters):
        actual = qbeast.suggest_columns(rows, [item], table_rows=tables.frame.height)
        off.append((100 * abs(actual.opened / tables.share(actual.columns, at) - 1), item))
    worst, query = max(off)
    return Figure(f"{what}: the claim that is off most", worst, "%", MOST_OFF_PERCENT, query)


def _seconds(name: str, tables: BruteForce) -> Figure:
    calls = [
        measure.timed(partial(qbeast.suggest_columns, tables.frame, [predicate]))
        for predicate in tables.filters
    ]
    return Figure(f"{name}, all rows: the slowest call", max(calls), "s", MOST_SECONDS)


if __name__ == "__main__":
    print(table(run()))

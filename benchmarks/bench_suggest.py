"""Do `suggest_columns` and `Table.advise` propose the index that brute force finds, and are their claims true?

    python -m benchmarks.bench_suggest

Flights, and a sixth of the orders of lineitem (a million rows), see `benchmarks.advise_tables`. Brute force writes a
table for every column, pair and triple of the columns that a workload names and one other; each filter is planned on
each table. Tables are written once and remembered.

`suggest_columns`: 15 filters each, one at a time. A proposal made from all rows, from a random 5 % of them and from the
first 5 % is written as well: its bytes opened over those of the best table. Claims (`SuggestedColumns.opened`) are
compared with the table written, if the number of its rows is given.

Brute force tries no importance, so a proposal with one can open less than its best table.

`Table.advise`: 15 workloads each, of one to six filters, for a table that is indexed by a column that few of them name.
The table with the advised index is written: its bytes over those of the best table of brute force, and the expected
bytes over its bytes.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import qbeast
from benchmarks import data, measure
from benchmarks.advise_tables import DATASETS, BruteForce
from benchmarks.report import Figure, table

PART = 0.05
MOST_RATIO, MOST_OFF_PERCENT, MOST_SECONDS = 1.15, 15.0, 5.0
MOST_ADVISED_RATIO, MOST_ADVICE_SECONDS = 1.1, 15.0
INDEXED = {"flights": ("flight",), "lineitem": ("l_orderkey",)}


def run() -> list[Figure]:
    figures: list[Figure] = []
    for name in DATASETS:
        tables = BruteForce(name)
        figures += _suggested(name, tables)
        with TemporaryDirectory(dir=data.CACHE) as folder:
            figures += _advised(name, tables, tables.write(Path(folder) / "table", INDEXED[name]))
    return figures


def _advised(name: str, tables: BruteForce, written: qbeast.Table) -> list[Figure]:
    ratios: list[tuple[float, str]] = []
    off: list[tuple[float, str]] = []
    seconds: list[tuple[float, str]] = []
    for number, workload in enumerate(tables.dataset.workloads):
        queries = [tables.dataset.filters[at] for at in workload]
        start = time.process_time()
        advice = written.advise(queries)
        taken = time.process_time() - start
        actual = tables.mean_bytes(advice.columns, workload, advice.cube_size, advice.importance)
        title = f"workload {number}: {', '.join(advice.columns)}, {advice.importance}, cubes of {advice.cube_size}"
        ratios.append((actual / tables.best(workload)[0], title))
        off.append((100 * abs(advice.bytes_opened / actual - 1), title))
        seconds.append((taken, title))
    worst, off_most, slowest = max(ratios), max(off), max(seconds)
    return [
        Figure(f"{name}: the worst advice over brute force", worst[0], "x", MOST_ADVISED_RATIO, worst[1]),
        Figure(
            f"{name}: the expected bytes that are off most", off_most[0], "%", MOST_OFF_PERCENT, off_most[1]
        ),
        Figure(f"{name}: CPU of the slowest advice", slowest[0], "s", MOST_ADVICE_SECONDS, slowest[1]),
    ]


def _suggested(name: str, tables: BruteForce) -> list[Figure]:
    rows = tables.frame
    drawn = rows.sample(fraction=PART, seed=1)
    options = {"all rows": rows, "5 % of the rows": drawn, "the first 5 %": rows.head(drawn.height)}
    return [
        *(_over_best(f"{name}, {seen}", some, tables) for seen, some in options.items()),
        *(_claims(f"{name}, {seen}", some, tables) for seen, some in list(options.items())[:2]),
        _seconds(name, tables),
    ]


def _over_best(what: str, rows: pl.DataFrame, tables: BruteForce) -> Figure:
    ratios: list[tuple[float, str]] = []
    for at, item in enumerate(tables.dataset.filters):
        proposed = qbeast.suggest_columns(rows, [item])
        actual = tables.mean_bytes(proposed.columns, (at,), importance=proposed.importance)
        ratios.append((actual / tables.best((at,))[0], item))
    worst, query = max(ratios)
    return Figure(f"{what}: the worst proposal over brute force", worst, "x", MOST_RATIO, query)


def _claims(what: str, rows: pl.DataFrame, tables: BruteForce) -> Figure:
    off: list[tuple[float, str]] = []
    for at, item in enumerate(tables.dataset.filters):
        proposed = qbeast.suggest_columns(rows, [item], table_rows=tables.frame.height)
        written = tables.measured(proposed.columns, importance=proposed.importance)
        off.append((100 * abs(proposed.opened / (written["opened"][at] / written["total"]) - 1), item))
    worst, query = max(off)
    return Figure(f"{what}: the claim that is off most", worst, "%", MOST_OFF_PERCENT, query)


def _seconds(name: str, tables: BruteForce) -> Figure:
    calls = [
        measure.timed(partial(qbeast.suggest_columns, tables.frame, [predicate]))
        for predicate in tables.dataset.filters
    ]
    return Figure(f"{name}, all rows: the slowest call", max(calls), "s", MOST_SECONDS)


if __name__ == "__main__":
    print(table(run()))

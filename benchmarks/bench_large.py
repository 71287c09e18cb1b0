"""What does a table of a billion rows cost, from the first write to a month of nights?

    make bench-large, or: python -m benchmarks.bench_large [millions of rows]

Orders of four columns (an id, a day of two years, one of many keys with about 200 orders each, a price; 24 bytes) come
from a generator, day by day. They are written within 2 GiB, indexed by day, key and price, with deletion vectors. Then
30 nights append a thousandth of the rows each, of a new day, and the reads are repeated. Each step runs in its own
process, which has opened the table, and imports the modules that it needs beyond that. Memory is the peak of the
process. Bytes are all that it reads and writes, with modules, the log and temporary files.

A billion rows need 60 GB of disk and about an hour on two cores. The table is deleted at the end.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table

MILLION, GIB = 1_000_000, 1 << 30
BUDGET = 2 * GIB
DISK_BYTES = 60  # per row
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("key", pa.int32()), ("price", pa.float32())])
COLUMNS, OTHER_COLUMNS = ["day", "key", "price"], ["day", "key"]
START, DAYS, NIGHTS = date(2024, 10, 4), 730, 30
DAY = pl.col("day") == START + timedelta(days=DAYS // 2)
PRICE = pl.col("price").cast(pl.Float64)
DEAR = pl.col("price") > 50
FRACTION, ERROR = 0.001, 0.02
# Places of keys: to read, to delete and to update.
READ, DELETED, UPDATED = 0.3, 0.5, 0.7
# Reads, and the maximum of their bytes after the nights, over those before.
READS = {"one day": 1.2, "one key": 1.2, "sample of 0.1 %": 1.5}
ESTIMATE, CHANGES = "estimate within 2 %", "changes of the last version"
MOST_CPU_SECONDS = {CHANGES: 1.0}


@dataclass(frozen=True)  # no slots: the table is opened once per process
class Orders:
    """A table, and the number of rows that it is written with."""

    folder: Path
    rows: int

    @property
    def night_rows(self) -> int:
        """Rows of an append."""
        return self.rows // 1000

    @property
    def resources(self) -> qbeast.Resources:
        """The budget of all steps."""
        return qbeast.Resources(memory_bytes=BUDGET, spill_dir=self.folder)

    @cached_property
    def table(self) -> qbeast.Table:
        """The table, orders.table."""
        return qbeast.open_table(self.folder / "t", resources=self.resources)

    def key(self, place: float) -> pl.Expr:
        """Return the filter for the key at a place in [0, 1]."""
        return pl.col("key") == int(place * self.rows / 200)

    def batch(self, number: int, days: np.ndarray) -> pa.RecordBatch:
        """Return the orders of a batch, one for each day since `START`."""
        random, count = np.random.default_rng(number), len(days)
        columns = [
            np.arange(number * MILLION, number * MILLION + count),
            pa.array((days + (START - date(1970, 1, 1)).days).astype(np.int32)).cast(pa.date32()),
            random.integers(0, self.rows // 200, count, dtype=np.int32),
            random.lognormal(3, 1, count).astype(np.float32),
        ]
        return pa.record_batch(columns, schema=SCHEMA)


class Source:
    """The stream of all rows, and what it counts of them."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.seconds, self.counts = orders, 0.0, np.zeros(5)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, a million at a time."""
        counted = [DAY.sum(), self.orders.key(READ).sum(), PRICE.sum(), DEAR.sum(), PRICE.filter(DEAR).sum()]
        for number in range(self.orders.rows // MILLION):
            start = time.thread_time()
            days = np.arange(number * MILLION, (number + 1) * MILLION) * DAYS // self.orders.rows
            rows = self.orders.batch(number, days)
            named = [count.alias(str(place)) for place, count in enumerate(counted)]
            self.counts += np.array(pl.DataFrame(rows).select(named).row(0), np.float64)
            self.seconds += time.thread_time() - start
            yield rows


@dataclass(frozen=True, slots=True)
class Cost:
    """The result and cost of a step."""

    result: Any
    read: int
    written: int
    child: measure.Child

    def figure(self, what: str, most: float | None, more: str = "") -> Figure:
        """Return the CPU seconds, with the rest as a note."""
        child = self.child
        bytes_ = f"{_amount(self.read)} read, {_amount(self.written)} written"
        note = f"{child.seconds:.1f} s, {child.peak_rss_bytes / GIB:.2f} GiB, {bytes_}{more}"
        return Figure(what, child.cpu_seconds, "CPU s", most, note)


def run(millions: int = 1000) -> list[Figure]:
    data.CACHE.mkdir(parents=True, exist_ok=True)
    needed, free = millions * MILLION * DISK_BYTES, shutil.disk_usage(data.CACHE).free
    if free < needed:
        message = f"{millions:,} million rows need {_amount(needed)} of disk, and {_amount(free)} are free"
        raise SystemExit(message)
    with tempfile.TemporaryDirectory(dir=data.CACHE) as folder:
        orders = Orders(Path(folder), millions * MILLION)
        costs = {name: _cost(name, step, orders) for name, step in STEPS.items()}
        _check(costs, orders)
        costs |= _nights(orders)
        costs |= {_later(name): _cost(_later(name), STEPS[name], orders) for name in (*READS, ESTIMATE)}
        _check_later(costs, orders)
    return list(_figures(costs, f"{millions:,} million rows"))


def _nights(orders: Orders) -> dict[str, Cost]:
    costs, appends = dict[str, Cost](), list[Cost]()
    for night in range(1, NIGHTS + 1):
        appends.append(_cost(f"append of night {night}", _append, orders, night))
        if night in BETWEEN:
            name, step = BETWEEN[night]
            costs[name] = _cost(name, step, orders)
    longest = max(appends, key=lambda cost: cost.child.cpu_seconds)
    return {f"append of a night, longest of {NIGHTS}": longest, **costs}


def _check(costs: dict[str, Cost], orders: Orders) -> None:
    """Assert that the results before the nights are right."""
    results = {name: cost.result for name, cost in costs.items()}
    of_day, of_key, total, dear, spent = results["write from a stream"][0]
    assert (results["open"], results["one day"], results["one key"]) == (orders.rows, of_day, of_key)
    assert np.isclose(results["sum over all rows"], total, rtol=1e-9)
    assert np.allclose(results[ESTIMATE], [spent / dear, dear], rtol=2 * ERROR)
    assert results["count of a deleted key"] == 0 < results["delete of a key"]
    assert results[CHANGES] == 2 * results["update of few rows"] > 0


def _check_later(costs: dict[str, Cost], orders: Orders) -> None:
    """Assert that the table lost no row in the nights."""
    deleted = costs["delete of a key"].result
    assert 0 <= costs["one day"].result - costs[_later("one day")].result <= deleted
    assert len(orders.table) == orders.rows + (1 + NIGHTS) * orders.night_rows - deleted
    _, _, _, dear, spent = costs["write from a stream"].result[0]
    expected = spent / dear, dear * len(orders.table) / orders.rows
    assert np.allclose(costs[_later(ESTIMATE)].result, expected, rtol=2 * ERROR)
    assert orders.table.check(data=False).ok
    assert not list(orders.folder.glob("qbeast*")), "temporary files are gone"


def _later(name: str) -> str:
    return f"{name}, after {NIGHTS} nights"


def _figures(costs: dict[str, Cost], what: str) -> Iterator[Figure]:
    written = costs["write from a stream"]
    _, seconds, files, size_bytes, spilled = written.result
    for name, cost in costs.items():
        more = ""
        if cost is written:
            more = f", {seconds:.0f} CPU s of the generator, {_amount(spilled)} spilled"
        elif name in READS:
            more = f", {100 * cost.read / size_bytes:.2g} % of the files, {cost.result:,} rows"
        yield cost.figure(f"{what}: {name}", MOST_CPU_SECONDS.get(name), more)
    yield Figure(
        f"{what}: memory of the write over the budget",
        written.child.peak_rss_bytes / BUDGET,
        most=1.0,
        note=f"{files:,} files, {_amount(size_bytes)}",
    )
    for name, most in READS.items():
        later = costs[_later(name)]
        growth = f"{what}: bytes of {name} after {NIGHTS} nights, over before"
        yield Figure(growth, later.read / costs[name].read, "x", most, f"{later.result:,} rows")


def _cost(name: str, step: Callable[..., Any], orders: Orders, *arguments: Any) -> Cost:
    child = measure.in_child(_measured, step, orders, *arguments, prepare=_prepared)
    result, read, written = child.result
    cost = Cost(result, read, written, child)
    print(name, cost.result, cost.figure("", None).note, file=sys.stderr, flush=True)
    return cost


def _prepared(step: Callable[..., Any], orders: Orders, *arguments: Any) -> tuple[Any, ...]:
    if step not in (_write, _open):
        _ = orders.table
    return step, orders, *arguments


def _measured(prepared: tuple[Any, ...]) -> tuple[Any, int, int]:
    """Return the result, and the bytes that are read and written."""
    step, *arguments = prepared
    read, written = measure.bytes_read(), measure.bytes_written()
    result = step(*arguments)
    return result, measure.bytes_read() - read, measure.bytes_written() - written


def _write(orders: Orders) -> tuple[list[float], float, int, int, int]:
    source = Source(orders)
    result = qbeast.write_table(
        pa.RecordBatchReader.from_batches(SCHEMA, source.batches()),
        orders.folder / "t",
        columns=COLUMNS,
        deletion_vectors=True,
        resources=orders.resources,
    )
    return source.counts.tolist(), source.seconds, result.files, result.bytes, result.spilled_bytes


def _open(orders: Orders) -> int:
    return len(orders.table)


def _one_day(orders: Orders) -> int:
    return orders.table.read(DAY).height


def _one_key(orders: Orders) -> int:
    return orders.table.read(orders.key(READ)).height


def _sample(orders: Orders) -> int:
    return orders.table.read(sample=FRACTION).height


def _estimate(orders: Orders) -> tuple[float, float]:
    found = orders.table.rows(DEAR).estimate({"mean": PRICE.mean(), "count": pl.len()}, error=ERROR)
    assert found.met
    mean, count = found.frame.select("mean", "count").row(0)
    return float(mean), float(count)


def _sum(orders: Orders) -> float:
    return float(orders.table.rows().lazy().select(PRICE.sum()).collect().item())


def _append(orders: Orders, night: int = 0) -> int:
    rows = orders.batch(orders.rows // MILLION + night, np.full(orders.night_rows, DAYS + night))
    return qbeast.write_table(rows, orders.table.uri, mode="append", resources=orders.resources).version


def _delete(orders: Orders) -> int:
    return orders.table.delete(orders.key(DELETED)).rows_deleted


def _update(orders: Orders) -> int:
    return orders.table.update(
        orders.key(UPDATED) & (pl.col("price") > 10), {"price": pl.col("price") * 2}
    ).rows_updated


def _count(orders: Orders) -> int:
    return orders.table.count(orders.key(DELETED))


def _changes(orders: Orders) -> int:
    return orders.table.changes(orders.table.version - 1).collect().height


def _optimize(orders: Orders) -> int:
    return orders.table.optimize().rows


def _reindex(orders: Orders) -> int:
    return orders.table.reindex(OTHER_COLUMNS).rows_left


STEPS: dict[str, Callable[..., Any]] = {
    "write from a stream": _write,
    "open": _open,
    "one day": _one_day,
    "one key": _one_key,
    "sample of 0.1 %": _sample,
    ESTIMATE: _estimate,
    "sum over all rows": _sum,
    "append of 0.1 %": _append,
    "delete of a key": _delete,
    "update of few rows": _update,
    "count of a deleted key": _count,
    CHANGES: _changes,
    "optimize": _optimize,
}

# What follows an append, by night.
BETWEEN: dict[int, tuple[str, Callable[..., Any]]] = {
    10: ("optimize after 10 nights", _optimize),
    20: ("reindex after 20 nights", _reindex),
    30: ("optimize after 30 nights", _optimize),
}


def _amount(count: float) -> str:
    """Return a number of bytes as text.

    >>> _amount(28_123_000_000), _amount(1_230_000), _amount(0)
    ('28.1 GB', '1.2 MB', '0.0 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))

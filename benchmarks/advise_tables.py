"""Workloads of filters on flights and lineitem, and the tables of every index that brute force tries.

Each table is written once; what it measures is kept in the cache of the benchmarks, until code of the layout changes.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple, TypedDict

import polars as pl

import qbeast
import qbeast_core
from benchmarks import data


class Dataset(NamedTuple):
    """A table, the columns that brute force combines, and workloads: lists of filters."""

    make: Callable[[], pl.DataFrame]
    columns: tuple[str, ...]
    # Columns that brute force also indexes by hash.
    hashed: tuple[str, ...]
    filters: tuple[str, ...]
    # Positions in `filters`; a position may be repeated.
    workloads: tuple[tuple[int, ...], ...]


DATASETS = {
    "flights": Dataset(
        data.flights,
        (
            *("dep_time", "sched_dep_time", "distance", "arr_delay", "air_time", "flight"),
            *("carrier", "dest", "origin", "tailnum", "month", "day"),
        ),
        ("carrier", "dest", "tailnum"),
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
        (
            (0,),
            (4,),
            (9,),
            (12,),
            (13,),
            (0, 2),
            (3, 6),
            (4, 5, 7),
            (8, 10),
            (9, 12, 3),
            (5, 5, 5, 11),
            (2, 6, 14),
            (1, 7, 12, 13),
            (4, 6, 9, 10, 13),
            (0, 2, 3, 5, 6, 7, 11, 14),
        ),
    ),
    "lineitem": Dataset(
        lambda: data.lineitem().filter(pl.col("l_orderkey") // 32 % 6 == 0),
        (
            *("l_shipdate", "l_receiptdate", "l_commitdate", "l_partkey", "l_suppkey", "l_orderkey"),
            *("l_extendedprice", "l_quantity", "l_discount", "l_shipmode", "l_returnflag"),
        ),
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
        (
            (0,),
            (6,),
            (9,),
            (10,),
            (14,),
            (0, 3),
            (4, 5),
            (3, 8, 7),
            (9, 11),
            (0, 10, 12),
            (8, 8, 8, 0),
            (4, 6, 13),
            (0, 3, 4, 14),
            (1, 9, 10, 11, 12),
            (0, 3, 4, 7, 8),
        ),
    ),
}


NOTHING: Mapping[str, float] = MappingProxyType({})


class Measured(TypedDict):
    """A table written: its size, and the bytes that each filter opens."""

    total: int
    opened: list[int]


class BruteForce:
    """Tables of a data set, each written once, and the bytes that every filter reads of them."""

    def __init__(self, name: str) -> None:
        self.dataset = DATASETS[name]
        self.frame = self.dataset.make()
        self._file = data.CACHE / f"advise-{name}-{_layout_digest()}.json"
        self._known: dict[str, Measured] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def sets(self, workload: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
        """Yield all columns, pairs and triples of the columns that a workload names and one other column.

        They have the kind that the library chooses. Columns and pairs are also tried by hash.
        """
        texts = " ".join(self.dataset.filters[at] for at in workload)
        named = [name for name in self.dataset.columns if re.search(rf"\b{name}\b", texts)]
        names = [*named, next(name for name in self.dataset.columns if name not in named)]
        for size in (1, 2, 3):
            yield from combinations(names, size)
        hashed = [f"{name}:hash" for name in self.dataset.hashed if name in named]
        yield from ((name,) for name in hashed)
        for pair in combinations([*names, *hashed], 2):
            if any(name in hashed for name in pair) and len({name.partition(":")[0] for name in pair}) == 2:
                yield pair

    def best(self, workload: tuple[int, ...]) -> tuple[float, tuple[str, ...]]:
        """Return the fewest mean bytes that the workload opens of any table, and the columns of the table."""
        return min((self.mean_bytes(columns, workload), columns) for columns in self.sets(workload))

    def mean_bytes(
        self,
        columns: tuple[str, ...],
        workload: tuple[int, ...],
        cube_size: int | None = None,
        importance: Mapping[str, float] = NOTHING,
    ) -> float:
        """Return the mean bytes that the filters of a workload open of a table."""
        opened = self.measured(columns, cube_size, importance)["opened"]
        return sum(opened[at] for at in workload) / len(workload)

    def measured(
        self,
        columns: tuple[str, ...],
        cube_size: int | None = None,
        importance: Mapping[str, float] = NOTHING,
    ) -> Measured:
        """Return what a table measures; it is written if it is not in the cache."""
        key = json.dumps([columns, cube_size, dict(importance), self.dataset.filters[-1]])
        if key not in self._known:
            with TemporaryDirectory(dir=data.CACHE) as folder:
                self._known[key] = self._written(Path(folder) / "table", columns, cube_size, importance)
            self._file.write_text(json.dumps(self._known))
        return self._known[key]

    def write(
        self,
        path: Path,
        columns: tuple[str, ...],
        cube_size: int | None = None,
        importance: Mapping[str, float] = NOTHING,
    ) -> qbeast.Table:
        """Write a table of the rows."""
        shutil.rmtree(path, ignore_errors=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
            qbeast.write_table(self.frame, path, columns=columns, cube_size=cube_size, importance=importance)
        return qbeast.open_table(path)

    def _written(
        self, path: Path, columns: tuple[str, ...], cube_size: int | None, importance: Mapping[str, float]
    ) -> Measured:
        table = self.write(path, columns, cube_size, importance)
        plans = [table.rows(predicate).explain() for predicate in self.dataset.filters]
        return Measured(total=plans[0].bytes_total, opened=[plan.bytes_opened for plan in plans])


def _layout_digest() -> str:
    """Return a digest of the code that places rows."""
    folder = Path(qbeast_core.__file__).parent / "tree"
    code = b"".join(file.read_bytes() for file in sorted(folder.rglob("*.py")))
    return sha256(code).hexdigest()[:12]


if __name__ == "__main__":
    for title in DATASETS:
        tables = BruteForce(title)
        for listed in tables.dataset.workloads:
            tables.best(listed)

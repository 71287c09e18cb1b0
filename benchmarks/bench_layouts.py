"""Which layout suits which question? Bytes that six questions read from the same rows in seven layouts.

    python -m benchmarks.bench_layouts

lineitem at scale 1 in about 15 files, except for the partitions, which have a file per month. The other layouts are
read by the minima and maxima of row groups of 32,768 rows, footers counted, as a Delta reader does. A random sample of
them reads everything that the filter leaves, because they can be sampled only after reading. Of a shuffled copy it is
the head.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

import qbeast
from benchmarks import data, rivals, tables
from benchmarks.boxes import Box, row_groups, share_opened
from benchmarks.report import Figure, table

FILES = 15
SAMPLE = 0.01
DATE, PART, PRICE = data.W1_COLUMNS
MONTH = {DATE: (date(1995, 3, 1), date(1995, 3, 31))}
YEAR = {DATE: (date(1995, 1, 1), date(1995, 12, 31))}
PARTS = {PART: (100_000, 120_000)}
PRICES = {PRICE: (20_000.0, 20_500.0)}
# The question, its box, and whether 1 % of the rows is enough.
QUESTIONS: dict[str, tuple[Box | None, bool]] = {
    "one month of the ship dates": (Box(MONTH), False),
    "a narrow range of prices": (Box(PRICES), False),
    "a tenth of the parts in one year": (Box(PARTS | YEAR), False),
    "1 % of all rows at random": (None, True),
    "1 % of one month at random": (Box(MONTH), True),
    "1 % of a tenth of the parts at random": (Box(PARTS), True),
}


def run() -> list[Figure]:
    ours = qbeast.open_table(str(tables.lineitem_table()))
    figures = []
    for question, (box, sampled) in QUESTIONS.items():
        predicate = None if box is None else box.predicate()
        share = ours.rows(predicate, sample=SAMPLE if sampled else None).explain().share
        figures.append(Figure(f"{question}: qbeast", 100 * share, "%"))
    for layout, folder in _layouts().items():
        groups = row_groups(sorted(folder.glob("*.parquet")), data.W1_COLUMNS)
        for question, (box, sampled) in QUESTIONS.items():
            share = _head(groups) if sampled and layout == "shuffled" else _share(groups, box)
            figures.append(Figure(f"{question}: {layout}", 100 * share, "%"))
    return figures


def _share(groups: pl.DataFrame, box: Box | None) -> float:
    return 1.0 if box is None else share_opened(groups, box)


def _head(groups: pl.DataFrame) -> float:
    """Return the share of bytes of the first row groups of a shuffled copy, with a footer."""
    rows = groups["rows"].cum_sum()
    first = groups[: int((rows < SAMPLE * groups["rows"].sum()).sum()) + 1]
    size = groups.unique("file")["file_bytes"].sum()
    return float(first["bytes"].sum() + first["footer_bytes"][0]) / float(size)


def _layouts() -> dict[str, Path]:
    """Write the other layouts once."""
    return {
        "as generated": _written("generated", lambda rows: np.arange(rows.height), _even),
        "sorted by date": _written("sorted", _by_date, _even),
        "partitioned by month": _written("partitioned", _by_date, _months),
        "delta-rs z-order": tables.z_order("lineitem", data.lineitem, data.W1_COLUMNS),
        "rank-Hilbert": tables.hilbert("lineitem", data.lineitem, data.W1_COLUMNS),
        "shuffled": _written("shuffled", _shuffled, _even),
    }


def _written(
    name: str, order: Callable[[pl.DataFrame], np.ndarray], cuts: Callable[[pl.DataFrame], list[int]]
) -> Path:
    def write(folder: Path) -> None:
        rows = data.lineitem()
        rivals.write_in_order(rows, folder, order(rows), cuts(rows), data.W1_COLUMNS)

    return tables.once(tables.RIVALS / f"{name}-lineitem", write)


def _by_date(rows: pl.DataFrame) -> np.ndarray:
    return rows[DATE].arg_sort().to_numpy()


def _shuffled(rows: pl.DataFrame) -> np.ndarray:
    return np.random.default_rng(7).permutation(rows.height)


def _even(rows: pl.DataFrame) -> list[int]:
    return list(range(0, rows.height, -(-rows.height // FILES)))


def _months(rows: pl.DataFrame) -> list[int]:
    return np.flatnonzero(rows[DATE].sort().dt.month().diff().fill_null(1).to_numpy() != 0).tolist()


if __name__ == "__main__":
    print(table(run()))

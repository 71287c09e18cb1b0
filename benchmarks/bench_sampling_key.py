"""What does a sampling key cost: in filters, in samples, and in plain sums?

    python -m benchmarks.bench_sampling_key

10 million events of 200,000 users with up to 1,000 events, indexed by time, seconds and amount, once with
`sample_by="user"` and once without. Filters: 12 boxes each of a twelfth of the times, a tenth of the seconds, and both.
Samples: bytes over their share at 60 fractions, from 0.5 to 90 %. Plain sums: the error of a 1 % sample.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import numpy as np
import polars as pl

import qbeast
from benchmarks import amplification, data, tables
from benchmarks.report import Figure, table

ROWS, USERS = 10_000_000, 200_000
COLUMNS = ("at", "seconds", "amount")
BOXES = 12


def clicks() -> pl.DataFrame:
    return data.clicks(ROWS, users=USERS)


def keyed_table() -> Path:
    return tables.indexed("clicks by user", clicks, COLUMNS, sample_by=["user"])


def plain_table() -> Path:
    return tables.indexed("clicks", clicks, COLUMNS)


def run() -> list[Figure]:
    folders = {"with key": keyed_table(), "without": plain_table()}
    return [*_filters(folders), *_samples(folders), *_sums(folders)]


def _filters(folders: dict[str, Path]) -> list[Figure]:
    """Return the bytes that filters read with the key, over those without."""
    rows = qbeast.read_table(folders["without"], sample=0.02)
    at, seconds = (rows[name].sort() for name in COLUMNS[:2])
    by_time = [_between("at", at, i / BOXES, (i + 1) / BOXES) for i in range(BOXES)]
    by_length = [_between("seconds", seconds, i * 0.9 / BOXES, i * 0.9 / BOXES + 0.1) for i in range(BOXES)]
    both = [left & right for left, right in zip(by_time, by_length, strict=True)]
    figures = []
    for what, filters in (("time", by_time), ("seconds", by_length), ("time and seconds", both)):
        shares = {
            name: mean(qbeast.open_table(folder).rows(some).explain().share for some in filters)
            for name, folder in folders.items()
        }
        note = f"{100 * shares['with key']:.2f} % against {100 * shares['without']:.2f} %"
        ratio = shares["with key"] / shares["without"]
        figures.append(
            Figure(f"bytes of filters by {what}, with key over without", ratio, most=1.1, note=note)
        )
    return figures


def _between(name: str, values: pl.Series, start: float, end: float) -> pl.Expr:
    last = values.len() - 1
    return pl.col(name).is_between(values[int(start * last)], values[int(end * last)])


def _samples(folders: dict[str, Path]) -> list[Figure]:
    figures = []
    for name, folder in folders.items():
        # The rows of a sample of whole users vary, so bytes are compared with the rows that a sample has.
        weights = qbeast.open_table(folder)
        curve = [
            weights.rows(sample=fraction).explain().share / _share_of_rows(folder, fraction)
            for fraction in amplification.FRACTIONS
        ]
        figures += [
            Figure(f"bytes of samples over their share, mean, {name}", mean(curve)),
            Figure(f"bytes of samples over their share, worst, {name}", max(curve)),
        ]
    return figures


def _share_of_rows(folder: Path, fraction: float) -> float:
    counted = qbeast.scan_table(folder, sample=fraction).select(pl.len()).collect().item()
    return counted / ROWS


def _sums(folders: dict[str, Path]) -> list[Figure]:
    """Return the standard error of a plain sum from 1 % samples, in percent: of 50 parts of the table."""
    figures = []
    for name, folder in folders.items():
        sums = [
            qbeast.scan_table(folder, sample=(part / 100, (part + 1) / 100))
            .select(pl.col("seconds").sum())
            .collect()
            .item()
            for part in range(50)
        ]
        figures.append(
            Figure(
                f"error of a sum from a 1 % sample, {name}", 100 * float(np.std(sums) / np.mean(sums)), "%"
            )
        )
    return figures


if __name__ == "__main__":
    print(table(run()))

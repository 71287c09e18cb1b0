"""How many bytes does the log of a table take that grows by small appends?

    python -m benchmarks.bench_log

120 appends of 2,000 rows, an hour of events each: a time that grows, a user of which few are frequent, a skewed amount.
Commits, checkpoints and the bytes of the data files are counted separately.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl

import qbeast
from benchmarks import data
from benchmarks.report import Figure, table

APPENDS, ROWS = 120, 2_000
HOUR_US = 3_600_000_000
COLUMNS = ["ts", "user", "amount"]


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        path = Path(scratch) / "events"
        for number in range(APPENDS):
            qbeast.write_table(events(number), path, columns=COLUMNS, mode="append")
        log = path / "_delta_log"
        commits, checkpoints = (
            megabytes(log.glob(pattern)) for pattern in ("*.json", "*.checkpoint.parquet")
        )
        what = f"log of {APPENDS} appends of {ROWS:,} rows"
        shares = _shares(path)
        return [
            Figure(
                what, commits + checkpoints, "MB", 0.5, f"data {megabytes(path.glob('*.parquet')):.1f} MB"
            ),
            Figure("of these commits", commits, "MB", None),
            Figure("of these checkpoints", checkpoints, "MB", None),
            *(Figure(name, 100 * share, "%", None) for name, share in shares.items()),
        ]


def _shares(path: Path) -> dict[str, float]:
    """Return the shares of bytes of ten appends and a sample, before and after a final optimize."""
    opened = qbeast.open_table(path)
    first, last = (events(number)["ts"] for number in (60, 69))
    questions = {
        "ten of the appends": (pl.col("ts").is_between(first[0], last[-1]), None),
        "1 % sample": (None, 0.01),
    }
    shares = {}
    for when in ("before", "after"):
        shares |= {
            f"{name} open {when} an optimize": opened.rows(where, sample=sample).explain().share
            for name, (where, sample) in questions.items()
        }
        opened.optimize()
    return shares


def events(number: int) -> pl.DataFrame:
    rng = np.random.default_rng(number)
    start = np.datetime64("2026-01-01", "us") + np.timedelta64(number, "h")
    return pl.DataFrame(
        {
            "id": np.arange(number * ROWS, (number + 1) * ROWS),
            "ts": start + np.sort(rng.integers(0, HOUR_US, ROWS)).astype("timedelta64[us]"),
            "user": [f"user-{number:06d}" for number in (rng.zipf(1.5, ROWS) % 100_000).tolist()],
            "amount": rng.lognormal(3, 1.5, ROWS),
        }
    )


def megabytes(files: Iterable[Path]) -> float:
    return sum(file.stat().st_size for file in files) / 1e6


if __name__ == "__main__":
    print(table(run()))

"""What do estimates cost if some keys have many of the rows, and are their promises kept?

    python -m benchmarks.bench_heavy_keys

Bytes: those of a table of 400,000 rows with heavy keys, over an allowance of two parts. The first is 1.3 times the
bytes that the same question reads of the other rows in their own table. The second is the bytes that it reads of the
rows of heavy keys in a table where each row is a key (a simple random sample of rows). Promise: 1,000 trials of each
question, see `benchmarks.heavy_trials`.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any, Final

import numpy as np
import polars as pl

import qbeast
from benchmarks.heavy_trials import QUESTIONS, SHAPES, rows_of, shares, trials
from benchmarks.report import Figure, table
from qbeast_core.tree.keys import heaviest

ROWS: Final = 400_000
ERROR: Final = 0.02
SEEDS: Final = 3
ASKED: Final = {"sum": pl.col("v0").sum(), "mean": pl.col("v0").mean()}


def run() -> list[Figure]:
    return [figure for shape in SHAPES for figure in (*_bytes(shape), _kept(shape))]


def _bytes(shape: str) -> list[Figure]:
    read = {name: np.zeros(3) for name in QUESTIONS}
    for seed in range(SEEDS):
        rows = rows_of(shape, seed, ROWS)
        counts = rows.group_by("x").len().sort("len", descending=True)
        heavy = counts[heaviest(counts["len"].to_numpy().astype(np.int64), ROWS)]["x"]
        is_heavy = pl.col("x").is_in(heavy.implode(), nulls_equal=True)
        parts = [(rows, "x"), (rows.remove(is_heavy), "x"), (rows.filter(is_heavy), "u")]
        for at, (part, column) in enumerate(parts):
            with tempfile.TemporaryDirectory() as path:
                qbeast.write_table(part, path, columns=[column])
                opened = qbeast.open_table(path)
                for name, question in QUESTIONS.items():
                    options: dict[str, Any] = {"where": question.where, "by": question.by}
                    options = {key: text and text.format(0) for key, text in options.items()}
                    read[name][at] += qbeast.estimate(opened.uri, ASKED, error=ERROR, **options).bytes_opened
    return [
        Figure(
            f"{shape}, {name}: bytes read over those allowed",
            total / (1.3 * rest + heavy),
            "x",
            1,
            f"{total / SEEDS / 1e3:,.0f} kB; others {rest / SEEDS / 1e3:,.0f}, heavy {heavy / SEEDS / 1e3:,.0f}",
        )
        for name, (total, rest, heavy) in read.items()
    ]


def _kept(shape: str) -> Figure:
    kept = shares(trials(shape, 1_000))
    note = " ".join(f"{name} {share:.3f}" for name, share in kept.items())
    return Figure(f"{shape}: answers outside of 6 %", 100 * (1 - min(kept.values())), "%", 5, note)


if __name__ == "__main__":
    warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
    print(table(run()))

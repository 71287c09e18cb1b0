"""Bytes that block sampling of a plain Parquet file reads for the same error: row groups or pages, drawn independently.

It knows the variance between blocks, for which a real sampler needs a pilot, and the blocks with matching rows, which
statistics show only for days. It reads only the needed columns. Totals are scaled by 1 / f or calibrated to the rows of
blocks, whichever is more accurate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.report import Figure

PAGE_ROWS, GROUP_ROWS = 2_048, 32_768
APPENDS = 10
Z = 1.96 * 1.1  # as in our own intervals
DAY = "l_shipdate"


@dataclass(frozen=True, slots=True)
class Question:
    """A sum of a value over the rows of a condition, with a maximum error, and the columns it needs."""

    what: str
    value: pl.Expr
    condition: pl.Expr
    error: float
    columns: tuple[str, ...]


def figures(file: Path, questions: Iterable[Question], ours: int) -> list[Figure]:
    """Return the bytes read over the bytes of our table, for each question, order of rows and kind of block."""
    sizes = _column_bytes(file)
    all_questions = list(questions)
    names = list(dict.fromkeys([DAY, *(name for question in all_questions for name in question.columns)]))
    rows = pl.read_parquet(file, columns=names)
    return [
        figure
        for order, frame in _orders(rows)
        for question in all_questions
        for figure in _figures_of(question, order, frame, sizes, ours)
    ]


def _orders(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    yield "original order", rows
    ordered = rows.sort(DAY)
    yield "time order", ordered
    size = -(-rows.height // APPENDS)
    parts = [
        ordered[at : at + size].sample(fraction=1.0, shuffle=True, seed=1)
        for at in range(0, rows.height, size)
    ]
    yield f"{APPENDS} appends in time order, each shuffled", pl.concat(parts)
    yield "shuffled", rows.sample(fraction=1.0, shuffle=True, seed=1)


def _figures_of(
    question: Question, order: str, frame: pl.DataFrame, sizes: dict[str, int], ours: int
) -> Iterator[Figure]:
    x = (
        frame.select(pl.when(question.condition).then(question.value).otherwise(0).cast(pl.Float64))
        .to_series()
        .to_numpy()
    )
    for blocks, block_rows in (("row groups", GROUP_ROWS), ("pages", PAGE_ROWS)):
        starts = np.arange(0, len(x), block_rows)
        sums, matter = np.add.reduceat(x, starts), np.logical_or.reduceat(x != 0, starts)
        counts = np.diff(np.append(starts, len(x)))
        fraction = _fraction(sums[matter], counts[matter], question.error)
        share = fraction * matter.mean() * sum(sizes[name] for name in question.columns) / ours
        note = f"{fraction:.1%} of {int(matter.sum()):,} blocks that may match"
        yield Figure(f"{question.what}, rival: {blocks}, {order}", 100 * share, "%", None, note)


def _fraction(sums: np.ndarray, rows: np.ndarray, error: float) -> float:
    compared = sums - rows * (sums.sum() / rows.sum())
    residuals = min(float((sums**2).sum()), float((compared**2).sum()))
    odds = (error * sums.sum() / Z) ** 2 / residuals
    return float(1 / (1 + odds))


def _column_bytes(file: Path) -> dict[str, int]:
    metadata = pq.ParquetFile(file).metadata
    sizes: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            sizes[chunk.path_in_schema] = sizes.get(chunk.path_in_schema, 0) + chunk.total_compressed_size
    return sizes

"""What do partitions cost or gain: converted in place, copied without them, or new by `partition_by`?

    python -m benchmarks.bench_partitions

lineitem (scale 1) in date order, partitioned by year (7) or month (84) of l_shipdate with deltalake. Three tables are
made from each, every one in its own process: the files converted in place and optimized, a copy without partitions, and
a copy with `partition_by`. All are indexed by l_shipdate, l_partkey and l_extendedprice. Shares of the bytes are means
of 12 filters: each twelfth of the dates, a tenth of the parts or of the prices, and both. Dates are filtered by
l_shipdate, so partitions are skipped by the bounds of their files. A 1 % sample of a plain table reads everything.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import polars as pl
from deltalake import WriterProperties, write_deltalake

import qbeast
from benchmarks import data, measure, rivals
from benchmarks.boxes import Box
from benchmarks.report import Figure, table

PARTITIONS = {"year": pl.col("l_shipdate").dt.year(), "month": pl.col("l_shipdate").dt.truncate("1mo")}
DATE, PART, PRICE = data.W1_COLUMNS
PARTS = 12
OTHERS_SHARE = 0.1
SAMPLE = 0.01


def run() -> list[Figure]:
    filters = _filters(data.lineitem().select(data.W1_COLUMNS))
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        for period in PARTITIONS:
            plain = Path(scratch) / period
            _write_plain(plain, period)
            made = {name: Path(scratch) / f"{period} {name}" for name in MAKERS}
            figures += _costs(plain, made, period)
            for name, folder in {"plain": plain, **made}.items():
                figures += _shares(folder, f"by {period}, {name}", filters)
    return figures


def _filters(rows: pl.DataFrame) -> dict[str, list[Box]]:
    """Return twelve boxes per question; number i of "both" joins the boxes i of dates and parts."""
    dates, parts, prices = (rows[name].sort() for name in data.W1_COLUMNS)
    twelfths = [(i / PARTS, (i + 1) / PARTS) for i in range(PARTS)]
    tenths = [
        (i / PARTS * (1 - OTHERS_SHARE), i / PARTS * (1 - OTHERS_SHARE) + OTHERS_SHARE) for i in range(PARTS)
    ]
    by_date = [{DATE: _between(dates, *share)} for share in twelfths]
    by_part = [{PART: _between(parts, *share)} for share in tenths]
    by_price = [{PRICE: _between(prices, *share)} for share in tenths]
    return {
        "1/12 of the dates": [Box(box) for box in by_date],
        "1/10 of the parts": [Box(box) for box in by_part],
        "1/10 of the prices": [Box(box) for box in by_price],
        "1/12 of the dates and 1/10 of the parts": [
            Box(a | b) for a, b in zip(by_date, by_part, strict=True)
        ],
        "1/10 of the parts and of the prices": [
            Box(a | b) for a, b in zip(by_part, reversed(by_price), strict=True)
        ],
    }


def _between(values: pl.Series, start: float, end: float) -> tuple[object, object]:
    last = values.len() - 1
    return values[int(start * last)], values[int(end * last)]


def _shares(folder: Path, name: str, filters: dict[str, list[Box]]) -> list[Figure]:
    """Return the bytes that each question opens, in percent of the table."""
    opened = qbeast.open_table(folder)
    shares = {
        question: mean(opened.rows(box.predicate()).explain().share for box in group)
        for question, group in filters.items()
    }
    sampled = opened.rows(sample=SAMPLE).explain().share if opened.indexed_columns else 1.0
    return [
        Figure(f"{question}: {name}", 100 * share, "%")
        for question, share in {**shares, "1 % sample": sampled}.items()
    ]


def _write_plain(folder: Path, period: str) -> None:
    """Write the rows in date order, as a table that grew day by day has them."""
    rows = data.lineitem().sort(DATE).with_columns(PARTITIONS[period].alias(period))
    properties = WriterProperties(compression="ZSTD", compression_level=rivals.ZSTD_LEVEL)
    write_deltalake(folder, rows, partition_by=[period], writer_properties=properties)


def _costs(plain: Path, made: dict[str, Path], period: str) -> list[Figure]:
    """Make each table; return its CPU time over the copy's, and its size. Other work affects CPU time little."""
    children = {name: measure.in_child(MAKERS[name], plain, folder, period) for name, folder in made.items()}
    figures = []
    for name, folder in made.items():
        assert qbeast.open_table(folder).count() == data.lineitem_rows()
        cpu = children[name].result
        ratio = cpu / children["copied"].result
        note = f"{cpu:.1f} CPU seconds, {children[name].seconds:.1f} s"
        size = measure.folder_bytes(rivals.data_files(folder)) / 1e6
        figures += [
            Figure(f"CPU time over a copy's: by {period}, {name}", ratio, note=note),
            Figure(f"size: by {period}, {name}", size, "MB"),
        ]
    return figures


def _converted(plain: Path, folder: Path, _: str) -> float:
    shutil.copytree(plain, folder)
    start = time.process_time()
    qbeast.convert_table(folder, list(data.W1_COLUMNS))
    qbeast.open_table(folder).optimize()
    return time.process_time() - start


def _copied(plain: Path, folder: Path, _: str) -> float:
    return _written(plain, folder, None)


def _partitioned(plain: Path, folder: Path, period: str) -> float:
    return _written(plain, folder, [period])


def _written(plain: Path, folder: Path, partition_by: list[str] | None) -> float:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.SmallPartitionsWarning)
        qbeast.write_table(pl.scan_delta(str(plain)), folder, data.W1_COLUMNS, partition_by=partition_by)
    return time.process_time() - start


MAKERS: dict[str, Callable[[Path, Path, str], float]] = {
    "converted": _converted,
    "copied": _copied,
    "partition_by": _partitioned,
}


if __name__ == "__main__":
    print(table(run()))

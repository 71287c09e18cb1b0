"""What does a sample of a fraction f cost, in bytes and in seconds?

    python -m benchmarks.bench_sample

Amplification A(f): all bytes read (pages, dictionaries, indexes, footers) over f times the bytes of the table, on
lineitem (scale 1, index on three): at six fractions with 16 columns, and as a curve of 60 fractions from 0.5 to 90 %
with 8 and 16 columns (docs/images/amplification.png). By row groups: the bytes of the row groups with weights of the
sample, which engines read that skip no pages. Seconds: a 1 % sample of all columns compared with a full read of the
same table. Cold means a new process and files dropped from the system's cache. The modules that a read needs are
imported before, or counted as the first use; both figures are reported.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import mean, median
from typing import Any

import polars as pl

import qbeast
from benchmarks import amplification, data, measure, rivals, tables
from benchmarks.report import Figure, table

FRACTIONS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.3)
MOST = {0.001: 2.0, 0.01: 1.25, 0.02: 1.25, 0.05: 1.25, 0.1: 1.25, 0.3: 1.4}
MEAN_OVER = FRACTIONS[1:]
COLD_ROUNDS = 5


def run() -> list[Figure]:
    folder = tables.lineitem_table()
    cost = {fraction: amplification_of(folder, fraction) for fraction in FRACTIONS}
    _check_rows(folder)
    return [
        *_curves(folder),
        *(Figure(f"A({f:.1%})", a, "x", MOST[f]) for f, a in cost.items()),
        Figure("A, mean of 1, 2, 5, 10, 30 %", mean(cost[f] for f in MEAN_OVER), "x", 1.2),
        _bytes_of_the_process(folder),
        *_seconds(folder),
    ]


def _curves(folder: Path) -> list[Figure]:
    narrow = tables.indexed("lineitem-8", lambda: data.lineitem().select(data.WRITE_COLUMNS), data.W1_COLUMNS)
    figures = []
    for columns, path in (("8 columns", narrow), ("16 columns", folder)):
        curve = amplification.by_pages(path)
        amplification.record(columns, curve)
        groups = [amplification.share_by_row_groups(path, f) / f for f in amplification.FRACTIONS]
        one_percent = 100 * amplification.share_by_row_groups(path, 0.01)
        figures += [
            Figure(f"A, {columns}, mean of 60 fractions", mean(curve), "x", 1.2),
            Figure(f"A, {columns}, maximum of 60 fractions", max(curve), "x", 1.4),
            Figure(f"A by row groups, {columns}, mean of 60 fractions", mean(groups), "x", 1.25),
            Figure(f"1 % sample by row groups, {columns}", one_percent, "%", 3.0),
        ]
    return figures


def amplification_of(folder: Path, fraction: float) -> float:
    plan = qbeast.open_table(str(folder)).rows(sample=fraction).explain()
    on_disk = measure.folder_bytes(rivals.data_files(folder))
    assert plan.bytes_total == on_disk, "the plan's table is the table on disk"
    return plan.bytes_opened / (fraction * on_disk)


def _bytes_of_the_process(folder: Path) -> Figure:
    """Compare the plan's bytes with the bytes that the process read, without opening the table."""
    planned = qbeast.open_table(str(folder)).rows(sample=0.01).explain().bytes_opened
    read = measure.in_child(_bytes_read, folder, 0.01).result
    return Figure(
        "1 % sample, bytes the system saw over the plan's", read / planned, "x", 1.001, f"{planned:,} B"
    )


def _bytes_read(folder: Path, fraction: float) -> int:
    _read(folder, fraction)  # imports of the first read are not counted
    start = measure.bytes_read()
    qbeast.open_table(str(folder))
    opened = measure.bytes_read()
    _read(folder, fraction)
    return (measure.bytes_read() - opened) - (opened - start)


def _seconds(folder: Path) -> list[Figure]:
    warm = measure.interleaved({"sample": lambda: _read(folder, 0.01), "full": lambda: _read(folder, None)})
    cases = list(itertools.product((0.01, None), (_imported, None)))
    cold: dict[tuple[Any, Any], list[float]] = {case: [] for case in cases}
    for _ in range(COLD_ROUNDS):
        for fraction, prepare in cases:
            measure.forget_cached(file for file in folder.rglob("*") if file.is_file())
            function = _read if prepare is None else _read_request
            child = measure.in_child(function, folder, fraction, prepare=prepare)
            cold[fraction, prepare].append(child.seconds)
    times = {case: median(seconds) for case, seconds in cold.items()}
    return [
        _ratio("1 % sample over full read, warm", warm["sample"], warm["full"]),
        _ratio("1 % sample over full read, cold", times[0.01, _imported], times[None, _imported], most=7),
        _ratio(
            "1 % sample over full read, cold, with imports", times[0.01, None], times[None, None], most=None
        ),
    ]


def _ratio(what: str, sample: float, full: float, *, most: float | None = 5) -> Figure:
    return Figure(what, 100 * sample / full, "%", most, f"{sample * 1e3:.0f} ms of {full * 1e3:.0f} ms")


def _imported(folder: Path, fraction: float | None) -> tuple[Path, float | None]:
    """Import the modules of a read, which `import qbeast` does not."""
    assert callable(qbeast.read_table)
    return folder, fraction


def _read_request(request: tuple[Path, float | None]) -> int:
    return _read(*request)


def _read(folder: Path, fraction: float | None) -> int:
    return qbeast.read_table(str(folder), sample=fraction).height


def _check_rows(folder: Path) -> None:
    """Assert that samples are nested, repeatable, and of about the requested size."""
    key = ["l_orderkey", "l_linenumber"]
    rows = {f: qbeast.scan_table(str(folder), sample=f).select(key).collect() for f in FRACTIONS}
    total = qbeast.scan_table(str(folder)).select(pl.len()).collect().item()
    assert total == data.lineitem_rows()
    for fraction, frame in rows.items():
        assert abs(frame.height / total - fraction) < 5 * (fraction * (1 - fraction) / total) ** 0.5 * 1.5
    for smaller, larger in itertools.pairwise(FRACTIONS):
        assert rows[smaller].join(rows[larger], on=key, how="anti").is_empty()


if __name__ == "__main__":
    print(table(run()))

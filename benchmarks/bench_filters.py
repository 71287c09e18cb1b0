"""How much of a table do range filters read, compared with the best clustering of others?

    python -m benchmarks.bench_filters

Share of the table's bytes, all of them counted on both sides, as the mean of 60 boxes per class (benchmarks/boxes.py).
W1: lineitem scale 1 on ship date, part and price, about 15 files per table, compared with rank-Hilbert and delta-rs
z_order by 32k-row groups. W2 to W6: smaller tables with nulls, skew and correlation, compared with rank-Hilbert. Every
20th box is read, and its rows are counted and compared with a plain filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import polars as pl

import qbeast
from benchmarks import data, rivals, tables
from benchmarks.boxes import CLASSES, Box, draw_boxes, mean_shares, row_groups
from benchmarks.report import Figure, table

SMALL_ROWS = 1_000_000
SMALL: dict[str, tuple[Callable[[], pl.DataFrame], tuple[str, ...]]] = {
    "W2 flights with nulls": (data.flights, ("dep_time", "arr_delay", "distance")),
    "W3 flights with a string": (data.flights, ("dep_time", "distance", "carrier")),
    "W4 clusters": (lambda: data.clusters(SMALL_ROWS), ("x0", "x1", "x2")),
    "W5 Zipf 1.1, 2 columns": (lambda: data.zipf(SMALL_ROWS, dimensions=2, exponent=1.1), ("x0", "x1")),
    "W5 Zipf 2, 2 columns": (lambda: data.zipf(SMALL_ROWS, dimensions=2, exponent=2), ("x0", "x1")),
    "W5 Zipf 1.1, 4 columns": (
        lambda: data.zipf(SMALL_ROWS, dimensions=4, exponent=1.1),
        ("x0", "x1", "x2", "x3"),
    ),
    "W5 Zipf 1.1, 8 columns": (
        lambda: data.zipf(SMALL_ROWS, dimensions=8, exponent=1.1),
        tuple(f"x{i}" for i in range(8)),
    ),
    "W6 correlated pair": (lambda: data.correlated(SMALL_ROWS), ("x0", "x1")),
}


def run() -> list[Figure]:
    return [*_lineitem(), *(figure for name in SMALL for figure in _small(name))]


def _lineitem() -> list[Figure]:
    frame = data.lineitem()
    boxes = draw_boxes(frame, data.W1_COLUMNS)
    ours = tables.lineitem_table()
    folders = {
        "hilbert": tables.hilbert("lineitem", data.lineitem, data.W1_COLUMNS),
        "z_order": tables.z_order("lineitem", data.lineitem, data.W1_COLUMNS),
    }
    share = {name: _rival(folder, data.W1_COLUMNS, boxes) for name, folder in folders.items()}
    share["qbeast"] = _ours(ours, boxes)
    _check(frame, ours, boxes)
    figures = [_against(f"W1 {name}", share, name) for name in CLASSES]
    figures += [
        Figure(f"W1 {n}, over z_order", share["qbeast"][n] / share["z_order"][n], "x", 0.5) for n in CLASSES
    ]
    ratio = mean(share["qbeast"][name] / share["hilbert"][name] for name in CLASSES)
    return [
        *figures,
        Figure("W1, mean of the classes over rank-Hilbert", ratio, "x", 0.8),
        _together(ours, boxes),
    ]


def _against(what: str, share: dict[str, dict[str, float]], name: str) -> Figure:
    ours, best = share["qbeast"][name], share["hilbert"][name]
    return Figure(f"{what}, over rank-Hilbert", ours / best, "x", 1.15, f"{ours:.2%} of {best:.2%}")


def _together(folder: Path, boxes: dict[str, list[Box]]) -> Figure:
    opened = qbeast.open_table(str(folder))
    shares = [opened.rows(box.predicate(), sample=0.01).explain().share for box in boxes["3d@30%"]]
    return Figure("W1 3d@30% and a 1 % sample together", 100 * mean(shares), "%", 0.5)


def _small(workload: str) -> list[Figure]:
    make, columns = SMALL[workload]
    name = workload.lower().replace(" ", "-").replace(",", "")
    frame = make()
    boxes = draw_boxes(frame, columns)
    folder = tables.indexed(name, make, columns)
    rival = tables.hilbert(name, make, columns, files=len(rivals.data_files(folder)))
    ours, theirs = _ours(folder, boxes), _rival(rival, columns, boxes)
    _check(frame, folder, boxes)
    ratio = mean(ours[n] / theirs[n] for n in boxes)
    note = f"{mean(ours.values()):.2%} of {mean(theirs.values()):.2%}"
    return [Figure(f"{workload}, mean of the classes over rank-Hilbert", ratio, "x", None, note)]


def _rival(folder: Path, columns: Sequence[str], boxes: dict[str, list[Box]]) -> dict[str, float]:
    return mean_shares(row_groups(rivals.data_files(folder), columns), boxes)


def _ours(folder: Path, boxes: dict[str, list[Box]]) -> dict[str, float]:
    opened = qbeast.open_table(str(folder))
    return {
        name: float(np.mean([opened.rows(box.predicate()).explain().share for box in members]))
        for name, members in boxes.items()
    }


def _check(frame: pl.DataFrame, folder: Path, boxes: dict[str, list[Box]]) -> None:
    for members in boxes.values():
        for box in members[::20]:
            actual = qbeast.scan_table(str(folder)).filter(box.predicate()).select(pl.len()).collect().item()
            assert actual == frame.lazy().filter(box.predicate()).select(pl.len()).collect().item()


if __name__ == "__main__":
    print(table(run()))

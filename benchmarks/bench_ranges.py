"""How many files, pages and ranges does a filter fetch?

    python -m benchmarks.bench_ranges

lineitem (scale 1), indexed by three columns; 60 boxes per class (`benchmarks.boxes`). A range is a run of consecutive
pages in a file, for each column that is read: the result of one request to an object store. There is no target. Run it
with PYTHONPATH on two checkouts to see the effect of a new order in files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import qbeast
from benchmarks import boxes, data
from benchmarks.report import Figure, table


def run() -> list[Figure]:
    frame = data.lineitem()
    columns = list(data.W1_COLUMNS)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        path = Path(scratch) / "lineitem"
        qbeast.write_table(frame, path, columns=columns)
        opened = qbeast.open_table(path)
        for name, group in boxes.draw_boxes(frame, columns).items():
            counts = np.array([_fetched(opened, box) for box in group])
            for what, mean in zip(("files", "pages", "ranges"), counts.mean(axis=0), strict=True):
                figures.append(Figure(f"{name}: {what}", float(mean), ""))
    return figures


def _fetched(opened: qbeast.Table, box: boxes.Box) -> tuple[int, int, int]:
    """Files, pages and runs of pages that a box opens."""
    chosen = opened.rows(box.predicate()).explain().scan_plan.selection
    pages, offsets = chosen.page_numbers, chosen.page_offsets
    begins = np.ones(len(pages), np.bool_)
    begins[1:] = np.diff(pages) != 1
    begins[offsets[:-1][offsets[:-1] < len(pages)]] = True
    return int(chosen.opened.sum()), len(pages), int(begins.sum())


if __name__ == "__main__":
    print(table(run()))

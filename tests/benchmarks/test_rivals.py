"""The rival we measure against is a Hilbert curve, and the boxes let through what their class says."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import boxes, data, measure, rivals


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 4), (3, 3), (4, 2), (5, 1)])
def test_hilbert_curve_visits_each_cell_once(dimensions: int, bits: int) -> None:
    cells = np.array(list(itertools.product(range(2**bits), repeat=dimensions)), dtype=np.uint64)
    index = rivals.hilbert_index(cells, bits=bits)
    assert np.array_equal(np.sort(index), np.arange(len(cells), dtype=np.uint64))
    steps = np.abs(np.diff(cells[np.argsort(index)].astype(np.int64), axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_boxes_match_the_share_of_their_class() -> None:
    frame = data.clusters(5_000)
    for name, members in boxes.draw_boxes(frame, ("x0", "x1", "x2"), number=6).items():
        _, share = boxes.CLASSES[name]
        for column, bounds in (item for box in members for item in box.ranges.items()):
            actual = frame[column].is_between(*bounds).mean()
            assert actual == pytest.approx(share, abs=0.001)


def test_rows_of_boxes_are_in_opened_groups(tmp_path: Path) -> None:
    columns = ("x0", "x1")
    frame = data.correlated(20_000)
    rivals.write_hilbert(frame, tmp_path / "rival", columns, files=3, row_group_rows=1_000)
    files = rivals.data_files(tmp_path / "rival")
    groups = boxes.row_groups(files, columns)
    rows = pl.concat([pl.read_parquet(file).with_columns(file=pl.lit(str(file))) for file in files])
    assert rows.height == frame.height
    assert groups.height == 3 * 7
    for box in itertools.chain.from_iterable(boxes.draw_boxes(frame, columns, number=5).values()):
        touched = set(rows.filter(box.predicate())["file"])
        assert touched <= set(groups.filter(box.may_hold())["file"])
        assert 0 < boxes.share_opened(groups, box) <= 1


def test_overlapping_ranges_count_once() -> None:
    assert measure.merged_length([(30, 5), (0, 10), (5, 10), (6, 1)]) == 20

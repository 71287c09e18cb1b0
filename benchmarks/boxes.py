"""Random boxes over a table's columns, and the share of bytes to read by min/max statistics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

# Class name -> (number of bounded columns, share of rows that each bound keeps).
CLASSES = {
    "1d@1%": (1, 0.01),
    "1d@10%": (1, 0.10),
    "2d@10%": (2, 0.10),
    "2d@30%": (2, 0.30),
    "3d@10%": (3, 0.10),
    "3d@20%": (3, 0.20),
    "3d@30%": (3, 0.30),
}
BOXES_PER_CLASS = 60


@dataclass(frozen=True, slots=True)
class Box:
    """Closed ranges of columns, joined by AND: `ranges[column] == (lower, upper)`."""

    ranges: dict[str, tuple[Any, Any]]

    def predicate(self) -> pl.Expr:
        """Return the box as a Polars filter."""
        return pl.all_horizontal(
            pl.col(name).is_between(pl.lit(lower), pl.lit(upper))
            for name, (lower, upper) in self.ranges.items()
        )

    def may_hold(self) -> pl.Expr:
        """Return the box as a filter of row groups with `<column>_min` and `<column>_max`."""
        return pl.all_horizontal(
            (pl.col(f"{name}_max") >= pl.lit(lower)) & (pl.col(f"{name}_min") <= pl.lit(upper))
            for name, (lower, upper) in self.ranges.items()
        )


def draw_boxes(
    frame: pl.DataFrame, columns: Sequence[str], *, seed: int = 7, number: int = BOXES_PER_CLASS
) -> dict[str, list[Box]]:
    """Draw `number` boxes per class: all sets of columns equally often, at random places."""
    random = np.random.default_rng(seed)
    values = {name: frame[name].drop_nulls().sort() for name in columns}
    boxes = {}
    for name, (dimensions, share) in CLASSES.items():
        if dimensions <= len(columns):
            chosen = itertools.cycle(itertools.combinations(columns, dimensions))
            boxes[name] = [_draw(random, values, next(chosen), share) for _ in range(number)]
    return boxes


def row_groups(files: Sequence[Path], columns: Sequence[str]) -> pl.DataFrame:
    """One row per row group: file, rows, bytes, bytes of its file's footer, min and max of the columns."""
    return pl.concat([_row_groups_of(file, columns) for file in files])


def share_opened(groups: pl.DataFrame, box: Box) -> float:
    """Share of the table's bytes that a reader of row group min/max reads, footers of touched files included.

    A Delta reader knows each file's own min/max from the log, so the footers of other files cost nothing.
    """
    opened = groups.filter(box.may_hold())
    names = list(box.ranges)
    files = groups.group_by("file").agg(
        *(pl.col(f"{name}_min").min() for name in names),
        *(pl.col(f"{name}_max").max() for name in names),
        pl.col("footer_bytes", "file_bytes").first(),
    )
    footers = files.filter(box.may_hold())["footer_bytes"].sum()
    return float(opened["bytes"].sum() + footers) / float(files["file_bytes"].sum())


def mean_shares(groups: pl.DataFrame, boxes: dict[str, list[Box]]) -> dict[str, float]:
    """Mean share opened per class of boxes."""
    return {
        name: float(np.mean([share_opened(groups, box) for box in members]))
        for name, members in boxes.items()
    }


def _draw(
    random: np.random.Generator, values: dict[str, pl.Series], chosen: Sequence[str], share: float
) -> Box:
    ranges = {}
    for name in chosen:
        last = len(values[name]) - 1
        start = int(random.uniform(0, 1 - share) * last)
        ranges[name] = (values[name][start], values[name][min(last, start + int(share * last))])
    return Box(ranges)


def _row_groups_of(file: Path, columns: Sequence[str]) -> pl.DataFrame:
    metadata = pq.read_metadata(file)
    size = file.stat().st_size
    position = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    rows = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        bounds = {name: group.column(position[name]).statistics for name in columns}
        rows.append(
            {
                "file": str(file),
                "file_bytes": size,
                "rows": group.num_rows,
                "bytes": sum(chunk.total_compressed_size for chunk in chunks),
            }
            | {f"{name}_min": statistics.min for name, statistics in bounds.items()}
            | {f"{name}_max": statistics.max for name, statistics in bounds.items()}
        )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.with_columns(footer_bytes=pl.lit(size) - frame["bytes"].sum())

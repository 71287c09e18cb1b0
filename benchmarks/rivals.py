"""The tables that we compare with: rank-Hilbert (liquid clustering), delta-rs z_order, plain write_deltalake."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake

ROW_GROUP_ROWS = 32_768
RANK_BITS = 16
ZSTD_LEVEL = 1


def write_hilbert(
    frame: pl.DataFrame,
    folder: Path,
    columns: Sequence[str],
    *,
    files: int = 15,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> Path:
    """Write Parquet files in Hilbert order of the columns' ranks, the best clustering of other formats."""
    bits = min(RANK_BITS, 64 // len(columns))
    order = np.argsort(hilbert_index(ranks(frame, columns, bits=bits), bits=bits), kind="stable")
    cuts = range(0, frame.height, math.ceil(frame.height / files))
    return write_in_order(frame, folder, order, cuts, columns, row_group_rows=row_group_rows)


def write_in_order(
    frame: pl.DataFrame,
    folder: Path,
    order: np.ndarray,
    cuts: Sequence[int],
    columns: Sequence[str],
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> Path:
    """Write the rows in an order to Parquet files that start at `cuts`; the first cut is 0."""
    dictionary = low_cardinality(frame)
    fresh(folder)
    for number, (start, end) in enumerate(pairwise([*cuts, frame.height])):
        pq.write_table(
            frame[order[start:end]].to_arrow(compat_level=pl.CompatLevel.oldest()),
            folder / f"{number:05d}.parquet",
            row_group_size=row_group_rows,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=dictionary,
            write_statistics=list(columns),
        )
    return folder


def write_z_order(frame: pl.DataFrame, folder: Path, columns: Sequence[str], *, files: int = 15) -> Path:
    """Write a Delta table and let delta-rs z_order it into about `files` files of 32k-row groups."""
    fresh(folder)
    properties = WriterProperties(
        compression="ZSTD", compression_level=ZSTD_LEVEL, max_row_group_size=ROW_GROUP_ROWS
    )
    write_deltalake(folder, frame, writer_properties=properties)
    table = DeltaTable(folder)
    size = sum(pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist())
    table.optimize.z_order(list(columns), target_size=size // files, writer_properties=properties)
    return folder


def write_plain(frame: pl.DataFrame, folder: Path) -> Path:
    """Write by `write_deltalake` with default options: the cost without an index."""
    fresh(folder)
    write_deltalake(folder, frame)
    return folder


def fresh(folder: Path) -> None:
    """Create an empty folder, and remove an existing one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def data_files(folder: Path) -> list[Path]:
    """Return the live data files of a Delta table, or all Parquet files of a folder without a log."""
    if (folder / "_delta_log").exists():
        return sorted(
            folder / name for name in pa.table(DeltaTable(folder).get_add_actions())["path"].to_pylist()
        )
    return sorted(folder.glob("*.parquet"))


def ranks(frame: pl.DataFrame, columns: Sequence[str], *, bits: int) -> np.ndarray:
    """Return ranks of shape (rows, columns), uint64 below 2**bits; equal values have equal ranks, nulls 0."""
    scale = (1 << bits) / max(frame.height, 1)
    series = [frame[name].rank("min").fill_null(1).to_numpy() for name in columns]
    return np.column_stack([((rank - 1.0) * scale).astype(np.uint64) for rank in series])


def hilbert_index(points: np.ndarray, *, bits: int) -> np.ndarray:
    """Return the position along the Hilbert curve of each point (rows, d) of the grid [0, 2**bits)**d; d * bits <= 64.

    The curve is found a level at a time: in every level the point's octant is read, then the axes of the
    remaining bits are exchanged and mirrored so that the octant's own curve starts where the last one ended.
    """
    axes = [points[:, i].astype(np.uint64) for i in range(points.shape[1])]
    for level in range(bits - 1, 0, -1):
        _turn(axes, np.uint64(level))
    return _interleave(_gray_decode(axes, bits), bits)


def low_cardinality(frame: pl.DataFrame, *, sample_rows: int = 20_000) -> list[str]:
    """Return the columns to dictionary encode: few distinct values in a sample of rows."""
    sample = frame.gather_every(max(1, frame.height // sample_rows))
    return [name for name in sample.columns if sample[name].n_unique() * 4 <= sample.height]


def _turn(axes: list[np.ndarray], level: np.uint64) -> None:
    below = (np.uint64(1) << level) - np.uint64(1)
    for axis in range(len(axes)):
        upper = (axes[axis] >> level) & np.uint64(1) == 1
        swap = np.where(upper, np.uint64(0), (axes[0] ^ axes[axis]) & below)
        axes[0] = axes[0] ^ swap ^ np.where(upper, below, np.uint64(0))
        if axis:
            axes[axis] = axes[axis] ^ swap


def _gray_decode(axes: list[np.ndarray], bits: int) -> list[np.ndarray]:
    for i in range(1, len(axes)):
        axes[i] = axes[i] ^ axes[i - 1]
    flip = np.zeros_like(axes[0])
    for level in range(bits - 1, 0, -1):
        low = (np.uint64(1) << np.uint64(level)) - np.uint64(1)
        flip ^= np.where((axes[-1] >> np.uint64(level)) & np.uint64(1) == 1, low, np.uint64(0))
    return [axis ^ flip for axis in axes]


def _interleave(axes: list[np.ndarray], bits: int) -> np.ndarray:
    index = np.zeros_like(axes[0])
    for level in range(bits - 1, -1, -1):
        for axis in axes:
            index = (index << np.uint64(1)) | ((axis >> np.uint64(level)) & np.uint64(1))
    return index

"""What does it cost to delete and to merge rows, compared with delta-rs on the same rows?

    python -m benchmarks.bench_dml

- lineitem (scale 1, 16 columns) on three indexed columns: delete a box on two of them. delta-rs uses a z-ordered copy
  of about as many files.
- lineitem on order key and ship date: merge the newest 1 % of the orders, a tenth of them new; and merge 0.1 % of all
  orders, wherever they are. delta-rs uses a copy z-ordered by the same columns.

Every run is a separate process on a fresh copy of the table, in turns. Measured are seconds, peak memory, and the bytes
of the files that a change writes, over those of the table.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median

import polars as pl
from deltalake import DeltaTable, WriterProperties

import qbeast
from benchmarks import data, measure, rivals, tables
from benchmarks.report import Figure, table

ROUNDS = 3
KEYS = ("l_orderkey", "l_linenumber")
BY_ORDER = ("l_orderkey", "l_shipdate")
BOX = (
    "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-09-01' "
    "AND l_partkey > 50000 AND l_partkey <= 70000"
)
LAST_ORDER = 6_000_000
ZSTD = WriterProperties(compression="ZSTD", compression_level=rivals.ZSTD_LEVEL)


@dataclass(frozen=True, slots=True)
class Run:
    """One change of a table."""

    seconds: float
    peak_bytes: int
    written: float
    """Bytes of the new files, over the bytes of the table before."""
    files: str
    rows: int
    """Rows of the table afterwards."""


def run() -> list[Figure]:
    by_box = tables.indexed("lineitem", data.lineitem, data.W1_COLUMNS)
    by_order = tables.indexed("lineitem-by-order", data.lineitem, BY_ORDER)
    boxes = {"qbeast": by_box, "delta-rs": tables.z_order("lineitem", data.lineitem, data.W1_COLUMNS)}
    orders = {
        "qbeast": by_order,
        "delta-rs": tables.z_order("lineitem-by-order", data.lineitem, BY_ORDER),
    }
    deletes = {"qbeast": _delete, "delta-rs": _delete_rival}
    merges = {"qbeast": _merge, "delta-rs": _merge_rival}
    return [
        *compare("delete of a box on 2 columns", boxes, deletes, as_path),
        *compare("merge of the newest 1 % of orders", orders, merges, newest_orders),
        *compare("merge of 0.1 % of orders from everywhere", orders, merges, scattered_orders),
    ]


def compare(
    what: str,
    folders: dict[str, Path],
    changes: dict[str, Callable[..., None]],
    prepare: Callable[[Path], object],
) -> list[Figure]:
    runs: dict[str, list[Run]] = {name: [] for name in folders}
    for turn in range(ROUNDS):
        for name in sorted(folders, reverse=turn % 2 == 1):
            runs[name].append(once(folders[name], changes[name], prepare))
    rows = {run.rows for each in runs.values() for run in each}
    assert len(rows) == 1, "both change the same rows"
    seconds = {name: median(run.seconds for run in each) for name, each in runs.items()}
    ours, theirs = runs["qbeast"][0], runs["delta-rs"][0]
    peaks = {name: median(run.peak_bytes for run in each) / 1e9 for name, each in runs.items()}
    return [
        Figure(
            f"{what}, time over delta-rs",
            seconds["qbeast"] / seconds["delta-rs"],
            note=f"{seconds['qbeast']:.2f} s over {seconds['delta-rs']:.2f} s",
        ),
        Figure(
            f"{what}, bytes written",
            100 * ours.written,
            "%",
            note=f"delta-rs {100 * theirs.written:.3g} %; files out and in: {ours.files}, delta-rs {theirs.files}",
        ),
        Figure(f"{what}, peak memory", peaks["qbeast"], "GB", note=f"delta-rs {peaks['delta-rs']:.2f} GB"),
    ]


def once(table_folder: Path, change: Callable[..., None], prepare: Callable[[Path], object]) -> Run:
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        folder = Path(scratch) / "t"
        shutil.copytree(table_folder, folder)
        before = set(rivals.data_files(folder))
        total = measure.folder_bytes(before)
        child = measure.in_child(change, folder, prepare=prepare)
        after = set(rivals.data_files(folder))
        rows = pl.scan_delta(str(folder)).select(pl.len()).collect().item()
        return Run(
            child.seconds,
            child.peak_rss_bytes,
            measure.folder_bytes(after - before) / total,
            f"{len(before - after)} and {len(after - before)} of {len(before)}",
            rows,
        )


def as_path(folder: Path) -> tuple[Path, None]:
    return folder, None


def newest_orders(folder: Path) -> tuple[Path, pl.DataFrame]:
    """Return the last orders with other quantities, and a tenth as many new orders."""
    last = pl.scan_parquet(data.lineitem_path()).filter(pl.col("l_orderkey") > LAST_ORDER * 0.99).collect()
    new = last.filter(pl.col("l_orderkey") % 10 == 0).with_columns(pl.col("l_orderkey") + LAST_ORDER)
    return folder, changed(pl.concat([last, new]))


def scattered_orders(folder: Path) -> tuple[Path, pl.DataFrame]:
    """Return one of a thousand orders, with other quantities."""
    chosen = pl.col("l_orderkey").hash(7) % 1000 == 0
    return folder, changed(pl.read_parquet(data.lineitem_path()).filter(chosen))


def changed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        (pl.col("l_quantity") + 1).cast(rows.schema["l_quantity"]),
        l_comment=pl.lit("changed"),
        l_receiptdate=pl.lit(date(1998, 12, 31)),
    )


def _delete(inputs: tuple[Path, None]) -> None:
    qbeast.open_table(str(inputs[0])).delete(BOX)


def _delete_rival(inputs: tuple[Path, None]) -> None:
    DeltaTable(inputs[0]).delete(BOX, writer_properties=ZSTD)


def _merge(inputs: tuple[Path, pl.DataFrame]) -> None:
    folder, source = inputs
    qbeast.open_table(str(folder)).merge(source, KEYS)


def _merge_rival(inputs: tuple[Path, pl.DataFrame]) -> None:
    folder, source = inputs
    predicate = " AND ".join(f"target.{key} = source.{key}" for key in KEYS)
    merger = DeltaTable(folder).merge(
        source, predicate, source_alias="source", target_alias="target", writer_properties=ZSTD
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


if __name__ == "__main__":
    print(table(run()))

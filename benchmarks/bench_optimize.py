"""What does an optimize cost, after small appends and of plain files?

    python -m benchmarks.bench_optimize

- A hundred appends of 500 rows to lineitem (scale 1, index on three columns), then one optimize: the number of files,
  and what a sample reads before and after (A(f): all bytes read over f times the table).
- Five million rows of plain Delta in twenty files: converted and optimized, compared with delta-rs `z_order` and
  `compact` of the same files, each in its own process: time and peak memory.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median

import polars as pl
from deltalake import DeltaTable, WriterProperties, write_deltalake

import qbeast
from benchmarks import data, measure, rivals, tables
from benchmarks.report import Figure, table

FRACTIONS = (0.01, 0.02, 0.05, 0.1)
SMALL_APPENDS, SMALL_ROWS = 100, 500
PLAIN_ROWS, PLAIN_FILES = 5_000_000, 20
ROUNDS = 3


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        return [*small_appends(Path(scratch)), *throughput(Path(scratch))]


def amplification(opened: qbeast.Table, fraction: float) -> float:
    plan = opened.rows(sample=fraction).explain()
    return plan.bytes_opened / (fraction * plan.bytes_total)


def small_appends(scratch: Path) -> list[Figure]:
    kept = data.lineitem_rows() - SMALL_APPENDS * SMALL_ROWS
    base = tables.indexed("lineitem-to-grow", lambda: data.lineitem().head(kept), data.W1_COLUMNS)
    folder = scratch / "small"
    shutil.copytree(base, folder)
    added = data.lineitem().slice(kept)
    files = len(rivals.data_files(folder))
    for start in range(0, added.height, SMALL_ROWS):
        qbeast.write_table(added.slice(start, SMALL_ROWS), folder, mode="append")
    grown = len(rivals.data_files(folder)) - files
    opened = qbeast.open_table(folder)
    before = {fraction: amplification(opened, fraction) for fraction in FRACTIONS}
    rows = opened.rows(sample=0.01).lazy().select("l_orderkey", "l_linenumber").collect()
    results: list[qbeast.OptimizeResult] = []
    seconds = measure.timed(lambda: results.append(opened.optimize()))
    (result,) = results
    again = opened.rows(sample=0.01).lazy().select("l_orderkey", "l_linenumber").collect()
    assert rows.sort(pl.all()).equals(again.sort(pl.all())), "the sample holds the same rows"
    assert opened.rows().lazy().select(pl.len()).collect().item() == data.lineitem_rows()
    assert not opened.optimize().committed
    note = f"{result.files_removed} files, {result.rows:,} rows in {seconds:.2f} s"
    share = result.bytes / measure.folder_bytes(rivals.data_files(folder))
    return [
        Figure("files per append of 500 rows", grown / SMALL_APPENDS, "", 1),
        Figure("optimize after them, bytes rewritten over the table's", 100 * share, "%", None, note),
        *(
            Figure(f"A({f:.0%}) after it", amplification(opened, f), "x", 1.5, f"before it {a:.2f}")
            for f, a in before.items()
        ),
    ]


def throughput(scratch: Path) -> list[Figure]:
    plain = scratch / "plain"
    frame = pl.read_parquet(data.lineitem_path(), columns=list(data.WRITE_COLUMNS), n_rows=PLAIN_ROWS)
    for part in range(PLAIN_FILES):
        write_deltalake(plain, frame.gather_every(PLAIN_FILES, part), mode="append")
    del frame
    candidates = {"optimize": _optimize, "z_order": _z_order, "compact": _compact}
    runs: dict[str, list[measure.Child]] = {name: [] for name in candidates}
    for turn in range(ROUNDS):
        for name, function in candidates.items():
            folder = scratch / name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(plain, folder)
            runs[name].append(measure.in_child(function, folder))
            if turn == 0:
                assert pl.scan_delta(str(folder)).select(pl.len()).collect().item() == PLAIN_ROWS
    seconds = {name: median(child.seconds for child in children) for name, children in runs.items()}
    peak = {name: median(child.peak_rss_bytes for child in children) / 1e9 for name, children in runs.items()}
    note = f"{PLAIN_ROWS / seconds['optimize'] / 1e6:.2f} M rows a second; {seconds['optimize']:.1f} s over "
    return [
        *(
            Figure(
                f"convert and optimize over {name}, time",
                seconds["optimize"] / seconds[name],
                note=f"{note}{seconds[name]:.1f} s",
            )
            for name in ("z_order", "compact")
        ),
        *(Figure(f"{name}, peak memory", gigabytes, "GB") for name, gigabytes in peak.items()),
    ]


def _optimize(folder: Path) -> None:
    qbeast.convert_table(str(folder), list(data.W1_COLUMNS))
    qbeast.open_table(str(folder)).optimize()


def _z_order(folder: Path) -> None:
    DeltaTable(folder).optimize.z_order(list(data.W1_COLUMNS), writer_properties=_ZSTD)


def _compact(folder: Path) -> None:
    DeltaTable(folder).optimize.compact(writer_properties=_ZSTD)


_ZSTD = WriterProperties(compression="ZSTD", compression_level=rivals.ZSTD_LEVEL)


if __name__ == "__main__":
    print(table(run()))

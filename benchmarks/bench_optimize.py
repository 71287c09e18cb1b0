"""What does a table cost that grows by small appends and is sometimes optimized?

    python -m benchmarks.bench_optimize

- A hundred appends of 500 rows to lineitem (scale 1, index on three columns), then one optimize: the number of files,
  and what a sample reads before and after (A(f): all bytes read over f times the table).
- A hundred appends of 1 % of the table each, an optimize after every ten: bytes written, by appends and by optimizes,
  over the bytes of the appends; and what samples and filters read of the result, compared with the same rows written at
  once. The curve is saved as a picture.
- Five million rows of plain Delta in twenty files: converted and optimized, compared with delta-rs `z_order` and
  `compact` of the same files, each in its own process: time and peak memory.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import matplotlib as mpl
import numpy as np
import polars as pl
from deltalake import DeltaTable, WriterProperties, write_deltalake

import qbeast
from benchmarks import data, measure, rivals, tables
from benchmarks.report import Figure, table

mpl.use("Agg")

import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
FRACTIONS = (0.01, 0.02, 0.05, 0.1)
SMALL_APPENDS, SMALL_ROWS = 100, 500
GROWTH_STEPS, EVERY, GROWTH_START = 100, 10, 1_000_000
PLAIN_ROWS, PLAIN_FILES = 5_000_000, 20
ROUNDS = 3
COLUMNS = ["x0", "x1", "x2"]


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        return [*small_appends(Path(scratch)), *growth(Path(scratch)), *throughput(Path(scratch))]


def amplification(opened: qbeast.Table, fraction: float) -> float:
    plan = opened.explain(sample=fraction)
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
    rows = opened.scan(sample=0.01).select("l_orderkey", "l_linenumber").collect()
    results: list[qbeast.OptimizeResult] = []
    seconds = measure.timed(lambda: results.append(opened.optimize()))
    (result,) = results
    again = opened.scan(sample=0.01).select("l_orderkey", "l_linenumber").collect()
    assert rows.sort(pl.all()).equals(again.sort(pl.all())), "the sample holds the same rows"
    assert opened.scan().select(pl.len()).collect().item() == data.lineitem_rows()
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


@dataclass(frozen=True)
class Step:
    """The table after some appends and an optimize."""

    rows: int
    written: float
    """Bytes written so far, over the bytes of the appends."""
    of_appended: float
    """The same without the initial rows."""
    amplification: float


def growth(scratch: Path) -> list[Figure]:
    folder, everything = scratch / "growth", [points(GROWTH_START, 0)]
    first = qbeast.write_table(everything[0], folder, columns=COLUMNS)
    appended_bytes = written = first.bytes
    steps: list[Step] = []
    total = GROWTH_START
    for number in range(1, GROWTH_STEPS + 1):
        everything.append(points(total // 100, number))
        total += everything[-1].height
        added = qbeast.write_table(everything[-1], folder, mode="append").bytes
        appended_bytes, written = appended_bytes + added, written + added
        if number % EVERY == 0:
            opened = qbeast.open_table(folder)
            written += opened.optimize().bytes
            appended = (written - first.bytes) / (appended_bytes - first.bytes)
            steps.append(Step(total, written / appended_bytes, appended, amplification(opened, 0.01)))
    rows = pl.concat(everything)
    qbeast.write_table(rows, scratch / "at-once", columns=COLUMNS)
    opened, fresh = qbeast.open_table(folder), qbeast.open_table(scratch / "at-once")
    ids = opened.scan().select("id").collect()["id"].sort()
    assert ids.equals(rows["id"].sort()), "no row is lost, none is there twice"
    draw(steps, OUT / "write-amplification.png")
    box = (pl.col("x0") < 0.1) & (pl.col("x1") < 0.1)
    share = opened.explain(box).share / fresh.explain(box).share
    whole = f"{GROWTH_START:,} to {total:,} rows"
    return [
        Figure("write amplification of growth by 1 % appends", steps[-1].written, "x", 3, whole),
        Figure("the same, appended rows alone", steps[-1].of_appended, "x", 3),
        *(
            Figure(
                f"A({f:.0%}) then",
                amplification(opened, f),
                "x",
                None,
                f"at once {amplification(fresh, f):.2f}",
            )
            for f in FRACTIONS
        ),
        Figure("filter on 2 columns, 10 % each, bytes over the table written at once", share),
    ]


def points(rows: int, seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    columns = {f"x{i}": random.random(rows) for i in range(len(COLUMNS))}
    identity = pl.Series("id", np.arange(rows) + seed * 10**8)
    return pl.DataFrame(columns).with_columns(identity, payload=pl.Series(random.integers(0, 2**62, rows)))


def draw(steps: list[Step], picture: Path) -> None:
    picture.parent.mkdir(exist_ok=True)
    drawn, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    rows = [step.rows / 1e6 for step in steps]
    axes.plot(rows, [step.of_appended for step in steps], "o-", label="bytes written, appended rows")
    axes.plot(rows, [step.written for step in steps], "o-", label="bytes written, all rows")
    axes.plot(rows, [step.amplification for step in steps], "s--", label="A(1 %)")
    axes.axhline(3, color="#333333", linewidth=1)
    axes.set_xlabel(f"million rows: appends of 1 %, an optimize every {EVERY}")
    axes.set_ylabel("amplification")
    axes.set_ylim(0, 3.5)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.savefig(picture, dpi=130)
    plt.close(drawn)


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

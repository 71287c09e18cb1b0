"""What does indexing cost when writing, in time and in memory?

    python -m benchmarks.bench_write

5 million rows x 8 columns of lineitem (scale 1, its first rows), indexed on three columns, compared with
`write_deltalake` of the same frame. Each write runs in its own process, in turns, after a write of a few rows: imports
do not count. Peak memory is that of the whole process with the frame in it, over the frame's size.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polars as pl

import qbeast
from benchmarks import data, measure, rivals
from benchmarks.report import Figure, table

ROWS = 5_000_000
ROUNDS = 5


def run() -> list[Figure]:
    frame = frame_file()
    frame_bytes = _load(frame).estimated_size()
    runs: dict[str, list[measure.Child]] = {name: [] for name in WRITES}
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        for turn in range(ROUNDS):
            for name, (prepare, write) in WRITES.items():
                to = Path(scratch) / name
                shutil.rmtree(to, ignore_errors=True)
                runs[name].append(measure.in_child(write, frame, to, prepare=prepare))
                if turn == 0:
                    _check(to)
        size = {name: measure.folder_bytes(rivals.data_files(Path(scratch) / name)) for name in runs}
    seconds = {name: median(child.seconds for child in children) for name, children in runs.items()}
    peak = {name: median(child.peak_rss_bytes for child in children) for name, children in runs.items()}
    cpu = {name: median(child.cpu_seconds for child in children) for name, children in runs.items()}
    note = f"{seconds['qbeast']:.2f} s over {seconds['write_deltalake']:.2f} s"
    cpu_note = f"{cpu['qbeast']:.2f} s over {cpu['write_deltalake']:.2f} s"
    return [
        Figure(
            "write over write_deltalake, time",
            seconds["qbeast"] / seconds["write_deltalake"],
            "x",
            1.75,
            note,
        ),
        Figure(
            "write over write_deltalake, CPU", cpu["qbeast"] / cpu["write_deltalake"], "x", None, cpu_note
        ),
        Figure("write, busy cores", cpu["qbeast"] / seconds["qbeast"]),
        Figure(
            "write, peak memory over the frame", peak["qbeast"] / frame_bytes, "x", 3.0, f"{frame_bytes:,} B"
        ),
        Figure("write_deltalake, peak memory over the frame", peak["write_deltalake"] / frame_bytes),
        Figure("bytes written over write_deltalake's", size["qbeast"] / size["write_deltalake"]),
    ]


def frame_file() -> Path:
    """Return the rows to write, as a file."""
    frame = data.CACHE / f"write-{ROWS}.arrow"
    if not frame.exists():
        columns = list(data.WRITE_COLUMNS)
        pl.read_parquet(data.lineitem_path(), columns=columns, n_rows=ROWS).select(columns).write_ipc(frame)
    return frame


def _load(frame: Path) -> pl.DataFrame:
    # Read, not mapped: mapped pages count as memory only after access.
    return pl.read_ipc(frame.read_bytes())


def prepare_qbeast(frame: Path, to: Path) -> tuple[pl.DataFrame, Path]:
    """Load the rows, and write a few of them."""
    return _prepare(write_qbeast, frame, to)


def prepare_plain(frame: Path, to: Path) -> tuple[pl.DataFrame, Path]:
    """Load the rows, and write a few of them by `write_deltalake`."""
    return _prepare(write_plain, frame, to)


def _prepare(
    write: Callable[[tuple[pl.DataFrame, Path]], None], frame: Path, to: Path
) -> tuple[pl.DataFrame, Path]:
    rows = _load(frame)
    write((rows.head(1_000), to))
    shutil.rmtree(to)
    return rows, to


def write_qbeast(prepared: tuple[pl.DataFrame, Path]) -> None:
    """Write the rows with an index."""
    frame, to = prepared
    qbeast.write_table(frame, str(to), columns=list(data.W1_COLUMNS))


def write_plain(prepared: tuple[pl.DataFrame, Path]) -> None:
    """Write the rows by `write_deltalake`."""
    frame, to = prepared
    rivals.write_plain(frame, to)


WRITES = {"qbeast": (prepare_qbeast, write_qbeast), "write_deltalake": (prepare_plain, write_plain)}


def _check(folder: Path) -> None:
    assert pl.scan_delta(str(folder)).select(pl.len()).collect().item() == ROWS


if __name__ == "__main__":
    print(table(run()))

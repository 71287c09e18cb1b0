"""How does a write scale with the cores?

    python -m benchmarks.bench_cores

The writes of `bench_write` on one core with one thread, and on two with two, each in its own process, in turns. Time is
modelled as a serial part and a part that all cores share, ``time = alone + shared / cores``. The two runs determine
both parts, and so an estimate for more cores. It ignores the disk and the memory of a larger machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from unittest import mock

from benchmarks import bench_write, data, measure
from benchmarks.report import Figure, table

ROUNDS = 3
MANY = (4, 8, 16)


def run() -> list[Figure]:
    frame = bench_write.frame_file()
    seconds: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        for turn in range(ROUNDS):
            for cores in (1, 2):
                for name, (prepare, write) in bench_write.WRITES.items():
                    to = Path(scratch) / f"{name}-{cores}-{turn}"
                    with on_cores(cores):
                        child = measure.in_child(write, frame, to, prepare=prepare)
                    shutil.rmtree(to)
                    seconds.setdefault((name, cores), []).append(child.seconds)
    taken = {key: median(values) for key, values in seconds.items()}
    for cores in MANY:
        taken |= {(name, cores): estimated(taken, name, cores) for name in bench_write.WRITES}
    return [
        Figure(
            f"write over write_deltalake, {cores} core(s){', estimated' if cores in MANY else ''}",
            taken["qbeast", cores] / taken["write_deltalake", cores],
            "x",
            note=f"{taken['qbeast', cores]:.2f} s over {taken['write_deltalake', cores]:.2f} s",
        )
        for cores in (1, 2, *MANY)
    ]


def estimated(taken: Mapping[tuple[str, int], float], name: str, cores: int) -> float:
    """Estimate the seconds on a number of cores from the seconds on one and two."""
    shared = max(2 * (taken[name, 1] - taken[name, 2]), 0.0)
    return taken[name, 1] - shared + shared / cores


@contextmanager
def on_cores(cores: int) -> Generator[None]:
    """Limit the cores and Polars threads of processes started inside the block."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(ours)[:cores])
    try:
        with mock.patch.dict(os.environ, {"POLARS_MAX_THREADS": str(cores)}):
            yield
    finally:
        os.sched_setaffinity(0, ours)


if __name__ == "__main__":
    print(table(run()))

"""A scattered write without a cluster: parts are summarised, sent through bytes, and written in any order."""

from __future__ import annotations

import pickle  # what a worker is sent
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.api import WORLD
from qbeast_core.table.result import WriteResult
from qbeast_core.table.scatter import ScatterWrite
from qbeast_core.table.scatter_job import ScatterJob
from qbeast_core.table.scattered_file import ScatteredFile
from qbeast_core.table.write_options import WriteOptions
from qbeast_core.tree.summary import merge_summaries
from qbeast_core.tree.summary_bytes import dump_summary, load_summary


def scatter(
    path: Path, parts: Sequence[pl.DataFrame], *, flush_rows: int = 1 << 40, **options: Any
) -> WriteResult:
    """Write the parts as workers would."""
    begun = ScatterWrite.begin(parts[0].clear(), str(path), WriteOptions(**options), WORLD)
    if isinstance(begun, WriteResult):
        return begun
    job = sent(begun.job(summarise_parts(begun, parts)))
    return begun.publish(job, write_parts(job, parts, flush_rows=flush_rows))


def sent(value: Any) -> Any:
    """Return what a worker receives."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def summarise_parts(begun: ScatterWrite, parts: Sequence[pl.DataFrame]) -> Any:
    summaries = sent(begun.summary_job())
    found = [
        load_summary(
            dump_summary(summaries.summarise(part.select(begun.names).to_arrow(), first_row=number << 40))
        )
        for number, part in enumerate(parts)
    ]
    return merge_summaries(found, limits=summaries.limits)


def write_parts(
    job: ScatterJob, parts: Sequence[pl.DataFrame], *, flush_rows: int = 1 << 40
) -> list[ScatteredFile]:
    shuffled: dict[int, list[Any]] = {}
    for part in parts:
        frame = job.fit(part.to_arrow())
        files, keys = job.place(frame)
        assert len(files) == 0 or (files.min() >= 0 and files.max() < job.file_count)
        for number in np.unique(files).tolist():
            rows = np.flatnonzero(files == number)
            shuffled.setdefault(number, []).append((frame[pl.Series(rows)], keys[rows]))
    written = []
    for number in sorted(shuffled, reverse=True):
        held: list[Any] = []
        for one in shuffled[number]:
            held.append(one)
            if sum(len(keys) for _, keys in held) >= flush_rows:
                written += job.write_file([f for f, _ in held], [k for _, k in held])
                held = []
        if held:
            written += job.write_file([f for f, _ in held], [k for _, k in held])
    return [ScatteredFile.load(file.dump()) for file in written]

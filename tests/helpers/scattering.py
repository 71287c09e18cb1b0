"""A scattered write without a cluster: parts are summarised, sent through bytes, and written in any order."""

from __future__ import annotations

import pickle  # what a worker is sent
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.table.engine.scatter_task import ScatteredFile, ScatterJob
from qbeast_core.table.runtime import RUNTIME
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.scatter import ScatterWrite
from qbeast_core.table.write.write import WriteResult
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary, SampleLimits, merge_summaries, summarise


def scatter(
    path: Path,
    parts: Sequence[pl.DataFrame],
    *,
    flush_rows: int = 1 << 40,
    limits: SampleLimits = DOMAIN_LIMITS,
    **options: Any,
) -> WriteResult:
    """Write the parts as workers would."""
    begun = ScatterWrite.begin(parts[0].clear(), str(path), WriteOptions(**options), RUNTIME)
    if isinstance(begun, WriteResult):
        return begun
    job = sent(begun.job(summarise_parts(begun, parts, limits=limits)))
    return begun.publish(job, write_parts(job, parts, flush_rows=flush_rows))


def sent(value: Any) -> Any:
    """Return what a worker receives."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def summarise_parts(
    begun: ScatterWrite, parts: Sequence[pl.DataFrame], *, limits: SampleLimits = DOMAIN_LIMITS
) -> IndexSummary:
    fitted = [part.select(begun.names).cast(dict(begun.index_schema)) for part in parts]
    found = [
        summarise(part, begun.names, first_row=number << 40, limits=limits)
        for number, part in enumerate(fitted)
    ]
    weights = [frame_weights(part, begun.names) for part in fitted]
    total = sum(int(some.sum(dtype=np.int64)) for some in weights)
    return replace(merge_summaries(found, limits=limits), weight_sum=total)


def write_parts(
    job: ScatterJob, parts: Sequence[pl.DataFrame], *, flush_rows: int = 1 << 40
) -> list[ScatteredFile]:
    shuffled: dict[int, list[Any]] = {}
    for part in parts:
        frame = job.fit(part.to_arrow())
        keys = job.place(frame)
        files = np.searchsorted(job.file_starts, keys, side="right") - 1
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

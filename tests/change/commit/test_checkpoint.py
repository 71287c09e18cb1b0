"""How many checkpoints a table gets, and that its log takes few bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.store import Entry
from qbeast_core.table.commit import outweighs_checkpoint
from qbeast_core.table.snapshot.log_files import commit_path
from tests.helpers.examples import examples

CHECKPOINT = "_delta_log/{:020d}.checkpoint.parquet"


@examples(4, sweep=300)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=100, max_size=400),
    per_byte=st.floats(0.1, 3.0),
    most=st.integers(1, 200_000),
)
def test_checkpoints_stay_small_and_tails_short(sizes: list[int], per_byte: float, most: int) -> None:
    log = [Entry(commit_path(number), size, 0) for number, size in enumerate(sizes)]
    live = checkpoints = last = 0
    for version in range(10, len(sizes), 10):
        live = min(sum(sizes[: version + 1]), most)
        if outweighs_checkpoint(log[: version + 1] + log[len(sizes) :], version=version):
            size = int(live * per_byte)
            log.append(Entry(CHECKPOINT.format(version), size, 0))
            checkpoints += size
            last = version
        assert version - last < 100
    commits = sum(sizes)
    forced = len(sizes) // 100 + 1
    assert checkpoints <= commits / 2 + (forced + 2) * most * per_byte


@pytest.mark.parametrize("appends", [4, pytest.param(30, marks=pytest.mark.sweep)])
def test_many_small_appends_leave_a_small_log(tmp_path: Path, appends: int) -> None:
    rng = np.random.default_rng(1)
    for number in range(appends):
        start = np.datetime64("2026-01-01", "us") + np.timedelta64(number, "h")
        frame = pl.DataFrame(
            {
                "at": start + np.arange(200).astype("timedelta64[s]"),
                "user": [f"user-{item:06d}" for item in rng.integers(0, 9999, 200)],
                "amount": rng.lognormal(3, 1.5, 200),
            }
        )
        qbeast.write_table(frame, tmp_path, columns=["at", "user", "amount"], mode="append")
    log = list((tmp_path / "_delta_log").iterdir())
    assert sum(path.stat().st_size for path in log) < 20_000 + 6_000 * appends
    assert len([path for path in log if path.name.endswith(".checkpoint.parquet")]) <= 2

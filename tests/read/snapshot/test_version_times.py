"""One clock: history, time travel, restore and refusals agree about the time of each version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.location import open_store
from qbeast_core.log.actions import CommitInfo, commit_times
from tests.helpers.examples import examples
from tests.helpers.handmade_log import PROTOCOL, add, metadata, write_log

START = 1_700_000_000_000


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def log_of(path: Path, infos: Sequence[dict[str, Any] | None]) -> str:
    """Write a table of a file per version, whose commits have these infos."""
    first = [PROTOCOL, metadata()]
    commits = [
        [*([] if info is None else [{"commitInfo": info}]), *(first if number == 0 else []), add(f"{number}")]
        for number, info in enumerate(infos)
    ]
    return write_log(path, *commits)


def set_file_times(path: str | Path, times: list[int]) -> None:
    for number, ms in enumerate(times):
        os.utime(Path(path) / "_delta_log" / f"{number:020d}.json", ns=(ms * 10**6, ms * 10**6))


def assert_agrees(path: str | Path, **options: Any) -> None:
    newest = qbeast.open_table(path, **options)
    versions = newest.versions()
    assert versions["timestamp"].null_count() == 0
    for version, time in versions.select("version", "timestamp").rows():
        assert qbeast.open_table(path, version=time, **options).version == version
        assert newest.history(limit=1)["timestamp"][0] == versions["timestamp"][0]
    oldest = versions["timestamp"].min()
    assert isinstance(oldest, datetime)
    with pytest.raises(qbeast.VersionNotFoundError, match="its oldest is"):
        qbeast.open_table(path, version=oldest - timedelta(milliseconds=1), **options)


STAMPS = [{"timestamp": START + 1000 * number} for number in range(4)]
IN_COMMIT = [
    {"timestamp": START + 9 - number, "inCommitTimestamp": START + 1000 * number} for number in range(4)
]


@pytest.mark.parametrize(
    "infos", [STAMPS, IN_COMMIT, [*STAMPS[:2], *IN_COMMIT[2:]], [None, STAMPS[1], None, STAMPS[3]]]
)
def test_every_shown_time_selects_its_version(tmp_path: Path, infos: list[dict[str, Any] | None]) -> None:
    path = log_of(tmp_path / "t", infos)
    copy = shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copyfile)
    assert_agrees(copy)
    noted = [START + 1000 * number if info else None for number, info in enumerate(infos)]
    shown = qbeast.open_table(copy).versions()["timestamp"].dt.epoch("ms").to_list()[::-1]
    assert all(time in (None, actual) for time, actual in zip(noted, shown, strict=True))


@given(steps=st.lists(st.integers(-3, 5), min_size=1, max_size=6), later=st.integers(-5, 10))
@examples(3, sweep=100)
def test_noted_times_select_what_deltalake_selects_by_file_times(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], later: int
) -> None:
    times = [START + sum(steps[:number]) for number in range(1, len(steps) + 1)]
    path = log_of(tmp_path_factory.mktemp("t"), [{"timestamp": time} for time in times])
    shown = commit_times([(CommitInfo(timestamp=time), 0) for time in times])
    set_file_times(path, shown)  # ascending: deltalake does not order them
    wanted = moment(shown[0] + max(later, 0))
    table = DeltaTable(path)
    table.load_as_version(wanted)
    assert qbeast.open_table(path, version=wanted).version == table.version()


@given(
    infos=st.lists(st.tuples(st.integers(-3, 9) | st.none(), st.integers(0, 99)), min_size=1, max_size=8).map(
        lambda items: [(None if time is None else CommitInfo(timestamp=time), ms) for time, ms in items]
    )
)
@examples(30, sweep=1000)
def test_times_ascend_and_keep_noted_times_that_do(infos: list[tuple[CommitInfo | None, int]]) -> None:
    times = commit_times(infos)
    assert all(first < second for first, second in pairwise(times))
    for number, (info, _) in enumerate(infos):
        noted = None if info is None else info.timestamp
        assert noted is None or noted < 0 or times[number] >= noted


def test_restore_takes_the_shown_time_in_a_copy(tmp_path: Path) -> None:
    for number in range(3):
        rows = pl.DataFrame({"id": [number]})
        qbeast.write_table(rows, tmp_path / "t", columns=["id"], mode="append" if number else "error")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "t", copy, copy_function=shutil.copyfile)
    table = qbeast.open_table(copy)
    times = dict(table.versions().select("version", "timestamp").rows())
    assert table.restore(times[1]).restored_version == 1
    assert table.refresh().count() == 2


def test_times_after_a_cleanup_of_the_log(tmp_path: Path) -> None:
    path = log_of(tmp_path, STAMPS)
    DeltaTable(path, version=2).create_checkpoint()
    for number in (0, 1):
        (tmp_path / "_delta_log" / f"{number:020d}.json").unlink()
    assert_agrees(path)
    assert qbeast.open_table(path, version=moment(START + 2500)).version == 2


def test_far_times_are_those_of_the_log(tmp_path: Path, bucket: str, s3_options: dict[str, str]) -> None:
    path = Path(log_of(tmp_path / "t", STAMPS[:2]))
    store = open_store(f"s3://{bucket}/t", s3_options)
    for file in path.rglob("*.json"):
        store.put(file.relative_to(path).as_posix(), file.read_bytes())
    assert_agrees(f"s3://{bucket}/t", storage_options=s3_options)


def test_time_of_no_table_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(qbeast.TableNotFoundError, match="no Delta table"):
        qbeast.open_table(tmp_path, version="2026-01-01")

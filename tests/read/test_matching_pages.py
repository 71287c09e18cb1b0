"""A filter that matches few rows returns the rows of the same filter in memory, from few pages of other columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.io.remote import RemoteStore
from qbeast_core.io.store import LocalStore
from tests.helpers.small_files import resized

COUNT = 12_000


@pytest.fixture(autouse=True)
def search_of_few_pages() -> Iterator[None]:
    with resized(min_searched_pages=1):
        yield


def rows() -> pl.DataFrame:
    random = np.random.default_rng(4)
    return pl.DataFrame(
        {
            "id": np.arange(COUNT),
            "key": random.permutation(COUNT),
            "x": random.normal(size=COUNT),
            "kind": random.choice(["a", "b", None], COUNT),
            "text": [f"text {number}" for number in random.integers(0, COUNT, COUNT)],
            "part": random.integers(0, 2, COUNT),
        }
    )


FILTERS: dict[str, pl.Expr] = {
    "one value": pl.col("key") == 777,
    "values": pl.col("key").is_in([1, 8000, 11_999, -5]),
    "unindexed": (pl.col("text") == "text 1234") & (pl.col("id") > 2000),
    "prefix": pl.col("text").str.starts_with("text 77") & (pl.col("id") < 8000),
    "partition": (pl.col("part") == 1) & (pl.col("key") == 4321),
    "either": (pl.col("key") == 99) | (pl.col("id") == 7000),
    "nothing": (pl.col("key") == 15) & (pl.col("x") > 1e9),
    "many": (pl.col("kind") == "a") & (pl.col("id") < 4000),
    "column named twice": (pl.col("key") == 5) | (pl.col("key") == 6),
    "column named in both parts": pl.col("key").is_in([70, 71]) & (pl.col("key") > 70) & (pl.col("id") >= 0),
    "null": pl.col("kind").is_null() & (pl.col("key") == 20),
}


def plain(path: Path, frame: pl.DataFrame) -> None:
    qbeast.write_table(frame, path, columns=["id", "key"], cube_size=1500)


def deleted(path: Path, frame: pl.DataFrame) -> None:
    none = frame.with_columns(pl.col("id") + COUNT, key=-pl.col("key") - 1)
    qbeast.write_table(
        pl.concat([frame, none]), path, columns=["id", "key"], cube_size=1500, deletion_vectors=True
    )
    qbeast.open_table(path).delete(f"id >= {COUNT}")


def divided(path: Path, frame: pl.DataFrame) -> None:
    qbeast.write_table(frame, path, columns=["id", "key"], cube_size=1500, partition_by=["part"])


def renamed(path: Path, frame: pl.DataFrame) -> None:
    qbeast.write_table(frame.rename({"key": "old"}), path, columns=["id", "old"], cube_size=1500)
    qbeast.open_table(path).rename_column("old", "key", upgrade_protocol=True)


def tagless(path: Path, frame: pl.DataFrame) -> None:
    """Half of the files have pages that cannot be read."""
    plain(path, frame)
    for file in sorted(path.glob("*.parquet"))[::2]:
        data = bytearray(file.read_bytes())
        data[data.rfind(b"QBPAGES3") + 9] ^= 0xFF
        file.write_bytes(data)


KINDS: list[Callable[[Path, pl.DataFrame], None]] = [plain, deleted, divided, renamed, tagless]


@pytest.mark.parametrize("options", [{}, pytest.param({"sample": 0.7}, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("most", [pytest.param(0.0, marks=pytest.mark.sweep), 1.0])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_rows_equal_those_in_memory(
    kind: Callable[[Path, pl.DataFrame], None],
    most: float,
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    kind(tmp_path / "t", rows())
    with resized(max_matching=most):
        check_filters(qbeast.open_table(tmp_path / "t"), options)


def check_filters(table: qbeast.Table, options: dict[str, Any]) -> None:
    every = table.read(**options)
    for number, where in enumerate(FILTERS.values()):
        wanted = every.filter(where).sort("id")
        if number % 2:
            assert_frame_equal(table.read(where=where, **options).sort("id"), wanted)
            continue
        tasks = table.rows(where, **options).tasks(task_bytes=30_000)
        tasks = pickle.loads(pickle.dumps(tasks))  # noqa: S301
        parts = [part for task in tasks for part in task.read()]
        assert_frame_equal(pl.concat([wanted[:0], *parts]).sort("id"), wanted)


@pytest.mark.parametrize("name", ["one value", "values"])
def test_other_columns_are_read_where_rows_match(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(tmp_path / "t", rows())
    table = qbeast.open_table(tmp_path / "t")
    plan, read = table.rows(FILTERS[name]).explain(), list[int]()
    ranges = LocalStore.get_ranges

    def recorded(self: LocalStore, path: str, wanted: Any) -> list[memoryview]:
        read.extend(length for _, length in wanted)
        return ranges(self, path, wanted)

    monkeypatch.setattr(LocalStore, "get_ranges", recorded)
    table.read(where=FILTERS[name])
    assert 0 < sum(read) < 0.6 * plan.bytes_opened


@pytest.mark.parametrize(("small_bytes", "whole_bytes"), [(0, 0), (1 << 22, 1 << 22)])
def test_rows_of_a_bucket_equal_those_in_memory(
    small_bytes: int, whole_bytes: int, bucket: str, s3_options: dict[str, str]
) -> None:
    uri = f"s3://{bucket}/t"
    qbeast.write_table(rows(), uri, columns=["id", "key"], cube_size=1500, storage_options=s3_options)
    table = qbeast.open_table(uri, storage_options=s3_options)
    with resized(whole_file_bytes=whole_bytes):
        for where in FILTERS.values():
            wanted = rows().filter(where).sort("id")
            assert_frame_equal(table.read(where=where).sort("id"), wanted)
        with resized(
            small_object_bytes=small_bytes
        ):  # files that are read by page although all rows are needed
            assert_frame_equal(table.read().sort("id"), rows())


def test_small_files_of_a_bucket_take_one_request_each(
    bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, get_ranges, read = f"s3://{bucket}/small", RemoteStore.get_ranges, list[tuple[str, int]]()

    def recorded(self: RemoteStore, path: str, wanted: Any) -> list[memoryview]:
        if path.endswith(".parquet"):
            read.append((path, sum(length for _, length in wanted)))
        return get_ranges(self, path, wanted)

    for part in rows().head(800).iter_slices(400):
        qbeast.write_table(part, uri, columns=["id", "key"], mode="append", storage_options=s3_options)
    monkeypatch.setattr(RemoteStore, "get_ranges", recorded)
    table = qbeast.open_table(uri, storage_options=s3_options)
    for options, whole_bytes in (
        ({"where": pl.col("id") == 777}, 1 << 16),
        ({"sample": 0.3}, 1 << 16),
        ({"sample": 0.3}, 0),
    ):
        read.clear()
        with resized(whole_file_bytes=whole_bytes):
            plan = table.rows(**options).explain()
            assert not (read and whole_bytes), "a plan of whole files opens none"
            read.clear()
            table = qbeast.open_table(uri, storage_options=s3_options)
            table.read(**options)
        files = set(plan.files.filter("opened")["path"])
        assert files == {path for path, _ in read} != set()
        if whole_bytes:
            assert len(read) == len(files)
            assert sum(size for _, size in read) == plan.bytes_opened
        else:
            assert len(read) >= 2 * len(files)

"""A whole life of a table, and races for its log, in object stores that are no mocks of Python's."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.io.stores.store import open_store
from tests.helpers.real_stores import STORES, RealStore, Started

pytestmark = pytest.mark.sweep

ROWS = pl.DataFrame(
    {
        "id": range(20_000),
        "x": [(i * 7919) % 20_011 for i in range(20_000)],
        "t": ["a", "b é", None, ""] * 5_000,
    }
)
WRITERS, COMMITS, PUTS = 8, 5, 40


@pytest.fixture(scope="module", params=STORES, ids=lambda store: store.name)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    store: RealStore = request.param
    if not store.path.exists():
        pytest.skip(f"{store.name} is not installed: `make stores` does it where there are Go and Node")
    with store.running(tmp_path_factory.mktemp("store") / "data") as started:
        yield started


def test_all_operations_work_in_the_store(started: Started) -> None:
    uri, options = f"{started.uri}/some tables/t é", started.options
    qbeast.write_table(ROWS, uri, columns=["id", "x"], cube_size=2_000, storage_options=options)
    more = ROWS.with_columns(pl.col("id") + 20_000)
    qbeast.write_table(more, uri, mode="append", storage_options=options)
    table = qbeast.open_table(uri, storage_options=options)
    expected = pl.concat([ROWS, more])
    target = (pl.col("x") < 500) & pl.col("t").is_not_null()
    assert table.scan().filter(target).collect().sort("id").equals(expected.filter(target).sort("id"))
    few = qbeast.read_table(uri, sample=0.05, storage_options=options)
    some = qbeast.read_table(uri, sample=0.3, storage_options=options)
    assert 0 < few.height < some.height
    assert set(few["id"]) < set(some["id"]) < set(expected["id"])

    table.delete(pl.col("id") < 1_000)
    table.update(pl.col("x") == 7, {"t": pl.lit("u")})
    table.optimize()
    expected = expected.filter(pl.col("id") >= 1_000).with_columns(
        t=pl.when(pl.col("x") == 7).then(pl.lit("u")).otherwise("t")
    )
    assert table.scan().collect().sort("id").equals(expected.sort("id"))
    assert table.check().ok
    theirs = pl.DataFrame(DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=ROWS.columns))
    assert theirs.sort("id").equals(expected.sort("id"))
    assert qbeast.read_table(uri, version=0, storage_options=options).sort("id").equals(ROWS)
    gone = table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert gone.files
    assert table.scan().collect().height == expected.height


def _put(uri: str, options: Mapping[str, str], writer: int) -> list[int]:
    """Try to create each of some files; return those that this process was told it created."""
    store, won = open_store(uri, options), []
    for number in range(PUTS):
        try:
            store.put_if_absent(f"_delta_log/{number}", f"writer {writer}".encode())
        except FileExistsError:
            continue
        won.append(number)
    return won


def _append(uri: str, options: Mapping[str, str], writer: int) -> int:
    for number in range(COMMITS):
        first = (writer * COMMITS + number) * 100
        rows = pl.DataFrame({"id": range(first, first + 100)})
        qbeast.write_table(rows, uri, mode="append", columns=["id"], storage_options=options)
    return COMMITS


@pytest.fixture(scope="module")
def writers() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_only_one_process_creates_each_file(started: Started, writers: ProcessPoolExecutor) -> None:
    uri = f"{started.uri}/puts"
    jobs = [writers.submit(_put, uri, started.options, writer) for writer in range(WRITERS)]
    won = [job.result() for job in jobs]
    assert sorted(number for numbers in won for number in numbers) == list(range(PUTS))
    store = open_store(uri, started.options)
    for writer, numbers in enumerate(won):
        assert all(store.get(f"_delta_log/{number}") == f"writer {writer}".encode() for number in numbers)


def test_eight_processes_lose_no_commit(started: Started, writers: ProcessPoolExecutor) -> None:
    uri = f"{started.uri}/race"
    jobs = [writers.submit(_append, uri, started.options, writer) for writer in range(WRITERS)]
    assert sum(job.result(timeout=timedelta(minutes=5).total_seconds()) for job in jobs) == WRITERS * COMMITS
    table = qbeast.open_table(uri, storage_options=started.options)
    assert table.version == WRITERS * COMMITS - 1
    assert table.scan().collect()["id"].sort().to_list() == list(range(WRITERS * COMMITS * 100))
    assert table.check().ok

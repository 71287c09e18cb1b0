"""The parts of a write from Spark, without Spark: keys, packs, batches, summaries, and what a worker holds."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.engine.files import PlacedFile, PlaceTask
from qbeast_spark_bridge.engine.workers import worker_errors
from qbeast_spark_bridge.worker import call as worker_call
from qbeast_spark_bridge.worker import tasks as batches
from qbeast_spark_bridge.worker import tasks as packs
from qbeast_spark_bridge.worker import tasks as pass_two
from qbeast_spark_bridge.worker import tasks as write_files
from qbeast_spark_bridge.worker.call import WorkerCall, note_of
from qbeast_spark_bridge.worker.tasks import answer_items, longs_as_decimals
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.scattering import scatter
from tests.helpers.small_files import resized
from tests.helpers.strategies import VALUES, frames_of
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EVERY_TYPE = {f"c{number}": dtype for number, dtype in enumerate(VALUES)}


def numbers(count: int = 4_000) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    return pl.DataFrame({"row": range(count), "a": rng.integers(0, 900, count), "b": rng.random(count)})


def arrow(frame: pl.DataFrame, *, rows: int = 300) -> list[pa.RecordBatch]:
    """The rows as Spark sends them."""
    numbered = frame.rename({name: f"c{number}" for number, name in enumerate(frame.columns)})
    table = numbered.to_arrow(compat_level=pl.CompatLevel.oldest())
    actual: list[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    return actual


@pytest.mark.parametrize("files", [1, 2, 3, 200, 10_007])
def test_every_file_gets_its_own_task(files: int) -> None:
    import mmh3  # noqa: PLC0415 -- the standard hash of four bytes is Spark's hash of an int

    keys = pass_two.task_keys(files)
    tasks = [mmh3.hash(int(key).to_bytes(4, "little", signed=True), 42) % files for key in keys]
    assert tasks == list(range(files))


def packed(frame: pl.DataFrame, keys: Any, starts: Any) -> list[tuple[int, pa.Buffer]]:
    return [
        (number, pack.as_buffer())
        for numbers_of, made in packs.pack_rows(frame, keys, starts)
        for number, pack in zip(numbers_of.tolist(), made, strict=True)
    ]


@examples(4, sweep=150)
@given(frame=frames_of(EVERY_TYPE), seed=st.integers(0, 9), files=st.sampled_from([1, 3, 70_000]))
def test_packs_hold_the_rows_of_each_file(frame: pl.DataFrame, seed: int, files: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.permutation(1 << 20)[: frame.height].astype(np.uint64)
    starts = np.arange(files, dtype=np.uint64) * np.uint64((1 << 20) // files)
    numbers_of = np.searchsorted(starts, keys, side="right") - 1
    actual: dict[int, list[tuple[pl.DataFrame, Any]]] = {}
    for number, pack in packed(frame, keys, starts):
        actual.setdefault(number, []).append(packs.unpack_rows(pack))
    assert list(actual) == sorted(set(numbers_of.tolist()))
    for number, parts in actual.items():
        ours = frame.filter(pl.Series(numbers_of == number)).with_columns(
            pl.Series("key", keys[numbers_of == number])
        )
        rows = pl.concat(part.with_columns(pl.Series("key", its)) for part, its in parts)
        assert rows.equals(ours.sort("key"))


def test_packs_are_bounded() -> None:
    frame = pl.DataFrame({"text": ["x" * 100] * 1_000})
    with resized(pack_bytes=4_096, pack_batch_bytes=1):
        made = packed(frame, np.zeros(1_000, np.uint64), np.zeros(1, np.uint64))
    sizes = [packs.unpack_rows(pack)[0].height for _, pack in made]
    assert sum(sizes) == 1_000
    assert max(sizes) <= 40


def test_small_batches_are_gathered_and_named() -> None:
    frame = pl.DataFrame({"a.b": range(5_000)})
    tables = list(batches.gathered(iter(arrow(frame)), ["a.b"], size_bytes=8_000))
    assert len(tables) == 5
    assert [table.num_rows for table in tables[:-1]] == [1_200] * (len(tables) - 1)
    assert pl.concat(pl.DataFrame(table) for table in tables).equals(frame)
    assert not list(batches.gathered(iter(arrow(frame.clear())), ["a.b"]))


@resized(max_partition_bytes=24 * 1_000)
def test_rows_beyond_worker_memory_use_more_files(tmp_path: Path) -> None:
    frame = numbers()

    def place(task: PlaceTask, _: object) -> list[PlacedFile]:
        assert task.file_count == 1
        argument = (task, pass_two.task_keys(1), frame.columns, {})
        sent = [
            b
            for part in range(4)
            for b in pass_two.pack_partition(argument, iter(arrow(frame[part * 1000 :][:1000])))
        ]
        return [
            pickle.loads(data.as_py())  # noqa: S301 - our own bytes
            for batch in write_files.write_partition(task, iter(sent))
            for data in batch.column("file")
        ]

    assert scatter(tmp_path / "t", [frame], place=place, columns=["a", "b"], cube_size=100).files == 4
    assert_same_rows(qbeast.read_table(tmp_path / "t"), frame)
    check_invariants(tmp_path / "t")


def test_decimals_are_rebuilt_from_digits() -> None:
    values = [None, Decimal("-1.50"), Decimal("9999999999999999.99"), Decimal("-0.01"), Decimal(0)]
    decimals = pa.table({"a": range(5), "b": pa.array(values, pa.decimal128(18, 2))})
    digits = [None if value is None else int(value * 100) for value in values]
    longs = decimals.set_column(1, "b", pa.array(digits, pa.int64()))
    for rows in (longs, longs.slice(1, 3), longs.slice(5), pa.concat_tables([longs, longs.slice(2)])):
        back = longs_as_decimals(rows, {1: (18, 2)})
        back.validate(full=True)
        picked = rows["a"].to_pylist()
        assert back["b"].to_pylist() == [values[row] for row in picked]


def test_call_sets_threads_and_freezes_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    worker_call._freeze.cache_clear()  # noqa: SLF001 -- another test may have frozen the same modules
    with mock.patch("pyarrow.set_cpu_count") as threads, mock.patch("gc.freeze") as freeze:
        for _ in range(3):
            assert not list(WorkerCall.of(write_files.write_partition, None)(iter([])))
    threads.assert_called_with(2)
    assert os.environ["POLARS_MAX_THREADS"] == "2"
    freeze.assert_called_once_with()


@pytest.mark.sweep
def test_workers_start_few_threads_before_polars() -> None:
    code = (
        "import os, pickle, sys, types\n"
        "os.environ.pop('POLARS_MAX_THREADS', None)\n"
        "call = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "assert 'polars' not in sys.modules, 'too early'\n"
        "list(call(iter([])))\n"
        "import polars, pyarrow\n"
        "print(polars.thread_pool_size(), pyarrow.cpu_count())"
    )
    call = pickle.dumps(WorkerCall.of(write_files.write_partition, None)).hex()
    for cores, expected in (({}, "1 1"), ({"OMP_NUM_THREADS": "2"}, "2 2")):
        command = [sys.executable, "-c", code, call]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)} | cores
        assert subprocess.check_output(command, text=True, env=environment, cwd=ROOT).strip() == expected


@pytest.mark.sweep
def test_worker_modules_are_frozen_for_gc() -> None:
    """PySpark collects garbage after every task of a worker."""
    code = (
        "import gc, pickle, sys\n"
        "call = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "for task in range(3): list(call(iter([])))\n"
        "print(gc.get_freeze_count(), len(gc.get_objects()))"
    )
    call = pickle.dumps(WorkerCall.of(write_files.write_partition, None)).hex()
    frozen, walked = map(int, subprocess.check_output([sys.executable, "-c", code, call], cwd=ROOT).split())
    assert frozen > 20_000
    assert walked < 1_000


@pytest.mark.sweep
def test_workers_answer_without_pandas() -> None:
    """To import it takes a worker longer than a small task."""
    code = (
        "import pickle, sys\n"
        "from qbeast_spark_bridge.worker.tasks import batch_of\n"
        "items = batch_of('number int, item binary', [0, 1], [pickle.dumps('a'), pickle.dumps('bcd')])\n"
        "answers = list(pickle.loads(bytes.fromhex(sys.argv[1]))(iter([items])))\n"
        "print([pickle.loads(one['answer'][0].as_py()) for one in answers], 'pandas' in sys.modules)"
    )
    call = pickle.dumps(WorkerCall.of(answer_items, len)).hex()
    output = subprocess.check_output([sys.executable, "-c", code, call], text=True, cwd=ROOT)
    assert output.strip() == "[(0, 1), (1, 3)] False"


@pytest.mark.parametrize(
    "error",
    [
        qbeast.SchemaMismatchError("no\nfit: {'a'}", problems=["a", "b"]),
        qbeast.StorageError("disk full", path="/t"),
        qbeast.UnsupportedTableError("feature", path="/t", feature="x"),
        qbeast.InputChangedError("changed", rows_before=1, rows_after=2),
    ],
)
def test_errors_survive_as_text(spark: SparkSession, error: qbeast.QbeastError) -> None:
    trace = RuntimeError(
        f"Job aborted\nTraceback ...\n{type(error)}: {error}\n{note_of(error)}\n\tat java.lang"
    )
    with pytest.raises(type(error)) as caught, worker_errors(spark):
        raise trace
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)
    assert caught.value.__cause__ is trace


def test_foreign_errors_are_unchanged(spark: SparkSession) -> None:
    other = RuntimeError("boom")
    with pytest.raises(RuntimeError) as caught, worker_errors(spark):
        raise other
    assert caught.value is other

"""Processes that make one table at once: one of them creates it, the others go on with what they find."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.io.store import LocalStore
from tests.helpers.scattering import scatter
from tests.helpers.small_files import resized
from tests.helpers.tables import assert_same_rows

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

WRITERS = 3
ROUNDS = 4
Write = Callable[..., Any]


def rows(writer: int, count: int = 200) -> pl.DataFrame:
    first = writer * 1000
    return pl.DataFrame({"row": range(first, first + count), "a": [i % 7 / 2 for i in range(count)]})


def race(uri: str, mode: Any, writer: int, barrier: Any) -> list[str]:
    """Write a table a round, together with the others; return what became of it."""
    reports = []
    for number in range(ROUNDS):
        barrier.wait(timeout=120)
        try:
            result = qbeast.write_table(rows(writer), f"{uri}{number}", columns=["row", "a"], mode=mode)
        except qbeast.QbeastError as error:
            reports.append(type(error).__name__)
        else:
            reports.append("written" if result.committed else "untouched")
    return reports


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mode", "others"),
    [("append", "written"), ("overwrite", "written"), ("ignore", "untouched"), ("error", "TableExistsError")],
)
def test_concurrent_first_writes_agree(tmp_path: Path, four: Pool, mode: str, others: str) -> None:
    uri = str(tmp_path / "t")
    with multiprocessing.get_context("spawn").Manager() as manager:
        barrier = manager.Barrier(WRITERS)
        jobs = [four.apply_async(race, (uri, mode, writer, barrier)) for writer in range(WRITERS)]
        reports = [job.get(timeout=300) for job in jobs]
    for number, outcome in enumerate(zip(*reports, strict=True)):
        assert sorted(outcome) == sorted([others] * (WRITERS - 1) + ["written"])
        table = qbeast.open_table(f"{uri}{number}")
        actual = table.read()
        faults = table.check(data=True).faults
        assert faults.is_empty(), faults["message"].to_list()
        assert table.version == (WRITERS - 1 if mode in ("append", "overwrite") else 0)
        if mode == "append":
            assert_same_rows(actual, pl.concat(rows(writer) for writer in range(WRITERS)), key="row")
        else:
            assert any(actual.sort("row").equals(rows(writer)) for writer in range(WRITERS))


@pytest.fixture(params=["here", "scattered"])
def write(request: pytest.FixtureRequest) -> Write:
    """A write in this process, and one by workers, begun again as the Spark bridge does."""
    if request.param == "here":
        return qbeast.write_table
    return again_scattered


def again_scattered(frame: pl.DataFrame, path: Path, **options: Any) -> Any:
    try:
        return scatter(path, [frame], **options)
    except qbeast.TableExistsError:
        if options["mode"] == "error":
            raise
        return scatter(path, [frame], **options)


@pytest.fixture
def winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let another writer come first, just before a commit is put; it works elsewhere, then its files are moved in."""

    def first(write: Callable[..., object], *values: Any, **options: Any) -> None:
        write(*values, tmp_path / "elsewhere", **options)
        plain, waiting = LocalStore.put_if_absent, [tmp_path / "elsewhere"]

        def put_if_absent(store: LocalStore, path: str, data: bytes) -> None:
            while waiting:
                shutil.copytree(waiting.pop(), store.local_root, dirs_exist_ok=True)
            plain(store, path, data)

        monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)

    return first


LATER = rows(1).with_columns(a=pl.col("a") * 1000)
"""Rows that lie outside the space of the winner's."""


@pytest.mark.parametrize(
    ("mode", "height", "version"), [("append", 400, 1), ("overwrite", 200, 1), ("ignore", 200, 0)]
)
def test_second_writer_continues_existing_table(
    tmp_path: Path, write: Write, winner: Callable[..., None], mode: str, height: int, version: int
) -> None:
    table = tmp_path / "t"
    winner(qbeast.write_table, rows(0), columns=["row", "a:quantiles"])
    result = write(LATER, table, columns=["row", "a"], mode=mode)
    actual = qbeast.open_table(table)
    assert (result.version, result.committed, actual.version) == (version, mode != "ignore", version)
    assert actual.read().height == height
    assert actual.check(data=True).faults.is_empty()
    live = {Path(path).name for path in actual.rows().files()["path"]}
    replaced = {"overwrite": 1}.get(mode, 0)  # files of the winner, which the second version removed
    assert len({path.name for path in table.glob("*.parquet")} - live) == replaced


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "error", "columns": ["row"]}, qbeast.TableExistsError),
        ({"mode": "append", "columns": ["a"]}, qbeast.InvalidColumnsError),
        ({"mode": "append", "columns": ["row"], "dialect": "qbeast-spark"}, qbeast.InvalidInputError),
    ],
    ids=str,
)
def test_mismatched_second_writer_leaves_nothing(
    tmp_path: Path,
    write: Write,
    winner: Callable[..., None],
    options: dict[str, Any],
    error: type[qbeast.QbeastError],
) -> None:
    table = tmp_path / "t"
    winner(qbeast.write_table, rows(0), columns=["row"])
    with pytest.raises(error):
        write(rows(1), table, **options)
    assert qbeast.open_table(table).version == 0
    assert len(list(table.glob("*.parquet"))) == 1


def test_second_writer_with_other_schema_leaves_nothing(tmp_path: Path, winner: Callable[..., None]) -> None:
    table = tmp_path / "t"
    winner(qbeast.write_table, rows(0), columns=["row"])
    with pytest.raises(qbeast.SchemaMismatchError):
        qbeast.write_table(rows(1).cast({"a": pl.String}), table, columns=["row"], mode="append")
    assert len(list(table.glob("*.parquet"))) == 1


def test_second_transaction_is_applied_once(tmp_path: Path, winner: Callable[..., None]) -> None:
    table = tmp_path / "t"
    options: dict[str, Any] = {"columns": ["row"], "mode": "append", "txn": ("app", 1)}
    winner(qbeast.write_table, rows(0), **options)
    assert not qbeast.write_table(rows(0), table, **options).committed
    assert qbeast.read_table(table).height == 200
    assert len(list(table.glob("*.parquet"))) == 1


def test_write_with_transaction_happens_once(tmp_path: Path) -> None:
    def write(version: int, application: str = "app") -> Any:
        frame, txn = pl.DataFrame({"row": [version]}), (application, version)
        return qbeast.write_table(frame, tmp_path / "t", columns=["row"], mode="append", txn=txn)

    results = [write(3), write(3), write(2), write(4), write(4), write(3, "other")]
    assert [result.committed for result in results] == [True, False, False, True, False, True]
    assert [result.version for result in results] == [0, 0, 0, 1, 1, 2]
    assert sorted(qbeast.read_table(tmp_path / "t")["row"]) == [3, 3, 4]
    assert results[1].rows == results[1].files == 0
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 3


@pytest.mark.parametrize("dialect", ["documented", "qbeast-spark"])
def test_writer_waits_for_table_being_created(tmp_path: Path, dialect: Any) -> None:
    table, other = tmp_path / "t", tmp_path / "other"
    qbeast.write_table(rows(0), other, columns=["row"], dialect=dialect)
    table.mkdir()
    for path in other.glob("*.parquet"):
        os.link(path, table / path.name)

    def commit() -> None:
        time.sleep(0.5)
        (other / "_delta_log").rename(table / "_delta_log")

    late = threading.Thread(target=commit)
    late.start()
    assert qbeast.write_table(rows(1), table, columns=["row"], mode="append").version == 1
    late.join()
    assert qbeast.read_table(table).height == 400

    (table / "_delta_log").rename(tmp_path / "lost")
    with resized(quiet_s=0.2), pytest.raises(qbeast.TableExistsError, match="Nothing was changed"):
        qbeast.write_table(rows(1), table, columns=["row"], mode="append")


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_second_conversion_finds_it_done(tmp_path: Path, winner: Callable[..., None], kind: str) -> None:
    table = tmp_path / "t"
    table.mkdir()
    if kind == "delta":
        rows(0).write_delta(table)
    else:
        rows(0).write_parquet(table / "a.parquet")

    def convert(place: Path) -> None:
        """Leave there what a conversion adds."""
        shutil.copytree(table, tmp_path / "copy")
        qbeast.convert_table(tmp_path / "copy", columns=["row"])
        existing = len(list(table.glob("_delta_log/*.json")))
        (place / "_delta_log").mkdir(parents=True)
        commit = f"_delta_log/{existing:020}.json"
        shutil.copy(tmp_path / "copy" / commit, place / commit)

    winner(convert)
    done = qbeast.convert_table(table, columns=["row"])
    assert (done.committed, done.columns) == (False, ("row",))
    assert qbeast.read_table(table).height == 200

"""Rows larger than a budget: no row is lost, the table is as good as one from memory, nothing is left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.engine.spill import SpillFolder, spool
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants
from tests.helpers.small_files import resized, small_budget
from tests.helpers.sources import KINDS, given_as
from tests.helpers.stores import SpilledFile, watched_spills
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, sampled, samples, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

LITTLE = 1 << 17
SMALL: dict[str, int] = {} if is_sweep() else {"most_frames": 2, "most_rows": 20}


@examples(2, sweep=60)
@given(
    case=cases(**SMALL),
    kind=st.sampled_from(KINDS),
    batch_rows=st.sampled_from([1, 7, 1000]),
    batch_bytes=st.sampled_from([1 << 8, 1 << 11, 1 << 20]),
    load_bytes=st.sampled_from([1 << 9, 1 << 12, 1 << 20]),
    sample_rows=st.sampled_from([9, 40, 1 << 20]),
    sample=samples(),
)
def test_rows_are_complete_and_index_holds(
    case: Case, kind, batch_rows, batch_bytes, load_bytes, sample_rows, sample
) -> None:
    """Budgets of bytes and not of megabytes cut few rows into as many parts as large ones would be."""
    with (
        folder() as path,
        small_files(),
        small_budget(batch_bytes=batch_bytes, load_bytes=load_bytes),
        resized(min_part_rows=3, min_slice_bytes=64, domain_rows=sample_rows),
    ):
        spilling, rows = path.parent / "spilling", path.parent / "rows"
        spilling.mkdir()
        for number, (frame, size) in enumerate(zip(case.frames, case.cube_sizes, strict=True)):
            (rows / str(number)).mkdir(parents=True)
            result = qbeast.write_table(
                given_as(frame, kind, rows / str(number), batch_rows),
                path,
                columns=case.columns,
                mode="append" if number else "error",
                cube_size=size,
                dialect=case.dialect,
                resources=qbeast.Resources(engine="spill", spill_dir=spilling),
            )
            assert (result.rows, result.version, result.engine) == (frame.height, number, "spill")
            assert result.spilled_bytes > 0 or not frame.height
            assert not list(spilling.iterdir())
        assert_same_rows(qbeast.read_table(path), case.rows)
        assert sum(block.rows for block in check_invariants(path)) == case.rows.height
        assert_same_rows(qbeast.read_table(path, sample=sample), sampled(case.rows, case.indexed, sample))


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Let a budget be small, so that few rows spill."""
    with resized(min_memory_bytes=LITTLE):
        yield


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return rows_of(2_500)


def rows_of(n: int) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    return pl.DataFrame(
        {
            "row": np.arange(n),
            "a": rng.random(n),
            "b": rng.lognormal(8, 2, n).astype(np.int64),
            "text": pl.Series(rng.integers(0, 10**9, n)).cast(pl.String),
        }
    )


def shares(path: Path) -> list[float]:
    table = qbeast.open_table(path)
    filters = ["a < 0.1", "b BETWEEN 1000 AND 3000", "a < 0.3 AND b < 2000"]
    return [table.rows(predicate).explain().share for predicate in filters] + [
        table.rows(sample=0.1).explain().share
    ]


@pytest.mark.parametrize(
    ("count", "kind", "memory_bytes", "most"),
    [
        (2_500, "query", 160_000, 1.2),
        pytest.param(80_000, "query", 4 << 20, 1.25, marks=pytest.mark.sweep),
        pytest.param(80_000, "iterator", 12 << 20, 1.25, marks=pytest.mark.sweep),
    ],
)
def test_spilled_table_reads_like_one_from_memory(
    count: int, kind: str, memory_bytes: int, most: float, tmp_path: Path
) -> None:
    rows, options = rows_of(count), {"columns": ["a", "b"], "cube_size": max(200, count // 40)}
    sizes: dict[str, int] = {}
    if count < 10_000:
        sizes = {"min_band_rows": 16, "min_page_rows": 16, "min_file_rows": 1, "max_file_rows": 1000}
    with resized(**sizes):
        qbeast.write_table(rows, tmp_path / "memory", **options, resources=MEMORY)
        data = given_as(rows, kind, tmp_path, 10_000)
        done = qbeast.write_table(
            data,
            tmp_path / "spill",
            **options,
            resources=qbeast.Resources(engine="spill", memory_bytes=memory_bytes),
        )
    assert (done.engine, done.rows) == ("spill", rows.height)
    assert done.spilled_bytes > 0
    assert_same_rows(qbeast.read_table(tmp_path / "spill"), rows, "row")
    for spilled, rows_held in zip(shares(tmp_path / "spill"), shares(tmp_path / "memory"), strict=True):
        assert spilled <= rows_held * most + 0.01  # a file of few rows is read in whole pages too


@pytest.mark.parametrize(
    ("count", "memory_bytes"), [(5_000, 1 << 19), pytest.param(240_000, 4 << 20, marks=pytest.mark.sweep)]
)
def test_disk_holds_rows_twice_at_most(count: int, memory_bytes: int, tmp_path: Path) -> None:
    rows_held: list[int] = []

    def measured(file: SpilledFile) -> None:
        rows_held.append(sum(item.stat().st_size for item in Path(str(file.name)).parent.iterdir()))

    many = rows_of(count)
    resources = qbeast.Resources(memory_bytes=memory_bytes, spill_dir=tmp_path)
    options: dict[str, Any] = {"columns": ["a", "b"], "resources": resources}
    with watched_spills(measured):
        qbeast.write_table(many.iter_slices(2_500), tmp_path / "t", **options)
    assert 0 < max(rows_held) < 2 * many.estimated_size(), (max(rows_held), many.estimated_size())


def test_budget_decides_to_spill(rows: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = rows.head(400)
    options: dict[str, Any] = {"columns": ["a"], "mode": "overwrite"}
    assert qbeast.write_table(few.lazy(), tmp_path / "t", **options).engine == "memory"
    monkeypatch.setenv("QBEAST_MEMORY_BYTES", "128KiB")
    monkeypatch.setenv("QBEAST_SPILL_DIR", str(tmp_path))
    assert qbeast.write_table(rows.lazy(), tmp_path / "t", **options).engine == "spill"
    assert (
        qbeast.write_table(
            rows.lazy(), tmp_path / "t", **options, resources=qbeast.Resources(memory_bytes=1 << 30)
        ).engine
        == "memory"
    )
    assert [item.name for item in tmp_path.iterdir()] == ["t"]


def test_progress_names_engine_and_spilled_bytes(rows: pl.DataFrame, tmp_path: Path) -> None:
    steps: list[qbeast.Progress] = []
    qbeast.write_table(
        rows,
        tmp_path / "t",
        columns=["a"],
        resources=qbeast.Resources(memory_bytes=LITTLE),
        progress=steps.append,
    )
    assert [step.stage for step in steps if step.stage != "write"] == ["read", "plan", "commit", "done"]
    assert (steps[-1].engine, steps[-1].spilled_bytes > 0) == ("spill", True)
    spilled = [step.spilled_bytes for step in steps]
    assert spilled == sorted(spilled)


def test_file_of_equal_keys_is_cut(tmp_path: Path) -> None:
    rows = pl.DataFrame({"row": range(4_000), "a": [1] * 3_000 + list(range(1_000))})
    qbeast.write_table(
        rows,
        tmp_path / "t",
        columns=["a"],
        cube_size=200,
        resources=qbeast.Resources(engine="spill", memory_bytes=LITTLE),
    )
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows, "row")
    assert qbeast.open_table(tmp_path / "t").check().ok


def test_rows_that_change_between_passes_raise(rows: pl.DataFrame, tmp_path: Path) -> None:
    calls: list[int] = []

    def random(frame: pl.DataFrame) -> pl.DataFrame:
        calls.append(frame.height)
        return frame.with_columns(a=pl.Series(np.random.default_rng(len(calls)).random(frame.height)))

    changing = rows.lazy().map_batches(random, streamable=True)
    (tmp_path / "spilling").mkdir()
    with pytest.raises(qbeast.InputChangedError, match="Nothing was changed"):
        qbeast.write_table(
            changing,
            tmp_path / "t",
            columns=["a"],
            resources=qbeast.Resources(engine="spill", spill_dir=tmp_path / "spilling"),
        )
    assert not list((tmp_path / "spilling").iterdir())
    assert not list((tmp_path / "t").rglob("*.parquet"))


def broken(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    yield rows.head(2_500)
    msg = "the line is cut"
    raise RuntimeError(msg)


def other_columns(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    yield rows
    yield rows.with_columns(pl.col("b").cast(pl.Float64))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (broken, RuntimeError, "the line is cut"),
        (other_columns, qbeast.SchemaMismatchError, "column 'b' is Float64 and was Int64"),
        (lambda _: iter([]), qbeast.InvalidInputError, "returned no frame"),
        (lambda _: iter([1]), qbeast.InvalidInputError, "not a builtins.int"),
        (lambda rows: [rows], qbeast.InvalidInputError, "not a builtins.list"),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "memory", "spill"])
def test_bad_batches_leave_no_files(
    rows: pl.DataFrame, tmp_path: Path, data: Callable[[pl.DataFrame], Any], error, message, engine
) -> None:
    with pytest.raises(error, match=message):
        qbeast.write_table(
            data(rows),
            tmp_path / "t",
            columns=["a"],
            resources=qbeast.Resources(engine=engine, memory_bytes=LITTLE, spill_dir=tmp_path),
        )
    assert not list(tmp_path.rglob("*"))


def test_full_disk_raises_once_and_leaves_nothing(rows: pl.DataFrame, tmp_path: Path) -> None:
    table = tmp_path / "t"
    qbeast.write_table(rows.head(10), table, columns=["a"])
    before = sorted(table.rglob("*"))
    written: list[int] = []

    def full(_: SpilledFile) -> None:
        written.append(1)
        if len(written) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for data in (rows, iter([rows])):
        with watched_spills(full), pytest.raises(qbeast.StorageError, match="has no room left") as caught:
            qbeast.write_table(
                data,
                table,
                mode="append",
                resources=qbeast.Resources(memory_bytes=LITTLE, spill_dir=tmp_path),
            )
        assert caught.value.path == str(tmp_path)
    assert sorted(table.rglob("*")) == before
    assert [item.name for item in tmp_path.iterdir()] == ["t"]


def test_unfinished_file_is_closed_and_deleted(rows: pl.DataFrame, tmp_path: Path) -> None:
    writes, full_at = list[SpilledFile](), 0

    def full(file: SpilledFile) -> None:
        writes.append(file)
        if len(writes) == full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spilled = SpillFolder(tmp_path)
    with watched_spills(full):
        spool([rows.head(3)], rows.clear(), spilled, lambda _: None)
        full_at = len(writes)  # the last write, when the file is closed
        writes.clear()
        others = set(spilled.path.iterdir())
        with pytest.raises(qbeast.StorageError, match="has no room left"):
            spool([rows.head(3)], rows.clear(), spilled, lambda _: None)
    assert len(writes) == full_at
    assert writes[-1].closed
    assert set(spilled.path.iterdir()) == others
    spilled.close()


@pytest.mark.parametrize("stage", ["read", "plan", "write", "commit"])
def test_interrupt_leaves_no_files(rows: pl.DataFrame, tmp_path: Path, stage: str) -> None:
    def interrupt(step: qbeast.Progress) -> None:
        if step.stage == stage and (stage != "write" or step.files_done > 1):
            raise KeyboardInterrupt

    data = rows.iter_slices(500)
    resources = qbeast.Resources(memory_bytes=LITTLE, spill_dir=tmp_path)
    options: dict[str, Any] = {"resources": resources, "progress": interrupt}
    with pytest.raises(KeyboardInterrupt):
        qbeast.write_table(data, tmp_path / "t", columns=["a"], **options)
    assert not [item for item in tmp_path.rglob("*") if item.is_file() or item.name != "t"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_bytes": LITTLE - 1}, "at least 131,072"),
        ({"memory_bytes": "2GiB"}, "whole number of bytes"),
        ({"memory_bytes": True}, "whole number of bytes"),
        ({"engine": "disk"}, '"auto", "memory" or "spill"'),
    ],
)
def test_invalid_arguments_raise(tmp_path: Path, options, message) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=message):
        qbeast.write_table(
            pl.DataFrame({"a": [1]}), tmp_path / "t", columns=["a"], resources=qbeast.Resources(**options)
        )
    assert not list(tmp_path.iterdir())


def test_dry_run_spills_no_rereadable_rows(rows: pl.DataFrame, tmp_path: Path) -> None:
    done = qbeast.write_table(
        rows.lazy(),
        tmp_path / "t",
        columns=["a"],
        dry_run=True,
        resources=qbeast.Resources(memory_bytes=LITTLE),
    )
    assert (done.rows, done.engine, done.spilled_bytes) == (rows.height, "spill", 0)
    assert not list(tmp_path.iterdir())


def test_columns_may_be_missing_and_new(rows: pl.DataFrame, tmp_path: Path) -> None:
    qbeast.write_table(rows.head(100), tmp_path, columns=["a", "b"])
    more = rows.tail(1000).drop("b").with_columns(new=pl.lit(1))
    options: dict[str, Any] = {"mode": "append", "schema_mode": "merge", "resources": SPILL}
    qbeast.write_table(more.lazy(), tmp_path, **options)
    actual = qbeast.read_table(tmp_path)
    expected = pl.concat([rows.head(100), more.with_columns(b=pl.lit(None, dtype=pl.Int64))], how="diagonal")
    assert_same_rows(actual, expected.select(actual.columns), "row")

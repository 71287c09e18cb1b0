"""A call adds at most `memory_bytes` to its process, measured without a limit of the system; its rows are complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.data.frames import little_read_ahead, slices_within, takes_slices
from qbeast_core.table.engine.sources import open_source
from qbeast_core.table.engine.spill import sampled
from tests.helpers.examples import examples
from tests.helpers.tables import assert_same_rows, folder, using

BUDGET = 256 << 20
VARIABLE = "POLARS_ROW_GROUP_PREFETCH_SIZE"

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system has no /proc"
)


def wide_rows(rows: int, first: int, seed: int) -> pl.DataFrame:
    """Return 16 columns, about 170 bytes per row."""
    rng = np.random.default_rng(seed)
    numbers = {f"c{i}": rng.normal(1, 1, rows) for i in range(1, 12)}
    texts = {f"t{i}": [f"{i} {n:030}" for n in rng.integers(0, 1 << 60, 1000)] for i in range(4)}
    chosen = {name: pl.Series(values)[rng.integers(0, 1000, rows)] for name, values in texts.items()}
    return pl.DataFrame({"row": rng.permutation(rows) + first, **numbers, **chosen})


def added_bytes(operation: str, source: Path, table: Path) -> int:
    spill = table.parent / "spilling"
    spill.mkdir(exist_ok=True)
    arguments = [operation, str(source), str(table), str(spill), str(BUDGET)]
    program = [sys.executable, "-m", "tests.helpers.added_memory", *arguments]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert not list(spill.iterdir())
    return int(done.stdout)


@needs_proc
@pytest.mark.sweep
@pytest.mark.parametrize("group_rows", [100_000, 500_000])
def test_operations_on_parquet_keep_to_memory(tmp_path: Path, group_rows: int) -> None:
    rows, changes = wide_rows(1_000_000, 0, 1), wide_rows(50_000, 980_000, 2)
    for name, frame in (("rows", rows), ("changes", changes)):
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=group_rows)
    table = tmp_path / "t"
    expected = pl.concat([rows.filter(pl.col("row") < 980_000), changes])
    added = {
        "write": added_bytes("write", tmp_path / "rows.parquet", table),
        "merge": added_bytes("merge", tmp_path / "changes.parquet", table),
    }
    assert_same_rows(qbeast.read_table(table), expected)
    added["delete"] = added_bytes("delete", tmp_path / "rows.parquet", table)
    added["append"] = added_bytes("append", tmp_path / "changes.parquet", table)
    added["optimize"] = added_bytes("optimize", tmp_path / "rows.parquet", table)
    assert_same_rows(qbeast.read_table(table), pl.concat([expected.filter(pl.col("c1") >= 0), changes]))
    assert max(added.values()) <= BUDGET, {name: size >> 20 for name, size in added.items()}


@needs_proc
@pytest.mark.sweep
@pytest.mark.parametrize(("texts", "repeats"), [(400, 50_000), (8, 3_000_000)], ids=["1 MiB", "57 MiB"])
def test_long_texts_need_few_copies(tmp_path: Path, texts: int, repeats: int) -> None:
    numbers = [f"{n:020}" for n in np.random.default_rng(3).integers(0, 1 << 60, texts)]
    rows = pl.DataFrame({"row": range(texts), "c1": 0.5, "c2": 0.5, "s": numbers})
    rows = rows.with_columns(pl.col("s").repeat_by(repeats).list.join(""))
    # Polars decodes whole row groups.
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=max(texts // 20, 1))
    del rows
    write = added_bytes("write", tmp_path / "rows.parquet", tmp_path / "t")
    optimize = added_bytes("optimize", tmp_path / "rows.parquet", tmp_path / "t")
    # Two batches are on their way at a time, of one row each, in several forms.
    assert max(write, optimize) <= 1.1 * BUDGET + 16 * 20 * repeats, (write >> 20, optimize >> 20)


def test_sample_of_long_rows_is_small() -> None:
    batches = [pl.DataFrame({"s": ["é" * 3_000_000, "short"], "b": [b"x" * 5_000_000, None]})] * 4
    sample: list[bytes] = []
    rows = pl.concat(sampled(batches, sample, total=8, rows=8))
    assert rows.equals(pl.concat(batches))
    assert sum(map(len, sample)) < 2_000_000
    assert pl.concat(map(pl.read_ipc, sample))["s"].str.len_bytes().max() == 2 << 16


def test_first_slices_of_long_rows_are_small(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": range(60), "s": ["x" * 100_000] * 60})
    rows.write_parquet(tmp_path / "rows.parquet")
    slices = list(slices_within(pl.scan_parquet(tmp_path / "rows.parquet"), size_bytes=1 << 20))
    assert pl.concat(slices).equals(rows)
    assert max(part.height for part in slices) <= 10


def test_batches_of_long_rows_of_a_dataset_are_small(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": range(60), "s": ["x" * 100_000] * 60})
    rows.write_parquet(tmp_path / "rows.parquet")
    dataset, requested = ds.dataset(tmp_path / "rows.parquet"), list[int]()

    class Recorded:
        schema = dataset.schema

        def scanner(self, **options: Any) -> ds.Scanner:
            requested.append(options["batch_size"])
            return dataset.scanner(**options)

    with open_source(Recorded()) as source:
        assert_same_rows(pl.concat(source.batches(None, size_bytes=1 << 20)), rows, key="a")
    assert max(requested) <= 16


def test_small_files_of_long_texts_do_not_fit(tmp_path: Path) -> None:
    """Compression stores them in a thousandth of their size."""
    rows = pl.DataFrame({"a": range(20), "s": [f"{i:03}" * 40_000 for i in range(20)]})
    qbeast.write_table(rows, tmp_path / "t", columns=["a"])
    table = qbeast.open_table(tmp_path / "t")
    assert table.rows().files()["size_bytes"].sum() < 100_000
    assert using(table, qbeast.Resources(memory_bytes=4 << 20)).optimize(full=True).engine == "spill"
    assert_same_rows(table.read(), rows, key="a")


@examples(8, sweep=100)
@given(
    group_rows=st.integers(1, 80),
    files=st.integers(1, 3),
    size_bytes=st.sampled_from([40, 200, 900, 1 << 20]),
    query=st.sampled_from(["all", "columns", "values", "head"]),
)
def test_slices_of_parquet_hold_every_row(group_rows: int, files: int, size_bytes: int, query: str) -> None:
    rows = pl.DataFrame({"a": range(100), "b": [str(i) for i in range(100)]})
    with folder() as path:
        path.mkdir()
        for number, part in enumerate(rows.iter_slices(-(-100 // files))):
            part.write_parquet(path / f"{number}.parquet", row_group_size=group_rows)
        lazy = pl.scan_parquet(path / "*.parquet")
        queries = {
            "all": lazy,
            "columns": lazy.select("b", "a"),
            "values": lazy.with_columns(c=pl.col("a") * 2),
            "head": lazy.head(81),
        }
        chosen = queries[query]
        assert takes_slices(chosen)
        assert pl.concat(slices_within(chosen, size_bytes=size_bytes)).equals(chosen.collect())


def test_queries_that_read_more_are_not_sliced(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": range(10)})
    rows.write_parquet(tmp_path / "1.parquet")
    lazy = pl.scan_parquet(tmp_path / "1.parquet")
    others = [
        rows.lazy(),
        lazy.filter(pl.col("a") > 3),
        lazy.sort("a"),
        lazy.unique(),
        lazy.tail(3),
        lazy.with_columns(b=pl.col("a").cum_sum()),
        lazy.join(lazy, on="a"),
        pl.concat([lazy, lazy]),
        lazy.group_by("a").len(),
    ]
    assert not any(takes_slices(other) for other in others)


def test_read_ahead_is_limited_during_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with little_read_ahead():
        with little_read_ahead():
            assert os.environ[VARIABLE] == "1"
        assert os.environ[VARIABLE] == "1"
    assert VARIABLE not in os.environ
    monkeypatch.setenv(VARIABLE, "9")
    with little_read_ahead():
        assert os.environ[VARIABLE] == "9"
    assert os.environ[VARIABLE] == "9"

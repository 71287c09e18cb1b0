"""On a real cluster of processes, tables are written, appended to, sampled and read as on one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import qbeast
from tests.helpers.tables import assert_same_rows
from tests.spark import cluster_job
from tests.spark.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.classic,  # both kinds of session are started here
    pytest.mark.timeout(600),  # six JVMs take their time on a loaded machine
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def _job(running: Cluster, step: str, path: Path, *, connect: bool) -> dict[str, Any]:
    printed = running.run("tests.spark.cluster_job", step, str(path), connect=connect)
    return json.loads(printed.splitlines()[-1])


def _in_polars(path: Path) -> dict[str, Any]:
    low = (pl.col("x") < 100) & (pl.col("name") == "name 7")
    sample = sorted(qbeast.read_table(path, sample=cluster_job.SAMPLE)["key"])
    return {
        "rows": qbeast.read_table(path).height,
        "sample": sample,
        "source": sample,
        "filter": sorted(qbeast.scan_table(path).filter(low).collect()["key"]),
    }


def _changed(rows: pl.DataFrame) -> pl.DataFrame:
    """Do what the job's step `change` does."""
    five = pl.when(pl.col("name") == "name 5").then(1.5).otherwise("x")
    kept = rows.filter((pl.col("x") >= 700) | (pl.col("name") != "name 3")).with_columns(x=five)
    key = pl.int_range(95_000, 105_000, eager=True).alias("key")
    source = pl.select(key, x=key.cast(pl.Float64), name=pl.format("name {}", key % 40))
    old = kept.filter(pl.col("key") < 95_000)
    there = kept["key"].implode()
    # Rows of the table that match go where their name is so; new ones come all the same.
    return pl.concat([old, source.filter((pl.col("name") != "name 7") | ~pl.col("key").is_in(there))])


@pytest.mark.parametrize("connect", [False, True], ids=["classic", "connect"])
def test_python_runs_on_every_worker(running: Cluster, tmp_path: Path, *, connect: bool) -> None:
    folders = _job(running, "workers", tmp_path, connect=connect)["folders"]
    actual = {part for folder in folders for part in Path(folder).parts if part.startswith("worker-")}
    assert actual == {"worker-0", "worker-1"}


def test_cluster_tables_read_equally_everywhere(running: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "table"
    written = _job(running, "write", path, connect=False)
    assert written == _in_polars(path)
    assert written["rows"] == 50_000
    appended = _job(running, "append", path, connect=True)
    assert appended == _in_polars(path) == _job(running, "read", path, connect=False)
    assert appended["rows"] == 100_000
    assert set(written["sample"]) == {key for key in appended["sample"] if key < 50_000}
    before = qbeast.read_table(path)
    changed = _job(running, "change", path, connect=True)
    assert changed == _in_polars(path) | {"ok": True}
    assert_same_rows(qbeast.read_table(path), _changed(before), "key")

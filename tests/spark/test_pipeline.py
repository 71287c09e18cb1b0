"""The pipeline of the examples: its answers are those of the raw rows, run by run, and nothing of it stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from examples import spark_pipeline
from examples.demo import flights
from tests.helpers.invariants import check_invariants
from tests.spark.sessions import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """A year of flights, three days of every month."""
    return flights().filter(pl.col("day") % 10 == 1)


def test_pipeline_equals_raw_rows(spark: SparkSession, rows: pl.DataFrame, tmp_path: Path) -> None:
    spark_pipeline.run(spark, rows, tmp_path)
    table = tmp_path / "flights"
    actual = qbeast.read_table(table)
    assert actual.sort(rows.columns).equals(rows.sort(rows.columns))
    assert sum(block.rows for block in check_invariants(table)) == rows.height
    newest = qbeast.open_table(table)
    assert (newest.version, newest.history(1)["operation"][0]) == (3, "OPTIMIZE")
    assert newest.rows().files()["revision_id"].n_unique() == 1


def test_wrong_answer_ends_the_pipeline() -> None:
    with pytest.raises(SystemExit, match="rows written: 1, not 2"):
        spark_pipeline.check("rows written", 1, 2)


@pytest.mark.classic
def test_example_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = f"PIPELINE_TEST={tmp_path}"
    environment = os.environ | dict([mark.split("=", 1)]) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "examples.spark_pipeline"]
    printed = subprocess.check_output(command, text=True, env=environment, cwd=tmp_path, timeout=250)
    assert "after a crash" in printed
    assert not [process for process in Path("/proc").glob("[0-9]*") if mark in _environment(process)]


def _environment(process: Path) -> list[str]:
    try:
        return (process / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return []

"""Tables with a sampling key: samples hold whole keys after every operation, and filters use the index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from tests.helpers.handmade_log import metadata, write_log
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows, sampled, small_files

SAMPLES = (0.3, (0.25, 0.5))


def clicks(first: int, count: int, users: int = 40) -> pl.DataFrame:
    random = np.random.default_rng(first)
    user = random.zipf(1.5, count) % users
    return pl.DataFrame(
        {
            "row": np.arange(first, first + count),
            "user": user,
            "fare": random.gamma(2.0, 5.0, count),
            "km": random.gamma(2.0, 3.0, count),
        }
    ).with_columns(pl.col("user").replace(7, None))


def create(path: Path, rows: pl.DataFrame, **options: Any) -> qbeast.Table:
    qbeast.write_table(rows, path, columns=["fare", "km"], sample_by="user", cube_size=20, **options)
    return qbeast.open_table(path)


ROWS = clicks(0, 120)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "t"
    with small_files(file_rows=60):
        create(path, ROWS)
    return path


@pytest.fixture
def table(written: Path, tmp_path: Path) -> qbeast.Table:
    """A copy of the table, to change."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return qbeast.open_table(tmp_path)


def assert_whole_keys(path: Path, expected: pl.DataFrame) -> None:
    """Assert that samples have the rows of some users, and all rows of these."""
    for sample in SAMPLES:
        rows = qbeast.read_table(path, sample=sample)
        assert_same_rows(rows, sampled(expected, ["user"], sample))
        users = rows.select("user").unique()
        assert_same_rows(rows, expected.join(users, on="user", how="semi", nulls_equal=True))


def delete(table: qbeast.Table) -> pl.DataFrame:
    table.delete(pl.col("row") % 5 == 0)
    return ROWS.filter(pl.col("row") % 5 != 0)


def update(table: qbeast.Table) -> pl.DataFrame:
    moved = pl.col("row") % 7 == 1
    table.update(moved, {"user": pl.col("user") + 1})
    return ROWS.with_columns(user=pl.when(moved).then(pl.col("user") + 1).otherwise("user"))


def merge(table: qbeast.Table) -> pl.DataFrame:
    source = clicks(2000, 20)
    table.merge(source, "row")
    return pl.concat([ROWS, source])


def optimize(table: qbeast.Table) -> pl.DataFrame:
    table.optimize(full=True)
    return ROWS


def stage(table: qbeast.Table) -> pl.DataFrame:
    staged = clicks(3000, 20)
    write_deltalake(table.uri, staged, mode="append")
    return pl.concat([ROWS, staged])


@pytest.mark.parametrize("change", [delete, update, merge, optimize, stage])
def test_samples_hold_whole_keys_after(
    change: Callable[[qbeast.Table], pl.DataFrame], table: qbeast.Table
) -> None:
    expected = change(table)
    assert_whole_keys(Path(table.uri), expected)
    check_invariants(Path(table.uri), may_stage=True)
    filtered = table.refresh().read(where="fare < 8", sample=0.3)
    assert_same_rows(filtered, sampled(expected, ["user"], 0.3).filter(pl.col("fare") < 8))


def test_filters_open_the_pages_of_a_table_without_key(tmp_path: Path) -> None:
    rows = clicks(0, 2_000, 200)
    with small_files(file_rows=2000):
        keyed = create(tmp_path / "keyed", rows)
        qbeast.write_table(rows, tmp_path / "plain", columns=["fare", "km"], cube_size=20)
    plain = qbeast.open_table(tmp_path / "plain")
    for where in ("fare < 1", "km > 12", "fare BETWEEN 3 AND 4 AND km < 2"):
        assert keyed.rows(where).explain().rows_opened <= 1.3 * plain.rows(where).explain().rows_opened
    # On average: a user of many rows may share its band with the last weights of a sample.
    samples = [number / 10 for number in range(1, 10)]
    opened = sum(keyed.rows(sample=sample).explain().rows_opened for sample in samples)
    assert opened <= 1.3 * sum(keyed.read(sample=sample).height for sample in samples)


def test_new_key_of_an_overwrite_replaces_the_old(table: qbeast.Table) -> None:
    path = Path(table.uri)
    for key in (["row"], []):
        with pytest.raises(qbeast.InvalidInputError, match="has the sampling key"):
            qbeast.write_table(ROWS, path, mode="append", sample_by=key)
    qbeast.write_table(ROWS, path, mode="append", sample_by=["user"])
    qbeast.write_table(ROWS, path, mode="overwrite")
    assert table.refresh().sample_by == ("user",)
    for key in (["row", "user"], []):
        qbeast.write_table(ROWS, path, mode="overwrite", sample_by=key)
        assert table.refresh().sample_by == tuple(key)
        assert_same_rows(table.read(sample=0.3), sampled(ROWS, key or ["fare", "km"], 0.3))
    assert table.check().ok
    assert "qbeast.sampleBy" not in read_log(path).configuration
    table.restore(0)
    assert table.sample_by == ("user",)
    assert_whole_keys(path, ROWS)


def test_column_of_the_key_can_be_renamed_not_dropped(table: qbeast.Table) -> None:
    with pytest.raises(qbeast.QbeastError, match="sampling key"):
        table.drop_column("user", upgrade_protocol=True)
    table.rename_column("user", "person", upgrade_protocol=True)
    assert table.sample_by == ("person",)
    assert json.loads(table.properties.get("qbeast.sampleBy", '["user"]')) == ["user"]
    qbeast.write_table(clicks(1000, 50).rename({"user": "person"}), table.uri, mode="append")
    table.refresh().optimize(full=True)
    sample = table.read(sample=0.3).rename({"person": "user"})
    assert_same_rows(sample, sampled(pl.concat([ROWS, clicks(1000, 50)]), ["user"], 0.3))
    assert table.check().ok


def test_key_cannot_be_widened(tmp_path: Path) -> None:
    rows = ROWS.with_columns(pl.col("user").cast(pl.Int32))
    table = create(tmp_path / "t", rows)
    with pytest.raises(qbeast.QbeastError, match="sampling key"):
        table.widen_columns({"user": pl.Int64})
    assert_whole_keys(tmp_path / "t", rows)


def test_samples_are_refused_after_another_writer_widened_the_key(tmp_path: Path) -> None:
    rows, path = clicks(0, 60).with_columns(pl.col("user").cast(pl.Int32)), tmp_path / "t"
    create(path, rows)
    log = read_log(path)
    for field in log.schema["fields"]:
        if field["name"] == "user":
            change = {"fromType": "integer", "toType": "long", "tableVersion": 1}
            field |= {"type": "long", "metadata": {"delta.typeChanges": [change]}}
    write_log(path, [metadata(log.schema, log.configuration)], first=1)
    table = qbeast.open_table(path)
    with pytest.raises(qbeast.InvalidColumnsError, match="another hash"):
        table.read(sample=0.5)
    with pytest.raises(qbeast.InvalidColumnsError, match="another hash"):
        qbeast.write_table(rows.cast({"user": pl.Int64}), path, mode="append")
    assert_same_rows(table.read().sort("row"), rows.cast({"user": pl.Int64}))
    assert "indexed-columns" in table.check().faults["code"].to_list()


def test_dialect_of_the_jvm_is_refused(table: qbeast.Table) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="its samples are by the hash"):
        table.switch_dialect("qbeast-spark")


def test_overwrite_without_index_drops_the_key(table: qbeast.Table) -> None:
    qbeast.write_table(ROWS, table.uri, columns=[], mode="overwrite")
    assert table.refresh().sample_by == ()


def test_conversion_gives_a_delta_table_a_key(tmp_path: Path) -> None:
    rows, path = ROWS.head(60), tmp_path / "t"
    rows.write_delta(path)
    qbeast.convert_table(path, ["fare", "km"], sample_by=["user"], cube_size=20)
    assert_whole_keys(path, rows)
    with pytest.raises(qbeast.InvalidInputError, match="has the sampling key"):
        qbeast.convert_table(path, ["fare", "km"], sample_by=["row"])
    table = qbeast.open_table(path)
    table.optimize()
    assert table.metrics().sample_by == ("user",)
    check_invariants(path)
    table.reindex(["km", "row"], full=True)
    assert table.sample_by == ("user",)
    assert_whole_keys(path, rows)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 60


def test_partitions_and_sample_column_follow_the_key(tmp_path: Path) -> None:
    rows = ROWS.with_columns(day=pl.col("row") % 2)
    with small_files(file_rows=60, page_rows=8):
        table = create(tmp_path / "t", rows, partition_by=["day"], sample_column="part")
        table.optimize(full=True)
    check_invariants(tmp_path / "t")
    assert table.check().ok
    by_column = table.read(where="part < 0.25").drop("part")
    assert_same_rows(by_column, sampled(rows, ["user"], 0.25))


def test_clustered_samples_do_not_warn(tmp_path: Path) -> None:
    rows = clicks(0, 400, 4)
    table = create(tmp_path / "t", rows)  # warnings are errors
    plan = table.rows(sample=0.5).explain()
    assert table.design_effect is not None
    assert table.design_effect > 50
    assert "of the values of user" in str(plan)
    assert f"{table.design_effect:.2f}" in str(plan)


def test_key_with_one_value_warns_and_answers_exactly(tmp_path: Path) -> None:
    rows = clicks(0, 1_200, 1).with_columns(user=pl.lit(1))
    assert rows["user"].n_unique() == 1
    with pytest.warns(qbeast.DesignEffectWarning, match=r"one value of the sampling key \['user'\] has most"):
        table = create(tmp_path / "t", rows)
    with pytest.warns(qbeast.EmptySampleWarning, match=r"choose a sampling key of many values"):
        some = table.read(sample=0.2)
    assert some.is_empty()
    answer = table.rows().estimate({"n": pl.col("user").n_unique(), "sum": pl.col("fare").sum()}, error=0.05)
    assert answer.frame.select("n", "sum").row(0) == (1, pytest.approx(rows["fare"].sum()))
    assert answer.met


def test_damaged_key_is_reported_and_blocks_samples(table: qbeast.Table, tmp_path: Path) -> None:
    log = read_log(tmp_path)
    write_log(tmp_path, [metadata(log.schema, log.configuration | {"qbeast.sampleBy": "user"})], first=1)
    with pytest.warns(qbeast.CorruptTagWarning, match="sampleBy"):
        assert_same_rows(table.refresh().read(), ROWS)
    with pytest.raises(qbeast.InvalidMetadataError):
        table.read(sample=0.5)
    with pytest.raises(qbeast.InvalidMetadataError):
        qbeast.write_table(ROWS, tmp_path, mode="append")
    assert "settings-unreadable" in table.check().faults["code"].to_list()

"""The whole road on an object store: write, append, filter, sample, explain, travel in time."""

from __future__ import annotations

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.io.stores.store import open_store

ROWS = pl.DataFrame(
    {"id": range(30_000), "x": [(i * 7919) % 30_011 for i in range(30_000)], "t": ["a", "b", None] * 10_000}
)
INDEXED = ["id", "x"]


@pytest.fixture
def place(bucket: str, s3_options: dict[str, str]) -> tuple[str, dict[str, str]]:
    return f"s3://{bucket}/some tables/t", s3_options


def test_bucket_table_is_written_filtered_and_sampled(place):
    uri, options = place
    first = qbeast.write_table(ROWS, uri, columns=INDEXED, storage_options=options)
    more = ROWS.with_columns(pl.col("id") + 30_000)
    second = qbeast.write_table(more, uri, mode="append", storage_options=options)
    assert (first.version, second.version) == (0, 1)
    table = qbeast.open_table(uri, storage_options=options)
    everything = pl.concat([ROWS, more]).sort("id")
    assert table.scan().collect().sort("id").equals(everything)
    e = (pl.col("x") < 500) & pl.col("t").is_not_null()
    assert table.scan().filter(e).collect().sort("id").equals(everything.filter(e))
    few = qbeast.read_table(uri, sample=0.05, storage_options=options)
    some = qbeast.read_table(uri, sample=0.2, columns=["t", "id"], storage_options=options)
    assert set(few["id"]) < set(some["id"])
    assert table.explain(sample=0.05).share < 0.5
    old = qbeast.read_table(uri, version=0, storage_options=options)
    assert old.sort("id").equals(ROWS)
    assert DeltaTable(uri, storage_options=options).count() == 60_000


def test_small_files_read_pages_and_foreign_whole(place):
    uri, options = place
    qbeast.write_table(ROWS, uri, columns=INDEXED, storage_options=options)
    write_deltalake(uri, ROWS, mode="append", storage_options=options)
    (task,) = qbeast.open_table(uri, storage_options=options).scan_tasks()
    assert (len(task.parts.pages), len(task.parts.whole)) == (1, 1)
    assert pl.concat(task.read()).sort("id").equals(pl.concat([ROWS, ROWS]).sort("id"))


def test_deltalake_text_options_work_for_reads(place):
    uri, options = place
    options = {**options, "max_retries": "2", "retry_timeout": "9s", "timeout": "30s"}
    qbeast.write_table(ROWS, uri, columns=INDEXED, storage_options=options)
    write_deltalake(uri, ROWS, mode="append", storage_options=options)
    assert qbeast.read_table(uri, storage_options=options).height == 60_000
    assert qbeast.read_table(uri, sample=0.5, storage_options=options).height < 40_000


def test_bucket_without_table_raises(place):
    uri, options = place
    with pytest.raises(qbeast.TableNotFoundError, match="some tables"):
        qbeast.scan_table(uri, storage_options=options)


def test_bucket_tables_are_converted_restored_and_vacuumed(place):
    uri, options = place
    pl.concat([ROWS]).write_parquet(f"{uri}/a b.parquet", storage_options=options)
    result = qbeast.convert_table(uri, INDEXED, storage_options=options)
    assert (result.version, result.created_log, result.rows) == (0, True, 30_000)
    assert qbeast.write_table(ROWS, uri, mode="overwrite", storage_options=options).version == 1
    table = qbeast.open_table(uri, storage_options=options)
    assert table.restore(0).version == 2
    assert table.scan().collect().sort("id").equals(ROWS)
    assert table.vacuum().files == ()
    gone = table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert (len(gone.files), gone.deleted) == (1, True)
    assert table.scan(sample=0.1).collect().height > 0
    with pytest.raises(qbeast.VersionNotFoundError, match="a vacuum took them"):
        table.restore(1)
    with pytest.raises(qbeast.TableNotFoundError):
        qbeast.convert_table(f"{uri}/nothing", INDEXED, storage_options=options)


def test_bucket_table_is_checked_repaired_and_plotted(place):
    uri, options = place
    qbeast.write_table(ROWS, uri, columns=INDEXED, storage_options=options, cube_size=5000)
    table = qbeast.open_table(uri, storage_options=options)
    assert table.check().ok
    assert table.metrics().revisions[-1].rows == 30_000
    assert table.plot("space", where=pl.col("id") < 99).axes
    store = open_store(uri, options)
    commit = f"_delta_log/{0:020}.json"
    store.put(commit, store.get(commit).replace(b'"numRecords\\":30000', b'"numRecords\\":29999'))
    table = qbeast.open_table(uri, storage_options=options)
    assert set(table.check().faults["code"]) == {"blocks-count", "rows-count"}
    assert table.repair().repaired_files["actions"].to_list() == [["set statistics"]]
    assert table.check().ok
    store.delete(DeltaTable(uri, storage_options=options).get_add_actions()["path"][0].as_py())
    assert set(table.check().faults["code"]) == {"file-missing"}


def test_log_path_in_bucket_names_its_table(place):
    uri, options = place
    qbeast.write_table(ROWS.head(10), uri, columns=INDEXED, storage_options=options)
    for tried in (
        lambda: qbeast.open_table(f"{uri}/_delta_log", storage_options=options),
        lambda: qbeast.convert_table(f"{uri}/_delta_log", columns=["id"], storage_options=options),
        lambda: qbeast.write_table(ROWS, f"{uri}/_delta_log", columns=INDEXED, storage_options=options),
    ):
        with pytest.raises(qbeast.TableNotFoundError, match=f"the table's folder: '{uri}'"):
            tried()
    assert qbeast.read_table(uri, storage_options=options).height == 10

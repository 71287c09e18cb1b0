"""An optimize on an object store: conditional puts, orphans deleted, the same rows."""

from __future__ import annotations

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.io.stores.store import open_store
from tests.helpers.races import landing_first

ROWS = pl.DataFrame({"id": range(30_000), "x": [(i * 7919) % 30_011 for i in range(30_000)]})


@pytest.fixture
def place(bucket: str, s3_options: dict[str, str]) -> tuple[str, dict[str, str]]:
    return f"s3://{bucket}/some tables/t", s3_options


def test_table_in_a_bucket_is_optimized(place):
    uri, options = place
    qbeast.write_table(ROWS, uri, columns=["id", "x"], storage_options=options)
    more = ROWS.with_columns(pl.col("id") + 30_000)
    write_deltalake(uri, more, mode="append", storage_options=options)
    table = qbeast.open_table(uri, storage_options=options)
    sample = table.scan(sample=0.1).collect().sort("id")
    result = table.optimize()
    assert (result.version, result.new_revision) == (2, True)
    assert result.plan["reason"].to_list().count("staged") == 1
    assert table.scan().collect().sort("id").equals(pl.concat([ROWS, more]).sort("id"))
    assert table.scan(sample=0.1).collect().sort("id").equals(sample)


def test_losing_optimize_leaves_no_file(place):
    uri, options = place
    for start in range(0, 3000, 1000):
        rows = ROWS.slice(start, 1000)
        qbeast.write_table(rows, uri, columns=["id:hash"], mode="append", storage_options=options)
    table = qbeast.open_table(uri, storage_options=options)
    with (
        landing_first(lambda: qbeast.open_table(uri, storage_options=options).optimize()),
        pytest.raises(qbeast.CommitConflictError),
    ):
        table.optimize()
    assert table.refresh().version == 3
    files = [path for path in open_store(uri, options).list("") if path.endswith(".parquet")]
    assert len(files) == 4  # three appends and one optimize

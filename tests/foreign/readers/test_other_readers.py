"""Every table written is a Delta table: other readers see the same rows, and never the hidden weights."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.plan.predicate import understand
from tests.helpers.examples import examples, is_sweep
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def in_types_of(found: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Other libraries name time zones and offsets in their own ways."""
    return found.cast(dict(rows.schema))


def read_with_duckdb(files: list[str], columns: list[str]) -> pl.DataFrame:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        listed = connection.read_parquet(files)
        assert listed.columns == columns
        return listed.pl().drop("_qbeast_weight", strict=False)


def check_readers(path: Path, rows: pl.DataFrame, data: st.DataObject) -> None:
    table = DeltaTable(path)
    assert [field.name for field in table.schema().fields] == rows.columns
    files = table.file_uris()
    assert sorted(files) == sorted(qbeast.open_table(path).rows().files()["path"])
    assert_same_rows(in_types_of(pl.scan_delta(path).collect(), rows), rows)
    expr = data.draw(filters(rows))
    kept, actual = kept_rows(rows, expr), kept_rows(pl.scan_delta(path), expr)
    if kept is not None and actual is not None:  # it prunes by the statistics in the log
        if not understand(expr, rows.schema)[1]:
            # It computes with bounds in their own type: what overflows there rules out files with rows that match.
            kept = kept.join(actual, on=ROW, how="semi")
        assert_same_rows(in_types_of(actual, rows), kept)
    query = QueryBuilder().register("t", table)
    counted = pl.DataFrame(query.execute("select count(*), sum(row) from t").read_all())
    assert counted.row(0) == (rows.height, rows[ROW].sum() if rows.height else None)
    assert "_qbeast_weight" not in pl.DataFrame(query.execute("select * from t limit 1").read_all()).columns
    if files:
        hidden = table.metadata().configuration["qbeast.blocksDialect"] == "documented"
        columns = [*rows.columns, *["_qbeast_weight"][:hidden]]
        assert_same_rows(in_types_of(read_with_duckdb(files, columns), rows), rows)
        stored = pl.DataFrame(ds.dataset(files).to_table())
        assert stored.columns == columns
        assert_same_rows(in_types_of(stored.drop("_qbeast_weight", strict=False), rows), rows)


@examples(2, sweep=100)
@given(case=cases(most_frames=3 if is_sweep() else 2, most_columns=6), data=st.data())
def test_other_readers_see_the_same_rows(case: Case, data: st.DataObject) -> None:
    with folder() as path:
        with small_files(file_rows=30, page_rows=4):
            write(path, case)
        check_readers(path, case.rows, data)


def test_readers_of_deletion_vectors(tmp_path: Path) -> None:
    """As docs/readers.md lists: they return the rows that are left, or refuse the table."""
    rows = pl.DataFrame({"id": range(1000), "x": [i % 13 for i in range(1000)]})
    qbeast.write_table(rows, tmp_path, columns=["id"], deletion_vectors=True)
    table = qbeast.open_table(tmp_path)
    gone = pl.col("id") % 50 == 0
    table.delete(gone)
    assert table.snapshot.files["has_deletion_vector"].any()
    left, delta = rows.filter(~gone), DeltaTable(tmp_path)
    assert_same_rows(pl.read_delta(tmp_path), left, key="id")
    assert_same_rows(pl.scan_delta(tmp_path).filter(x=3).collect(), left.filter(x=3), key="id")
    by_sql = QueryBuilder().register("t", delta).execute("SELECT id, x FROM t").read_all()
    assert_same_rows(pl.DataFrame(by_sql), left, key="id")
    for read in (delta.to_pyarrow_dataset, delta.to_pyarrow_table, delta.to_pandas):
        with pytest.raises(DeltaProtocolError, match="deletionVectors"):
            read()
    table.optimize(purge=True)
    assert_same_rows(
        pl.concat([pl.read_parquet(file).select("id", "x") for file in table.rows().files()["path"]]),
        left,
        key="id",
    )

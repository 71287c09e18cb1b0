"""Delta tables of other writers are converted in place and changed: every feature stays, and other readers agree."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.collection import swept
from tests.format.delta_tables import NAMES, SPARK_ALONE, copied, expected
from tests.helpers.tables import sampled

WRITABLE = [name for name in NAMES if not name.startswith(SPARK_ALONE)]
FAST = {
    "collations/collations-preview-table",
    "row-tracking/crc-full",
    "void/void-column",
}
# delta-rs does not read their rows.
NOT_BY_DELTALAKE = {"variant", "void", "type-widening"}
# Marks of columns whose values depend on the time, or are the next number.
COMPUTED = ("delta.identity.", "now()")


def indexable(rows: pl.DataFrame) -> list[str]:
    unordered = pl.Boolean, pl.Binary, pl.Null
    return [name for name, dtype in rows.schema.items() if not dtype.is_nested() and dtype not in unordered][
        :2
    ]


def as_set(rows: pl.DataFrame) -> list[str]:
    """Rows as sorted texts: some hold maps, which Polars does not sort."""
    return sorted(map(repr, rows.to_arrow().to_pylist()))


def same(path: Path, rows: pl.DataFrame, *, by_deltalake: bool) -> None:
    found = qbeast.read_table(path)
    assert found.schema == rows.select(found.columns).schema
    assert as_set(found) == as_set(rows.select(found.columns))
    if by_deltalake:
        query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
        others = pl.DataFrame(query.read_all()).select(found.columns).cast(dict(found.schema))
        assert as_set(others) == as_set(found)


def configuration(path: Path) -> dict[str, str]:
    entries = load_snapshot(path).metadata.configuration
    return {key: text for key, text in entries.items() if key.startswith("delta.")}


@pytest.mark.parametrize("name", swept(WRITABLE, but=FAST))
def test_table_of_others_is_changed_in_place(name: str, tmp_path: Path) -> None:
    path, rows = copied(name, tmp_path), expected(name)
    feature = name.split("/", maxsplit=1)[0]
    by_deltalake = feature not in NOT_BY_DELTALAKE
    columns = indexable(rows)
    before = configuration(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.QbeastWarning)
        qbeast.convert_table(path, columns=columns)
        same(path, rows, by_deltalake=by_deltalake)
        if columns:
            sample = qbeast.read_table(path, sample=0.5)
            assert as_set(sample) == as_set(sampled(rows, columns, 0.5).select(sample.columns))
        rows = changed(path, rows, columns, by_deltalake=by_deltalake)
        assert qbeast.open_table(path).check().faults.filter(pl.col("severity") == "error").is_empty()
    assert configuration(path) == before
    assert_frame_equal(qbeast.read_table(path).head(0), rows.select(qbeast.read_table(path).columns).head(0))


def changed(path: Path, rows: pl.DataFrame, columns: list[str], *, by_deltalake: bool) -> pl.DataFrame:
    """Append, optimize, filter, update and delete; return the rows that there are in the end."""
    table = qbeast.open_table(path)
    marks = load_snapshot(path).schema_json
    if not any(mark in marks for mark in COMPUTED):
        qbeast.write_table(rows.head(3), path, mode="append")
        rows = pl.concat([rows, rows.head(3)])
        same(path, rows, by_deltalake=by_deltalake)
    table = qbeast.open_table(path)
    table.optimize()
    same(path, rows, by_deltalake=by_deltalake)
    if table.properties.get("delta.appendOnly") == "true" or rows.is_empty() or not columns:
        return rows
    names = {field["name"]: json.dumps(field) for field in json.loads(marks)["fields"]}
    key = next(name for name in columns if "delta.identity." not in names[name])
    value = rows[key].drop_nulls()[0]
    where = pl.col(key) == value
    assert as_set(table.rows().lazy().filter(where).collect()) == as_set(
        rows.filter(where).select(list(table.schema))
    )
    table.update(where, {key: pl.lit(value)})
    same(path, rows, by_deltalake=by_deltalake)
    table.delete(where)
    rows = rows.filter(pl.col(key).ne_missing(value))
    same(path, rows, by_deltalake=by_deltalake)
    return rows

"""Bad input gives an error of qbeast's own, says what to do, and leaves no file and no version behind."""

from __future__ import annotations

import datetime as dt
import errno
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import qbeast
from tests.helpers.handmade_log import metadata, write_log
from tests.helpers.invariants import read_log

ROWS = pl.DataFrame({"id": range(20), "s": ["a", "b"] * 10, "ok": [True, False] * 10})
FAR = pl.Series([2**62]).cast(pl.Datetime("ms"))
"""A time that microseconds cannot count."""
WIDE = pl.DataFrame({f"c{i}": [1] for i in range(41)})


def everything_in(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_refused(
    folder: Path, error: type[qbeast.QbeastError], write: Callable[[], object], match: str | None = None
) -> None:
    before = everything_in(folder)
    with pytest.raises(error, match=match) as caught:
        write()
    assert caught.value.code
    assert len(str(caught.value)) > 20
    assert everything_in(folder) == before


@pytest.fixture
def table(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id", "s"])
    return tmp_path / "t"


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (["nope"], r"no such column\(s\): \['nope'\]"),
        (["ID"], r"no such column\(s\): \['ID'\]"),
        (["id", "id"], "named twice"),
        (["id", "id:hash"], "named twice"),
        (["ok"], "cannot be indexed"),
        (["id:histogram"], "cannot be indexed by histogram"),
        (["s:linear"], "cannot be indexed by linear"),
        (None, "needs columns"),
        ("id", "list of names"),
        ({"id"}, "list of names"),
        (5, "list of names"),
        (["id", 1], "list of names"),
        ([None], "list of names"),
    ],
)
def test_columns_that_cannot_be_indexed_raise(tmp_path: Path, columns: Any, match: str) -> None:
    write = lambda: qbeast.write_table(ROWS, tmp_path / "t", columns=columns)  # noqa: E731 -- called later
    assert_refused(tmp_path, qbeast.InvalidColumnsError, write, match)
    assert not (tmp_path / "t").exists()


def test_more_than_40_columns_raise(tmp_path: Path) -> None:
    def write() -> object:
        return qbeast.write_table(WIDE, tmp_path / "t", columns=WIDE.columns)

    assert_refused(tmp_path, qbeast.InvalidColumnsError, write, "at most 40 columns, got 41")
    qbeast.write_table(WIDE, tmp_path / "t", columns=WIDE.columns[:40])
    assert qbeast.read_table(tmp_path / "t").equals(WIDE)


OPTIONS: list[dict[str, Any]] = [
    {"cube_size": 0},
    {"cube_size": -1},
    {"cube_size": 1.5},
    {"cube_size": True},
    {"cube_size": 2**31},
    {"mode": "upsert"},
    {"schema_mode": "drop"},
    {"schema_mode": "overwrite", "mode": "append"},
    {"dialect": "spark"},
    {"txn": ("app", -1)},
    {"txn": "app"},
    {"txn": ("app", 2**63)},
    {"txn": ("app", 1.0)},
    {"txn": ("app", True)},
    {"txn": ("", 1)},
    {"txn": (b"app", 1)},
    {"txn": ("\ud800", 1)},
    {"column_stats": "{"},
    {"column_stats": "[]"},
    {"column_stats": {"other_min": 1}},
    {"column_stats": {"id_min": "text"}},
    {"column_stats": {"id_min": 5, "id_max": 4}},
    {"column_stats": {"id_quantiles": [1]}},
    {"column_stats": {"id_quantiles": 5}},
    {"column_stats": {"id_quantiles": "12"}},
    {"column_stats": {"id_quantiles": [1, None]}},
    {"column_stats": {"id_max": 2**70}},
    {"column_stats": {"id_max": 1.5}},
    {"column_stats": {"id_max": True}},
    {"column_stats": {"id_max": float("inf")}},
    {"column_stats": {"id_max": float("nan")}},
    {"commit_metadata": {"operationParameters": "x"}},
    {"commit_metadata": {"readVersion": "0"}},
    {"commit_metadata": {"job": "nightly"}},
    {"commit_metadata": {"user": 5}},
    {"commit_metadata": {"user": 2**70}},
    {"commit_metadata": {"user": "\ud800"}},
    {"commit_metadata": {"\ud800": "user"}},
    {"commit_metadata": {"user": "x" * 2**20}},
    {"commit_metadata": "user"},
    {"commit_metadata": [("user", "x")]},
]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        *((options, None) for options in OPTIONS),
        ({"sample_by": ["f"]}, "cannot be a sampling key"),
        ({"sample_by": ["tags"]}, "cannot be a sampling key"),
        ({"sample_by": ["okk"]}, "no column.*Did you mean"),
        ({"sample_by": ["s", "s"]}, "named twice"),
        ({"sample_by": [3]}, "list of names"),
        ({"sample_by": {"s": 1}}, "list of names"),
        ({"sample_by": "s", "dialect": "qbeast-spark"}, "qbeast-spark"),
        ({"sample_by": "s", "columns": []}, "needs an index"),
        ({"partition_by": ["none"]}, "no column"),
        ({"partition_by": ["s", "s"]}, "named twice"),
        ({"partition_by": ["id", "s", "tags"]}, "cannot be partition columns"),
        ({"partition_by": ["tags"]}, "lists, structs and maps"),
        ({"partition_by": {"s": 1}}, "list of names"),
        ({"partition_by": [1]}, "list of names"),
        ({"partition_by": 5}, "list of names"),
        ({"partition_by": ["s"], "dialect": "qbeast-spark"}, "qbeast-spark"),
        ({"sample_column": "id"}, None),
        ({"sample_column": "ID"}, None),
        ({"sample_column": ""}, None),
        ({"sample_column": "a\0b"}, None),
        ({"sample_column": "_qbeast_weight"}, None),
        ({"sample_column": 7}, None),
        ({"sample_column": "new", "dialect": "qbeast-spark"}, None),
        ({"sample_column": "new", "columns": []}, None),
        ({"cube_size": 9, "columns": []}, None),
        ({"column_stats": {"id_min": 0}, "columns": []}, None),
        ({"dialect": "qbeast-spark", "columns": []}, None),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_invalid_options_raise(tmp_path: Path, options: dict[str, Any], match: str | None) -> None:
    rows, given = ROWS.with_columns(f=0.5, tags=pl.lit([["a"]])), {"columns": ["id"], **options}
    for dry_run in (False, True):
        with pytest.raises(qbeast.InvalidInputError, match=match) as caught:
            qbeast.write_table(rows, tmp_path / "t", dry_run=dry_run, **given)
        assert caught.value.argument in options
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (pl.DataFrame(), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "_qbeast_weight": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "_QBeast_WEIGHT": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "x\0y": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "x": [{"\0": 1}]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "x": FAR}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": FAR.dt.replace_time_zone("UTC")}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": FAR.implode()}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": FAR.to_frame("t").to_struct()}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "*": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "^a.*$": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "Id": [1]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "x": [{"a": 1, "A": 2}]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "x": [[{"a": 1, "A": 2}]]}), qbeast.InvalidInputError),
        (pa.table([[1], [2]], names=["id", "id"]), qbeast.InvalidInputError),
        (pd.DataFrame({"id": [1, "a"]}), qbeast.InvalidInputError),
        (pl.DataFrame({"id": [1], "x": [dt.time(1)]}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": [dt.timedelta(1)]}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": [[dt.time(1)]]}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": [{"t": dt.time(1)}]}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": pl.Series([object()], dtype=pl.Object)}), qbeast.SchemaMismatchError),
        (pl.DataFrame({"id": [1], "x": [None]}), qbeast.InvalidInputError),
        (
            pl.DataFrame({"id": [1], "x": [2**70]}, schema_overrides={"x": pl.Int128}),
            qbeast.SchemaMismatchError,
        ),
        (pl.DataFrame({"id": [2**63]}, schema={"id": pl.UInt64}), qbeast.SchemaMismatchError),
        ([1, 2, 3], qbeast.InvalidInputError),
        ({"id": [1]}, qbeast.InvalidInputError),
        (None, qbeast.InvalidInputError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(getattr(value, "schema", value)),
)
def test_rows_delta_cannot_hold_raise(tmp_path: Path, rows: Any, error: type[qbeast.QbeastError]) -> None:
    assert_refused(tmp_path, error, lambda: qbeast.write_table(rows, tmp_path / "t", columns=["id"]))
    assert not (tmp_path / "t").exists()
    if len(getattr(rows, "columns", ())) < 2:
        return
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])  # no table takes them in another way
    existing = qbeast.open_table(tmp_path / "t")
    append = {"mode": "append", "schema_mode": "merge"}
    if "x" not in rows.columns or rows.schema["x"] != pl.Null:
        assert_refused(tmp_path, error, lambda: qbeast.write_table(rows, existing.uri, **append))
        assert_refused(tmp_path, error, lambda: existing.merge(rows, on="id"))


@pytest.mark.parametrize("form", ["table", "reader", "suggest"])
@pytest.mark.parametrize(
    "colours",
    [
        pa.array([pa.MonthDayNano([1, 2, 3])]),
        pa.array([[pa.MonthDayNano([1, 2, 3])]]),
        pa.array([Decimal("1" * 40)], pa.decimal256(50, 0)),
        pa.array([{"a": Decimal(1)}], pa.struct([("a", pa.decimal256(76, 40))])),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
        pa.ExtensionArray.from_storage(pa.opaque(pa.int32(), "x", "y"), pa.array([1], pa.int32())),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.time32("s")),
    ],
    ids=lambda array: str(array.type),
)
def test_refusals_name_the_column_of_arrow(tmp_path: Path, colours: pa.Array, form: str) -> None:
    rows = pa.table({"id": [1], "colour": colours})
    calls: dict[str, Callable[[], object]] = {
        "table": lambda: qbeast.write_table(rows, tmp_path / "t", columns=["id"]),
        "reader": lambda: qbeast.write_table(rows.to_reader(), tmp_path / "t", columns=["id"]),
        "suggest": lambda: qbeast.suggest_columns(rows, ["id = 1"]),
    }
    assert_refused(
        tmp_path, qbeast.SchemaMismatchError, calls[form], match="column 'colour'.*Cast or drop them"
    )


@pytest.mark.parametrize("colour", ["interval 1 day", "union_value(a := 1)", "[interval 1 day]"])
def test_refusals_name_the_column_of_duckdb(tmp_path: Path, colour: str) -> None:
    rows = duckdb.sql(f"SELECT 1 AS id, {colour} AS colour")
    write = partial(qbeast.write_table, rows, tmp_path / "t", columns=["id"])
    assert_refused(tmp_path, qbeast.SchemaMismatchError, write, match="column 'colour'")


@pytest.mark.parametrize(
    "colours",
    [
        ["a", 1],
        [1j, 2],
        [[1], ["a"]],
        [2**70, 1],
        [Decimal("1.5"), Decimal(10**40)],
        pd.arrays.SparseArray([0, 1]),
        pd.period_range("2020", periods=2, freq="M"),
    ],
    ids=repr,
)
def test_refusals_name_the_column_of_pandas(tmp_path: Path, colours: Any) -> None:
    rows = pd.DataFrame({"id": [1, 2], "colour": colours})
    write = partial(qbeast.write_table, rows, tmp_path / "t", columns=["id"])
    assert_refused(tmp_path, qbeast.SchemaMismatchError, write, match="column 'colour'")


def test_doubled_names_are_named(tmp_path: Path) -> None:
    for rows in (
        pd.DataFrame([[1, 2, 3]], columns=["id", "x", "id"]),
        pa.table([[1], [2]], names=["id", "id"]).to_reader(),
        duckdb.sql("SELECT 1 AS id, 2 AS id"),
    ):
        write = partial(qbeast.write_table, rows, tmp_path / "t", columns=["id"])
        assert_refused(tmp_path, qbeast.InvalidInputError, write, match="the same name: 'id'")


def failing_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array([1])})
        raise ZeroDivisionError

    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())


def failing_relation() -> duckdb.DuckDBPyRelation:
    return duckdb.sql("SELECT i AS id, cast(if(i < 100000, '1', 'x') AS int) AS c FROM range(200000) t(i)")


def closed_relation() -> duckdb.DuckDBPyRelation:
    with duckdb.connect() as connection:
        return connection.sql("SELECT 1 AS id")


SOURCES: dict[str, Callable[[], Any]] = {
    "query": lambda: pl.LazyFrame({"id": ["a"]}).select(pl.col("id").cast(pl.Int64)),
    "query without its column": lambda: pl.LazyFrame({"id": [1]}).select("id", "nothing"),
    "query of no file": lambda: pl.scan_parquet("no such folder/rows.parquet"),
    "reader": failing_reader,
    "DuckDB": failing_relation,
    "closed DuckDB": closed_relation,
}


@pytest.mark.parametrize("engine", ["memory", "spill"])
@pytest.mark.parametrize("source", list(SOURCES))
def test_sources_that_fail_raise_the_error_of_qbeast(tmp_path: Path, source: str, engine: Any) -> None:
    resources = qbeast.Resources(engine=engine, spill_dir=str(tmp_path))
    write = partial(qbeast.write_table, columns=["id"], resources=resources)
    with pytest.raises(qbeast.InvalidInputError, match="Nothing was changed") as caught:
        write(SOURCES[source](), tmp_path / "t")
    assert caught.value.argument == "df"
    assert not (tmp_path / "t").exists()


def test_errors_of_the_users_own_code_pass(tmp_path: Path) -> None:
    def frames() -> Iterator[pl.DataFrame]:
        yield ROWS
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        qbeast.write_table(frames(), tmp_path / "t", columns=["id"])
    assert not (tmp_path / "t").exists()


def test_table_that_exists_is_kept(table: Path) -> None:
    def write() -> object:
        return qbeast.write_table(ROWS, table, columns=["id"])

    assert_refused(table, qbeast.TableExistsError, write, "append")
    with pytest.raises(FileExistsError):  # for those who know no more of the library
        write()


def test_path_of_a_file_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    for mode in ("error", "append", "overwrite", "ignore"):
        assert_refused(
            tmp_path,
            qbeast.TableExistsError,
            lambda mode=mode: qbeast.write_table(ROWS, tmp_path / "file", columns=["id"], mode=mode),
        )
    below = tmp_path / "file" / "t"
    assert_refused(tmp_path, qbeast.QbeastError, lambda: qbeast.write_table(ROWS, below, columns=["id"]))


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_foreign_files_are_not_overwritten(tmp_path: Path, mode: Any) -> None:
    (tmp_path / "t").mkdir()
    ROWS.write_parquet(tmp_path / "t" / "part.parquet")

    def write() -> object:
        return qbeast.write_table(ROWS, tmp_path / "t", columns=["id"], mode=mode)

    assert_refused(tmp_path, qbeast.TableExistsError, write, "Convert")


def test_delta_table_without_index_raises(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    for call in (
        lambda: qbeast.open_table(tmp_path / "t").blocks(),
        lambda: qbeast.write_table(ROWS, tmp_path / "t", columns=["id"], mode="append"),
    ):
        assert_refused(tmp_path, qbeast.NotQbeastTableError, call, "[Cc]onvert")


@pytest.mark.parametrize("columns", [["id"], ["s", "id"], ["id", "s", "ok"], ["id", "ok"]])
def test_append_keeps_the_indexed_columns(table: Path, columns: list[str]) -> None:
    def write() -> object:
        return qbeast.write_table(ROWS, table, columns=columns, mode="append")

    assert_refused(table, qbeast.InvalidColumnsError, write, "the table is indexed by")


@pytest.mark.parametrize(
    "rows",
    [
        ROWS.drop("ok"),
        ROWS.with_columns(new=1),
        ROWS.with_columns(pl.col("id").cast(pl.String)),
        ROWS.with_columns(pl.col("id") + 0.5),
        ROWS.with_columns(pl.col("s").cast(pl.Binary)),
        ROWS.with_columns(ok=1),
        ROWS.rename({"id": "ID"}),
    ],
    ids=lambda rows: str(dict(rows.schema)),
)
def test_mismatched_rows_are_not_appended(table: Path, rows: pl.DataFrame) -> None:
    for mode in ("append", "overwrite"):
        assert_refused(
            table,
            qbeast.SchemaMismatchError,
            lambda mode=mode: qbeast.write_table(rows, table, columns=["id", "s"], mode=mode),
            'schema_mode="overwrite".*Nothing was changed'
            if mode == "overwrite"
            else 'schema_mode="merge".*Nothing was changed'
            if set(rows.columns) != set(ROWS.columns)
            else r"Cast .* Nothing was changed",
        )


def test_schema_merge_rejects_case_variants(table: Path) -> None:
    rows = ROWS.with_columns(OK=True).drop("ok")

    def write() -> object:
        return qbeast.write_table(rows, table, mode="append", schema_mode="merge")

    assert_refused(table, qbeast.SchemaMismatchError, write, "case")


def test_append_in_other_dialect_raises(table: Path) -> None:
    def write() -> object:
        return qbeast.write_table(ROWS, table, mode="append", dialect="qbeast-spark")

    assert_refused(table, qbeast.InvalidInputError, write, "documented")


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.Datetime("us")])
def test_jvm_dialect_rejects_unindexable_types(tmp_path: Path, dtype: Any) -> None:
    rows = pl.DataFrame({"a": [1, 2]}).cast(dtype)

    def write() -> object:
        return qbeast.write_table(rows, tmp_path / "t", columns=["a"], dialect="qbeast-spark")

    assert_refused(tmp_path, qbeast.InvalidColumnsError, write, "qbeast-spark cannot index")


def test_plan_of_unknown_columns_raises(table: Path) -> None:
    opened = qbeast.open_table(table)
    assert_refused(table, qbeast.InvalidInputError, lambda: opened.rows(pl.col("nope") > 1).explain(), "nope")
    assert_refused(table, qbeast.InvalidInputError, lambda: opened.rows(columns=["nope"]).explain(), "nope")


@pytest.mark.parametrize(
    ("reason", "call"),
    [(errno.ENOSPC, "open"), (errno.EACCES, "write"), (errno.EROFS, "fsync"), (errno.EIO, "link")],
)
@pytest.mark.parametrize("after", [0, 1], ids=["data file", "commit"])
def test_refusing_disk_leaves_the_table_unchanged(
    table: Path, monkeypatch: pytest.MonkeyPatch, reason: int, call: str, after: int
) -> None:
    """A write makes two files: one of data, then the commit."""
    made: list[str] = []
    plain = {name: getattr(os, name) for name in ("open", "write", "fsync", "link")}

    def fails(name: str, *args: Any) -> Any:
        reads = name == "open" and not args[1] & os.O_CREAT
        if name == "open" and not reads:
            made.append(os.fspath(args[0]))
        if name == call and len(made) > after and not reads:
            raise OSError(reason, os.strerror(reason), args[0])
        return plain[name](*args)

    for name in plain:
        monkeypatch.setattr(os, name, partial(fails, name))
    if (call, after) == ("link", 0):
        after = 1  # only the commit is linked
    assert_refused(
        table,
        qbeast.StorageError,
        lambda: qbeast.write_table(ROWS, table, columns=["id", "s"], mode="append"),
    )
    assert len(made) == after + 1
    assert qbeast.open_table(table).version == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"revisionID":1}', "null", '{"revisionID":"x","columnTransformers":3}']
)
def test_damaged_revision_raises_and_is_not_written(table: Path, text: str) -> None:
    log = read_log(table)
    write_log(table, [metadata(log.schema, log.configuration | {"qbeast.revision.1": text})], first=1)
    with pytest.warns(qbeast.CorruptTagWarning, match=r"qbeast\.revision\.1"):
        assert qbeast.read_table(table).height == ROWS.height
    assert_refused(
        table,
        qbeast.InvalidMetadataError,
        lambda: qbeast.write_table(ROWS, table, columns=["id", "s"], mode="append"),
    )

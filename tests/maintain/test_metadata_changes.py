"""Properties and columns: set, kept, or refused by name; constraints of others are never broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import ArrayType as DeltaArray
from deltalake.schema import PrimitiveType as DeltaPrimitive

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(100), "x": [i / 7 for i in range(100)]})


def table(path: Path) -> qbeast.Table:
    qbeast.write_table(ROWS, path, columns=["id"])
    return qbeast.open_table(path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[qbeast.Table]:
    """A table that refuses what tests want of it."""
    path = tmp_path_factory.mktemp("kept")
    yield table(path)
    assert load_snapshot(path).version == 0


def test_properties_are_set_and_unset(tmp_path: Path) -> None:
    opened = table(tmp_path)
    index = dict(read_log(tmp_path).configuration)
    assert opened.set_properties({"a": "1", "b": "2"}).version == 1
    assert opened.set_properties({"a": None, "b": "3", "delta.checkpointInterval": "5"}).version == 2
    assert opened.properties == {"b": "3", "delta.checkpointInterval": "5"}
    assert opened.set_properties({"b": "3", "c": None}).version == 2, "nothing to do"
    assert read_log(tmp_path).configuration == {**index, **opened.properties}
    assert DeltaTable(tmp_path).metadata().configuration["b"] == "3"


def test_change_feed_is_enabled_with_its_protocol(tmp_path: Path) -> None:
    opened = table(tmp_path)
    assert opened.set_properties({"delta.enableChangeDataFeed": "true"}).committed
    assert DeltaTable(tmp_path).protocol().min_writer_version == 4
    before = opened.read()
    opened.delete("id < 10")
    feed = pl.DataFrame(DeltaTable(tmp_path).load_cdf(starting_version=2))
    assert feed.select(before.columns).sort("id").equals(before.filter(pl.col("id") < 10).sort("id"))
    with pytest.raises(qbeast.UnsupportedTableError, match="enableRowTracking"):
        opened.set_properties({"delta.enableRowTracking": "true"})
    qbeast.write_table(ROWS.with_columns(_change_type=1), tmp_path / "taken", columns=["id"])
    with pytest.raises(qbeast.UnsupportedTableError, match="_change_type"):
        qbeast.open_table(tmp_path / "taken").set_properties({"delta.enableChangeDataFeed": "true"})


def test_concurrent_properties_merge_unless_they_clash(tmp_path: Path) -> None:
    item, other = table(tmp_path), qbeast.open_table(tmp_path)
    item.set_properties({"a": "1"})
    other.set_properties({"b": "2"})
    assert item.refresh().properties == {"a": "1", "b": "2"}


TYPES: list[tuple[Any, str]] = [
    *(
        (pl.Int64, "long"),
        (pl.Int64(), "long"),
        (pl.Decimal(9, 2), "decimal(9,2)"),
        (pl.List(pl.Int8), "array<byte>"),
    ),
    *((int, "long"), (str, "string"), (float, "double"), (bool, "boolean"), (date, "date")),
    *(
        (pa.int64(), "long"),
        (pa.string(), "string"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.float32(), "float"),
    ),
    *((pa.struct([("a", pa.int8())]), "struct<a:byte>"), (pa.decimal128(9, 2), "decimal(9,2)")),
    *(
        (DeltaArray(DeltaPrimitive("long"), contains_null=True), "array<long>"),
        (DeltaPrimitive("short"), "short"),
    ),
    *(
        (name, name)
        for name in ("byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean")
    ),
    *(
        ("decimal(9,2)", "decimal(9,2)"),
        ("NUMERIC(9)", "decimal(9,0)"),
        (" int ", "integer"),
        ("BIGINT", "long"),
    ),
    *(
        ("Int64", "long"),
        ("Float64", "double"),
        ("varchar", "string"),
        ("date", "date"),
        ("timestamp", "timestamp"),
    ),
]


def test_new_columns_take_types_of_any_library(tmp_path: Path) -> None:
    opened = table(tmp_path)
    columns = {f"new {number}": options for number, (options, _) in enumerate(TYPES)}
    assert opened.add_columns(columns).version == 1
    fields = [json.loads(field.type.to_json()) for field in DeltaTable(tmp_path).schema().fields[2:]]
    assert list(map(delta_name, fields)) == [stored for _, stored in TYPES]
    assert all(opened.count(pl.col(name).is_null()) == ROWS.height for name in columns)


def test_new_columns_may_be_a_schema(tmp_path: Path) -> None:
    opened = table(tmp_path)
    opened.add_columns(pa.schema([("a", pa.int16()), ("b", pa.list_(pa.string()))]))
    opened.add_columns(pl.Schema({"c": pl.Date}))
    assert dict(opened.schema) == {**ROWS.schema, "a": pl.Int16, "b": pl.List(pl.String), "c": pl.Date}


def delta_name(spelled: Any) -> str:
    match spelled:
        case {"type": "array", "elementType": inner}:
            return f"array<{delta_name(inner)}>"
        case {"type": "struct", "fields": fields}:
            return f"struct<{','.join(item['name'] + ':' + delta_name(item['type']) for item in fields)}>"
        case _:
            return str(spelled)


@pytest.mark.parametrize("wrong", ["strng", "", "DataType", "col", 7, object(), [pl.Int64], b"long"])
def test_invalid_type_error_lists_valid_types(wrong: Any, kept: qbeast.Table) -> None:
    for change in (kept.add_columns, kept.widen_columns):
        with pytest.raises(qbeast.InvalidInputError, match=r"pa\.float64\(\).*timestamp_ntz"):
            change({"x": wrong})


@pytest.mark.parametrize(
    ("properties", "error", "report"),
    [
        ({"qbeast.lastRevisionID": "9"}, qbeast.InvalidInputError, "qbeast's own"),
        ({"delta.columnMapping.mode": "name"}, qbeast.UnsupportedTableError, r"delta\.columnMapping\.mode"),
        ({"delta.enableTypeWidening": "true"}, qbeast.UnsupportedTableError, "features of Delta"),
        ({"delta.constraints.c": "id > 0"}, qbeast.UnsupportedTableError, "features of Delta"),
        ({"a": 1}, qbeast.InvalidInputError, "texts to texts"),
        ({"": "x"}, qbeast.InvalidInputError, "texts to texts"),
        ({"a": "\ud800"}, qbeast.InvalidInputError, "JSON"),
    ],
)
def test_unsupported_properties_raise(
    properties: Any, error: type[Exception], report: str, kept: qbeast.Table
) -> None:
    with pytest.raises(error, match=report):
        kept.set_properties(properties)


@pytest.mark.parametrize(
    ("key", "taken", "refused"),
    [
        ("appendOnly", ["true", "FALSE"], ["maybe", "", "1", "yes", " true "]),
        ("autoOptimize.autoCompact", ["auto", "true"], ["sometimes"]),
        ("checkpoint.writeStatsAsStruct", ["true"], ["json"]),
        ("checkpointInterval", ["1", "010"], ["-1", "0", "", "ten", "1.5", "1e3", "\u0661"]),
        ("dataSkippingNumIndexedCols", ["-1", "0", "32"], ["-2", "all", ""]),
        ("dataSkippingStatsColumns", ["id,`a b`", ""], []),
        (
            "deletedFileRetentionDuration",
            ["interval 30 days", "1 week", "INTERVAL 1 day 2 hours"],
            ["-1 days", "30", "a week", "interval", "interval 1 month", "3 days ago"],
        ),
        ("logRetentionDuration", ["interval 0 seconds"], ["for ever"]),
        ("randomPrefixLength", ["2"], ["two"]),
        ("targetFileSize", ["104857600", "128mb", "1 GiB"], ["0", "big", "-1mb"]),
    ],
)
def test_delta_properties_need_valid_values(
    key: str, taken: list[str], refused: list[str], tmp_path: Path
) -> None:
    opened = table(tmp_path)
    nonsense = dict(load_snapshot(tmp_path).metadata.configuration) | {"delta.tuneFileSizesForRewrites": "?"}
    DeltaTable(tmp_path).alter.set_table_properties(nonsense, raise_if_not_exists=False)
    for value in refused:
        with pytest.raises(qbeast.InvalidInputError, match=rf"'delta\.{key}' takes .*Nothing was changed"):
            opened.set_properties({"owner": "us", f"delta.{key}": value})
    for value in taken:
        opened.set_properties({f"delta.{key}": value})
        assert opened.properties[f"delta.{key}"] == value
    assert opened.properties["delta.tuneFileSizesForRewrites"] == "?", "what others set stays"


def test_append_only_tables_take_only_appends(tmp_path: Path) -> None:
    table(tmp_path).set_properties({"delta.appendOnly": "true"})
    qbeast.write_table(ROWS, tmp_path, mode="append")
    with pytest.raises(qbeast.UnsupportedTableError, match="appendOnly"):
        qbeast.write_table(ROWS, tmp_path, mode="overwrite")


def test_added_columns_are_null_writable_and_filterable(tmp_path: Path) -> None:
    opened = table(tmp_path)
    assert opened.add_columns({"note": pl.String, "when": pl.Datetime("us", "UTC")}).version == 1
    assert list(opened.schema) == ["id", "x", "note", "when"]
    old = ROWS.with_columns(note=pl.lit(None, pl.String), when=pl.lit(None, pl.Datetime("us", "UTC")))
    assert_same_rows(opened.read(), old, "id")
    new = old.with_columns(pl.col("id") + 100, note=pl.lit("new"))
    qbeast.write_table(new, tmp_path, mode="append")
    assert_same_rows(qbeast.read_table(tmp_path, where=pl.col("note") == "new"), new, "id")
    assert_same_rows(qbeast.read_table(tmp_path, where=pl.col("note").is_null()), old, "id")
    assert pl.scan_delta(str(tmp_path)).collect().height == 200
    assert opened.add_columns({}).version == 2
    check_invariants(tmp_path)


@pytest.mark.parametrize(
    ("columns", "error", "report"),
    [
        ({"X": pl.Int8}, qbeast.SchemaMismatchError, "'X' is there as 'x'"),
        ({"_QBEAST_weight": pl.Int8}, qbeast.SchemaMismatchError, "qbeast's own"),
        ({"n": pl.Int8, "N": pl.Int8}, qbeast.SchemaMismatchError, "differ in case"),
        ({"": pl.Int8}, qbeast.SchemaMismatchError, "no name"),
        ({"n\0": pl.Int8}, qbeast.SchemaMismatchError, "NUL"),
        ({"n": pl.List(pl.Struct({"a\0": pl.Int8}))}, qbeast.SchemaMismatchError, "in 'n'.*NUL"),
        ({"\ud800": pl.Int8}, qbeast.InvalidInputError, "names to types"),
        ({"u": pl.Decimal(99, 98)}, qbeast.InvalidInputError, "names to types"),
        ({"u": pl.Struct({})}, qbeast.InvalidInputError, "no type for u"),
        ({"u": pl.UInt8}, qbeast.InvalidInputError, "u .UInt8"),
        ({"u": "texts"}, qbeast.InvalidInputError, "names to types"),
        (["u"], qbeast.InvalidInputError, "names to types"),
    ],
)
def test_columns_that_cannot_be_added_raise(
    columns: Any, error: type[Exception], report: str, kept: qbeast.Table
) -> None:
    with pytest.raises(error, match=report):
        kept.add_columns(columns)


NARROW = ROWS.with_columns(
    b=(pl.col("id") % 100).cast(pl.Int8), s=(pl.col("id") * 7 % 301).cast(pl.Int16), w=pl.lit(3, pl.Int8)
)


def test_bytes_and_shorts_widen_without_new_files(tmp_path: Path) -> None:
    qbeast.write_table(NARROW, tmp_path, columns=["b", "id"], cube_size=10)
    opened = qbeast.open_table(tmp_path)
    drawn = opened.read(sample=0.3)["id"].sort()
    assert opened.widen_columns({"b": pl.Int16, "s": pl.Int32, "w": pl.Int8}).version == 1
    assert opened.widen_columns({"b": pl.Int32()}).version == 2
    wide = NARROW.cast({"b": pl.Int32, "s": pl.Int32})
    assert_same_rows(opened.read(), wide, "id")
    assert_same_rows(
        opened.rows().lazy().filter(pl.col("b") > 90).collect(), wide.filter(pl.col("b") > 90), "id"
    )
    assert opened.rows().lazy().filter(pl.col("s") > 40_000).collect().height == 0
    assert opened.read(sample=0.3)["id"].sort().equals(drawn)
    assert opened.widen_columns({"b": pl.Int32, "w": pl.Int8}).version == 2, "nothing to do"
    more = wide.with_columns(pl.col("id") + 100, s=pl.lit(100_000, pl.Int32))
    qbeast.write_table(more, tmp_path, mode="append")
    assert_same_rows(qbeast.read_table(tmp_path), pl.concat([wide, more]), "id")
    assert pl.scan_delta(str(tmp_path)).collect().height == 200
    check_invariants(tmp_path)


def test_other_type_changes_raise(tmp_path: Path) -> None:
    qbeast.write_table(NARROW, tmp_path, columns=["id", "w"])
    for column, dtype, report in (
        ("id", pl.Int32, "'id' is Int64 and cannot become Int32"),
        ("x", pl.Float32, "cannot become Float32"),
        ("b", pl.Float32, "'b' is Int8 and cannot become Float32"),
        ("id", pl.Float64, "'id' is Int64 and cannot become Float64"),
        ("s", pl.Int8, r"qbeast\.write_table\(qbeast\.scan_table"),
        ("w", pl.Int64, "are indexed"),
    ):
        with pytest.raises(qbeast.UnsupportedTableError, match=report):
            qbeast.open_table(tmp_path).widen_columns({column: dtype})
    with pytest.raises(qbeast.InvalidInputError, match="no such column"):
        qbeast.open_table(tmp_path).widen_columns({"no": pl.Int32})
    assert load_snapshot(tmp_path).version == 0


NEW_ROWS: dict[str, Callable[[qbeast.Table], object]] = {
    "append": lambda table: qbeast.write_table(ROWS, table.uri, mode="append"),
    "overwrite": lambda table: qbeast.write_table(ROWS, table.uri, mode="overwrite"),
    "update": lambda table: table.update("id = 3", {"x": "1.0"}),
}
THE_SAME_ROWS: dict[str, Callable[[qbeast.Table], object]] = {
    "add": lambda table: table.add_columns({"n": pl.Int8}),
    "set": lambda table: table.set_properties({"a": "1"}),
    "switch": lambda table: table.switch_dialect("qbeast-spark"),
    "optimize": lambda table: table.optimize(full=True),
    "vacuum": lambda table: table.vacuum(dry_run=False),
}


@pytest.mark.filterwarnings("ignore:.*hold the column:qbeast_core.errors.QbeastWarning")  # of the switch
@pytest.mark.parametrize("change", [*NEW_ROWS, *THE_SAME_ROWS])
def test_changes_keep_constraints(change: str, tmp_path: Path) -> None:
    opened = table(tmp_path)
    DeltaTable(tmp_path).alter.add_constraint({"positive": "id >= 0"})
    {**NEW_ROWS, **THE_SAME_ROWS}[change](opened)
    assert DeltaTable(tmp_path).metadata().configuration["delta.constraints.positive"] == "id >= 0"
    rows = qbeast.read_table(tmp_path, columns=["id"])
    assert_same_rows(rows.unique(), ROWS.select("id"), "id")

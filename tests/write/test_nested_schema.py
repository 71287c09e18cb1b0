"""Fields inside of columns: new ones, missing ones, another order and narrower numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.log.schema import merged_schema, schema_from_delta, schema_to_delta
from qbeast_core.table.data.schema import fit_frame
from tests.helpers.schemas import SCHEMAS
from tests.helpers.tables import SPILL

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

INNER = pl.Struct({"x": pl.Int64, "y": pl.String})
# New fields, missing fields, another order, and narrower numbers.
OTHER = pl.Struct({"new": pl.Float64, "y": pl.String, "x": pl.Int16})
MERGED_INNER = pl.Struct({"x": pl.Int64, "y": pl.String, "new": pl.Float64})


def schema_of(inner: pl.Struct) -> pl.Schema:
    nested = {"s": inner, "l": pl.List(inner), "m": pl.Map(pl.String, inner), "d": pl.Struct({"e": inner})}
    return pl.Schema({"id": pl.Int64, **nested})


OLD, NEW, MERGED = schema_of(INNER), schema_of(OTHER), schema_of(MERGED_INNER)


def rows(schema: pl.Schema, numbers: range) -> pl.DataFrame:
    """Return rows with a value of `new` where the schema has it."""

    def inner(number: int) -> dict[str, Any] | None:
        fields = {"x": number % 1000, "y": str(number), "new": number / 2}
        names = dict(schema["s"].to_schema())  # type: ignore[attr-defined]
        return None if number % 11 == 0 else {name: fields[name] for name in names}

    return pl.DataFrame(
        [
            (
                number,
                inner(number),
                [inner(number), inner(number + 1)],
                [{"key": "k", "value": inner(number)}],
                {"e": inner(number)},
            )
            for number in numbers
        ],
        schema={**schema, "m": pl.List(pl.Struct({"key": pl.String, "value": schema["s"]}))},
        orient="row",
    ).cast(dict(schema))  # type: ignore[arg-type]


def plain(frame: pl.DataFrame) -> list[Any]:
    return frame.sort("id").rows()


def expected(*parts: pl.DataFrame) -> list[Any]:
    """Return the rows with the fields of `MERGED` by plain Python."""

    def whole(value: Any) -> Any:
        return None if value is None else {name: value.get(name) for name in ("x", "y", "new")}

    return sorted(
        (
            number,
            whole(s),
            [whole(item) for item in items],
            {key: whole(v) for key, v in m.items()},
            {"e": whole(d["e"])},
        )
        for part in parts
        for number, s, items, m, d in part.rows()
    )


FIRST, SECOND = rows(OLD, range(100)), rows(NEW, range(100, 200))
APPEND: Any = {"mode": "append", "schema_mode": "merge"}
WAYS: dict[str, Callable[[Path], object]] = {
    "append": lambda path: qbeast.write_table(SECOND, path, **APPEND),
    "spilled append": lambda path: qbeast.write_table(SECOND, path, resources=SPILL, **APPEND),
    "merge": lambda path: qbeast.open_table(path).merge(SECOND, "id", schema_mode="merge"),
    "spilled merge": lambda path: qbeast.open_table(path, resources=SPILL).merge(
        SECOND, "id", schema_mode="merge"
    ),
}


def begin(path: Path, first: pl.DataFrame = FIRST) -> qbeast.Table:
    qbeast.write_table(first, path, columns=["id"], cube_size=30)
    return qbeast.open_table(path)


@pytest.mark.parametrize(
    ("way", "mapped"),
    [
        ("append", False),
        ("append", True),
        ("merge", True),
        ("spilled append", True),
        ("spilled merge", False),
    ],
)
def test_nested_fields_are_added_by_every_write(way: str, mapped: bool, tmp_path: Path) -> None:  # noqa: FBT001
    table = begin(tmp_path)
    if mapped:
        table.rename_column("s.y", "z", upgrade_protocol=True)
        table.rename_column("s.z", "y")
    WAYS[way](tmp_path)
    table = table.refresh()
    assert table.schema == MERGED
    assert plain(table.read()) == expected(FIRST, SECOND)
    # Pages of files with and without the new fields.
    assert plain(table.read(where="id between 90 and 110")) == expected(FIRST[90:], SECOND[:11])
    sample = table.read(sample=0.2)
    both = expected(FIRST, SECOND)
    assert plain(sample) == [both[number] for number in sorted(sample["id"])]
    if not mapped:
        assert_frame_equal(pl.scan_delta(tmp_path).collect(), table.read(), check_row_order=False)
    table.optimize(full=True)
    assert plain(table.read()) == expected(FIRST, SECOND)
    assert table.check().ok


def test_rows_may_lack_nested_fields_that_the_table_has(tmp_path: Path) -> None:
    table = begin(tmp_path, rows(MERGED, range(50)))
    less = rows(OLD, range(50, 60))
    with pytest.raises(qbeast.SchemaMismatchError, match=r"field 's\.new' is missing.*schema_mode=\"merge\""):
        qbeast.write_table(less, tmp_path, mode="append")
    qbeast.write_table(less, tmp_path, mode="append", schema_mode="merge")
    assert plain(table.refresh().read()) == expected(rows(MERGED, range(50)), less)


def test_order_and_narrow_numbers_need_no_mode(tmp_path: Path) -> None:
    table = begin(tmp_path)
    turned = pl.struct(y=pl.col("s").struct.field("y"), x=pl.col("s").struct.field("x").cast(pl.Int16))
    more = rows(OLD, range(100, 110)).with_columns(turned.alias("s"))
    qbeast.write_table(more, tmp_path, mode="append")
    assert table.refresh().schema == OLD
    found, wanted = table.refresh().read(where="id >= 100"), rows(OLD, range(100, 110))
    for name in ("x", "y"):
        assert found.sort("id")["s"].struct.field(name).equals(wanted["s"].struct.field(name))


def test_fields_that_are_null_everywhere_are_not_added(tmp_path: Path) -> None:
    table = begin(tmp_path, FIRST.select("id", "s").head(10))
    more = pl.DataFrame({"id": [1000], "s": [{"x": None, "nothing": None}]})
    qbeast.write_table(more, tmp_path, mode="append", schema_mode="merge")
    table = table.refresh()
    assert table.schema == pl.Schema({"id": pl.Int64, "s": INNER})
    assert table.read(where="id = 1000").rows() == [(1000, {"x": None, "y": None})]


@pytest.mark.parametrize(
    ("dtype", "problem"),
    [
        (pl.Struct({"x": pl.String, "y": pl.String}), r"field 's\.x' is String"),
        (pl.Struct({"x": pl.Float64, "y": pl.String}), r"field 's\.x' is Float64"),
        (pl.Struct({"X": pl.Int64}), r"'X' differs in case alone from 'x'"),
        (pl.Struct({"x": pl.Struct({"a": pl.Int8})}), r"field 's\.x' is Struct"),
        (pl.List(INNER), r"column 's' is List"),
        (pl.String(), r"column 's' is String"),
    ],
)
@pytest.mark.parametrize("way", ["append", "merge"])
def test_nested_types_that_do_not_fit_are_refused(
    dtype: pl.DataType, problem: str, way: str, tmp_path: Path
) -> None:
    table = begin(tmp_path, FIRST.select("id", "s").head(10))
    more = pl.DataFrame({"id": [1000], "s": [None]}, schema={"id": pl.Int64, "s": dtype})
    calls = {
        "append": lambda: qbeast.write_table(more, tmp_path, mode="append", schema_mode="merge"),
        "merge": lambda: table.merge(more, "id", schema_mode="merge"),
    }
    with pytest.raises(qbeast.SchemaMismatchError, match=problem):
        calls[way]()
    assert table.refresh().version == 0


def test_missing_field_that_may_hold_no_nulls_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, FIRST.select("id", "s").head(10))
    commit = tmp_path / "_delta_log" / "00000000000000000000.json"
    old = '{\\"name\\":\\"y\\",\\"type\\":\\"string\\",\\"nullable\\":true'
    text = commit.read_text()
    assert old in text
    commit.write_text(text.replace(old, old.replace("true", "false")))
    more = pl.DataFrame({"id": [1000], "s": [{"x": 1}]})
    with pytest.raises(qbeast.SchemaMismatchError, match=r"field 's\.y' may hold no nulls"):
        qbeast.write_table(more, tmp_path, mode="append", schema_mode="merge")


def test_comments_and_notes_of_fields_stay(tmp_path: Path) -> None:
    begin(tmp_path, FIRST.select("id", "s").head(10))
    commit = tmp_path / "_delta_log" / "00000000000000000000.json"
    old = '{\\"name\\":\\"x\\",\\"type\\":\\"long\\",\\"nullable\\":true,\\"metadata\\":{'
    text = commit.read_text()
    assert old in text
    commit.write_text(text.replace(old, old + '\\"comment\\":\\"an x\\",\\"unit\\":\\"m\\"'))

    def notes() -> dict[str, Any]:
        commits = sorted((tmp_path / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for file in commits for line in file.read_text().splitlines()]
        schema = json.loads([a["metaData"]["schemaString"] for a in actions if "metaData" in a][-1])
        struct = next(field for field in schema["fields"] if field["name"] == "s")
        return dict(next(f["metadata"] for f in struct["type"]["fields"] if f["name"] == "x"))

    kept = {"comment": "an x", "unit": "m"}
    qbeast.write_table(SECOND.select("id", "s"), tmp_path, mode="append", schema_mode="merge")
    assert notes() == kept
    qbeast.write_table(FIRST.select("s", "id"), tmp_path, mode="overwrite", schema_mode="overwrite")
    assert notes() == kept
    qbeast.open_table(tmp_path).rename_column("id", "key", upgrade_protocol=True)
    assert notes().items() > kept.items()
    qbeast.write_table(FIRST.select("s", key="id"), tmp_path, mode="overwrite", schema_mode="overwrite")
    assert notes().items() > kept.items()


@given(SCHEMAS, SCHEMAS)
def test_fitted_rows_have_the_merged_schema(table: pl.Schema, new: pl.Schema) -> None:
    json_schema = schema_to_delta(table)
    try:
        fitted = fit_frame(pl.DataFrame(schema=new), json_schema, table, merge=True)
    except qbeast.SchemaMismatchError:
        return
    merged = schema_from_delta(merged_schema(json_schema, fitted.schema))
    assert fitted.schema == merged
    assert list(merged)[: len(table)] == list(table)
    again = fit_frame(fitted, schema_to_delta(merged), merged, merge=False)
    assert again.schema == merged
    # All fields of both sides are there.
    assert schema_from_delta(merged_schema(schema_to_delta(merged), new)) == merged

"""Columns are renamed and dropped in the log alone; deltalake reads the same rows afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.races import landing_first
from tests.helpers.small_files import small_files

GOLDEN = Path(__file__).parents[1] / "format" / "delta"
ROWS = pl.DataFrame(
    {
        "id": range(500),
        "price": [number * 37 % 501 / 2 for number in range(500)],
        "s": [{"x": number, "y": str(number)} for number in range(500)],
        "l": [[{"q": number}] for number in range(500)],
        "m": [number % 7 for number in range(500)],
    }
)


def other_reader(path: Path) -> pl.DataFrame:
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    return pl.DataFrame(reader.execute("SELECT * FROM t").read_all())


def assert_rows(path: Path, rows: pl.DataFrame) -> None:
    table = qbeast.open_table(path)
    assert table.columns == rows.columns
    for found in (table.read(), other_reader(path)):
        assert_frame_equal(found, rows, check_row_order=False)
    report = table.check(data=False)
    assert report.ok, report


def begin(path: Path, rows: pl.DataFrame = ROWS, **options: Any) -> qbeast.Table:
    qbeast.write_table(rows, path, columns=["id", "price"], cube_size=60, **options)
    return qbeast.open_table(path)


def mapped(path: Path, **options: Any) -> qbeast.Table:
    """Return a table with column mapping and the columns of `ROWS` without `m`."""
    table = begin(path, **options)
    table.drop_column("m", upgrade_protocol=True)
    return table


def files(path: Path) -> set[Path]:
    return set(path.glob("*.parquet"))


def change_log(path: Path, old: str, new: str) -> None:
    """Change the text of the newest commit."""
    commit = max((path / "_delta_log").glob("*.json"))
    text = commit.read_text()
    assert old in text
    commit.write_text(text.replace(old, new))


def test_index_follows_renamed_columns_without_new_files(tmp_path: Path) -> None:
    with small_files(file_rows=100, page_rows=16):
        table = begin(tmp_path)
    before, sample = files(tmp_path), table.read(sample=0.2)
    opened = table.rows("id < 9").explain().bytes_opened
    table.rename_column("id", "key", upgrade_protocol=True)
    table.rename_column("price", "id")
    rows = ROWS.rename({"id": "key", "price": "id"})
    assert_rows(tmp_path, rows)
    assert files(tmp_path) == before
    assert table.indexed_columns == ("key", "id")
    assert_frame_equal(table.read(sample=0.2), sample.rename({"id": "key", "price": "id"}))
    wanted = rows.filter(pl.col("key") < 9)
    assert_frame_equal(table.read(where="key < 9"), wanted, check_row_order=False)
    assert table.rows("key < 9").explain().bytes_opened == opened < table.rows().explain().bytes_total / 2


def test_every_write_goes_on_after_renames_and_drops(tmp_path: Path) -> None:
    table = mapped(tmp_path)
    table.rename_column("s.y", "text")
    table.rename_column("l.element.q", "r")
    table.drop_column("s.x")
    table.rename_column("id", "key")
    rows = ROWS.select(
        pl.col("id").alias("key"),
        "price",
        s=pl.struct(text=pl.col("s").struct.field("y")),
        l=pl.col("l").list.eval(pl.element().struct.rename_fields(["r"])),
    )
    qbeast.write_table(rows.with_columns(pl.col("key") + 500), tmp_path, mode="append")
    rows = pl.concat([rows, rows.with_columns(pl.col("key") + 500)])
    assert_rows(tmp_path, rows)
    table.optimize(full=True)
    table.delete("key between 100 and 200")
    table.update("key >= 900", {"price": "price + 1"})
    table.merge(rows.filter(pl.col("key") == 150), "key")
    price = pl.when(pl.col("key") >= 900).then(pl.col("price") + 1).otherwise("price")
    gone = pl.col("key").is_between(100, 200) & (pl.col("key") != 150)
    assert_rows(tmp_path, rows.filter(~gone).with_columns(price))


def test_new_column_does_not_get_values_of_a_dropped_one(tmp_path: Path) -> None:
    table = mapped(tmp_path)
    table.add_columns({"m": "bigint"})
    rows = ROWS.with_columns(m=pl.lit(None, pl.Int64))
    assert_rows(tmp_path, rows)
    table.drop_column("s.x")
    more = ROWS.head(5).with_columns(pl.col("id") + 500)
    qbeast.write_table(more, tmp_path, mode="append", schema_mode="merge")
    s = pl.struct(y=pl.col("s").struct.field("y"), x=pl.lit(None, pl.Int64))
    turned = pl.struct(y=pl.col("s").struct.field("y"), x=pl.col("s").struct.field("x"))
    assert_rows(tmp_path, pl.concat([rows.with_columns(s=s), more.with_columns(s=turned)]))
    assert qbeast.open_table(tmp_path).read(where="m = 3").height == more.filter(pl.col("m") == 3).height


def test_replaced_and_restored_schemas_keep_rows_right(tmp_path: Path) -> None:
    table = mapped(tmp_path)
    table.rename_column("price", "cost")
    old = table.version
    new = ROWS.select("id", price=pl.col("m"), cost=pl.col("price"))
    qbeast.write_table(new, tmp_path, mode="overwrite", schema_mode="overwrite")
    assert_rows(tmp_path, new)
    table = table.refresh()
    for version, rows in ((old, ROWS.drop("m").rename({"price": "cost"})), (0, ROWS)):
        table.restore(version)
        assert_rows(tmp_path, rows)
    added = ROWS.with_columns(pl.col("id") + 500, z=pl.lit(1))
    qbeast.write_table(added, tmp_path, mode="append", schema_mode="merge")
    assert_rows(tmp_path, pl.concat([ROWS.with_columns(z=pl.lit(None, pl.Int32)), added]))


def test_sample_column_is_renamed_with_its_meaning(tmp_path: Path) -> None:
    table = mapped(tmp_path)
    table.add_sample_column("part")
    table.rename_column("part", "share")
    qbeast.write_table(ROWS.drop("m").with_columns(pl.col("id") + 500), tmp_path, mode="append")
    table = table.refresh()
    found = other_reader(tmp_path).filter(pl.col("share") < 0.25)["id"]
    assert sorted(found) == sorted(table.read(sample=0.25)["id"])
    with pytest.raises(qbeast.InvalidInputError, match="sample column"):
        table.drop_column("share")


def test_table_without_mapping_lists_who_stops_reading(tmp_path: Path) -> None:
    table = begin(tmp_path)
    for call in (lambda: table.rename_column("m", "n"), lambda: table.drop_column("m")):
        with pytest.raises(
            qbeast.UnsupportedTableError, match=r"upgrade_protocol=True.*scan_delta.*deltalake"
        ):
            call()
    assert qbeast.open_table(tmp_path).version == 0


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, (3, 7, ["columnMapping"])),
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]},
            (3, 7, ["columnMapping"]),
        ),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["timestampNtz"],
                "writerFeatures": ["timestampNtz"],
            },
            (3, 7, ["timestampNtz", "columnMapping"]),
        ),
    ],
)
def test_protocol_gets_column_mapping_in_the_same_commit(
    tmp_path: Path, protocol: dict[str, Any], expected: tuple[int, int, list[str] | None]
) -> None:
    begin(tmp_path)
    commit = tmp_path / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    lines = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    commit.write_text("\n".join(map(json.dumps, lines)))
    table = qbeast.open_table(tmp_path)
    table.rename_column("m", "n", upgrade_protocol=True)
    found = deltalake.DeltaTable(tmp_path).protocol()
    assert (found.min_reader_version, found.min_writer_version, found.reader_features) == expected
    kept = protocol.get("writerFeatures", ["appendOnly", "invariants"])
    assert {*kept, "columnMapping"} == set(found.writer_features or ())
    assert table.version == 1
    assert table.properties["delta.columnMapping.mode"] == "name"
    assert_rows(tmp_path, ROWS.rename({"m": "n"}))


@pytest.mark.parametrize(
    ("column", "name", "problem"),
    [
        ("id", "price", "there is a column"),
        ("id", "id", "there is a column"),
        ("id", "Price", "differs in case alone"),
        ("s.x", "Y", "differs in case alone"),
        ("id", "", "no name"),
        ("id", "_qbeast_weight", "qbeast's own"),
        ("id", "^a$", "pattern"),
        ("nothing", "a", "no such column"),
        ("s.z", "a", "no such column"),
        ("s.nothing", "a", "no such column"),
    ],
)
def test_impossible_rename_is_refused(tmp_path: Path, column: str, name: str, problem: str) -> None:
    table = mapped(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match=problem) as caught:
        table.rename_column(column, name)
    assert "othing was changed" in str(caught.value)
    assert qbeast.open_table(tmp_path).version == table.version


def test_name_may_change_in_case_alone(tmp_path: Path) -> None:
    mapped(tmp_path).rename_column("id", "ID")
    assert_rows(tmp_path, ROWS.drop("m").rename({"id": "ID"}))


@pytest.mark.parametrize(
    ("metadata", "column", "problem"),
    [
        ({}, "id", "indexed"),
        ({}, "l.element.q", "last one"),
        ({"delta.invariants": '{"expression":{"expression":"`M` > 0"}}'}, "m", "invariant of 'price'"),
        ({"delta.generationExpression": "m * 2"}, "m", "generated column 'price'"),
        ({"delta.generationExpression": "s.y || 'm'"}, "s.y", "generated column 'price'"),
    ],
)
def test_needed_column_is_not_dropped(
    tmp_path: Path, metadata: dict[str, str], column: str, problem: str
) -> None:
    begin(tmp_path)
    old = '{\\"name\\":\\"price\\",\\"type\\":\\"double\\",\\"nullable\\":true,\\"metadata\\":{'
    change_log(tmp_path, old + "}", old + json.dumps(json.dumps(metadata))[2:-2] + "}")
    table = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match=problem):
        table.drop_column(column, upgrade_protocol=True)
    if metadata:
        with pytest.raises(qbeast.InvalidInputError, match=problem):
            table.rename_column(column, "n", upgrade_protocol=True)
    assert table.refresh().version == 0


def test_column_of_a_constraint_keeps_its_name(tmp_path: Path) -> None:
    begin(tmp_path)
    change_log(
        tmp_path,
        '"configuration":{',
        '"configuration":{"delta.constraints.few":"m < 10 and note(\'x\') > 1",',
    )
    table = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="constraint 'few'"):
        table.drop_column("m", upgrade_protocol=True)
    with pytest.raises(qbeast.InvalidInputError, match="constraint 'few'"):
        table.rename_column("m", "n", upgrade_protocol=True)
    table.drop_column("s.x", upgrade_protocol=True)
    assert table.read().columns == ROWS.columns


def test_last_column_and_keys_of_maps_stay(tmp_path: Path) -> None:
    key = pl.Map(pl.Struct({"k": pl.String, "n": pl.Int64}), pl.Int64)
    rows = pl.DataFrame({"id": [1, 2]}).with_columns(
        m=pl.lit([{"key": {"k": "a", "n": 1}, "value": 1}]).cast(key)
    )
    qbeast.write_table(rows, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="keys of a map"):
        table.drop_column("m.key.n", upgrade_protocol=True)
    table.rename_column("m.key.n", "number", upgrade_protocol=True)
    assert table.schema["m"] == pl.Map(pl.Struct({"k": pl.String, "number": pl.Int64}), pl.Int64)
    table.drop_column("m")
    with pytest.raises(qbeast.InvalidInputError, match="last one"):
        table.drop_column("id")


def test_jvm_dialect_and_mapping_exclude_each_other(tmp_path: Path) -> None:
    jvm = begin(tmp_path / "jvm", dialect="qbeast-spark")
    with pytest.raises(qbeast.UnsupportedTableError, match="qbeast-spark"):
        jvm.rename_column("m", "n", upgrade_protocol=True)
    table = mapped(tmp_path / "t")
    commits = "".join(file.read_text() for file in sorted((tmp_path / "t" / "_delta_log").glob("*.json")))
    assert '"qbeast.minReader":"4"' in commits
    rows = ROWS.drop("m")
    plain = tmp_path / "plain"
    shutil.copytree(GOLDEN / "column-mapping-id" / "column-mapping-id", plain)
    calls = [
        lambda: table.switch_dialect("qbeast-spark"),
        lambda: qbeast.write_table(rows, tmp_path / "t", mode="overwrite", dialect="qbeast-spark"),
        lambda: qbeast.convert_table(plain, columns=["c1"], dialect="qbeast-spark"),
    ]
    for call in calls:
        with pytest.raises(qbeast.UnsupportedTableError, match=r"columnMapping.*documented"):
            call()


def test_append_that_loses_to_a_rename_is_committed(tmp_path: Path) -> None:
    table = mapped(tmp_path)
    more = ROWS.drop("m").with_columns(pl.col("id") + 500)

    def swap() -> None:
        other = qbeast.open_table(tmp_path)
        other.rename_column("id", "tmp")
        other.rename_column("price", "id")
        other.rename_column("tmp", "price")
        qbeast.write_table(more.tail(3).rename({"id": "price", "price": "id"}), tmp_path, mode="append")

    with landing_first(swap):
        qbeast.write_table(more, tmp_path, mode="append")
    rows = pl.concat([ROWS.drop("m"), more, more.tail(3)]).rename({"id": "price", "price": "id"})
    assert_rows(tmp_path, rows)
    assert table.refresh().indexed_columns == ("price", "id")


def test_append_that_loses_to_a_drop_conflicts(tmp_path: Path) -> None:
    table = mapped(tmp_path)
    more = ROWS.drop("m").with_columns(pl.col("id") + 500)
    with (
        landing_first(lambda: qbeast.open_table(tmp_path).drop_column("l")),
        pytest.raises(qbeast.CommitConflictError, match="l is gone"),
    ):
        qbeast.write_table(more, tmp_path, mode="append")
    assert_rows(tmp_path, ROWS.drop("m", "l"))
    assert table.refresh().columns == ["id", "price", "s"]


def test_changes_of_rows_are_planned_again_after_a_rename(tmp_path: Path) -> None:
    table = mapped(tmp_path)

    def rename() -> None:
        qbeast.open_table(tmp_path).rename_column("l", "listed")

    with landing_first(rename):
        table.update("id < 100", {"price": "0.0"})
    price = pl.when(pl.col("id") < 100).then(0.0).otherwise("price")
    assert_rows(tmp_path, ROWS.drop("m").with_columns(price.alias("price")).rename({"l": "listed"}))
    with (
        landing_first(lambda: qbeast.open_table(tmp_path).rename_column("id", "key")),
        pytest.raises(qbeast.InvalidInputError, match="id"),
    ):
        table.refresh().delete("id < 100")


def test_drop_is_checked_again_after_other_changes(tmp_path: Path) -> None:
    table = begin(tmp_path)
    with (
        landing_first(lambda: qbeast.open_table(tmp_path).reindex(columns=["id", "m"])),
        pytest.raises(qbeast.InvalidInputError, match="indexed"),
    ):
        table.drop_column("m", upgrade_protocol=True)
    with landing_first(lambda: qbeast.open_table(tmp_path).add_columns({"n": "long"})):
        table.rename_column("l", "listed", upgrade_protocol=True)
    assert_rows(tmp_path, ROWS.rename({"l": "listed"}).with_columns(n=pl.lit(None, pl.Int64)))


def test_append_that_loses_to_an_upgrade_is_committed(tmp_path: Path) -> None:
    begin(tmp_path)
    more = ROWS.with_columns(pl.col("id") + 500)
    with landing_first(lambda: qbeast.open_table(tmp_path).rename_column("m", "n", upgrade_protocol=True)):
        qbeast.write_table(more, tmp_path, mode="append")
    assert_rows(tmp_path, pl.concat([ROWS, more]).rename({"m": "n"}))


def test_other_writer_appends_after_a_rename(tmp_path: Path) -> None:
    table = begin(tmp_path, ROWS.select("id", "price"))
    table.rename_column("id", "key", upgrade_protocol=True)
    rows = ROWS.select(pl.col("id").alias("key"), "price")
    deltalake.write_deltalake(tmp_path, rows.with_columns(pl.col("key") + 500), mode="append")
    rows = pl.concat([rows, rows.with_columns(pl.col("key") + 500)])
    assert_rows(tmp_path, rows)
    table.refresh().optimize()
    assert_rows(tmp_path, rows)
    assert qbeast.read_table(tmp_path, where="key = 700").height == 1


def test_name_of_column_and_field_needs_backticks(tmp_path: Path) -> None:
    rows = ROWS.select("id", "price", "s").with_columns(pl.col("id").alias("s.x"))
    table = begin(tmp_path, rows)
    with pytest.raises(qbeast.InvalidInputError, match=r"`s\.x` or `s`\.`x`"):
        table.drop_column("s.x", upgrade_protocol=True)
    table.drop_column("`s`.`x`", upgrade_protocol=True)
    assert table.read().schema["s"] == pl.Struct({"y": pl.String})
    table.drop_column("s.x")
    assert table.columns == ["id", "price", "s"]
    table.rename_column("`s`.`y`", "z")
    assert table.read().schema["s"] == pl.Struct({"z": pl.String})

"""The life of a sample column: every write computes it, and no input sets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.log import rebase
from qbeast_core.table.data import data_files
from qbeast_core.table.engine import target
from qbeast_core.table.rewrite import publish
from qbeast_core.table.snapshot.snapshot import Snapshot
from tests.carbondata.collection import table_path
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

INDEXED = ["row", "a"]
ROWS = pl.DataFrame({"row": range(300)}).with_columns(a=pl.col("row") * 31 % 101, text=pl.lit("x"))
WRONG = ROWS.with_columns(sample=pl.lit(0.125, pl.Float32))


def new(path: Path, **options: Any) -> qbeast.Table:
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(ROWS, path, INDEXED, cube_size=20, sample_column="sample", **options)
    return qbeast.open_table(path)


def check_samples(table: qbeast.Table, rows: pl.DataFrame) -> None:
    """Assert that the values of all rows are right, and select samples in another engine."""
    path = Path(table.uri)
    check_invariants(path)
    assert table.check().ok
    assert table.metrics().health.rows_without_sample == 0
    for fraction in (0.125, 0.5):
        found = pl.scan_delta(path).filter(pl.col("sample") < fraction).collect().drop("sample")
        assert_same_rows(found, sampled(rows, INDEXED, fraction))
        assert_same_rows(table.read(sample=fraction).drop("sample"), sampled(rows, INDEXED, fraction))
        assert_same_rows(table.read(where=pl.col("sample") < fraction).drop("sample"), found)
    assert_same_rows(table.read().drop("sample"), rows)


@pytest.mark.parametrize("resources", [MEMORY, SPILL])
def test_new_table_has_nullable_float_column_at_end(tmp_path: Path, resources: qbeast.Resources) -> None:
    table = new(tmp_path, resources=resources)
    assert table.schema == pl.Schema({**ROWS.schema, "sample": pl.Float32()})
    field = DeltaTable(tmp_path).schema().fields[-1]
    assert (field.name, field.type.type, field.nullable) == ("sample", "float", True)
    check_samples(table, ROWS)


@pytest.mark.parametrize("resources", [MEMORY, SPILL])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        WRONG,
        WRONG.select("sample", "text", "a", "row"),
        WRONG.with_columns(sample=pl.lit("text")),
        WRONG.with_columns(sample=None),
    ],
)
def test_values_of_incoming_rows_are_computed(
    tmp_path: Path, given: pl.DataFrame, mode: Any, resources: qbeast.Resources
) -> None:
    table = new(tmp_path)
    more = given.with_columns(pl.col("row") + 1000)
    qbeast.write_table(more, tmp_path, mode=mode, resources=resources)
    qbeast.write_table(iter([given.with_columns(pl.col("row") + 3000)]), tmp_path, mode="append")
    table.refresh()
    shown = [more, given.with_columns(pl.col("row") + 3000)]
    check_samples(table, pl.concat([ROWS] * (mode == "append") + [f.select(ROWS.columns) for f in shown]))


def test_frame_read_from_table_can_be_written_back(tmp_path: Path) -> None:
    table = new(tmp_path)
    qbeast.write_table(table.read().with_columns(pl.col("row") + 1000), tmp_path, mode="append")
    qbeast.write_table(qbeast.read_table(tmp_path, where="row >= 1000"), tmp_path, mode="overwrite")
    table.refresh()
    check_samples(table, ROWS.with_columns(pl.col("row") + 1000))


def test_overwrite_of_schema_keeps_or_replaces_the_column(tmp_path: Path) -> None:
    table, over = new(tmp_path), {"mode": "overwrite", "schema_mode": "overwrite"}
    qbeast.write_table(WRONG.drop("text"), tmp_path, **over)
    table.refresh()
    assert table.schema.names() == ["row", "a", "sample"]
    check_samples(table, ROWS.drop("text"))
    qbeast.write_table(ROWS, tmp_path, ["text", "row"], sample_column="other", **over)
    table.refresh()
    assert table.schema.names() == [*ROWS.columns, "other"]
    half = pl.scan_delta(tmp_path).filter(pl.col("other") < 0.5).collect().drop("other")
    assert_same_rows(half, sampled(ROWS, ["text", "row"], 0.5))


def test_update_of_indexed_column_computes_the_value_again(tmp_path: Path) -> None:
    table = new(tmp_path)
    table.update("row < 40", {"a": "a + 1000"})
    table.update("row >= 290", {"text": "'y'"})
    changed = ROWS.with_columns(
        a=pl.when(pl.col("row") < 40).then(pl.col("a") + 1000).otherwise("a"),
        text=pl.when(pl.col("row") >= 290).then(pl.lit("y")).otherwise("text"),
    )
    check_samples(table, changed)


@pytest.mark.parametrize("resources", [MEMORY, SPILL])
@pytest.mark.parametrize("source", [ROWS, WRONG, WRONG.with_columns(sample=pl.lit("text"))])
def test_merge_ignores_values_of_the_source(
    tmp_path: Path, source: pl.DataFrame, resources: qbeast.Resources
) -> None:
    table = new(tmp_path)
    source = source.with_columns(pl.col("row") + 250, a=pl.col("a") + 500)
    table.merge(source, "row", resources=resources)
    expected = pl.concat([ROWS.filter(pl.col("row") < 250), source.select(ROWS.columns)])
    check_samples(table, expected)
    table.merge(
        source.head(3).with_columns(pl.col("row") + 9000),
        "row",
        insert={"row": "source.row", "a": "source.a", "text": "'new'"},
        resources=resources,
    )
    more = source.head(3).with_columns(pl.col("row") + 9000, text=pl.lit("new")).select(ROWS.columns)
    check_samples(table, pl.concat([expected, more]))


def test_bounds_are_written_whatever_statistics_a_table_has(tmp_path: Path) -> None:
    table = new(tmp_path)
    table.set_properties({"delta.dataSkippingStatsColumns": "text", "delta.dataSkippingNumIndexedCols": "0"})
    qbeast.write_table(ROWS.with_columns(pl.col("row") + 1000), tmp_path, mode="append")
    table.refresh()
    check_samples(table, pl.concat([ROWS, ROWS.with_columns(pl.col("row") + 1000)]))


def test_imported_rows_get_values(tmp_path: Path) -> None:
    old = table_path("tx230_basic_3segments")
    rows = qbeast.read_carbondata(old)
    columns = list(rows.columns[:1])
    qbeast.write_table(rows, tmp_path, columns, sample_column="share")
    qbeast.import_carbondata(old, tmp_path, columns, mode="append")
    check_invariants(tmp_path)
    table = qbeast.open_table(tmp_path)
    assert table.check().ok
    assert table.read()["share"].null_count() == 0
    assert table.read().height == 2 * rows.height


def test_delete_and_optimize_keep_the_values(tmp_path: Path) -> None:
    table = new(tmp_path)
    table.delete("a > 50")
    table.optimize(full=True)
    check_samples(table, ROWS.filter(pl.col("a") <= 50))


@pytest.mark.parametrize("stale", [None, 0.75])
def test_rows_of_other_writers_are_counted_until_optimize(tmp_path: Path, stale: float | None) -> None:
    table = new(tmp_path)
    others = ROWS.with_columns(pl.col("row") + 1000, sample=pl.lit(stale, pl.Float32))
    write_deltalake(tmp_path, others, mode="append")
    table.refresh()
    every = pl.concat([ROWS, others.drop("sample")])
    for fraction in (0.01, 0.3, 0.5, 0.8):  # ours hashes them
        assert_same_rows(table.read(sample=fraction).drop("sample"), sampled(every, INDEXED, fraction))
    stored = table.read(where="row >= 1000")
    assert stored["sample"].unique().to_list() == [stale]
    assert table.metrics().health.rows_without_sample == 300
    assert any("300 rows have no value in 'sample'" in note for note in table.check(data=False).notes)
    table.optimize()
    check_samples(table, every)


@pytest.mark.parametrize("stale", [None, 0.75])
def test_rows_of_versions_before_the_column_are_not_trusted(tmp_path: Path, stale: float | None) -> None:
    table = new(tmp_path)
    others = ROWS.with_columns(pl.col("row") + 1000, sample=pl.lit(stale, pl.Float32))
    with ExitStack() as before:  # what such a version does: the column is like any other
        for module in (target, data_files):
            before.enter_context(mock.patch.object(module, "sample_column_of", return_value=None))
        before.enter_context(mock.patch.object(rebase, "has_sample_column", return_value=False))
        before.enter_context(mock.patch.object(Snapshot, "sample_column", None))
        qbeast.write_table(others, tmp_path, mode="append")
    table.refresh()
    stored = table.read(where="row >= 1000")
    assert stored["sample"].unique().to_list() == [stale]
    every = pl.concat([ROWS, others.drop("sample")])
    assert_same_rows(table.read(sample=0.3).drop("sample"), sampled(every, INDEXED, 0.3))
    assert table.metrics().health.rows_without_sample == 300
    report = table.check()
    assert report.ok
    assert any("300 rows have no value in 'sample'" in note for note in report.notes)
    assert "foreign layout" in table.optimize().plan["reason"]
    check_samples(table, every)


def test_append_of_others_without_the_column_is_read(tmp_path: Path) -> None:
    table = new(tmp_path)
    others = ROWS.with_columns(pl.col("row") + 1000)
    write_deltalake(tmp_path, others, mode="append", schema_mode="merge")
    table.refresh()
    every = pl.concat([ROWS, others])
    assert_same_rows(table.read(sample=0.4).drop("sample"), sampled(every, INDEXED, 0.4))
    table.optimize()
    check_samples(table, every)


def test_check_finds_wrong_values(tmp_path: Path) -> None:
    table = new(tmp_path)
    name = table.files()["path"][0].rpartition("/")[2]
    commit = next((tmp_path / "_delta_log").glob("*.json"))
    rows = pl.read_parquet(tmp_path / name)
    rows.with_columns(pl.lit(0.125, pl.Float32).alias("sample")).write_parquet(tmp_path / name)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for add in (action["add"] for action in actions if "add" in action):
        if add["path"] == name:
            add["size"] = (tmp_path / name).stat().st_size
    commit.write_text("\n".join(map(json.dumps, actions)))
    found = qbeast.open_table(tmp_path).check().faults
    wrong = int((rows["sample"] != 0.125).sum())
    messages = found.filter(pl.col("code") == "sample-column")["message"].to_list()
    assert [message.split()[0] for message in messages] == [str(wrong)]


def test_foreign_column_of_other_type_ends_the_sample_column(tmp_path: Path) -> None:
    new(tmp_path)
    others = ROWS.with_columns(sample=pl.lit("text"))
    write_deltalake(tmp_path, others, mode="overwrite", schema_mode="overwrite")
    qbeast.write_table(others.with_columns(pl.col("row") + 1000), tmp_path, mode="append")
    table = qbeast.open_table(tmp_path)
    assert table.read()["sample"].unique().to_list() == ["text"]
    assert_same_rows(table.read(sample=0.5), sampled(table.read(), INDEXED, 0.5))
    assert any("dropped or changed the sample column 'sample'" in note for note in table.check().notes)
    assert table.metrics().health.rows_without_sample == 0


def test_adding_the_column_keeps_rows_and_ends_deletion_of_blocks(tmp_path: Path) -> None:
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(ROWS, tmp_path, INDEXED, cube_size=20)
        write_deltalake(tmp_path, ROWS.with_columns(pl.col("row") + 1000), mode="append")
        table = qbeast.open_table(tmp_path)
        result = table.add_sample_column()
    assert (result.version, result.changed) == (2, ("sample",))
    assert result.rewritten_files == table.files().height > 1
    commit = (tmp_path / "_delta_log" / "00000000000000000002.json").read_text().splitlines()
    changes = [
        body["dataChange"]
        for line in commit
        for key, body in json.loads(line).items()
        if key in ("add", "remove")
    ]
    assert set(changes) == {False}
    check_samples(table, pl.concat([ROWS, ROWS.with_columns(pl.col("row") + 1000)]))
    table.restore(1)
    assert "sample" not in table.schema
    assert "qbeast.minReader" not in read_log(tmp_path).configuration
    assert table.check().ok
    table.restore(2)
    check_samples(table, pl.concat([ROWS, ROWS.with_columns(pl.col("row") + 1000)]))


def test_converted_table_can_have_the_column(tmp_path: Path) -> None:
    ROWS.write_delta(tmp_path)
    qbeast.convert_table(tmp_path, INDEXED)
    table = qbeast.open_table(tmp_path)
    table.add_sample_column()
    check_samples(table, ROWS)


def test_empty_table_can_have_the_column(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.clear(), tmp_path, INDEXED)
    table = qbeast.open_table(tmp_path)
    assert table.add_sample_column().rewritten_files == 0
    qbeast.write_table(ROWS, tmp_path, mode="append")
    table.refresh()
    check_samples(table, ROWS)


def test_append_that_loses_to_the_column_is_staged(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, INDEXED)
    table = qbeast.open_table(tmp_path)
    more = ROWS.with_columns(pl.col("row") + 1000)

    def meanwhile(progress: qbeast.Progress) -> None:
        if progress.stage == "commit":
            qbeast.open_table(tmp_path).add_sample_column()

    result = qbeast.write_table(more, tmp_path, mode="append", progress=meanwhile)
    assert result.staged_files == result.files
    table.refresh()
    assert table.metrics().health.rows_without_sample == 300
    table.optimize()
    check_samples(table, pl.concat([ROWS, more]))


@pytest.mark.parametrize("change", ["append", "delete", "optimize"])
def test_column_that_loses_a_race_is_added_again(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qbeast.write_table(ROWS, tmp_path, INDEXED)
    table, more = qbeast.open_table(tmp_path), ROWS.with_columns(pl.col("row") + 1000)
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: qbeast.write_table(more, tmp_path, mode="append"),
        "delete": lambda: qbeast.open_table(tmp_path).delete("row < 30"),
        "optimize": lambda: qbeast.open_table(tmp_path).optimize(full=True),
    }
    publishing, seen = publish.publish, list[int]()

    def late(*args: Any, **options: Any) -> Any:
        if not seen:
            seen.append(1)
            changes[change]()
        return publishing(*args, **options)

    monkeypatch.setattr(publish, "publish", late)
    table.add_sample_column()
    expected = {
        "append": pl.concat([ROWS, more]),
        "delete": ROWS.filter(pl.col("row") >= 30),
        "optimize": ROWS,
    }
    check_samples(table, expected[change])


REFUSED: dict[str, tuple[Callable[[qbeast.Table], object], str, str | None]] = {
    "a second column": (lambda t: t.add_sample_column("more"), "invalid-input", "name"),
    "an update": (lambda t: t.update("row < 3", {"sample": 0.5}), "invalid-input", "set"),
    "a merge that sets it": (
        lambda t: t.merge(ROWS, "row", update={"sample": 0.5}),
        "invalid-input",
        "update",
    ),
    "a merge by it": (lambda t: t.merge(WRONG, "sample"), "invalid-input", "on"),
    "a wider type": (lambda t: t.widen_columns({"sample": pl.Float64}), "unsupported-table", None),
    "its name again": (lambda t: t.add_columns({"Sample": pl.Float32}), "schema-mismatch", "df"),
    "the JVM's dialect": (lambda t: t.switch_dialect("qbeast-spark"), "invalid-input", "dialect"),
    "an index on it": (
        lambda t: qbeast.write_table(WRONG, t.uri, ["sample"], mode="overwrite"),
        "invalid-input",
        "columns",
    ),
    "another name in an append": (
        lambda t: qbeast.write_table(ROWS, t.uri, mode="append", sample_column="more"),
        "invalid-input",
        "sample_column",
    ),
    "an overwrite for the JVM": (
        lambda t: qbeast.write_table(ROWS, t.uri, mode="overwrite", dialect="qbeast-spark"),
        "invalid-input",
        "sample_column",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_changes_of_the_column_are_refused(name: str, tmp_path: Path) -> None:
    call, code, argument = REFUSED[name]
    table = new(tmp_path)
    with pytest.raises(qbeast.QbeastError) as caught:
        call(table)
    assert (caught.value.code, caught.value.argument) == (code, argument)
    table.refresh()
    assert table.version == 0


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("row", None),
        ("ROW", None),
        ("", None),
        ("a\0b", None),
        ("_qbeast_weight", None),
        (7, None),
        ("s", "qbeast-spark"),
    ],
)
def test_names_and_dialects_without_the_column_are_refused(name: Any, dialect: Any, tmp_path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError) as caught:
        qbeast.write_table(ROWS, tmp_path / "new", INDEXED, sample_column=name, dialect=dialect)
    assert caught.value.argument == "sample_column"
    assert not (tmp_path / "new").exists()
    qbeast.write_table(ROWS, tmp_path / "t", INDEXED, dialect=dialect)
    with pytest.raises(qbeast.InvalidInputError) as caught:
        qbeast.open_table(tmp_path / "t").add_sample_column(name)
    assert caught.value.argument == "name"


def test_newer_reader_version_is_refused_by_reads_and_writes(tmp_path: Path) -> None:
    table = new(tmp_path)
    commit = tmp_path / "_delta_log" / "00000000000000000000.json"
    text = commit.read_text()
    assert '"qbeast.minReader":"2"' in text
    commit.write_text(text.replace('"qbeast.minReader":"2"', '"qbeast.minReader":"99"'))
    for call in (
        lambda: qbeast.open_table(tmp_path),
        lambda: qbeast.write_table(ROWS, tmp_path, mode="append"),
        lambda: qbeast.convert_table(tmp_path, INDEXED),
        table.refresh,
    ):
        with pytest.raises(qbeast.UnsupportedTableError, match="Upgrade qbeast") as caught:
            call()
        assert (caught.value.code, caught.value.feature) == ("unsupported-table", "qbeast.minReader")

"""The life of a sample column: every write computes it, and no input sets it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.spec.table_config import SAMPLE_COLUMN
from tests.foreign.carbondata.collection import table_path
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, sampled, small_files, using

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

INDEXED = ["row", "a"]
ROWS = pl.DataFrame({"row": range(110)}).with_columns(a=pl.col("row") * 31 % 101, text=pl.lit("x"))
MORE = ROWS.with_columns(pl.col("row") + 1000)
WRONG = ROWS.with_columns(sample=pl.lit(0.125, pl.Float32))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "t"
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(ROWS, path, INDEXED, cube_size=20, sample_column="sample")
    return path


@pytest.fixture
def table(written: Path, tmp_path: Path) -> qbeast.Table:
    """A copy of the table, to change."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return qbeast.open_table(tmp_path)


def check_samples(table: qbeast.Table, rows: pl.DataFrame) -> None:
    """Assert that the values of all rows are right, and select samples in another engine."""
    path = Path(table.refresh().uri)
    check_invariants(path)
    assert table.check().ok
    assert table.metrics().health.rows_without_sample == 0
    chosen = sampled(rows, INDEXED, 0.375)
    assert_same_rows(pl.scan_delta(path).filter(pl.col("sample") < 0.375).collect().drop("sample"), chosen)
    assert_same_rows(table.read(sample=0.375).drop("sample"), chosen)
    assert_same_rows(table.read(where=pl.col("sample") < 0.375).drop("sample"), chosen)
    assert_same_rows(table.read().drop("sample"), rows)


def test_new_table_has_nullable_float_column_at_end(table: qbeast.Table) -> None:
    assert table.schema == pl.Schema({**ROWS.schema, "sample": pl.Float32()})
    field = DeltaTable(table.uri).schema().fields[-1]
    assert (field.name, field.type.type, field.nullable) == ("sample", "float", True)
    check_samples(table, ROWS)


@pytest.mark.parametrize(
    ("given", "mode", "resources"),
    [
        (ROWS, "append", SPILL),
        (WRONG, "overwrite", MEMORY),
        (WRONG.select("sample", "text", "a", "row"), "append", MEMORY),
        (WRONG.with_columns(sample=pl.lit("text")), "overwrite", SPILL),
        (WRONG.with_columns(sample=None), "append", MEMORY),
    ],
)
def test_values_of_incoming_rows_are_computed(
    table: qbeast.Table, given: pl.DataFrame, mode: Any, resources: qbeast.Resources
) -> None:
    first, second = (given.with_columns(pl.col("row") + number) for number in (1000, 3000))
    qbeast.write_table(first, table.uri, mode=mode, resources=resources)
    qbeast.write_table(iter([second]), table.uri, mode="append")
    shown = [frame.select(ROWS.columns) for frame in (first, second)]
    check_samples(table, pl.concat([ROWS] * (mode == "append") + shown))


def test_frame_read_from_table_can_be_written_back(table: qbeast.Table) -> None:
    qbeast.write_table(table.read().with_columns(pl.col("row") + 1000), table.uri, mode="append")
    qbeast.write_table(qbeast.read_table(table.uri, where="row >= 1000"), table.uri, mode="overwrite")
    check_samples(table, MORE)


def test_overwrite_of_schema_keeps_or_replaces_the_column(table: qbeast.Table) -> None:
    over: Any = {"mode": "overwrite", "schema_mode": "overwrite"}
    qbeast.write_table(WRONG.drop("text"), table.uri, **over)
    check_samples(table, ROWS.drop("text"))
    assert table.schema.names() == ["row", "a", "sample"]
    qbeast.write_table(ROWS, table.uri, ["text", "row"], sample_column="other", **over)
    assert table.refresh().schema.names() == [*ROWS.columns, "other"]
    half = pl.scan_delta(table.uri).filter(pl.col("other") < 0.5).collect().drop("other")
    assert_same_rows(half, sampled(ROWS, ["text", "row"], 0.5))


def test_update_of_indexed_column_computes_the_value_again(table: qbeast.Table) -> None:
    table.update("row < 40", {"a": "a + 1000"})
    table.update("row >= 100", {"text": "'y'"})
    changed = ROWS.with_columns(
        a=pl.when(pl.col("row") < 40).then(pl.col("a") + 1000).otherwise("a"),
        text=pl.when(pl.col("row") >= 100).then(pl.lit("y")).otherwise("text"),
    )
    check_samples(table, changed)


@pytest.mark.parametrize(
    ("source", "insert", "resources"),
    [
        (WRONG, None, MEMORY),
        (WRONG.with_columns(sample=pl.lit("text")), {name: f"source.{name}" for name in ROWS.columns}, SPILL),
    ],
)
def test_merge_ignores_values_of_the_source(
    table: qbeast.Table, source: pl.DataFrame, insert: Any, resources: qbeast.Resources
) -> None:
    source = source.with_columns(pl.col("row") + 90, a=pl.col("a") + 500)
    using(table, resources).merge(source, "row", insert=insert)
    check_samples(table, pl.concat([ROWS.filter(pl.col("row") < 90), source.select(ROWS.columns)]))


def test_bounds_are_written_whatever_statistics_a_table_has(table: qbeast.Table) -> None:
    table.set_properties({"delta.dataSkippingStatsColumns": "text", "delta.dataSkippingNumIndexedCols": "0"})
    qbeast.write_table(MORE, table.uri, mode="append")
    check_samples(table, pl.concat([ROWS, MORE]))


OLD = table_path("tx230_basic_3segments")


@pytest.fixture(scope="module")
def old_rows() -> pl.DataFrame:
    return qbeast.read_carbondata(OLD)


def test_imported_rows_get_values(tmp_path: Path, old_rows: pl.DataFrame) -> None:
    columns = old_rows.columns[:1]
    qbeast.write_table(old_rows, tmp_path, columns, sample_column="share")
    qbeast.import_carbondata(OLD, tmp_path, columns, mode="append")
    check_invariants(tmp_path)
    table = qbeast.open_table(tmp_path)
    assert table.check().ok
    assert table.read()["share"].null_count() == 0
    assert table.read().height == 2 * old_rows.height


def test_delete_and_optimize_keep_the_values(table: qbeast.Table) -> None:
    table.delete("a > 50")
    table.optimize(full=True)
    check_samples(table, ROWS.filter(pl.col("a") <= 50))


def write_as_before(rows: pl.DataFrame, path: str) -> None:
    """Append like versions of qbeast before the sample column, for which the property has no meaning."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(path, Path(folder) / "t")
        for commit in copy.glob("_delta_log/*.json"):
            commit.write_text(commit.read_text().replace(SAMPLE_COLUMN, "qbeast.unknown"))
        qbeast.write_table(rows, copy, mode="append")
        for commit in copy.glob("_delta_log/*.json"):
            commit.write_text(commit.read_text().replace("qbeast.unknown", SAMPLE_COLUMN))
        shutil.copytree(copy, path, dirs_exist_ok=True)


def write_as_others(rows: pl.DataFrame, path: str) -> None:
    write_deltalake(path, rows, mode="append")


@pytest.mark.parametrize(
    ("write", "stale"),
    [
        (write_as_others, None),
        (write_as_others, 0.75),
        (write_as_before, None),
        (write_as_before, 0.75),
    ],
)
def test_rows_of_other_writers_are_counted_until_optimize(
    table: qbeast.Table, write: Callable[[pl.DataFrame, str], None], stale: float | None
) -> None:
    write(MORE.with_columns(sample=pl.lit(stale, pl.Float32)), table.uri)
    table.refresh()
    every = pl.concat([ROWS, MORE])
    for fraction in (0.3, 0.8):  # ours hashes them
        assert_same_rows(table.read(sample=fraction).drop("sample"), sampled(every, INDEXED, fraction))
    stored = table.read(where="row >= 1000")
    assert stored["sample"].unique().to_list() == [stale]
    assert table.metrics().health.rows_without_sample == 110
    report = table.check()
    assert report.ok
    assert any("110 rows have no value in 'sample'" in note for note in report.notes)
    plan = table.optimize().plan
    assert write is write_as_others or "foreign layout" in plan["reason"]
    check_samples(table, every)


def test_append_of_others_without_the_column_is_read(table: qbeast.Table) -> None:
    write_deltalake(table.uri, MORE, mode="append", schema_mode="merge")
    assert_same_rows(
        table.refresh().read(sample=0.4).drop("sample"), sampled(pl.concat([ROWS, MORE]), INDEXED, 0.4)
    )


def test_check_finds_wrong_values(table: qbeast.Table, tmp_path: Path) -> None:
    name = table.rows().files()["path"][0].rpartition("/")[2]
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


def test_foreign_column_of_other_type_ends_the_sample_column(table: qbeast.Table) -> None:
    others = ROWS.with_columns(sample=pl.lit("text"))
    write_deltalake(table.uri, others, mode="overwrite", schema_mode="overwrite")
    qbeast.write_table(others.with_columns(pl.col("row") + 1000), table.uri, mode="append")
    table.refresh()
    assert table.read()["sample"].unique().to_list() == ["text"]
    assert_same_rows(table.read(sample=0.5), sampled(table.read(), INDEXED, 0.5))
    assert any("dropped or changed the sample column 'sample'" in note for note in table.check().notes)
    assert table.metrics().health.rows_without_sample == 0


def test_adding_the_column_keeps_rows_and_ends_deletion_of_blocks(tmp_path: Path) -> None:
    more = ROWS.head(50).with_columns(pl.col("row") + 1000)
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(ROWS.head(50), tmp_path, INDEXED, cube_size=20)
        write_deltalake(tmp_path, more, mode="append")
        table = qbeast.open_table(tmp_path)
        result = table.add_sample_column()
    assert (result.version, result.changed) == (2, ("sample",))
    assert result.rewritten_files == table.rows().files().height > 1
    commit = (tmp_path / "_delta_log" / "00000000000000000002.json").read_text().splitlines()
    changes = [
        body["dataChange"]
        for line in commit
        for key, body in json.loads(line).items()
        if key in ("add", "remove")
    ]
    assert set(changes) == {False}
    check_samples(table, pl.concat([ROWS.head(50), more]))
    table.restore(1)
    assert "sample" not in table.schema
    assert "qbeast.minReader" not in read_log(tmp_path).configuration
    table.restore(2)
    assert table.read(where="sample < 0.125").height == table.read(sample=0.125).height > 0


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
    check_samples(table, ROWS)


def test_append_that_loses_to_the_column_is_staged(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, INDEXED)
    table = qbeast.open_table(tmp_path)

    def meanwhile(progress: qbeast.Progress) -> None:
        if progress.stage == "commit":
            qbeast.open_table(tmp_path).add_sample_column()

    result = qbeast.write_table(MORE, tmp_path, mode="append", progress=meanwhile)
    assert result.staged_files == result.files
    assert table.refresh().metrics().health.rows_without_sample == 110
    table.optimize()
    check_samples(table, pl.concat([ROWS, MORE]))


CHANGES: dict[str, tuple[Callable[[qbeast.Table], object], pl.DataFrame]] = {
    "append": (lambda t: qbeast.write_table(MORE, t.uri, mode="append"), pl.concat([ROWS, MORE])),
    "delete": (lambda t: t.delete("row < 30"), ROWS.filter(pl.col("row") >= 30)),
    "optimize": (lambda t: t.optimize(full=True), ROWS),
}


@pytest.mark.parametrize("change", CHANGES)
def test_column_that_loses_a_race_is_added_again(tmp_path: Path, change: str) -> None:
    qbeast.write_table(ROWS, tmp_path, INDEXED)
    table, (other, expected) = qbeast.open_table(tmp_path), CHANGES[change]
    with landing_first(lambda: other(qbeast.open_table(tmp_path))):
        table.add_sample_column()
    check_samples(table, expected)


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
def test_changes_of_the_column_are_refused(name: str, table: qbeast.Table) -> None:
    call, code, argument = REFUSED[name]
    with pytest.raises(qbeast.QbeastError) as caught:
        call(table)
    assert (caught.value.code, caught.value.argument) == (code, argument)
    assert table.refresh().version == 0


def test_names_that_cannot_be_added_are_refused(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, INDEXED)
    for name in ("row", "ROW", "", "a\0b", "_qbeast_weight", 7):
        with pytest.raises(qbeast.InvalidInputError) as caught:
            qbeast.open_table(tmp_path).add_sample_column(name)  # type: ignore[arg-type]
        assert caught.value.argument == "name"
    qbeast.write_table(ROWS, tmp_path / "jvm", INDEXED, dialect="qbeast-spark")
    with pytest.raises(qbeast.InvalidInputError):
        qbeast.open_table(tmp_path / "jvm").add_sample_column("new")

"""What a merge takes, refuses and tells, which files it reads, and what other writers beside it make of it."""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.io.location import Location, open_store
from qbeast_core.table.dml.merge_rules import Clauses, MergedFiles, MergeRules
from qbeast_core.table.dml.tasks import Assignments
from qbeast_core.table.engine.row_change import store_rows
from tests.helpers.changes import changes, spread
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.stores import located_files
from tests.helpers.strategies import ROW
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_merge_takes_the_sources_of_write(tmp_path: Path, kind: str) -> None:
    rows = pl.DataFrame({ROW: range(100), "s": [f"text {i}" for i in range(100)]})
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    source = pl.DataFrame({ROW: [5, 200], "s": ["five", "new"]})
    given = source.to_arrow() if kind == "arrow" else source.to_pandas()
    result = qbeast.open_table(tmp_path / "t").merge(given, ROW)
    assert (result.rows_updated, result.rows_inserted, result.rows_deleted) == (1, 1, 0)
    assert_same_rows(qbeast.read_table(tmp_path / "t"), pl.concat([rows.filter(pl.col(ROW) != 5), source]))
    assert not qbeast.open_table(tmp_path / "t").merge(source.clear(), ROW).committed


@pytest.mark.parametrize("copies", [1, 2])  # more matching rows than source rows: their keys are read again
def test_whole_rows_move_alike_in_memory_and_files(tmp_path: Path, copies: int) -> None:
    rows = pl.concat([spread(60)] * copies)
    source = spread(66)[::6].with_columns(s=pl.lit("new"))
    qbeast.write_table(rows, tmp_path / "memory", columns=[ROW, "a"], deletion_vectors=True)
    shutil.copytree(tmp_path / "memory", tmp_path / "spill")
    kept = rows.filter(~pl.col(ROW).is_in(source[ROW].to_list()))
    expected = pl.concat([kept, *[source.head(10)] * copies, source.tail(1)])
    for name, resources in (("memory", MEMORY), ("spill", SPILL)):
        result = qbeast.open_table(tmp_path / name, resources=resources).merge(source, ROW)
        assert (result.rows_updated, result.plan["action"].to_list()) == (10 * copies, ["hide"])
        assert_same_rows(qbeast.read_table(tmp_path / name), expected)


def test_files_without_possible_matches_are_not_read(tmp_path: Path) -> None:
    rows = spread(300)
    with small_files(file_rows=20, page_rows=20):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear", "a"], cube_size=20)
    table = qbeast.open_table(tmp_path / "t")
    source = rows.filter(pl.col(ROW).is_between(100, 110)).with_columns(f=pl.lit(9.0))
    expected = set(table.rows(pl.col(ROW).is_in(source[ROW].to_list())).files()["path"])
    assert 0 < len(expected) <= table.rows().files().height / 2
    for path in set(table.rows().files()["path"]) - expected:
        Path(path).rename(f"{path}.away")
    request = table.merge(source, ROW, dry_run=True)
    assert (request.rows_updated, request.rows_inserted) == (11, 0)
    assert {str(tmp_path / "t" / path) for path in request.plan["path"]} <= expected


def test_large_frames_take_constant_conditions(tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(70_000)}).with_columns(a=pl.col(ROW) % 7)
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    result = table.merge(rows.with_columns(a=pl.lit(1, pl.Int64)), ROW, delete_if="1 = 2")
    assert (result.rows_updated, result.rows_deleted) == (rows.height, 0)
    assert table.rows().lazy().select(pl.col("a").sum()).collect().item() == rows.height


def test_multiple_matches_of_a_row_raise(path: Path, table: qbeast.Table, rows: pl.DataFrame) -> None:
    twice = pl.concat([rows.head(3), rows.head(1)])
    with pytest.raises(qbeast.InvalidInputError, match=r"match several rows.*'row': 0"):
        table.merge(twice, ROW)
    assert read_log(path).version == 1
    new = pl.concat([spread(2, 5000)] * 2)
    assert table.merge(new, ROW, matched_if=f"source.{ROW} > 99", duplicates="insert").rows_inserted == 4
    assert table.merge(twice, ROW, when_matched="delete", when_not_matched="ignore").rows_deleted == 3
    assert not table.merge(new, ROW, when_matched="ignore").committed


def test_rows_within_space_keep_their_revision(tmp_path: Path) -> None:
    rows = spread(200)
    with small_files(file_rows=20, page_rows=20):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear"], cube_size=20)
        table = qbeast.open_table(tmp_path / "t")
        matching = table.rows(pl.col(ROW) >= 190).explain().files["opened"].sum()
        result = table.merge(spread(30, 190), ROW)
    assert (result.new_revision, result.rows_updated, result.rows_inserted) == (True, 10, 20)
    assert result.plan.filter(pl.col("matched") > 0).height <= matching < 10
    assert result.files_removed < 10
    revisions = table.rows().files()["revision_id"]
    assert (revisions == 1).sum() > revisions.len() / 2
    assert revisions.unique().sort().to_list() == [1, 2]
    assert_same_rows(table.read(), pl.concat([rows[:190], spread(30, 190)]))
    check_invariants(tmp_path / "t")
    assert table.check().faults.is_empty()


def test_append_only_table_takes_only_new_rows(tmp_path: Path) -> None:
    rows = spread(100)
    write_deltalake(tmp_path / "t", rows, configuration={"delta.appendOnly": "true"})
    qbeast.convert_table(tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    source = spread(30, 80)
    with pytest.raises(qbeast.UnsupportedTableError, match="appendOnly"):
        table.merge(source, ROW)
    assert table.merge(source, ROW, when_matched="ignore").rows_inserted == 10
    assert table.history(1)["is_blind_append"].to_list() == [False]
    assert_same_rows(table.read(), spread(110))


def test_history_matches_delta(table: qbeast.Table, rows: pl.DataFrame) -> None:
    result = table.merge(changes(rows), [ROW], delete_if="source.a > 300", matched_if="a > 3")
    entry = table.history(1).row(0, named=True)
    metrics, parameters = entry["metrics"], entry["parameters"]
    assert entry["operation"] == "MERGE"
    assert json.loads(parameters["predicate"]) == [f"target.{ROW} = source.{ROW}"]
    assert [clause["actionType"] for clause in json.loads(parameters["matchedPredicates"])] == [
        "delete",
        "update",
    ]
    assert json.loads(parameters["notMatchedPredicates"]) == [{"actionType": "insert"}]
    assert json.loads(parameters["notMatchedBySourcePredicates"]) == []
    report = {
        "numTargetRowsInserted": result.rows_inserted,
        "numTargetRowsUpdated": result.rows_updated,
        "numTargetRowsDeleted": result.rows_deleted,
        "numTargetRowsCopied": result.rows_copied,
        "numTargetFilesAdded": result.files,
        "numTargetFilesRemoved": result.files_removed,
        "numSourceRows": changes(rows).height,
    }
    assert {name: metrics[name] for name in report} == report
    assert result.rows_deleted > 0


@pytest.mark.parametrize(
    ("on", "options", "error", "message"),
    [
        (["a", "a"], {}, qbeast.InvalidInputError, "each once"),
        ("n", {}, qbeast.InvalidInputError, "nested"),
        ("d", {}, qbeast.InvalidInputError, "source has no column"),
        ("a", {"when_matched": "ignore", "when_not_matched": "ignore"}, qbeast.InvalidInputError, "nothing"),
        ("a", {"when_matched": "delete", "update": {"a": 1}}, qbeast.InvalidInputError, "has no effect"),
        ("a", {"not_matched_by_source_if": "a > 1"}, qbeast.InvalidInputError, "has no effect"),
        ("a", {"when_not_matched": "ignore", "insert": {"a": 1}}, qbeast.InvalidInputError, "has no effect"),
        (
            "a",
            {"when_not_matched": "ignore", "duplicates": "insert"},
            qbeast.InvalidInputError,
            "has no effect",
        ),
        ("a", {"duplicates": "keep"}, qbeast.InvalidInputError, "must be"),
        ("a", {}, qbeast.SchemaMismatchError, "column 'd' is missing"),
        ("a", {"not_matched_if": "a > 1"}, qbeast.SchemaMismatchError, "'d' is missing"),
        ("a", {"source_name": "s"}, qbeast.InvalidInputError, "source_name"),
    ],
)
def test_invalid_merges_raise(
    tmp_path: Path, on: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    rows = spread(100).with_columns(n=pl.struct("a"))
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    with pytest.raises(error, match=message):
        qbeast.open_table(tmp_path / "t").merge(rows.drop("d"), on, **options)
    assert read_log(tmp_path / "t").version == 0


@pytest.mark.parametrize("resources", [MEMORY, SPILL], ids=["memory", "spill"])
def test_only_rows_to_insert_need_keys_of_their_own(tmp_path: Path, resources: qbeast.Resources) -> None:
    nan = float("nan")
    keys = pl.Series([nan, nan, -0.0, 0.0, 1.0, 1.0, None, None])
    source = pl.DataFrame({"x": keys, "v": range(8)})
    qbeast.write_table(pl.DataFrame({"x": [1.0], "v": [9]}), tmp_path, columns=["v"])
    merge = partial(qbeast.open_table(tmp_path, resources=resources).merge, source, "x")
    with pytest.raises(qbeast.InvalidInputError, match=r"^2 row.* Nothing was changed"):
        merge(when_matched="delete", dry_run=True)
    assert merge(when_matched="delete", not_matched_if="source.v in (0, 2, 6, 7)").rows_inserted == 4
    assert_same_rows(qbeast.read_table(tmp_path), source[[0, 2, 6, 7]], key="v")


def test_insert_conditions_see_only_the_source(tmp_path: Path) -> None:
    rows = spread(100)
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    with pytest.raises(qbeast.InvalidInputError, match="no such column"):
        table.merge(rows, ROW, not_matched_if="a > 1")
    with pytest.raises(qbeast.SchemaMismatchError, match="is Float64"):
        table.merge(rows.with_columns(pl.col("a") + 0.5), ROW)


def test_source_rows_load_once_per_file(tmp_path: Path) -> None:
    """Rows wait by the file they match in, whatever batches its rows come in."""
    rows = pl.DataFrame({"row": range(90)}).with_columns(a=pl.col("row") * 2)
    qbeast.write_table(rows, tmp_path, columns=["row"])
    source = pl.DataFrame({"row": [3, 40, 89], "a": [-3, -40, -89]})
    store = open_store(str(tmp_path), {})
    place = store_rows(store, source, operation=str(uuid.uuid4()))
    clauses = Clauses(on="row")
    values = tuple(pl.col("source").struct.field(name) for name in rows.columns)
    rules = MergeRules(
        schema_json="",
        schema=rows.schema,
        named_schema=rows.schema,
        clauses=clauses,
        conditions=clauses.conditions(rows.schema, source.schema),
        updates=Assignments(values, frozenset(), "update"),
        inserts=None,
        source_schema=source.schema,
        copied_schema=rows.schema,
    )
    files = MergedFiles(rules, Location.of(tmp_path), {"some file": place})
    assert files.of_file("another file") is None
    change = files.of_file("some file")
    assert change is not None
    sent = len(pickle.dumps(change))
    with located_files() as loaded:
        actual = pl.concat([change(some) for some in rows.iter_slices(10)])
        assert loaded == [place]
        assert_same_rows(actual, pl.concat([rows.join(source, on="row", how="anti"), source]), "row")
        assert len(pickle.dumps(change)) == sent
        sent_again = pickle.loads(pickle.dumps(change))  # noqa: S301 -- our own
        assert_same_rows(sent_again(rows), actual, "row")
        assert loaded == [place] * 2

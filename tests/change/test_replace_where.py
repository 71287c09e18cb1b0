"""Overwrites of the rows that match a condition: the other rows stay, and all of it is one commit."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.store import LocalStore
from tests.helpers.change_feed import check_feed
from tests.helpers.change_races import beside
from tests.helpers.examples import examples
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
FIRST = date(2026, 11, 1)
ROWS = pl.DataFrame({"id": range(600)}).with_columns(
    day=pl.lit(FIRST) + pl.duration(days=pl.col("id") % 28), v=pl.col("id") * 0.5
)
DAY = FIRST + timedelta(days=4)
WHERE = f"day = DATE '{DAY}'"
OTHERS = ROWS.filter(pl.col("day") != DAY)
NEW = pl.DataFrame({"id": [9000, 9001], "day": [DAY, DAY], "v": [1.0, 2.0]})


def written(path: Path, *, vectors: bool = True, feed: bool = False) -> Path:
    qbeast.write_table(
        ROWS, path, columns=["day", "id"], cube_size=100, deletion_vectors=vectors, change_feed=feed
    )
    return path


@pytest.mark.timeout(3000)
@examples(2, sweep=60, parent=RELAXED)
@given(case=cases(most_frames=2, most_rows=20), data=st.data(), vectors=st.booleans())
def test_rows_equal_a_filter_and_a_concat(case: Case, data: st.DataObject, vectors: bool) -> None:  # noqa: FBT001 -- drawn
    condition = data.draw(filters(case.rows, 2))
    matching = kept_rows(case.rows, condition)
    if matching is None:
        return
    with folder() as path, small_files():
        write(path, case)
        table = qbeast.open_table(path)
        if vectors and case.dialect == "documented":
            table.set_properties({"delta.enableDeletionVectors": "true"})
        new = matching.head(3)
        try:
            result = qbeast.write_table(new, path, mode="overwrite", where=condition)
        except qbeast.InvalidInputError as error:
            assert "looks at several columns" in str(error)  # noqa: PT017 -- a literal made of a Series
            return
        rest = case.rows.join(matching, on=ROW, how="anti")
        assert (result.rows, result.rows_deleted) == (new.height, matching.height)
        assert_same_rows(table.refresh().read(), pl.concat([rest, new]))
        check_invariants(path)


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("kind", ["frame", "query", "iterator", "spill"])
def test_every_kind_of_rows_replaces_a_day(tmp_path: Path, kind: str, vectors: bool) -> None:  # noqa: FBT001
    path = written(tmp_path / "t", vectors=vectors)
    resources = qbeast.Resources(engine="spill") if kind == "spill" else None
    sources = {"frame": NEW, "query": NEW.lazy(), "spill": NEW.lazy(), "iterator": NEW.iter_slices(1)}
    result = qbeast.write_table(sources[kind], path, mode="overwrite", where=WHERE, resources=resources)
    assert (result.version, result.rows, result.rows_deleted) == (1, 2, ROWS.height - OTHERS.height)
    expected = pl.concat([OTHERS, NEW])
    assert_same_rows(qbeast.read_table(path), expected, key="id")
    assert_same_rows(pl.read_delta(str(path)), expected, key="id")
    assert len(list((path / "_delta_log").glob("*.json"))) == 2


def test_result_equals_the_overwrite_of_deltalake(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "plain", ROWS)
    write_deltalake(tmp_path / "plain", NEW, mode="overwrite", predicate=f"day = '{DAY}'")
    qbeast.write_table(NEW, written(tmp_path / "t"), mode="overwrite", where=WHERE)
    assert_same_rows(qbeast.read_table(tmp_path / "t"), pl.read_delta(str(tmp_path / "plain")), key="id")


def test_rows_outside_are_refused_with_count_and_example(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    before = sorted(path.rglob("*"))
    wrong = pl.concat([NEW, NEW.with_columns(day=pl.lit(FIRST)), NEW.with_columns(day=pl.lit(None, pl.Date))])
    with pytest.raises(
        qbeast.InvalidInputError, match=r"4 row\(s\) of df do not match .*2026, 11, 1"
    ) as error:
        qbeast.write_table(wrong, path, mode="overwrite", where=WHERE)
    assert error.value.argument == "where"
    assert sorted(path.rglob("*")) == before
    with pytest.raises(qbeast.InvalidInputError, match=r"4 row\(s\)"):
        qbeast.write_table(wrong, tmp_path / "new", columns=["id"], mode="overwrite", where=WHERE)
    assert not (tmp_path / "new").exists()


def test_missing_table_is_created_and_kept_by_the_next_run(tmp_path: Path) -> None:
    for version, rows in enumerate((NEW, NEW[:1])):
        job = {"columns": ["day", "id"], "mode": "overwrite", "where": WHERE, "deletion_vectors": True}
        assert qbeast.write_table(iter([rows]), tmp_path / "t", **job).version == version  # type: ignore[arg-type]
        assert_same_rows(qbeast.read_table(tmp_path / "t"), rows, key="id")


def test_transaction_replaces_rows_once(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    job = {"mode": "overwrite", "where": WHERE, "txn": ("nightly", 5)}
    assert qbeast.write_table(NEW, path, **job).committed  # type: ignore[arg-type]
    again = qbeast.write_table(NEW[:1], path, **job)  # type: ignore[arg-type]
    assert (again.committed, again.skipped, again.version) == (False, True, 1)
    assert_same_rows(qbeast.read_table(path), pl.concat([OTHERS, NEW]), key="id")


def test_no_rows_delete_the_day(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    result = qbeast.write_table(NEW.clear(), path, mode="overwrite", where=WHERE)
    assert (result.committed, result.rows, result.files) == (True, 0, 0)
    assert_same_rows(qbeast.read_table(path), OTHERS, key="id")


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    before = sorted(path.rglob("*"))
    result = qbeast.write_table(NEW, path, mode="overwrite", where=WHERE, dry_run=True)
    assert (result.committed, result.rows, result.rows_deleted) == (False, 2, ROWS.height - OTHERS.height)
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("vectors", [True, False])
def test_feed_has_deletes_and_inserts(tmp_path: Path, vectors: bool) -> None:  # noqa: FBT001
    rows, new = (frame.rename({"id": ROW}) for frame in (ROWS, NEW))
    path = tmp_path / "t"
    qbeast.write_table(rows, path, columns=["day"], deletion_vectors=vectors, change_feed=True)
    qbeast.write_table(new, path, mode="overwrite", where=WHERE)
    gone, after = rows.filter(pl.col("day") == DAY), qbeast.read_table(path)
    check_feed(path, 1, rows, after, {"delete": gone[ROW], "insert": new[ROW]})


def test_new_columns_need_a_merge_of_schemas(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    wide = NEW.with_columns(note=pl.lit("new"))
    with pytest.raises(qbeast.SchemaMismatchError, match="'note' is not in the table"):
        qbeast.write_table(wide, path, mode="overwrite", where=WHERE)
    qbeast.write_table(wide, path, mode="overwrite", where=WHERE, schema_mode="merge")
    expected = pl.concat([OTHERS, wide], how="diagonal")
    assert_same_rows(qbeast.read_table(path), expected, key="id")


def test_rows_of_a_concurrent_append_are_replaced_too(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    late = pl.DataFrame({"id": [700, 701], "day": [DAY, FIRST], "v": [0.0, 0.0]})
    result = beside(
        path,
        lambda: qbeast.write_table(late, path, mode="append"),
        change=lambda _: qbeast.write_table(NEW, path, mode="overwrite", where=WHERE),
    )
    assert result.version == 2
    assert_same_rows(qbeast.read_table(path), pl.concat([OTHERS, late[1:], NEW]), key="id")


def test_failed_commit_leaves_no_file(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    before = sorted(path.rglob("*"))
    failure = qbeast.StorageError("the disk is full", path=str(path))
    failing = mock.patch.object(LocalStore, "put_if_absent", side_effect=failure)
    with failing, pytest.raises(qbeast.StorageError, match="the disk is full"):
        qbeast.write_table(NEW, path, mode="overwrite", where=WHERE)
    assert sorted(path.rglob("*")) == before


def test_history_has_the_terms_of_delta(tmp_path: Path) -> None:
    path = written(tmp_path / "t")
    qbeast.write_table(NEW, path, mode="overwrite", where=WHERE)
    lines = (path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    info = json.loads(lines[0])["commitInfo"]
    assert (info["operation"], info["isBlindAppend"]) == ("WRITE", False)
    assert info["operationParameters"] == {"mode": "Overwrite", "partitionBy": "[]", "predicate": WHERE}
    assert info["operationMetrics"]["numOutputRows"] == "2"
    assert info["operationMetrics"]["numDeletedRows"] == str(ROWS.height - OTHERS.height)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "append"}, 'needs mode="overwrite"'),
        ({"columns": ["v"]}, r"indexed by \['day', 'id'\]"),
        ({"cube_size": 7}, "must be left out"),
        ({"schema_mode": "overwrite"}, "must be 'merge' or None"),
        ({"where": "nothing = 1"}, "nothing"),
    ],
)
def test_options_of_other_writes_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    path = written(tmp_path / "t")
    with pytest.raises(qbeast.InvalidInputError, match=message):
        qbeast.write_table(NEW, path, **{"mode": "overwrite", "where": WHERE, **options})  # type: ignore[arg-type]
    assert_same_rows(qbeast.read_table(path), ROWS, key="id")

"""After a redraw the metadata holds no value that is not in the rows; the rows are the same."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows, small_files

COLUMNS = ["email", "age:quantiles", "height:linear", "id:hash"]
GONE = "person007"


def people(first: int, count: int) -> pl.DataFrame:
    row = pl.int_range(first, first + count, eager=True)
    return pl.DataFrame(
        {
            "row": row,
            "email": [f"person{n:03}@example.org" for n in row],
            "age": row * 37 % 1009,
            "height": row + 0.25,
            "id": [f"id{n}" for n in row],
        }
    )


def written(path: Path) -> pl.DataFrame:
    """Two writes in two revisions."""
    with small_files():
        qbeast.write_table(people(0, 120), path, columns=COLUMNS, cube_size=30)
        qbeast.write_table(people(5_000, 120), path, mode="append", cube_size=20)
    return pl.concat([people(0, 120), people(5_000, 120)])


def drawn(table: qbeast.Table) -> tuple[set[str], set[float]]:
    """Return texts and numbers that the revisions keep of the indexed values."""
    texts: set[str] = set()
    numbers: set[float] = set()
    for revision in table.revisions:
        for space in json.loads(revision.to_json())["transformations"]:
            values = [*space.get("quantiles", ()), space.get("minNumber"), space.get("maxNumber")]
            texts |= {value for value in values if isinstance(value, str)}
            numbers |= {float(value) for value in values if isinstance(value, int | float)}
    return texts, numbers


def configuration(path: Path) -> dict[str, str]:
    return DeltaTable(path).metadata().configuration


def test_values_of_deleted_rows_leave_the_metadata(tmp_path: Path) -> None:
    rows = written(tmp_path)
    table = qbeast.open_table(tmp_path)
    assert len(table.revisions) == 3
    gone = (pl.col("row") % 2 == 1) | (pl.col("row") < 10)
    table.delete(gone)
    table.optimize(full=True)
    deleted = set(rows.filter(gone)["email"])
    assert drawn(table)[0] & deleted  # as before
    result = table.optimize(into="new")
    left = rows.filter(~gone)
    assert (result.new_revision, result.rows, result.commits) == (True, left.height, 1)
    assert [revision.revision_id for revision in table.revisions] == [0, 3]
    texts, numbers = drawn(table)
    assert texts <= set(left["email"])
    assert numbers <= {*left["age"].cast(pl.Float64), *left["height"]}
    assert [item.kind for item in table.revisions[-1].column_transformers] == [
        "quantiles",
        "quantiles",
        "linear",
        "hashing",
    ]
    kept = json.dumps(configuration(tmp_path))
    assert not [email for email in deleted if email in kept]
    assert_same_rows(table.scan().collect(), left, "row")
    assert table.check(data=True).ok
    qbeast.write_table(people(9_000, 50), tmp_path, mode="append")
    assert table.refresh().scan().collect().height == left.height + 50


def test_samples_are_the_same_rows(tmp_path: Path) -> None:
    written(tmp_path)
    table = qbeast.open_table(tmp_path)
    before = table.scan(sample=0.3).collect()
    table.optimize(into="new")
    assert_same_rows(table.scan(sample=0.3).collect(), before, "row")


def test_table_without_rows_keeps_no_value(tmp_path: Path) -> None:
    written(tmp_path)
    table = qbeast.open_table(tmp_path)
    table.delete(where=True)
    result = table.optimize(into="new")
    assert (result.committed, result.rows) == (True, 0)
    assert "nothing was changed" not in repr(result)
    texts, numbers = drawn(table)
    assert (texts - {"", "\0"}, numbers - {0.0, 1.0}) == (set(), set())
    qbeast.write_table(people(0, 50), tmp_path, mode="append")
    assert_same_rows(qbeast.read_table(tmp_path), people(0, 50), "row")


def test_files_without_index_are_included(tmp_path: Path) -> None:
    rows = written(tmp_path)
    write_deltalake(tmp_path, people(20_000, 30), mode="append")
    table = qbeast.open_table(tmp_path)
    table.optimize(into="new")
    assert set(table.files()["revision_id"]) == {3}
    assert_same_rows(table.scan().collect(), pl.concat([rows, people(20_000, 30)]), "row")


def test_concurrently_added_files_keep_their_revision(tmp_path: Path) -> None:
    rows = written(tmp_path)
    table = qbeast.open_table(tmp_path)
    with landing_first(lambda: qbeast.write_table(people(5_200, 40), tmp_path, mode="append")):
        table.optimize(into="new")
    table = qbeast.open_table(tmp_path)
    assert 2 in {revision.revision_id for revision in table.revisions}
    assert 1 not in {revision.revision_id for revision in table.revisions}
    assert_same_rows(table.scan().collect(), pl.concat([rows, people(5_200, 40)]), "row")
    assert table.check(data=True).ok
    table.optimize(into="new")
    assert len(table.revisions) == 2


def test_user_statistics_are_dropped(tmp_path: Path) -> None:
    written(tmp_path)
    DeltaTable(tmp_path).alter.set_table_properties(
        {"columnStats": '{"email_quantiles":["person007"]}'}, raise_if_not_exists=False
    )
    qbeast.open_table(tmp_path).optimize(into="new")
    assert GONE not in json.dumps({k: v for k, v in configuration(tmp_path).items() if k == "columnStats"})


def test_dry_run_names_every_file(tmp_path: Path) -> None:
    written(tmp_path)
    table = qbeast.open_table(tmp_path)
    plan = table.optimize(into="new", dry_run=True).plan
    assert plan.height == table.files().height
    assert len(qbeast.open_table(tmp_path).revisions) == 3


@pytest.mark.parametrize("options", [{"revision": 1}, {"files": []}, {"fraction": 0.5}, {"revision": "all"}])
def test_options_choosing_files_raise(tmp_path: Path, options) -> None:
    written(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match='into="new" rewrites the whole table'):
        qbeast.open_table(tmp_path).optimize(into="new", **options)

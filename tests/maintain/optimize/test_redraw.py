"""After a redraw the metadata holds no value that is not in the rows; the rows are the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

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


ROWS = pl.concat([people(0, 60), people(5_000, 60)])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two writes in two revisions."""
    path = tmp_path_factory.mktemp("people")
    with small_files():
        qbeast.write_table(people(0, 60), path, columns=COLUMNS, cube_size=30)
        qbeast.write_table(people(5_000, 60), path, mode="append", cube_size=20)
    return path


@pytest.fixture
def table(written: Path, tmp_path: Path) -> qbeast.Table:
    return qbeast.open_table(shutil.copytree(written, tmp_path / "t"))


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


def test_values_of_deleted_rows_leave_the_metadata(table: qbeast.Table) -> None:
    assert len(table.revisions) == 3
    gone = (pl.col("row") % 2 == 1) | (pl.col("row") < 10)
    table.delete(gone)
    table.optimize(full=True)
    deleted = set(ROWS.filter(gone)["email"])
    assert drawn(table)[0] & deleted  # as before
    result = table.optimize(into="new")
    left = ROWS.filter(~gone)
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
    kept = json.dumps(DeltaTable(table.uri).metadata().configuration)
    assert not [email for email in deleted if email in kept]
    assert_same_rows(table.read(), left, "row")
    assert table.check(data=True).ok
    qbeast.write_table(people(9_000, 50), table.uri, mode="append")
    assert table.refresh().read().height == left.height + 50


def test_redraw_includes_all_files_and_keeps_samples(table: qbeast.Table) -> None:
    written = table.read(sample=0.3)
    others = people(20_000, 30)
    write_deltalake(table.uri, others, mode="append")
    statistics = {"columnStats": f'{{"email_quantiles":["{GONE}"]}}'}
    DeltaTable(table.uri).alter.set_table_properties(statistics, raise_if_not_exists=False)
    plan = table.refresh().optimize(into="new", dry_run=True).plan
    assert plan.height == table.rows().files().height
    assert len(table.revisions) == 3
    table.optimize(into="new")
    assert set(table.rows().files()["revision_id"]) == {3}
    assert_same_rows(table.read(), pl.concat([ROWS, others]), "row")
    assert_same_rows(table.read(where="row < 20000", sample=0.3), written, "row")
    assert GONE not in DeltaTable(table.uri).metadata().configuration.get("columnStats", "")


def test_table_without_rows_keeps_no_value(table: qbeast.Table) -> None:
    table.delete(where=True)
    result = table.optimize(into="new")
    assert (result.committed, result.rows) == (True, 0)
    assert "nothing was changed" not in repr(result)
    texts, numbers = drawn(table)
    assert (texts - {"", "\0"}, numbers - {0.0, 1.0}) == (set(), set())
    qbeast.write_table(people(0, 50), table.uri, mode="append")
    assert_same_rows(table.refresh().read(), people(0, 50), "row")


def test_concurrently_added_files_keep_their_revision(table: qbeast.Table) -> None:
    with landing_first(lambda: qbeast.write_table(people(5_100, 40), table.uri, mode="append")):
        table.optimize(into="new")
    table.refresh()
    assert 2 in {revision.revision_id for revision in table.revisions}
    assert 1 not in {revision.revision_id for revision in table.revisions}
    assert_same_rows(table.read(), pl.concat([ROWS, people(5_100, 40)]), "row")
    assert table.check(data=True).ok
    table.optimize(into="new")
    assert len(table.revisions) == 2


def test_options_choosing_files_raise(table: qbeast.Table) -> None:
    wrong: list[dict[str, Any]] = [{"revision": 1}, {"files": []}, {"fraction": 0.5}, {"revision": "all"}]
    for options in wrong:
        with pytest.raises(qbeast.InvalidInputError, match='into="new" rewrites the whole table'):
            table.optimize(into="new", **options)

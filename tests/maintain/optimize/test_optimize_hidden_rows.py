"""Optimize and hidden rows: files with few stay until a purge, and no rewrite brings a hidden row back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples
from tests.helpers.small_files import resized, small_files
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(2000), "x": [(i * 7919) % 2003 for i in range(2000)]})


@pytest.fixture(autouse=True)
def several_files() -> Iterator[None]:
    with small_files(file_rows=500, page_rows=64), resized(small_file_rows=1):
        yield


def write(path: Path, columns: list[str]) -> qbeast.Table:
    qbeast.write_table(ROWS, path, columns=columns, deletion_vectors=True)
    return qbeast.open_table(path)


def hidden(table: qbeast.Table) -> int:
    """Return the number of rows in files that Polars does not return."""
    stored = sum(pl.read_parquet(path).height for path in live_files(table))
    return stored - pl.read_delta(table.uri).height


def live_files(table: qbeast.Table) -> list[str]:
    return table.rows().files()["path"].to_list()


def remove(rows: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    return rows.filter(~condition)


@pytest.mark.parametrize("columns", [["id", "x"], []])
def test_few_hidden_rows_stay_until_a_purge(tmp_path: Path, columns: list[str]) -> None:
    table = write(tmp_path / "t", columns)
    few = pl.col("id") % 50 == 0
    table.delete(few)
    before = live_files(table)
    assert not table.optimize().committed
    assert live_files(table) == before
    assert hidden(table) > 0
    dry = table.optimize(purge=True, dry_run=True)
    assert set(dry.plan["reason"]) == {"deletion vector"}
    assert dry.plan["rows"].sum() == remove(ROWS, few).height
    assert sorted(dry.plan["path"]) == sorted(path.rpartition("/")[2] for path in before)
    assert table.optimize(purge=True).committed
    assert hidden(table) == 0
    assert not set(before) & set(live_files(table))
    assert_same_rows(table.read(), remove(ROWS, few), key="id")
    assert_same_rows(pl.read_delta(table.uri), remove(ROWS, few), key="id")
    assert not table.optimize(purge=True).committed
    assert table.check().ok


@pytest.mark.parametrize("columns", [["id", "x"], []])
def test_many_hidden_rows_are_rewritten(tmp_path: Path, columns: list[str]) -> None:
    table = write(tmp_path / "t", columns)
    many = pl.col("id") % 7 == 0
    table.delete(many)
    assert hidden(table) > 0
    result = table.optimize()
    assert set(result.plan["reason"]) == {"deletion vector"}
    assert hidden(table) == 0
    assert_same_rows(table.read(), remove(ROWS, many), key="id")


@pytest.mark.parametrize(
    "options",
    [{"full": True}, {"into": "new"}, {"into": "newest"}, {"revision": "all"}, {"full": True, "into": "new"}],
)
def test_purge_combines_with_other_options(tmp_path: Path, options: dict[str, Any]) -> None:
    table = write(tmp_path / "t", ["id", "x"])
    few = pl.col("id") % 50 == 0
    table.delete(few)
    table.reindex(["x"])
    assert table.optimize(purge=True, **options).committed
    assert hidden(table) == 0
    assert_same_rows(table.read(), remove(ROWS, few), key="id")


@pytest.mark.parametrize("options", [{"files": []}, {"fraction": 0.5}, {"revision": 1}])
def test_purge_of_some_files_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    table = write(tmp_path / "t", ["id", "x"])
    with pytest.raises(qbeast.InvalidInputError, match="purge"):
        table.optimize(purge=True, **options)
    with pytest.raises(qbeast.InvalidInputError, match="purge"):
        table.optimize(purge=1)  # type: ignore[arg-type]


def test_purge_reaches_files_of_other_writers(tmp_path: Path) -> None:
    """Also files that another implementation clustered, which an optimize otherwise leaves alone."""
    table = write(tmp_path / "t", ["id"])
    more = pl.DataFrame({"id": range(5000, 5400), "x": range(400)})
    more.write_delta(table.uri, mode="append")
    table.refresh()
    few = pl.col("x") % 100 == 0
    table.delete(few)
    assert hidden(table) > 0
    table.optimize(purge=True)
    assert hidden(table) == 0
    assert_same_rows(table.read(), remove(pl.concat([ROWS, more]), few), key="id")


steps = st.lists(
    st.sampled_from(["delete", "update", "append", "optimize", "purge", "full", "restore"]),
    min_size=2,
    max_size=5,
)


@given(steps=steps, seed=st.integers(0, 40))
@examples(1, sweep=40)
def test_hidden_rows_never_come_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    table, model = write(tmp_path_factory.mktemp("t") / "t", ["id", "x"]), ROWS
    versions = {table.version: model}
    for number, step in enumerate(steps):
        part = (pl.col("x") + seed + number) % 41 == 0
        if step == "delete":
            table.delete(part)
            model = remove(model, part)
        elif step == "update":
            table.update(part, {"x": pl.col("x") + 5000})
            model = model.with_columns(x=pl.when(part).then(pl.col("x") + 5000).otherwise("x"))
        elif step == "append":
            more = pl.DataFrame({"id": range(9000 * (number + 1), 9000 * (number + 1) + 60), "x": range(60)})
            qbeast.write_table(more, table.uri, mode="append")
            table.refresh()
            model = pl.concat([model, more])
        elif step == "restore":
            version = sorted(versions)[seed % len(versions)]
            table.restore(version)
            model = versions[version]
        else:
            table.optimize(purge=step == "purge", full=step == "full")
            assert step != "purge" or hidden(table) == 0
            newest = table.rows().files().filter(revision_id=table.revisions[-1].revision_id)
            assert step != "full" or not newest["has_deletion_vector"].any()
        versions[table.version] = model
        assert_same_rows(table.read(), model, key="id")
    assert_same_rows(pl.read_delta(table.uri), model, key="id")
    assert table.check().ok

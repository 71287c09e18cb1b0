"""Rows and bytes that a change copies: a dry run counts them for both kinds of tables, and a hint names the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.changes import spread
from tests.helpers.handmade_log import replay, write_log
from tests.helpers.row_ids import commits
from tests.helpers.strategies import ROW
from tests.helpers.tables import small_files
from tests.helpers.vectors import ENABLED, enable_vectors, few

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning"),
]
NUMBER = pl.col(ROW)
ROWS = spread(200).with_columns(p=NUMBER % 2)
SOME = (NUMBER % 13).eq(5)
FIRST = NUMBER < 90
MANY_COPIES = 10
MOST_HIDDEN = 0.3
WORDS = re.compile(
    r"([\d,]+) rows (?:would be|were) copied to change ([\d,]+)\. After (.*?), this change would .*"
)


def upsert(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows.with_columns(f=pl.lit(0.25)), spread(4, 9000).with_columns(p=NUMBER % 2)])


def replaced(table: qbeast.Table, **options: Any) -> qbeast.WriteResult:
    new = ROWS.filter(FIRST).head(7)
    return qbeast.write_table(new, table.uri, mode="overwrite", where=FIRST, **options)


@dataclass(frozen=True)
class Case:
    """A change, and the rows of the table that it deletes or updates."""

    change: Callable[..., qbeast.ChangeResult | qbeast.WriteResult]
    matched: pl.Expr


CASES: Mapping[str, Case] = {
    "delete": Case(lambda table, **options: table.delete(SOME, **options), SOME),
    "delete of most rows of files": Case(lambda table, **options: table.delete(FIRST, **options), FIRST),
    "update": Case(lambda table, **options: table.update(SOME, {"f": "f + 1"}, **options), SOME),
    "update of keys": Case(lambda table, **options: table.update(FIRST, {"a": "7"}, **options), FIRST),
    "merge": Case(lambda table, **options: table.merge(upsert(ROWS.filter(SOME)), ROW, **options), SOME),
    "merge that deletes": Case(
        lambda table, **options: table.merge(
            ROWS.filter(FIRST), ROW, when_matched="delete", when_not_matched="ignore", **options
        ),
        FIRST,
    ),
    "overwrite": Case(replaced, FIRST),
}
KINDS: Mapping[str, dict[str, Any]] = {
    "index": {"columns": [ROW, "a"], "cube_size": 40},
    "no index": {"columns": []},
    "mapped partitions": {"columns": [ROW, "a"], "cube_size": 40, "partition_by": ["p"]},
}


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of several files without deletion vectors."""
    folder = tmp_path_factory.mktemp("copies")
    for kind, options in KINDS.items():
        with small_files(file_rows=50, page_rows=8):
            qbeast.write_table(ROWS, folder / kind, **options)
    table = qbeast.open_table(folder / "mapped partitions")
    table.rename_column("d", "e", upgrade_protocol=True)
    table.rename_column("e", "d")
    return folder


def copies_of(path: Path, matched: pl.Expr) -> list[tuple[bool, int, float]]:
    """Return what a change copies by plain Polars, without and with deletion vectors."""
    totals = {False: (0, 0.0), True: (0, 0.0)}
    for name, add in replay(path).items():
        rows = pl.read_parquet(path / name)
        kept = rows.filter(~matched).height
        if kept == rows.height:
            continue
        is_hidden = kept and (rows.height - kept) / rows.height <= MOST_HIDDEN
        for vectors in (False,) if is_hidden else (False, True):
            count, size = totals[vectors]
            totals[vectors] = count + kept, size + add["size"] * kept / rows.height
    return [(vectors, *total) for vectors, total in totals.items()]


def changed_rows(result: qbeast.ChangeResult | qbeast.WriteResult) -> int:
    if isinstance(result, qbeast.WriteResult):
        return result.rows + result.rows_deleted
    return result.rows_deleted + result.rows_updated + result.rows_inserted


def copied_in_order(result: qbeast.ChangeResult | qbeast.WriteResult) -> int:
    """Return the rows that were copied only to keep the index in order, which a dry run does not know."""
    if isinstance(result, qbeast.WriteResult):
        return 0
    return int(result.plan.filter(pl.col("action") == "order of weights")["rows"].sum())


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("kind", few(KINDS, "index", "mapped partitions"))
@pytest.mark.parametrize("name", few(CASES, "delete", "update", "merge", "overwrite"))
def test_dry_run_counts_what_the_change_copies(
    masters: Path, tmp_path: Path, kind: str, name: str, *, vectors: bool
) -> None:
    path, case = copytree(masters / kind, tmp_path / "t"), CASES[name]
    expected = copies_of(path, case.matched)
    if vectors:
        enable_vectors(path)
    table = qbeast.open_table(path)
    planned = case.change(table, dry_run=True)
    assert planned.copies is not None
    assert planned.copies.schema == {"deletion_vectors": pl.Boolean, "rows": pl.Int64, "bytes": pl.Int64}
    for found, wanted in zip(planned.copies.iter_rows(), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1)
    assert planned.rows_copied == expected[vectors][1]
    with small_files(file_rows=50, page_rows=8):
        done = case.change(table)
    assert done.copies is not None
    assert done.copies.equals(planned.copies)
    if name != "overwrite":
        assert done.rows_copied == planned.rows_copied + copied_in_order(done)
    else:
        assert done.rows_copied >= planned.rows_copied
    for result in (planned, done):
        many = max(MANY_COPIES * changed_rows(result), 2 * expected[True][1])
        assert (result.hint is not None) == (not vectors and result.rows_copied > many)


@pytest.mark.parametrize("kind", KINDS)
def test_plan_bounds_what_a_change_copies(masters: Path, kind: str) -> None:
    table = qbeast.open_table(masters / kind)
    for where in (SOME, FIRST, NUMBER < 10, NUMBER > 10_000):
        plan = table.rows(where).explain()
        sizes = {
            name: (add["size"], pl.read_parquet(masters / kind / name).height)
            for name, add in replay(masters / kind).items()
        }
        opened = [sizes[path] for path in plan.files.filter("opened")["path"]]
        assert (plan.bytes_in_files, plan.rows_in_files) == tuple(
            map(sum, zip(*opened, strict=True))
        ) or not opened
        copied = table.delete(where, dry_run=True).copies
        assert copied is not None
        assert copied["rows"].max() <= plan.rows_in_files
        assert f"changes copy at most {plan.rows_in_files:,} rows" in repr(plan)
    assert "copy at most" not in repr(table.rows().explain())
    if kind != "no index":
        assert "copy at most" not in repr(table.rows(SOME, sample=0.5).explain())


ONE = NUMBER.eq(5)
HINTED: Mapping[str, Callable[..., qbeast.ChangeResult | qbeast.WriteResult]] = {
    "delete": lambda table, **options: table.delete(ONE, **options),
    "update": lambda table, **options: table.update(ONE, {"f": "f + 1", "a": "7"}, **options),
    "merge": lambda table, **options: table.merge(upsert(ROWS.filter(ONE)).head(2), ROW, **options),
    "overwrite": lambda table, **options: qbeast.write_table(
        ROWS.filter(ONE), table.uri, mode="overwrite", where=ONE, **options
    ),
}


@pytest.mark.parametrize("name", few(HINTED, "delete", "merge", "overwrite"))
def test_call_of_the_hint_copies_what_was_said(masters: Path, tmp_path: Path, name: str) -> None:
    change, one = HINTED[name], qbeast.open_table(copytree(masters / "index", tmp_path / "one"))
    table = qbeast.open_table(copytree(masters / "index", tmp_path / "t"))
    with small_files(file_rows=50, page_rows=8):
        results = [change(table, dry_run=True), change(one)]
    for result in results:
        found = WORDS.fullmatch(result.hint or "")
        assert found, result
        assert found.groups()[:2] == (str(result.rows_copied), str(changed_rows(result)))
    eval(found[3], {"table": table})  # noqa: S307 -- the line of our own hint
    with small_files(file_rows=50, page_rows=8):
        done = change(table)
    assert (f"copied {done.rows_copied} rows" in found[0], done.hint) == (True, None)


@pytest.mark.parametrize(("rows", "hinted"), [(11, False), (12, True)])
def test_hint_begins_above_ten_copies_per_row(tmp_path: Path, rows: int, *, hinted: bool) -> None:
    qbeast.write_table(pl.DataFrame({"id": range(rows)}), tmp_path / "t", columns=["id"])
    result = qbeast.open_table(tmp_path / "t").delete("id = 3")
    assert result.rows_copied == rows - 1
    assert (result.hint is not None) == hinted


def without_vectors(path: Path, kind: str) -> qbeast.Table:
    """Write a table that cannot have deletion vectors, or does not need the hint."""
    rows = pl.DataFrame({"id": range(100)})
    options: dict[str, Any] = {"dialect": "qbeast-spark"} if kind == "qbeast-spark" else {}
    qbeast.write_table(rows, path, columns=["id"], deletion_vectors=kind == "enabled", **options)
    table = qbeast.open_table(path)
    if kind == "Iceberg":
        newest = next(action for commit in commits(path) for action in commit if "metaData" in action)
        newest["metaData"]["configuration"]["delta.enableIcebergCompatV2"] = "true"
        write_log(path, [newest], first=1)
    return table.refresh()


@pytest.mark.parametrize("kind", ["qbeast-spark", "Iceberg", "enabled"])
def test_tables_without_a_cure_have_no_hint(tmp_path: Path, kind: str) -> None:
    table = without_vectors(tmp_path / "t", kind)
    planned = table.delete("id = 3", dry_run=True)
    assert planned.hint is None
    assert planned.copies["deletion_vectors"].to_list() == [False, True][: 1 + (kind == "enabled")]
    assert ("with deletion vectors" in str(planned)) == (kind == "enabled")
    if kind != "enabled":
        with pytest.raises(qbeast.UnsupportedTableError, match="cannot have deletion vectors"):
            table.set_properties(ENABLED)


def test_results_fit_the_terminal(masters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = qbeast.open_table(copytree(masters / "index", tmp_path / "t"))
    results = [table.delete(f"{ROW} = 1", dry_run=True), CASES["overwrite"].change(table, dry_run=True)]
    flat = [" ".join(str(result).split()) for result in results]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    for result, text in zip(results, flat, strict=True):
        lines = str(result).splitlines()
        assert max(map(len, lines)) <= 70
        assert " ".join(str(result).split()) == text

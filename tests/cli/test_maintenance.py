"""Commands that look after tables do what the library does, and their dry runs do nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.inspect.history import history_frame
from tests.cli.running import ROWS, run, run_error, run_json
from tests.format.appends import copy_of
from tests.format.collection import find
from tests.helpers.damage import size, spoil


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(item.relative_to(path)): item.read_bytes() for item in sorted(path.rglob("*")) if item.is_file()
    }


def test_drop_needs_yes(mine: Path) -> None:
    before = contents(mine)
    error = run_error("drop", mine, code=2)
    assert all(word in error for word in ("for good", f"{len(before)} files", "--yes", "Nothing was changed"))
    dry = run_json("drop", mine, "--dry-run")
    assert (sorted(dry["files"]), dry["dry_run"], dry["version"]) == (sorted(before), True, 1)
    assert dry["bytes"] == sum(map(len, before.values()))
    assert contents(mine) == before
    assert run("drop", mine, "--yes").stdout.startswith("deleted version 1, ")
    assert not mine.exists()
    assert "no Delta table" in run_error("drop", mine, "--yes", code=4)


@pytest.mark.parametrize("other", ["notes.txt", "inner", "deep/report.csv"])
def test_drop_refuses_folders_with_other_things(mine: Path, other: str) -> None:
    if other == "inner":
        qbeast.write_table(ROWS, mine / other, columns=["id"])
    else:
        (mine / other).parent.mkdir(exist_ok=True)
        (mine / other).write_text("mine")
    kept = {name: data for name, data in contents(mine).items() if name.startswith(other)}
    before = contents(mine)
    error = run_error("drop", mine, "--yes", code=2)
    assert other.split("/", maxsplit=1)[0] in error
    assert "--keep-others" in error
    assert contents(mine) == before
    report = run_json("drop", mine, "--yes", "--keep-others")
    assert set(report["kept"]) == set(kept)
    assert contents(mine) == kept


def test_drop_refuses_folders_without_table(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    assert "no Delta table" in run_error("drop", tmp_path, "--yes", "--keep-others", code=4)
    assert sorted(contents(tmp_path)) == ["rows.parquet"]


@pytest.fixture
def scattered(tmp_path: Path) -> Path:
    """A table of ten small appends."""
    for part in ROWS.iter_slices(200):
        qbeast.write_table(part, tmp_path / "t", columns=["id", "price"], mode="append", cube_size=300)
    return tmp_path / "t"


def test_optimize_rewrites_files_its_dry_run_named(scattered: Path) -> None:
    before = contents(scattered)
    planned = run_json("optimize", scattered, "--dry-run")
    assert contents(scattered) == before
    assert "small file: 10 files" in run("optimize", scattered, "--dry-run").stdout
    done = run_json("optimize", scattered, "--commit-metadata", "why=tidy")
    assert (done["committed"], done["files_removed"], done["rows"]) == (True, 10, 2000)
    assert [item["path"] for item in planned["plan"]] == [item["path"] for item in done["plan"]]
    table = qbeast.open_table(scattered)
    assert (table.version, table.history(1)["metadata"][0]["why"]) == (done["version"], "tidy")
    assert "is in shape" in run("optimize", scattered).stdout


def test_purge_rewrites_files_with_few_hidden_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame({"id": range(1000)})
    qbeast.write_table(rows, path, columns=["id"], deletion_vectors=True)
    qbeast.open_table(path).delete("id < 10")
    assert "is in shape" in run("optimize", path).stdout
    assert [file["reason"] for file in run_json("optimize", path, "--purge")["plan"]] == ["deletion vector"]
    (file,) = qbeast.open_table(path).rows().files()["path"]
    assert sorted(pl.read_parquet(file)["id"]) == list(range(10, 1000))


def test_optimize_takes_the_options_of_the_library(scattered: Path) -> None:
    path = qbeast.open_table(scattered).rows().explain().files["path"][0]
    plan = run_json("optimize", scattered, "--file", path, "--dry-run")["plan"]
    assert [(item["path"], item["reason"]) for item in plan] == [(path, "requested")]
    assert run_json("optimize", scattered, "--revision", "0", "--dry-run")["plan"] == []
    table = qbeast.open_table(scattered)
    for report, options in (
        (["--fraction", "0.01", "--full"], {"fraction": 0.01, "full": True}),
        (["--revision", "all"], {"revision": "all"}),
        (["--into", "newest"], {"into": "newest"}),
        (["--revision", "1", "--full"], {"revision": 1, "full": True}),
    ):
        plan = table.optimize(dry_run=True, **options).plan
        assert run_json("optimize", scattered, *report, "--dry-run")["plan"] == plan.to_dicts()
    assert "--revision must be one of the table's" in run_error(
        "optimize", scattered, "--revision", "7", code=2
    )
    words = run_error("optimize", scattered, "--revision", "1", "--file", "a", code=2)
    assert "--file and --revision cannot be combined" in words


def test_vacuum_needs_a_flag_to_delete(mine: Path) -> None:
    ROWS.write_parquet(mine.parent / "rows.parquet")
    run("write", mine.parent / "rows.parquet", mine, "-c", "id", "--mode", "overwrite")
    assert "nothing to delete" in run("vacuum", mine).stdout
    assert "--allow-short-retention" in run_error("vacuum", mine, "--retention-hours", "0", code=2)
    short = ["--retention-hours", "0", "--allow-short-retention"]
    before = contents(mine)
    listed = run_json("vacuum", mine, *short)
    assert (listed["deleted"], len(listed["files"])) == (False, 2)
    assert contents(mine) == before
    assert "--delete" in run("vacuum", mine, *short, "--dry-run").stdout
    assert run_json("vacuum", mine, *short, "--delete")["files"] == listed["files"]
    assert set(before) - set(contents(mine)) == set(listed["files"])


def test_restore_needs_confirmation(mine: Path) -> None:
    before = contents(mine)
    planned = run_json("restore", mine, "0", "--dry-run")
    assert run("restore", mine, "0", "--dry-run").stdout.startswith("a dry run; nothing was changed")
    assert contents(mine) == before
    done = run_json("restore", mine, "0")
    assert (planned["files_removed"], done["files_removed"], done["version"]) == (1, 1, 2)
    assert run_json("show", mine, "--count")["count"] == 1500
    assert "there was nothing to do" in run("restore", mine, "0").stdout
    assert "`qbeast history TABLE`" in run_error("restore", mine, "99", code=4)


def test_check_finds_faults_and_repair_fixes_them(mine: Path) -> None:
    spoiled = spoil(mine, size(5), indexed=["id", "price"])
    report = run_json("check", mine, code=1)
    assert (report["ok"], report["faults"][0]["path"]) == (False, spoiled.path)
    assert spoiled.path in run("check", mine, "--log-only", code=1).stdout
    before = contents(mine)
    planned = run_json("repair", mine, "--dry-run")
    assert (planned["committed"], contents(mine) == before) == (False, True)
    assert run_json("repair", mine)["repaired_files"] == planned["repaired_files"]
    assert run("check", mine).stdout.rstrip().endswith("OK: no faults")
    assert run_json("check", mine, "--log-only")["data"] is False


def test_convert_needs_confirmation(tmp_path: Path) -> None:
    ROWS.write_delta(tmp_path / "delta")
    (tmp_path / "parquet").mkdir()
    ROWS.write_parquet(tmp_path / "parquet" / "a.parquet")
    for name in ("delta", "parquet"):
        path = tmp_path / name
        before = contents(path)
        assert run("convert", path, "-c", "id,price", "--dry-run").stdout.startswith("a dry run; nothing")
        assert contents(path) == before
        done = run_json(
            "convert", path, "-c", "id,price", "--cube-size", "300", "--commit-metadata", "why=so"
        )
        assert (done["committed"], done["rows"], done["cube_size"]) == (True, 2000, 300)
        assert "nothing was changed" in run("convert", path, "-c", "id,price", "--dry-run").stdout
        assert "there was nothing to do" in run("convert", path, "-c", "id,price").stdout
        assert run_json("optimize", path)["rows"] == 2000
        assert run_json("check", path)["ok"]
    run_error("convert", tmp_path / "nothing", "-c", "id", code=4)


@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
def test_upgrade_needs_confirmation(tmp_path: Path) -> None:
    path = copy_of(find("legacy/v050_mixed_states"), tmp_path)
    before = contents(path)
    planned = run_json("upgrade", path, "--replicated", "drop", "--dry-run")
    assert run("upgrade", path, "--replicated", "drop", "--dry-run").stdout.startswith("a dry run; ")
    assert contents(path) == before
    done = run_json("upgrade", path, "--replicated", "drop")
    assert (planned["committed"], done["committed"]) == (False, True)
    assert planned["retagged_files"] == done["retagged_files"]
    assert "there was nothing to do" in run("upgrade", path).stdout


def test_metrics_and_history_equal_the_library(sales: Path) -> None:
    table = qbeast.open_table(sales)
    report = run_json("metrics", sales)
    assert report.pop("table") == str(sales)
    actual = qbeast.Metrics.model_validate(report)  # the last digits of a deviation differ from call to call
    assert_frame_equal(actual.frame, table.metrics().frame)
    assert_frame_equal(actual.levels, table.metrics().levels)
    assert run("metrics", sales).stdout.rstrip("\n") == repr(table.metrics())
    assert [item["revision_id"] for item in run_json("metrics", sales, "--revision", "1")["revisions"]] == [1]
    assert history_frame(run_json("history", sales)["commits"]).equals(table.history())
    assert len(run_json("history", sales, "--limit", "1")["commits"]) == 1
    lines = run("history", sales).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "1", "0"]
    assert "500 rows, +1 files" in lines[1]


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["tree", "space", "fraction"])
def test_pictures_are_drawn_into_files(sales: Path, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    output = tmp_path / "picture.png"
    request = [] if kind == "tree" else ["--where", "price < 50"]
    report = run_json("plot", sales, kind, "-o", output, *request)
    assert output.read_bytes().startswith(b"\x89PNG")
    assert report["bytes"] == output.stat().st_size


def test_pictures_keep_files_and_need_an_ending(sales: Path, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("fraction.png").touch()
    assert "--overwrite" in run_error("plot", sales, "fraction", code=2)
    assert ".png, .svg, .pdf" in run_error("plot", sales, "space", "-o", "picture.doc", code=2)
    assert "two indexed" in run_error("plot", sales, "space", "-o", "2.png", "-c", "brand", code=2)
    report = run_json("plot", sales, "fraction", "--overwrite", "--where", "price < 50")
    assert Path("fraction.png").stat().st_size == report["bytes"] > 0


def test_optimize_reports_rows_of_other_writers(mine: Path) -> None:
    ROWS.head(10).write_delta(str(mine), mode="append")
    assert run_json("optimize", mine, "--dry-run")["plan"][0]["reason"] == "staged"
    assert pl.scan_delta(str(mine)).select(pl.len()).collect().item() == 2010


def test_sample_column_is_written_and_added(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    run("write", tmp_path / "rows.parquet", tmp_path / "new", "-c", "id", "--sample-column", "share")
    assert qbeast.open_table(tmp_path / "new").schema.names()[-1] == "share"
    run("write", tmp_path / "rows.parquet", tmp_path / "old", "-c", "id")
    assert run("add-sample-column", tmp_path / "old").stdout == "version 1: added sample\n"
    some = pl.scan_delta(str(tmp_path / "old")).filter(pl.col("sample") < 0.25).collect()
    assert some.height == qbeast.read_table(tmp_path / "old", sample=0.25).height > 0
    assert "sample column 'sample' already" in run_error(
        "add-sample-column", tmp_path / "old", "more", code=2
    )


def test_reindex_moves_rows_at_once_or_later(mine: Path) -> None:
    before = qbeast.open_table(mine)
    later = run_json("reindex", mine, "-c", "brand,id:hash", "--cube-size", "70")
    assert (later["columns"], later["cube_size"], later["committed"]) == (["brand", "id"], 70, True)
    assert later["rows_left"] == len(before) > 0
    assert "rows by other columns" in repr(qbeast.open_table(mine))
    at_once = run("reindex", mine, "--full").stdout
    assert "rows_left" in at_once
    assert qbeast.open_table(mine).metrics().health.rows_of_other_columns == 0
    assert "there was nothing to do" in run("reindex", mine, "--full").stdout
    assert "names no such column" in run_error("reindex", mine, "-c", "brands", code=2)


def test_importance_is_written_and_changed(mine: Path, tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    options = ["--importance", "id=3", "--importance", "price=0.5"]
    run("write", tmp_path / "rows.parquet", tmp_path / "t", "-c", "id,price", *options)
    assert qbeast.open_table(tmp_path / "t").importance == {"id": 3.0, "price": 0.5}
    changed = run_json("reindex", mine, "--importance", "price=2")
    assert (changed["committed"], changed["new_revision"], changed["rows_left"]) == (True, False, 0)
    assert qbeast.open_table(mine).importance == {"price": 2.0}
    run("reindex", mine, "--importance", "price=1")
    assert qbeast.open_table(mine).importance == {}


def test_advice_is_complete(sales: Path) -> None:
    facts = run_json("advise", sales, "--where", "price < 10")
    assert {name: facts[name] for name in ("columns", "importance", "keep")} == {
        "columns": ["price"],
        "importance": {},
        "keep": False,
    }


def test_widen_and_switch_dialect(tmp_path: Path) -> None:
    small = pl.DataFrame({"id": range(10), "size": pl.Series(range(10), dtype=pl.Int16)})
    qbeast.write_table(small, tmp_path / "t", columns=["id:linear"])
    assert "size is integer" in run("widen-columns", tmp_path / "t", "size=integer").stdout
    assert qbeast.open_table(tmp_path / "t").schema["size"] == pl.Int32
    assert "Did you mean 'size'?" in run_error("widen-columns", tmp_path / "t", "sise=integer", code=2)
    assert run_json("switch-dialect", tmp_path / "t", "qbeast-spark", "--jvm", "0.8")["retagged_files"] == 1
    assert (
        "there was nothing to do"
        in run("switch-dialect", tmp_path / "t", "qbeast-spark", "--jvm", "0.8").stdout
    )
    assert qbeast.open_table(tmp_path / "t").check().ok

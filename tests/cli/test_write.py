"""`qbeast write` and `append`: whatever the rows come from, the table is the one that the library makes of them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from tests.cli.running import ROWS, run, run_error, run_json

TYPED = pl.DataFrame(
    {
        "id": [1, 2, 3],
        "zip": ["00123", "00007", None],
        "day": [date(2013, 1, 1), None, date(2013, 1, 3)],
        "at": [datetime(2013, 1, 1, hour, tzinfo=UTC) for hour in (5, 6, 7)],
        "paid": [Decimal("1.50"), Decimal("2.25"), None],
        "small": pl.Series([1, 2, 3], dtype=pl.Int16),
        "share": [1.0, 2.0, 3.0],
        "ok": [True, False, None],
    }
)


def bytes_of(rows: pl.DataFrame, file_format: str) -> bytes:
    return (rows.write_csv() if file_format == "csv" else rows.write_ndjson()).encode()


def parquet(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.write_parquet(folder / "rows.parquet")
    return ["rows.parquet"]


def csv(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.write_csv(folder / "rows.csv")
    return ["rows.csv"]


def zipped_csv(rows: pl.DataFrame, folder: Path) -> list[str]:
    (folder / "rows.csv.gz").write_bytes(gzip.compress(rows.write_csv().encode()))
    return ["rows.csv.gz"]


def semicolons(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.write_csv(folder / "rows.txt", separator=";")
    return ["rows.txt", "--format", "csv", "--separator", ";"]


def jsonl(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.write_ndjson(folder / "rows [1].jsonl")
    return ["rows [1].jsonl"]


def arrow(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.write_ipc(folder / "rows [1].arrow")
    return ["rows [1].arrow"]


def delta(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.write_delta(folder / "plain")
    return ["plain"]


def indexed(rows: pl.DataFrame, folder: Path) -> list[str]:
    qbeast.write_table(rows, folder / "other", columns=["id"])
    return ["other"]


def many_files(rows: pl.DataFrame, folder: Path) -> list[str]:
    for number, part in enumerate(rows.iter_slices(700)):
        part.write_parquet(folder / f"part {number}.parquet")
    return [f"part {number}.parquet" for number in range(3)]


def a_folder(rows: pl.DataFrame, folder: Path) -> list[str]:
    (folder / "parts" / "deep").mkdir(parents=True)
    many_files(rows, folder / "parts" / "deep")
    (folder / "parts" / "_SUCCESS").touch()
    return ["parts"]


def a_pattern(rows: pl.DataFrame, folder: Path) -> list[str]:
    many_files(rows, folder)
    return ["part*.parquet"]


def two_formats(rows: pl.DataFrame, folder: Path) -> list[str]:
    rows.head(700).write_csv(folder / "first.csv")
    rows.tail(-700).write_parquet(folder / "rest.parquet")
    return ["first.csv", "rest.parquet"]


SOURCES = [
    *(parquet, csv, zipped_csv, semicolons, jsonl, arrow, delta),
    *(indexed, many_files, a_folder, a_pattern, two_formats),
]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_every_source_makes_the_same_table(
    make: Callable[[pl.DataFrame, Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sources = make(ROWS, tmp_path)
    result = run_json(
        "write", sources[0], *sources[1:], "out", "--columns", "id,price:linear", "--cube-size", "300"
    )
    by_hand = qbeast.write_table(ROWS, "hand", columns=["id", "price:linear"], cube_size=300)
    assert result == {"table": "out", **by_hand.to_dict(), "bytes": result["bytes"]}
    assert_frame_equal(qbeast.read_table("out").sort("id"), ROWS)
    assert_frame_equal(
        qbeast.read_table("out", sample=0.1).sort("id"), qbeast.read_table("hand", sample=0.1).sort("id")
    )


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_standard_input_is_a_source(file_format: str, tmp_path: Path) -> None:
    given = bytes_of(ROWS, file_format)
    run_json("write", "-", tmp_path / "t", "-c", "id", "-c", "price", "--format", file_format, given=given)
    assert_frame_equal(qbeast.read_table(tmp_path / "t").sort("id"), ROWS)
    assert qbeast.open_table(tmp_path / "t").indexed_columns == ("id", "price")


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_large_stdin_goes_to_a_temporary_file(file_format: str, tmp_path: Path) -> None:
    rows = pl.concat([ROWS] * (1 + (300 << 10) // len(bytes_of(ROWS, file_format))))
    given = bytes_of(rows, file_format)
    assert len(given) > (4 << 20) // 16
    rows_held = ["--memory", "4MiB", "--spill-dir", tmp_path]
    run_json("write", "-", tmp_path / "t", "-c", "id", "--format", file_format, *rows_held, given=given)
    assert_frame_equal(qbeast.read_table(tmp_path / "t").sort("id"), rows.sort("id"))
    run(
        "write",
        "-",
        tmp_path / "u",
        "-c",
        "id",
        "--format",
        "jsonl",
        *rows_held,
        given=b"[" * (1 << 19),
        code=2,
    )
    assert [item.name for item in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_append_reads_text_with_table_types(file_format: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    qbeast.write_table(TYPED, table, columns=["id"])
    result = run_json("append", "-", table, "--format", file_format, given=bytes_of(TYPED, file_format))
    assert (result["version"], result["rows"]) == (1, 3)
    assert_frame_equal(qbeast.read_table(table).sort("id"), pl.concat([TYPED, TYPED]).sort("id"))


def test_types_option_sets_types_of_text(tmp_path: Path) -> None:
    types = ["zip=string", "paid=decimal(9,2)", "small=short", "share=float", "id=long"]
    reports = [part for dtype in types for part in ("--type", dtype)]
    run("write", "-", tmp_path / "t", "-c", "id", "--format", "csv", *reports, given=bytes_of(TYPED, "csv"))
    schema = qbeast.open_table(tmp_path / "t").schema
    assert (schema["zip"], schema["paid"], schema["small"]) == (pl.String, pl.Decimal(9, 2), pl.Int16)
    assert (schema["share"], schema["day"], schema["at"]) == (pl.Float32, pl.Date, pl.Datetime("us", "UTC"))
    assert qbeast.read_table(tmp_path / "t").sort("id")["zip"].to_list() == ["00123", "00007", None]


def test_null_texts_are_configurable(tmp_path: Path) -> None:
    given = b"a,b\n1,NA\n2,7\n3,-\n"
    run(
        "write",
        "-",
        tmp_path / "t",
        "-c",
        "a",
        *("--null-value", "NA"),
        *("--null-value", "-"),
        *("--format", "csv"),
        given=given,
    )
    assert qbeast.read_table(tmp_path / "t").sort("a")["b"].to_list() == [None, 7, None]


def test_options_reach_the_library(tmp_path: Path) -> None:
    table, given = tmp_path / "t", bytes_of(ROWS, "csv")
    options = [
        *("--format", "csv", "-c", "id", "--cube-size", "123", "--dialect", "qbeast-spark", "--txn", "job:3"),
        *("--commit-metadata", "why=because", "--column-stats", '{"id_min": 0, "id_max": 9999}'),
    ]
    run("write", "-", table, *options, given=given)
    again = run_json("append", "-", table, "--format", "csv", "--txn", "job:3", given=given)
    opened = qbeast.open_table(table)
    assert (again["committed"], opened.version, opened.cube_size) == (False, 0, 123)
    assert opened.history()["metadata"][0]["why"] == "because"
    assert opened.blocks()["cube"].n_unique() < 2000
    space = opened.revisions[-1].transformations[0]
    assert "9999" in space.model_dump_json()


def test_modes_equal_the_library(mine: Path, tmp_path: Path) -> None:
    ROWS.head(7).write_parquet(tmp_path / "seven.parquet")
    assert run_json("write", tmp_path / "seven.parquet", mine, "--mode", "ignore")["committed"] is False
    assert "append" in run_error("write", tmp_path / "seven.parquet", mine, "-c", "id", code=5)
    assert (
        run_json("write", tmp_path / "seven.parquet", mine, "-c", "brand", "--mode", "overwrite")["rows"] == 7
    )
    assert qbeast.open_table(mine).indexed_columns == ("brand",)
    wider = ROWS.head(2).with_columns(new=pl.lit(1))
    wider.write_parquet(tmp_path / "wider.parquet")
    assert "schema" in run_error("append", tmp_path / "wider.parquet", mine, code=3)
    run("append", tmp_path / "wider.parquet", mine, "--schema-mode", "merge")
    assert qbeast.read_table(mine)["new"].sum() == 2


def test_write_enables_vectors_and_change_feed(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    flags = {
        "a": [],
        "b": ["--deletion-vectors"],
        "c": ["--change-feed"],
        "d": ["--deletion-vectors", "--change-feed"],
    }
    for name, options in flags.items():
        run("write", tmp_path / "rows.parquet", tmp_path / name, "-c", "id", *options)
        properties = DeltaTable(tmp_path / name).metadata().configuration
        for option, key in (("--deletion-vectors", "DeletionVectors"), ("--change-feed", "ChangeDataFeed")):
            assert (properties.get(f"delta.enable{key}") == "true") is (option in options)
    run("delete", tmp_path / "d", "--where", "id = 7")
    assert list((tmp_path / "d").glob("deletion_vector_*.bin"))
    assert qbeast.open_table(tmp_path / "d").count() == ROWS.height - 1


def test_overwrite_replaces_rows_of_a_condition(mine: Path, tmp_path: Path) -> None:
    new = ROWS.head(100).with_columns(price=pl.lit(1.0))
    new.write_csv(tmp_path / "rows.csv")
    where = ["--where", "id < 300"]
    assert "--mode" in run_error("write", tmp_path / "rows.csv", mine, *where, code=2)
    run("write", tmp_path / "rows.csv", mine, "--mode", "overwrite", *where)
    expected = pl.concat([new, ROWS.filter(pl.col("id") >= 300)])
    assert_frame_equal(qbeast.read_table(mine).sort("id"), expected)
    run_error("write", tmp_path / "rows.csv", mine, "--mode", "overwrite", "--where", "id < 50", code=2)
    assert_frame_equal(qbeast.read_table(mine).sort("id"), expected)


def test_append_creates_table_only_with_columns(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    run_error("append", tmp_path / "rows.parquet", tmp_path / "t", code=4)
    assert not (tmp_path / "t").exists()
    assert run_json("append", tmp_path / "rows.parquet", tmp_path / "t", "-c", "id")["version"] == 0


def test_dry_run_predicts_the_write(mine: Path, tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    for command in (
        ["append", tmp_path / "rows.parquet", mine],
        ["write", tmp_path / "rows.parquet", tmp_path / "new", "-c", "brand,id"],
    ):
        before = sorted(tmp_path.rglob("*"))
        planned = run_json(*command, "--dry-run")
        text = run(*command, "--dry-run").stdout
        assert text.startswith("a dry run")
        assert re.search(r"^  rows +2,000$", text, re.MULTILINE)
        assert sorted(tmp_path.rglob("*")) == before
        done = run_json(*command)
        shared = set(done) - {"version", "dry_run", "committed", "bytes", "attempts"}
        assert len(shared) >= 8
        assert {key: planned[key] for key in shared} == {key: done[key] for key in shared}
        assert (planned["version"], planned["dry_run"], planned["committed"]) == (
            done["version"] - 1,
            True,
            False,
        )


def test_names_with_commas_are_quoted(tmp_path: Path) -> None:
    pl.DataFrame({"a,b": [1, 2], "c": [1, 2]}).write_parquet(tmp_path / "rows.parquet")
    run("write", tmp_path / "rows.parquet", tmp_path / "t", "--columns", '"a,b", c')
    assert qbeast.open_table(tmp_path / "t").indexed_columns == ("a,b", "c")


def test_warnings_are_lines_on_stderr(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2] * 5000, "b": range(10_000)}).write_parquet(tmp_path / "rows.parquet")
    result = run("write", tmp_path / "rows.parquet", tmp_path / "t", "-c", "a", "--json")
    assert result.stderr.startswith("warning: rows with equal values")
    assert result.stderr.count("\n") == 1
    assert json.loads(result.stdout)["committed"] is True


BAD_SOURCES: list[tuple[str, bytes, list[str], str]] = [
    ("rows.csv", b"", [], "empty CSV"),
    ("rows.csv", b"a,b\n1,2,3\n", [], "more fields"),
    ("rows.jsonl", b'{"a":', [], "cannot be read"),
    ("rows.parquet", b"no parquet", [], "cannot be read"),
    ("rows.txt", b"a\n1\n", [], "--format"),
    ("rows.json", b'[{"a": 1}]', [], "one JSON object a line"),
    ("rows.csv", b"a\nx\n", ["--type", "a=long"], "x"),
    ("rows.csv", b"a\n1\n", ["--type", "z=long"], "['z']"),
    ("rows.csv", b"a\n1\n", ["--type", "a=texts"], "timestamp_ntz"),
    ("rows.parquet", b"", ["--type", "a=long"], "--type is for CSV"),
]


@pytest.mark.parametrize(("name", "content", "options", "words"), BAD_SOURCES)
def test_bad_source_is_one_line_and_writes_nothing(
    name: str, content: bytes, options: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    line = run_error("write", tmp_path / name, tmp_path / "t", "-c", "a", *options, code=2)
    assert words in line
    assert "Nothing was changed." in line
    assert not (tmp_path / "t").exists()


def test_missing_or_mixed_sources_raise(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a\n1\n")
    (tmp_path / "b.csv").write_bytes(b"b\n1\n")
    (tmp_path / "empty").mkdir()
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "a.csv").write_bytes(b"a\n1\n")
    (mixed / "a.jsonl").write_bytes(b'{"a": 1}\n')
    out: list[Any] = [tmp_path / "t", "-c", "a"]
    assert "there is no" in run_error("write", tmp_path / "c.csv", *out, code=2)
    assert "there is no" in run_error("write", tmp_path / "c*.csv", *out, code=2)
    assert "no Parquet, CSV" in run_error("write", tmp_path / "empty", *out, code=2)
    assert "one by one" in run_error("write", tmp_path / "a.csv", tmp_path / "b.csv", *out, code=2)
    assert "csv, jsonl" in run_error("write", mixed, *out, code=2)
    assert "--format" in run_error("write", "-", *out, code=2)
    assert "once" in run_error("write", "-", "-", *out, "--format", "csv", code=2)
    assert run_json("write", mixed, *out, "--format", "jsonl")["rows"] == 1


def test_partitioned_delta_is_converted_or_copied(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    rows = pl.DataFrame({"id": [1, 2, 3], "day": ["a", "b", "a"]})
    rows.write_delta(old, delta_write_options={"partition_by": ["day"]})
    run("write", old, new, "--columns", "day,id")
    run("convert", old, "-c", "id")
    for path in (old, new):
        assert qbeast.read_table(path).select(rows.columns).sort("id").equals(rows)


def test_rows_larger_than_memory_spill(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        rows = pl.select(id=pl.int_range(number * 500, number * 500 + 500))
        rows.with_columns(text=pl.format("{}" + "x" * 2000, "id")).write_parquet(
            tmp_path / "rows" / f"{number}.parquet"
        )
    limits = ["--memory", "4MiB", "--spill-dir", str(tmp_path)]
    report = run_json("write", tmp_path / "rows", tmp_path / "t", "-c", "id", *limits)
    assert (report["engine"], report["rows"], report["spilled_bytes"] > 0) == ("spill", 1500, True)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["rows", "t"]
    assert "is not a size" in run_error("append", "rows", "t", "--memory", "much", code=2)


def test_suggested_columns_can_be_pasted(tmp_path: Path) -> None:
    rows = pl.select(id=pl.int_range(5000), price=pl.int_range(5000) * 7919 % 10_007)
    rows.write_csv(tmp_path / "rows.csv")
    result = run(
        "suggest", tmp_path / "rows.csv", "--where", "price < 10", "--where", "price < 1", "--most", "1"
    )
    assert result.stdout.splitlines()[0].startswith("--columns price")
    facts = run_json("suggest", tmp_path / "rows.csv", "--where", "price < 10")
    assert (facts["columns"][0], facts["importance"]) == ("price", {})
    assert {item["column"] for item in facts["reasons"]} >= {"id", "price"}
    assert "`qbeast suggest SOURCE` proposes" in run_error(
        "write", tmp_path / "rows.csv", tmp_path / "t", code=2
    )
    assert "qbeast suggest --help" in run_error("suggest", tmp_path / "rows.csv", "--most", "9", code=2)


def test_suggested_importance_can_be_pasted(tmp_path: Path) -> None:
    rows = pl.select(a=pl.int_range(6_000), b=pl.int_range(6_000).shuffle(seed=1))
    rows.write_parquet(tmp_path / "rows.parquet")
    filters = [f"--where=a BETWEEN {first} AND {first + 60}" for first in (200, 900, 1700, 2500)]
    proposed = run("suggest", tmp_path / "rows.parquet", *filters, "--where", "b < 900").stdout
    run("write", tmp_path / "rows.parquet", tmp_path / "t", *proposed.splitlines()[0].split())
    assert qbeast.open_table(tmp_path / "t").importance.keys() == {"a"}


def test_overwrite_keeps_how_columns_are_indexed(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    table = tmp_path / "t"
    run(
        "write", tmp_path / "rows.parquet", table, "-c", "brand:hash,price:quantiles,id", "--cube-size", "300"
    )
    before = qbeast.open_table(table).revisions[-1]
    run("write", tmp_path / "rows.parquet", table, "--mode", "overwrite")
    after = qbeast.open_table(table).revisions[-1]
    assert list(after.transformer_kinds.items()) == list(before.transformer_kinds.items())
    assert (after.transformer_kinds["brand"], after.desired_cube_size) == ("hash", 300)


@pytest.mark.parametrize("way", ["linked", "up"])
def test_source_with_outside_files_is_not_opened(way: str, tmp_path: Path) -> None:
    source = tmp_path / "old"
    pl.DataFrame({"id": [1, 2], "day": [1, 1]}).write_delta(
        source, delta_write_options={"partition_by": ["day"]}
    )
    file = next(source.rglob("*.parquet"))
    moved = shutil.move(file, tmp_path / "elsewhere.parquet")
    if way == "linked":
        file.symlink_to(moved)
    else:
        log = next((source / "_delta_log").glob("*.json"))
        log.write_text(log.read_text().replace(str(file.relative_to(source)), "../elsewhere.parquet"))
    assert "It was not opened" in run("write", source, "new", "--columns", "id", code=7).stderr


@pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")
def test_table_without_index_is_written_and_sampled(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    ROWS.write_delta(tmp_path / "old")
    run("write", tmp_path / "rows.parquet", tmp_path / "new", "--no-index")
    assert run_json("convert", tmp_path / "old", "--no-index")["columns"] == []
    run("append", tmp_path / "rows.parquet", tmp_path / "old")
    expected = qbeast.read_table(tmp_path / "new", sample=0.1, sample_by=["id"]).height
    for name, copies in (("new", 1), ("old", 2)):
        counted = run_json("show", tmp_path / name, "--sample", "10%", "--sample-by", "id", "--count")
        assert (counted["count"], counted["indexed_columns"]) == (copies * expected, [])
        planned = run_json("explain", tmp_path / name, "--sample", "10%", "--sample-by", "id,brand")
        assert planned["rows_opened"] == copies * ROWS.height
    query = (
        "sql",
        tmp_path / "new",
        "SELECT count(*) AS n FROM self",
        "--sample",
        "0.1",
        "--sample-by",
        "id",
    )
    assert run_json(*query)["rows"] == [{"n": expected}]
    answer = run_json("estimate", tmp_path / "new", "count(*)", "--sample", "10%", "--sample-by", "id")
    assert answer["rows"][0]["count(*)"] == ROWS.height


def test_fields_of_later_json_files_are_kept(tmp_path: Path) -> None:
    rows = [
        pl.DataFrame({"id": range(9), "r": [{"a": 1}] * 9}),
        pl.DataFrame({"id": [9], "r": [{"a": 2, "b": 3}], "c": [1]}),
    ]
    folder = tmp_path / "lines"
    folder.mkdir()
    for number, frame in enumerate(rows):
        frame.write_ndjson(folder / f"{number}.ndjson")
    run("write", folder, tmp_path / "t", "-c", "id")
    expected = pl.concat(rows, how="diagonal_relaxed")
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(expected.sort("id"))
    assert "Use `qbeast append`, --mode overwrite or --mode ignore" in run_error(
        "write", folder, tmp_path / "t", "-c", "id", code=5
    )

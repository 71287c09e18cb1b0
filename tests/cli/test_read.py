"""`qbeast show`, `sample` and `explain` print what the library returns."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.cli.running import ROWS, run, run_error, run_json

READERS: dict[str, Callable[..., pl.DataFrame]] = {
    "parquet": pl.read_parquet,
    "csv": pl.read_csv,
    "jsonl": pl.read_ndjson,
    "arrow": pl.read_ipc,
}


def test_rows_are_shown_under_names_and_types(sales: Path) -> None:
    lines = run("show", sales, "--where", "id = 1234").stdout.splitlines()
    assert lines[0].startswith(f"Table '{sales}', version 1: 2,000 rows in 2 files")
    assert [line.split() for line in lines[2:5]] == [
        ["id", "price", "brand"],
        ["long", "double", "string"],
        ["1234", str(ROWS["price"][1234]), "brand", "34"],
    ]


def test_show_prints_some_rows_and_counts_rest(sales: Path) -> None:
    assert len(run_json("show", sales)["rows"]) == 10
    assert "--limit" in run("show", sales).stdout
    few = ("--where", "id < 50", "--limit", "60")
    actual = run_json("show", sales, *few, "--select", "brand,id")
    assert sorted(row["id"] for row in actual["rows"]) == ROWS["id"].to_list()[:50]
    assert list(actual["rows"][0]) == ["brand", "id"]
    assert "--limit" not in run("show", sales, *few).stdout
    assert run_json("show", sales, "--limit", "0")["rows"] == []


def test_show_selects_columns_counts_and_versions(sales: Path) -> None:
    schema = run_json("show", sales, "--schema")
    assert schema["indexed_columns"] == ["id", "price"]
    assert [(item["name"], item["type"], item["indexed"]) for item in schema["columns"]] == [
        ("id", "long", True),
        ("price", "double", True),
        ("brand", "string", False),
    ]
    assert "brand" in run("show", sales, "--schema").stdout
    assert run_json("show", sales, "--count", "--version", "0")["count"] == 1500
    assert run_json("show", sales, "--count", "--where", "brand = 'brand 3' AND price < 50")["count"] == (
        ROWS.filter((pl.col("brand") == "brand 3") & (pl.col("price") < 50)).height
    )
    sampled = qbeast.read_table(sales, sample=(0.1, 0.3)).height
    assert run("show", sales, "--count", "--sample", "10%:30%").stdout == f"{sampled:,} rows\n"


@pytest.mark.parametrize(
    ("text", "fraction"), [("0.2", 0.2), ("20%", 0.2), ("0.1:0.3", (0.1, 0.3)), ("0", 0.0)]
)
def test_sample_equals_the_library(sales: Path, text: str, fraction: float | tuple[float, float]) -> None:
    actual = run_json("sample", sales, text, "--limit", "2000")
    expected = qbeast.read_table(sales, sample=fraction)
    assert sorted(row["id"] for row in actual["rows"]) == expected["id"].sort().to_list()
    assert actual["rows_in_all"] == expected.height
    assert f"{expected.height:,} rows in the sample" in run("sample", sales, text).stdout


@pytest.mark.parametrize("file_format", READERS)
def test_sample_goes_to_file_or_pipe(sales: Path, tmp_path: Path, file_format: str) -> None:
    expected = qbeast.read_table(sales, sample=0.3, where=pl.col("price") < 50).sort("id")
    request = ["sample", str(sales), "0.3", "--where", "price < 50"]
    output = tmp_path / f"some [1].{file_format}"
    report = run_json(*request, "--output", output)
    assert (report["rows"], report["bytes"]) == (expected.height, output.stat().st_size)
    read = READERS[file_format]
    assert_frame_equal(read(io.BytesIO(output.read_bytes())).sort("id"), expected)
    piped = run(*request, "--output", "-", "--format", file_format).stdout_bytes
    assert_frame_equal(read(io.BytesIO(piped)).sort("id"), expected)
    assert [item.name for item in tmp_path.iterdir()] == [output.name]


def test_outputs_are_complete_and_not_replaced(sales: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    output.write_text("mine")
    assert "--overwrite" in run_error("sample", sales, "1%", "-o", output, code=2)
    assert output.read_text() == "mine"
    run("sample", sales, "1%", "-o", output, "--overwrite", "--limit", "2")
    assert pl.read_csv(output).height == 2
    assert "does not exist. Create it first" in run_error(
        "sample", sales, "1%", "-o", tmp_path / "no" / "rows.csv", code=2
    )
    assert "--format" in run_error("sample", sales, "1%", "-o", tmp_path / "rows.xls", code=2)
    qbeast.write_table(pl.DataFrame({"a": [1], "list": [[1, 2]]}), tmp_path / "t", columns=["a"])
    assert "cannot be written as csv" in run_error(
        "show", tmp_path / "t", "-o", tmp_path / "list.csv", code=2
    )
    assert sorted(item.name for item in tmp_path.iterdir()) == ["rows.csv", "t"]
    assert "share" in complaint_with_json("show", sales, "-o", "-", "--format", "csv")


@pytest.mark.parametrize("file_format", READERS)
def test_export_writes_rows_of_a_query(sales: Path, tmp_path: Path, file_format: str) -> None:
    output, read = tmp_path / f"all rows [1].{file_format}", READERS[file_format]
    assert run("export", sales, output).stdout.startswith(f"{output}: 2,000 rows, ")
    assert_frame_equal(read(io.BytesIO(output.read_bytes())).sort("id"), ROWS)
    expected = qbeast.read_table(sales, sample=0.5).filter(pl.col("price") < 50).select("brand", "id")
    request = ["export", sales, "--where", "price < 50", "--columns", "brand,id", "--sample", "50%"]
    piped = run(*request, "-", "--format", file_format).stdout_bytes
    assert_frame_equal(read(io.BytesIO(piped)).sort("id"), expected.sort("id"))
    report = run_json(*request, output, "--force")
    assert (report["rows"], report["format"], report["output"]) == (expected.height, file_format, str(output))
    assert_frame_equal(read(io.BytesIO(output.read_bytes())).sort("id"), expected.sort("id"))
    assert (
        run_json("export", sales, tmp_path / "old", "--format", file_format, "--version", "0")["rows"] == 1500
    )
    assert sorted(item.name for item in tmp_path.iterdir()) == [output.name, "old"]


def test_export_replaces_no_file(sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "rows.parquet"
    target.write_text("mine")
    assert "there is a file" in run_error("export", sales, target, code=2)
    assert "is a folder" in run_error("export", sales, tmp_path, "--format", "csv", code=2)
    assert "is an address" in run_error("export", sales, "s3://bucket/rows.parquet", code=2)
    assert "no known ending" in run_error("export", sales, tmp_path / "rows", code=2)
    assert target.read_text() == "mine"
    sink = pl.LazyFrame.sink_parquet
    other = tmp_path / "new.parquet"

    def sink_while_another_writes(rows: pl.LazyFrame, path: Path) -> None:
        sink(rows, path)
        other.write_text("mine")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", sink_while_another_writes)
    assert "there is a file" in run_error("export", sales, other, code=2)
    assert other.read_text() == "mine"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["new.parquet", "rows.parquet"]


def test_export_of_rows_without_format_leaves_no_file(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"a": [1], "list": [[1, 2]]}), tmp_path / "t", columns=["a"])
    error = run_error("export", tmp_path / "t", tmp_path / "rows.csv", code=2)
    assert "cannot be written as csv" in error
    assert "--columns" in error
    run("export", tmp_path / "t", tmp_path / "rows.csv", "--columns", "a")
    assert pl.read_csv(tmp_path / "rows.csv").rows() == [(1,)]


def complaint_with_json(*arguments: str | Path) -> str:
    document = json.loads(run(*arguments, "--json", code=2).stdout)
    assert document["error"]["code"] == "usage"
    return str(document["error"]["message"])


def test_values_of_every_type_can_be_shown(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {
            "a": [1.0, float("nan")],
            "b": [b"\x00\xff", None],
            "c": [Decimal("1.50"), None],
            "d": [[1, 2], None],
            "e": [{"x": 1}, {"x": None}],
            "f": [True, None],
            "g": ["line\nline" * 20, ""],
        }
    )
    qbeast.write_table(rows, tmp_path / "t", columns=["a"])
    text = run("show", tmp_path / "t").stdout
    assert all(word in text for word in ("NaN".lower(), "00ff", "1.50", "[1, 2]", "{'x': 1}", "true", "…"))
    first = next(row for row in run_json("show", tmp_path / "t")["rows"] if row["a"] == 1.0)
    assert (first["b"], first["c"], first["d"], first["e"]) == ("00ff", "1.50", [1, 2], {"x": 1})


def test_explain_equals_the_library(sales: Path) -> None:
    request = ["explain", str(sales), "--where", "id < 100", "--sample", "0.5", "--select", "brand"]
    plan = qbeast.open_table(sales).rows(pl.col("id") < 100, columns=["brand"], sample=0.5).explain()
    report = run_json(*request)
    names = ("rows_opened", "rows_total", "bytes_opened", "bytes_total", "share", "design_effect")
    for name in (*names, "rows_in_files", "bytes_in_files"):
        assert report[name] == getattr(plan, name)
    assert [item["path"] for item in report["files"]] == plan.files["path"].to_list()
    assert run(*request).stdout.startswith(f"Plan of {sales}, version 1")
    listed = run(*request, "--files").stdout
    assert all(path in listed for path in plan.files["path"])


def test_explain_reports_unused_conditions(sales: Path) -> None:
    where = "brand LIKE '%7'"
    assert (
        "does not support it; compare a column with constants"
        in run("explain", sales, "--where", where).stdout
    )
    report = run_json("explain", sales, "--where", where)["unused_conditions"]
    assert report == qbeast.open_table(sales).rows(where).explain().unused_conditions
    assert len(report) == 1


CONDITIONS = [
    ("id >", "cannot be read as SQL"),
    ("id > 1; id < 3", "cannot be read as SQL"),
    ("nope = 1", "no such column(s): ['nope']"),
    ("brand > 3", "combines INTEGER and VARCHAR"),
    ("id", "neither true nor false"),
]


@pytest.mark.parametrize(("where", "words"), CONDITIONS)
@pytest.mark.parametrize("command", [["show"], ["sample"], ["explain"], ["plot"]], ids=lambda item: item[0])
def test_invalid_condition_is_one_line(sales: Path, command: list[str], where: str, words: str) -> None:
    rest = ["0.1"] if command == ["sample"] else []
    assert words in run_error(*command, sales, *rest, "--where", where, code=2)


def test_times_compare_with_texts_dates_and_times(tmp_path: Path) -> None:
    rows = pl.DataFrame({"at": ["2013-01-01T05:00:00Z", "2013-06-01T05:00:00Z"]})
    rows.with_columns(pl.col("at").str.to_datetime(time_zone="UTC")).write_parquet(tmp_path / "rows.parquet")
    run("write", tmp_path / "rows.parquet", tmp_path / "t", "-c", "at")
    assert "'soon'" in run_error("show", tmp_path / "t", "--where", "at < 'soon'", code=2)
    for where in ("at < '2013-02-01'", "at < DATE '2013-02-01'", "at < TIMESTAMPTZ '2013-02-01 00:00:00Z'"):
        assert run_json("show", tmp_path / "t", "--count", "--where", where)["count"] == 1


def test_json_option_works_before_the_command(sales: Path) -> None:
    before = run("--json", "show", sales, "--count").stdout
    assert before == run("show", sales, "--count", "--json").stdout
    assert json.loads(before)["count"] == 2000


def test_sampled_rows_have_weights(sales: Path, tmp_path: Path) -> None:
    run("show", sales, "--rows", "200", "--expand", "--select", "id", "--output", tmp_path / "some.parquet")
    some = pl.read_parquet(tmp_path / "some.parquet")
    assert some.equals(qbeast.read_table(sales, columns=["id"], rows=200, expand=True))
    shown = run_json("sample", sales, "50%", "--expand", "--limit", "1")["rows"]
    assert set(shown[0]) == {*ROWS.columns, "sampling_weight"}
    shown = run_json("show", sales, "--rows", "7", "--where", "id % 10 = 3", "--limit", "9")["rows"]
    assert [item["id"] % 10 for item in shown] == [3] * 7
    assert "cannot be combined" in run_error("show", sales, "--rows", "5", "--sample", "1%", code=2)


@pytest.mark.parametrize(
    "command", [["show", "T"], ["sample", "T", "0.5"], ["sql", "T", "SELECT id FROM self"]]
)
def test_format_without_file_prints_all_rows(sales: Path, command: list[str]) -> None:
    arguments = [sales if item == "T" else item for item in command]
    printed = run(*arguments, "--format", "csv").stdout
    assert printed == run(*arguments, "--output", "-", "--format", "csv").stdout
    assert pl.read_csv(printed.encode()).height > 500
    assert pl.read_csv(run(*arguments, "--format", "csv", "-n", "3").stdout.encode()).height == 3
    refused = run_json(*arguments, "--format", "csv", code=2)
    assert "cannot share the standard output" in refused["error"]["message"]


@pytest.mark.parametrize("option", ["--count", "--schema"])
@pytest.mark.parametrize("output", [["--format", "csv"], ["--output", "rows.csv"]])
def test_output_without_rows_raises(sales: Path, option: str, output: list[str]) -> None:
    assert f"{option} prints no rows" in run_error("show", sales, option, *output, code=2)


def test_sql_prints_all_rows(sales: Path) -> None:
    assert run_json("sql", sales, "SELECT id FROM self")["rows"][1999:] != []
    help_text = " ".join(run("sql", "--help").stdout.split())
    assert "by default all of them" in help_text
    assert "10" not in help_text.partition("--limit")[2].partition("--version")[0]
    assert "by default 10" in " ".join(run("show", "--help").stdout.split())


def test_explain_names_commands_as_cures(sales: Path) -> None:
    printed = run("explain", sales, "--where", "brand = 'brand 7'").stdout
    assert "index it too: `qbeast reindex TABLE --columns NAMES`" in printed
    assert "Table." not in printed

"""Tables and sources in object stores: options of the store reach every command, and are told to nobody."""

from __future__ import annotations

import polars as pl
import pytest

from tests.cli.running import ROWS, run, run_error, run_json
from tests.helpers.buckets import new_bucket


@pytest.fixture(scope="module")
def place(s3_options: dict[str, str]) -> tuple[str, list[str]]:
    """A bucket with rows, and the options that lead there."""
    name = new_bucket(s3_options)
    options = {**s3_options, "AWS_ACCESS_KEY_ID": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter3"}
    reports = [part for key, text in options.items() for part in ("--storage-option", f"{key}={text}")]
    ROWS.write_csv(f"s3://{name}/rows.csv", storage_options=options)
    ROWS.write_delta(f"s3://{name}/plain", storage_options=options)
    return f"s3://{name}", reports


def storage_options(options: list[str]) -> dict[str, str]:
    """Return the options as Polars takes them."""
    pairs = [option.partition("=") for option in options if option != "--storage-option"]
    return {key: text for key, _, text in pairs}


def test_options_reach_the_store(place: tuple[str, list[str]]) -> None:
    uri, options = place
    assert run_json("show", f"{uri}/plain", "--count", *options)["count"] == 2000


@pytest.mark.sweep
def test_table_in_bucket_is_written_and_read(place: tuple[str, list[str]]) -> None:
    uri, options = place
    table = f"{uri}/t"
    assert run_json("write", f"{uri}/rows.csv", table, "-c", "id,price", *options)["rows"] == 2000
    again = run_json("append", f"{uri}/plain", table, "--format", "delta", *options)
    assert (again["version"], again["rows"]) == (1, 2000)
    assert run_json("show", table, "--count", "--where", "id < 10", *options)["count"] == 20
    run("sample", table, "0.5", "-o", "half.parquet", *options)
    assert pl.read_parquet("half.parquet")["id"].n_unique() * 2 == pl.read_parquet("half.parquet").height
    assert run_json("optimize", table, "--dry-run", *options)["files_removed"] >= 0
    assert run_json("check", table, *options)["ok"]
    assert all(item["readable"] for item in run_json("versions", table, *options)["versions"])
    run("export", table, "few.csv", "--where", "id < 10", *options)
    assert pl.read_csv("few.csv")["id"].sort().to_list() == [n for n in range(10) for _ in range(2)]
    ROWS.head(1).write_csv(f"{table}/mine.csv", storage_options=storage_options(options))
    assert "'mine.csv'" in run_error("drop", table, "--yes", *options, code=2)
    assert run_json("drop", table, "--yes", "--keep-others", *options)["kept"] == ["mine.csv"]
    assert "no Delta table" in run_error("drop", table, "--yes", *options, code=4)
    assert pl.read_csv(f"{table}/mine.csv", storage_options=storage_options(options)).height == 1


def test_secrets_are_not_shown(place: tuple[str, list[str]]) -> None:
    uri, options = place
    assert "hunter" not in run_error("show", f"{uri}/nothing", *options, code=4)
    wrong = [item.replace("AWS_REGION", "AWS_REGIO") for item in options]
    line = run_error("show", f"{uri}/t", *wrong, code=2)
    assert "aws_regio" in line
    assert "hunter" not in line
    line = run_error("write", f"{uri}/no.csv", f"{uri}/u", "-c", "id", *options, code=12)
    assert "hunter" not in line

"""`qbeast estimate` prints what `Read.estimate` returns."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.cli.running import ROWS, run, run_error, run_json


def test_answers_print_as_json_and_table(sales: Path) -> None:
    request = ("n=count(*)", "avg(price)", "--where", "brand <> 'brand 3'", "--error", "1%")
    actual = run_json("estimate", sales, *request)
    kept = ROWS.filter(pl.col("brand") != "brand 3")
    assert actual["rows"][0]["n"] == kept.height
    assert actual["rows"][0]["avg(price)"] == pytest.approx(kept["price"].mean())
    assert (actual["met"], actual["complete"], actual["fraction"]) == (True, True, 1.0)
    shown = run("estimate", sales, *request).stdout
    assert "1950" in shown
    assert "exact: all rows were read" in shown


def test_options_reach_the_library(sales: Path) -> None:
    actual = run_json(
        *("estimate", sales, "m=avg(price)", "--by", "brand", "--sample", "50%", "--simultaneous"),
        *("--confidence", "99%", "--min-group-rows", "7"),
    )
    table = qbeast.open_table(sales)
    expected = table.rows(sample=0.5).estimate(
        {"m": "avg(price)"}, by="brand", simultaneous=True, confidence=0.99, min_group_rows=7
    )
    assert_frame_equal(pl.DataFrame(actual["rows"]), expected.frame)
    stopped = run_json("estimate", sales, "m=avg(price)", "--absolute", "m=0.001", "--max-fraction", "25%")
    assert (stopped["met"], stopped["fraction"]) == (False, 0.25)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("max(price)", "--error", "1%"), "Max depends on single rows"),
        (("avg(cost)", "--error", "1%"), "no such column(s): ['cost']"),
        (("a=avg(price)", "a=count(*)", "--error", "1%"), "two aggregates are called 'a'"),
        (("avg(price)", "--error", "5"), "For 5 % write --error 0.05."),
        (("avg(price)", "--error", "5%", "--confidence", "95"), "For 95 % write --confidence 0.95."),
        (("avg(price)", "--sample", "10:20"), "For 10 % to 20 % write --sample 10%:20%."),
        (("avg(price)", "--error", "1%", "--by", "shop"), "--by names no such column(s): ['shop']"),
    ],
)
def test_invalid_estimates_raise(sales: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in run_error("estimate", sales, *arguments, code=2)


def test_groups_and_aggregates_are_sql(sales: Path) -> None:
    here = qbeast.estimate(sales, "avg(price)", by=pl.col("id") % 3, sample=0.5).frame.sort("id")
    for arguments in (
        ("avg(price)", "--by", "id % 3 AS id", "--sample", "50%"),
        ("SELECT id % 3 AS id, avg(price) FROM self GROUP BY 1", "--sample", "50%"),
    ):
        actual = run_json("estimate", sales, *arguments)["rows"]
        # Threads add floats in any order.
        assert sorted(actual, key=lambda row: row["id"]) == [pytest.approx(row) for row in here.to_dicts()]
    two = run_json(
        "estimate", sales, "avg(price) AS mean", "count(*)", "--by", "id % 3, id > 7", "--sample", "50%"
    )
    assert list(two["rows"][0])[:3] == ["id % 3", "id > 7", "mean"]


def test_values_per_key_are_options_or_queries(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["price"], sample_by=["brand"])
    truth = ROWS.group_by("brand").agg(spend=pl.col("price").sum())["spend"].median()
    query = "SELECT median(spend) AS m FROM (SELECT brand, sum(price) AS spend FROM self GROUP BY brand)"
    for arguments in (("m=median(spend)", "--per", "spend=sum(price)", "--per", "n=count(*)"), (query,)):
        actual = run_json("estimate", tmp_path, *arguments, "--sample", "100%")["rows"]
        assert actual[0]["m"] == pytest.approx(truth)


def test_joins_name_tables_and_keys(tmp_path: Path) -> None:
    tables = {"sales": ROWS, "brands": ROWS.select("brand").unique().head(2).with_columns(kept=1)}
    for name, rows in tables.items():
        qbeast.write_table(rows, tmp_path / name, columns=rows.columns[:1], sample_by=["brand"])
    matching = ROWS.join(tables["brands"], on="brand", how="semi").height
    for how, count in (("", ROWS.height), (":semi", matching), (":anti", ROWS.height - matching)):
        join = f"{tmp_path / 'brands'}:brand{how}"
        rows = run_json("estimate", tmp_path / "sales", "n=count(*)", "--join", join, "--sample", "100%")[
            "rows"
        ]
        assert rows[0]["n"] == count
    query = "SELECT kept, count(*) AS n FROM sales JOIN b USING (brand) GROUP BY kept ORDER BY n DESC LIMIT 1"
    join = f"b={tmp_path / 'brands'}"
    facts = run_json("estimate", tmp_path / "sales", query, "--join", join, "--sample", "100%")
    assert facts["rows"] == [pytest.approx({**facts["rows"][0], "kept": 1, "n": matching, "certain": True})]
    assert facts["certain_order"] is True
    assert "is not TABLE:COLUMNS" in run_error(
        "estimate", tmp_path / "sales", "count(*)", "--join", "brands", code=2
    )


def test_invalid_numbers_raise(sales: Path) -> None:
    assert (
        "--error must be a fraction" in run("estimate", sales, "avg(price)", "--error", "much", code=2).stderr
    )
    assert "NAME=NUMBER" in run("estimate", sales, "avg(price)", "--absolute", "a=much", code=2).stderr

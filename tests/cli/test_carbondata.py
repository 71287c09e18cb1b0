"""Tables of CarbonData in the shell: shown, counted, imported."""

from __future__ import annotations

import re
from pathlib import Path

import qbeast
from tests.cli.running import run, run_error, run_json
from tests.foreign.carbondata.collection import expected, table_path

ORDERS = table_path("tx230_partitioned")


def test_carbondata_table_is_shown_like_others() -> None:
    text = run("show", ORDERS).stdout
    assert "CarbonData table" in text
    assert "partition: country, dt" in text
    assert run_json("show", ORDERS, "--count")["count"] == 37
    assert run_json("show", ORDERS, "--where", "id < 3", "--select", "id", "--limit", "5")["rows"]
    assert [item["name"] for item in run_json("show", ORDERS, "--schema")["columns"]] == expected(
        ORDERS.parent.name
    ).columns


def test_sample_of_carbondata_table_raises() -> None:
    assert "no sample" in run_error("show", ORDERS, "--sample", "10%", code=2)


def test_rows_are_imported(tmp_path: Path) -> None:
    report = run_json(
        "import-carbondata", ORDERS, tmp_path / "orders", "--columns", "id", "--segments", "history"
    )
    assert report["commits"] == 2
    assert report["segments"] == ["0", "1"]
    assert qbeast.open_table(tmp_path / "orders").read().height == 37
    text = run("import-carbondata", ORDERS, tmp_path / "again", "--segments", "history").stdout
    assert re.search(r"^  commits +2$", text, re.MULTILINE)


def test_dry_run_changes_no_file(tmp_path: Path) -> None:
    text = run("import-carbondata", ORDERS, tmp_path / "orders", "--dry-run").stdout
    assert text.startswith("a dry run; nothing was changed")
    assert re.search(r"^  rows +37$", text, re.MULTILINE)
    assert not (tmp_path / "orders").exists()


def test_damage_has_a_code(tmp_path: Path) -> None:
    (tmp_path / "a.carbondata").write_bytes(b"nothing")
    assert "damaged" in run_error("show", tmp_path, code=8)

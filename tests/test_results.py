"""What operations return uses the same names everywhere and converts to JSON."""

from __future__ import annotations

import json
import pickle
import re
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.results import Result
from qbeast_core.support.frames import to_json

RESULTS = {
    "WriteResult",
    "OptimizeResult",
    "ReindexResult",
    "ChangeResult",
    "RepairResult",
    "DialectResult",
    "UpgradeResult",
    "ConvertResult",
    "RestoreResult",
}

OPERATIONS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "delete": (("id < 10",), {}),
    "optimize": ((), {"full": True}),
    "restore": ((0,), {}),
    "vacuum": ((), {}),
    "repair": ((), {}),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, Result]]:
    """What every operation returned, done in earnest and dry, and the version that the table had before."""
    place = tmp_path_factory.mktemp("results")
    path, files = place / "table", place / "files"
    files.mkdir()
    rows = pl.DataFrame({"id": range(1000)})
    rows.write_parquet(files / "a.parquet")
    actual: list[tuple[int, Result]] = []

    def version(of: Path) -> int:
        return qbeast.open_table(of).version if (of / "_delta_log").exists() else -1

    for dry_run in (True, False):
        before = version(path)
        actual.append((before, qbeast.write_table(rows, path, ["id"], cube_size=100, dry_run=dry_run)))
        actual.append((version(files), qbeast.convert_table(files, ["id"], dry_run=dry_run)))
    for dry_run in (True, False):
        for name, request in OPERATIONS.items():
            table = qbeast.open_table(path)
            actual.append((table.version, getattr(table, name)(*request[0], **request[1], dry_run=dry_run)))
        actual.append((version(path), qbeast.open_table(path).upgrade(dry_run=dry_run)))
    actual.append((version(path), qbeast.open_table(path).reindex(cube_size=50)))
    actual.append((version(path), qbeast.open_table(path).reindex(cube_size=50)))
    actual.append((version(path), qbeast.open_table(path).switch_dialect("qbeast-spark", jvm="0.8")))
    return actual


def test_committed_shows_if_a_version_was_made(results: list[tuple[int, Result]]) -> None:
    assert {type(result).__name__ for _, result in results} >= {*RESULTS, "VacuumResult"}
    for before, result in results:
        assert result.version == before + result.committed, result
        assert not (result.committed and result.dry_run)
    assert {type(result).__name__ for _, result in results if result.committed} >= RESULTS - {
        "RepairResult",
        "UpgradeResult",
    }


def test_derived_values_are_in_the_dictionary(results: list[tuple[int, Result]]) -> None:
    for _, result in results:
        if isinstance(result, qbeast.VacuumResult):
            assert result.to_dict()["deleted"] is result.deleted is not result.dry_run
        if isinstance(result, qbeast.OptimizeResult):
            assert result.to_dict()["files_removed"] == result.files_removed == result.plan.height


IN_LINES = {
    "ChangeKeywords",
    "CommitKeywords",
    "EstimateKeywords",
    "OpenKeywords",
    "ReadKeywords",
    "Join",
    "Progress",
    "Resources",
    "ScanTask",
    "ShuffledBatches",
}
"""Values that are handed on rather than looked at."""


@pytest.mark.parametrize("name", sorted(set(qbeast.__all__) - IN_LINES))
def test_all_notebook_results_display_themselves(name: str) -> None:
    offered = getattr(qbeast, name)
    if isinstance(offered, type) and not issubclass(offered, Exception):
        assert callable(getattr(offered, "_repr_html_", None))


def test_results_fit_screens_and_notebooks(results: list[tuple[int, Result]]) -> None:
    for _, result in results:
        assert len(repr(result)) < 24 * 80
        assert repr(result).count("\n") < 24
        html = result._repr_html_()
        assert html.startswith(f"<div><b>{type(result).__name__}</b><table>")
        assert f">{result.version:,}</td>" in html
        assert html.count("<table") == html.count("</table>")
        assert ("dry_run" in html) is result.dry_run  # what is as usual is left out
    written = next(item for _, item in results if isinstance(item, qbeast.WriteResult))
    assert re.search(r"<th [^>]*>rows</th><td [^>]*>1,000</td>", written._repr_html_())
    assert "id: linear" in written._repr_html_()


def test_results_print_a_line_per_value(results: list[tuple[int, Result]]) -> None:
    written = next(item for _, item in results if isinstance(item, qbeast.WriteResult) and item.committed)
    lines = repr(written).split("\n")
    assert lines[0] == "WriteResult"
    assert "  rows           1,000" in lines
    assert "  transformers   id: linear" in lines
    assert max(map(len, lines)) < 80
    for dry_run, said in ((True, "no"), (False, "yes")):
        vacuumed = next(
            item for _, item in results if isinstance(item, qbeast.VacuumResult) and item.dry_run is dry_run
        )
        assert "committed" not in repr(vacuumed) + vacuumed._repr_html_()
        assert f"  deleted          {said}" in repr(vacuumed).split("\n")


def test_many_files_are_shortened_and_escaped() -> None:
    files = tuple(f"<part>-{number:05}.parquet" for number in range(5000))
    many = qbeast.VacuumResult(
        version=3, committed=False, dry_run=True, files=files, bytes=9, retention_hours=1.0
    )
    assert len(repr(many)) < 250
    assert "5,000, from <part>-00000.parquet to " in repr(many)
    assert "&lt;part&gt;-00000" in many._repr_html_()
    assert "<part>" not in many._repr_html_()
    assert len(many.to_dict()["files"]) == 5000


def test_list_of_revisions_fits_a_screen(tmp_path: Path) -> None:
    texts = [f"{number:05}" * 40 for number in range(5000)]
    rows = pl.DataFrame(
        {"text": texts, "id": range(5000), "price": [float(number**3) for number in range(5000)]}
    )
    columns = ["text", "id:hash", "price:quantiles"]
    for _ in range(8):
        qbeast.write_table(rows, tmp_path / "t", columns, mode="overwrite", schema_mode="overwrite")
    shown = repr(qbeast.open_table(tmp_path / "t").revisions)
    assert len(shown) < 24 * 100
    assert "'id': 'hash'" in shown
    assert "'price': 'quantiles from 0.0 to " in shown


def test_results_are_plain_values_and_pickle(results: list[tuple[int, Result]]) -> None:
    for _, result in results:
        data = result.to_dict()
        assert to_json(data)
        assert pickle.loads(pickle.dumps(result)).to_dict() == data  # noqa: S301 - our own
        assert {"version", "committed", "dry_run"} <= set(data)


def test_plans_estimates_and_metrics_are_json(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(2000), "day": [date(2024, 1, 1)] * 2000})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"], cube_size=100)
    table = qbeast.open_table(tmp_path / "t")
    plan = table.rows(pl.col("id") < 100, columns=["id"], sample=(0, 0.5)).explain()
    document = json.loads(plan.to_json())
    assert (document["bytes_opened"], document["share"]) == (plan.bytes_opened, plan.share)
    assert (document["columns"], document["sample"], "id" in document["where"]) == (["id"], [0, 0.5], True)
    assert [file["path"] for file in document["files"]] == plan.files["path"].to_list()
    estimate = table.rows(sample=0.2).estimate({"mean": "avg(id)", "lows": "sum(id) / 0"}, by="day")
    document = json.loads(estimate.to_json())
    assert document["frame"][0]["day"] == "2024-01-01"
    assert document["frame"][0]["mean"] == estimate.frame["mean"].item()
    assert document["names"] == ["mean", "lows"]
    assert json.loads(table.metrics().to_json())["version"] == 0

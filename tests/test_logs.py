"""The logger tells what is read, planned, committed and tried again; it costs nothing where nobody listens."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast_core.support.process import LOG
from qbeast_core.support.text import HIDDEN
from tests.helpers.races import landing_first

ROWS = pl.DataFrame({"id": range(2000), "x": range(2000)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"], cube_size=200)
    return tmp_path / "t"


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    actual = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "qbeast"]
    caplog.clear()
    return actual


def test_reads_plans_and_commits_are_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "qbeast")
    qbeast.read_table(path, where="id < 9", sample="50%")
    (text,) = [text for level, text in messages(caplog) if level == "DEBUG" and ": reads" in text]
    assert f"version 0 of {path}: reads 1 of 1 files" in text
    assert 'filter [(col("id")) < (9)], sample 50%' in text

    qbeast.write_table(ROWS.with_columns(pl.col("id") + 2000), path, mode="append")
    texts = dict(reversed(messages(caplog)))
    assert texts["INFO"].endswith(f"version 1 of {path}: +1 -0 files, attempt 1")
    assert f"plans 2000 rows for {path}" in texts["DEBUG"]

    qbeast.open_table(path).delete("id = 7")
    assert any(
        text.startswith("DELETE is version 2 of") for level, text in messages(caplog) if level == "INFO"
    )


def test_lost_race_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "qbeast")
    first, second = (ROWS.with_columns(pl.col("id") + start) for start in (2000, 4000))
    with landing_first(lambda: qbeast.write_table(first, path, mode="append")):
        qbeast.write_table(second, path, mode="append")
    assert any("version 1" in text and "was not written" in text for _, text in messages(caplog))


def test_disabled_logging_formats_no_messages() -> None:
    class Untold:
        def __str__(self) -> str:
            raise AssertionError

    LOG.debug("%s", Untold())


@pytest.mark.sweep
def test_process_without_handlers_prints_nothing(path: Path) -> None:
    code = f"import qbeast; qbeast.open_table({str(path)!r}).delete('id = 3')"
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_logs_hide_secrets_of_addresses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "qbeast")
    LOG.info("reads %s", "s3://key:hunter2@bucket/t?X-Amz-Signature=hunter2")
    assert messages(caplog) == [("INFO", "reads s3://***@bucket/t?***")]


FORGED = "x\nERROR qbeast: forged\r\x1b[31m\x9b2J\u2028\u202ey"


def test_filter_values_cannot_forge_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "qbeast")
    path = tmp_path / "t"
    rows = pl.DataFrame({"id": range(20), f"b{FORGED}": "a", "s": "a"})
    qbeast.write_table(rows, path, columns=["id", f"b{FORGED}"])
    table = qbeast.open_table(path)
    qbeast.read_table(path, where=pl.col("s") == FORGED)
    table.update(pl.col("id") < 3, {"s": pl.lit(FORGED)})
    table.merge(rows.head(2), on="id", matched_if=pl.col("s") != FORGED)
    table.delete(pl.col("s") == FORGED)
    texts = [text for _, text in messages(caplog)]
    assert any("forged" in text and "filter" in text for text in texts)
    shown = [*texts, repr(table), repr(table.rows(pl.col("s") == FORGED).explain()), repr(table.metrics())]
    shown += [repr(qbeast.suggest_columns(rows)), repr(table.check())]
    shown.append(repr(table.advise([pl.col("s") == FORGED])))
    shown.append(repr(table.rows(sample=1.0).estimate({"n": "count(*)"})))
    lines = [line for text in shown for line in text.split("\n")]
    assert not [line for line in lines if line.startswith("ERROR") or HIDDEN.search(line)]
    assert [text for text in texts if "\n" in text] == []


def test_errors_are_one_line(path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError) as absent:
        qbeast.open_table(FORGED)
    with pytest.raises(qbeast.InvalidInputError) as unknown:
        qbeast.read_table(path, where=pl.col(FORGED) == FORGED)
    with pytest.raises(qbeast.InvalidInputError) as wrong:
        qbeast.open_table(path).update(f"nope = '{FORGED}'", {"x": 1})
    for error in (absent, unknown, wrong):
        assert not HIDDEN.search(str(error.value))
        assert "\n" not in str(error.value)

"""What is in a table is shown on the terminal, not obeyed by it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast_core.support.text import HIDDEN
from tests.cli.running import run, run_error

EVIL = "\x1b]0;title\x07\x1b[31mred\x9b2J\u202egpj.exe\r"
SPELLED = r"\x1b]0;title\x07\x1b[31mred"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evil") / "t"
    rows = pl.DataFrame({"id": range(20), "text": [EVIL] * 20, f"name {EVIL}": [EVIL] * 20})
    qbeast.write_table(rows, path, columns=["id"], commit_metadata={"who": EVIL})
    return path


@pytest.mark.parametrize(
    "command",
    [["show"], ["show", "--schema"], ["sample", "0.9"], ["history"], ["explain", "--files"], ["check"], ["metrics"]],
    ids=" ".join,
)  # fmt: skip
def test_commands_print_no_control_codes(table: Path, command: list[str]) -> None:
    name, *options = command
    result = run(name, table, *options)
    assert not HIDDEN.search(result.output), repr(result.output)
    output = run(name, table, *options, "--json").stdout
    assert not HIDDEN.search(output)
    json.loads(output)


def test_values_and_names_are_escaped(table: Path) -> None:
    printed = run("show", table, "-n", "1").stdout
    assert printed.count(SPELLED) == 3
    assert json.loads(run("show", table, "-n", "1", "--json").stdout)["rows"][0]["text"] == EVIL


def test_errors_contain_no_control_codes(table: Path) -> None:
    for where in ("nope = 1", "text > 1", f"id = '{EVIL}", f"\x1b[31m{EVIL}"):
        assert not HIDDEN.search(run_error("show", table, "--where", where, code=2).rstrip("\n"))
    assert not HIDDEN.search(run("show", table, "--where", "nope = 1", "--traceback", code=2).output)

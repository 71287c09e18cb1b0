"""Files stay small, functions short, and every module says what it is about."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for package in ("pyspark_qbeast", "qbeast", "qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge")
    for path in (ROOT / package).rglob("*.py")
)
MAX_LINES = 800
MAX_FILES = 12
MAX_ENTRIES = 15
TABLE = ROOT / "qbeast_core" / "table"
MAX_FUNCTION_LINES = 40
EXPORTING = ["qbeast", "qbeast_spark_bridge", "pyspark_qbeast"]
WHOLE = {"qbeast_core/api/table.py"}  # one public class: its length is docstrings

MAX_PATCHES = 9
PATCHING = re.compile(
    r"(patch|monkeypatch|before|context)\w*\.setattr$|patch\.(object|multiple)$|(^|\.)patch$"
)
SEAMS = re.compile(r"\.(LocalStore|RemoteStore|sizing)$")  # what tests may replace

TESTS = sorted((ROOT / "tests").rglob("*.py"))
BY_NAME = (
    "qbeast_core/cli/",
    "qbeast_spark_bridge/write.py",
)  # imported by name, when they are needed

Function = ast.FunctionDef | ast.AsyncFunctionDef
DOCSTRING = re.compile(r'(#.*\n|\s)*r?"""')
DEFINED = re.compile(r"^(?:async )?def ([a-z]\w*)", re.MULTILINE)
ANY_FUNCTION = re.compile(r"( *)(?:async )?def ")
IMPORTED = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|[^\n(]+)", re.MULTILINE)


@dataclass(frozen=True)
class File:
    """What the rules need of a file. It is found by patterns, because to parse all files takes seconds."""

    name: str
    text: str

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def imports(self) -> dict[str, str]:
        """Each name imported from a module, with the dotted name that it stands for."""
        found = dict[str, str]()
        for module, names in IMPORTED.findall(self.text):
            for item in re.sub(r"#.*", "", names).strip("()\n ").split(","):
                name, _, alias = item.strip().partition(" as ")
                found[alias or name] = f"{module}.{name}"
        return found

    def long_functions(self) -> dict[str, int]:
        """Return functions and methods with more lines of code than allowed."""
        if self._longest() <= MAX_FUNCTION_LINES:
            return {}
        lines = self.text.splitlines()
        counted = {
            f"{self.name}: {node.name}": _code_lines(node, lines)
            for node in ast.walk(ast.parse(self.text))
            if isinstance(node, Function)
        }
        return {name: count for name, count in counted.items() if count > MAX_FUNCTION_LINES}

    def _longest(self) -> int:
        """Return the lines of the longest function, docstring included."""
        longest, begun = 0, list[tuple[int, int]]()  # indentation and line of functions that go on
        for number, line in enumerate([*self.text.splitlines(), "end"]):
            text = line.lstrip()
            indent = len(line) - len(text)
            if not text or text.startswith(")"):
                continue
            while begun and begun[-1][0] >= indent:
                longest = max(longest, number - begun.pop()[1])
            if ANY_FUNCTION.match(line):
                begun.append((indent, number))
        return longest


@cache
def _file(path: Path) -> File:
    return File(str(path.relative_to(ROOT)), path.read_text())


def _code_lines(function: Function, text: list[str]) -> int:
    """Count the lines of code: a long contract in the docstring, blank lines and comments are no length."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    lines = (line.strip() for line in text[body[0].lineno - 1 : body[-1].end_lineno])
    return sum(1 for line in lines if line and not line.startswith("#"))


def test_modules_have_a_maximum_length() -> None:
    long = {file.name: file.lines for file in map(_file, MODULES) if file.lines > MAX_LINES}
    assert set(long) <= WHOLE, f"two ideas in one file? {long}"


def test_folders_have_at_most_twelve_modules() -> None:
    folders = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert not {
        str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > MAX_FILES
    }
    top = {path.relative_to(TABLE).parts[0] for path in MODULES if path.is_relative_to(TABLE)} - {
        "__init__.py"
    }
    assert len(top) <= MAX_ENTRIES


def test_functions_are_short() -> None:
    assert not {name: lines for path in MODULES for name, lines in _file(path).long_functions().items()}


def test_modules_have_docstrings() -> None:
    assert not [file.name for file in map(_file, MODULES) if not DOCSTRING.match(file.text)], (
        "say in one line what the file is about"
    )


def test_tests_patch_few_internals() -> None:
    """Tests that patch functions break when these move: count requests at the store, or calls of an engine."""
    found = [f"{path.relative_to(ROOT)}:{line}" for path in TESTS for line in _patched(path)]
    assert len(found) <= MAX_PATCHES, found


def _patched(path: Path) -> Iterator[int]:
    """Yield the lines that replace a name of our packages, except of stores and engines."""
    file = _file(path)
    if "setattr" not in file.text and "patch" not in file.text:
        return
    for node in ast.walk(ast.parse(file.text)):
        if not isinstance(node, ast.Call) or not node.args or not PATCHING.search(ast.unparse(node.func)):
            continue
        owner = ast.unparse(node.args[0])
        root, _, attribute = owner.strip("'\"").partition(".")
        place = file.imports.get(root, root) + ("." + attribute if attribute else "")
        is_ours = place.startswith("qbeast") or (owner.isidentifier() and root not in file.imports)
        if (
            is_ours
            and not SEAMS.search(place)
            and not re.search(rf"^import {root}$", file.text, re.MULTILINE)
        ):
            yield node.lineno


def test_columns_of_expressions_are_listed_once() -> None:
    """Polars lists a column as often as an expression names it: `named_columns` does not."""
    callers = [file.name for file in map(_file, MODULES) if "root_names" in file.text]
    assert callers == ["qbeast_core/plan/nodes.py"]


def test_functions_without_underscore_are_used_elsewhere() -> None:
    imported, modules = set[str](), dict[str, list[tuple[File, str]]]()
    for file in map(_file, {*MODULES, *TESTS, *(ROOT / "benchmarks").rglob("*.py")}):
        for name, found in file.imports.items():
            imported.add(found)
            modules.setdefault(found, []).append((file, name))

    def is_used(module: str, name: str) -> bool:
        by_module = (re.search(rf"\b{alias}\.{name}\b", file.text) for file, alias in modules.get(module, ()))
        return f"{module}.{name}" in imported or any(by_module)

    idle = dict[str, set[str]]()
    for file in map(_file, MODULES):
        module = file.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        unused = {name for name in DEFINED.findall(file.text) if not is_used(module, name)}
        if unused and not file.name.startswith(BY_NAME):
            idle[file.name] = unused
    assert not idle


def test_no_test_is_imported() -> None:
    """What tests share stands beside them or in tests/helpers: a test may be moved or removed alone."""
    imports = {file.name: file.imports.values() for file in map(_file, TESTS)}
    assert not [
        (file, name)
        for file, names in imports.items()
        for name in names
        if name.startswith("tests.") and ".test_" in name
    ]


@pytest.fixture(scope="module")
def offered() -> dict[str, set[str]]:
    """The exported names that exist, by package; to look loads the whole library."""
    return {
        package: {name for name in exported(package) if hasattr(import_module(package), name)}
        for package in EXPORTING
    }


def exported(package: str) -> set[str]:
    """Return the names of a package, with those that it loads on first use and does not list."""
    module = import_module(package)
    return {*module.__all__, *getattr(module, "_MODULES", ())}


@pytest.mark.parametrize("package", EXPORTING)
def test_exported_names_exist(package: str, offered: dict[str, set[str]]) -> None:
    assert exported(package) == offered[package]

"""Files stay small, functions short, and every module says what it is about."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    path
    for package in ("pyspark_qbeast", "qbeast", "qbeast_core", "qbeast_spark_bridge")
    for path in (ROOT / package).rglob("*.py")
)
MAX_LINES = 600
MAX_FILES = 12
MAX_ENTRIES = 15
TABLE = ROOT / "qbeast_core" / "table"
MAX_FUNCTION_LINES = 40
WHOLE = {"qbeast_core/table/table.py"}  # one public class: its length is docstrings

TESTS = sorted((ROOT / "tests").rglob("*.py"))
BY_NAME = (
    "qbeast_core/cli/commands/",
    "qbeast_spark_bridge/write.py",
)  # imported by name, when they are needed

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class File:
    """What the rules ask of a file; it is parsed and walked through once for all of them."""

    name: str
    lines: int
    docstring: str | None
    functions: tuple[tuple[str, int], ...]
    """Each function and method, with its lines of code."""

    defined: frozenset[str]
    """Functions of the module itself."""

    imported: frozenset[str]
    """Dotted names that the file imports from modules."""

    used: frozenset[str]
    """Dotted names that it takes from modules that it imports."""


@cache
def _file(path: Path) -> File:
    text = path.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    nodes = list(ast.walk(tree))
    imports = [(node, alias) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    modules = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node, alias in imports}
    attributes = [(node.value, node.attr) for node in nodes if isinstance(node, ast.Attribute)]
    functions = [node for node in tree.body if isinstance(node, Function)]
    return File(
        name=str(path.relative_to(ROOT)),
        lines=len(lines),
        docstring=ast.get_docstring(tree),
        functions=tuple(
            (node.name, _code_lines(node, lines)) for node in nodes if isinstance(node, Function)
        ),
        defined=frozenset(node.name for node in functions if not node.name.startswith("_")),
        imported=frozenset(f"{node.module}.{alias.name}" for node, alias in imports),
        used=frozenset(
            f"{modules[value.id]}.{name}"
            for value, name in attributes
            if isinstance(value, ast.Name) and value.id in modules
        ),
    )


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
    long = {
        f"{file.name}: {name}": lines
        for file in map(_file, MODULES)
        for name, lines in file.functions
        if lines > MAX_FUNCTION_LINES
    }
    assert not long


def test_modules_have_docstrings() -> None:
    assert not [file.name for file in map(_file, MODULES) if not file.docstring], (
        "say in one line what the file is about"
    )


def test_functions_without_underscore_are_used_elsewhere() -> None:
    files = [_file(path) for path in {*MODULES, *TESTS, *(ROOT / "benchmarks").rglob("*.py")}]
    used = frozenset[str]().union(*(file.imported | file.used for file in files))
    idle = dict[str, set[str]]()
    for file in map(_file, MODULES):
        module = file.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        unused = {name for name in file.defined if f"{module}.{name}" not in used}
        if unused and not file.name.startswith(BY_NAME):
            idle[file.name] = unused
    assert not idle


def test_no_test_is_imported() -> None:
    """What tests share stands beside them or in tests/helpers: a test may be moved or removed alone."""
    taken = {
        file.name: {name for name in file.imported if name.startswith("tests.") and ".test_" in name}
        for file in map(_file, TESTS)
    }
    assert not {name: names for name, names in taken.items() if names}


@pytest.mark.parametrize("package", ["qbeast", "qbeast_spark_bridge", "pyspark_qbeast"])
def test_exported_names_exist(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) == {name for name in module.__all__ if hasattr(module, name)}

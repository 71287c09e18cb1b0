"""Files stay small, functions short, and every module says what it is about and what it offers."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    path
    for package in ("pyspark_qbeast", "qbeast", "qbeast_core", "qbeast_spark_bridge")
    for path in (ROOT / package).rglob("*.py")
)
MOST_LINES = 600
MOST_FUNCTION_LINES = 40
WHOLE = {"qbeast_core/table/table.py"}  # one public class: its length is docstrings

TESTS = sorted((ROOT / "tests").rglob("*.py"))
BY_NAME = (
    "qbeast_core/cli/commands/",
    "qbeast_core/cli/jobs/",
    "qbeast_spark_bridge/write.py",
)  # imported by name, when they are needed

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _code_lines(function: Function, text: list[str]) -> int:
    """Count the lines of code: a long contract in the docstring, blank lines and comments are no length."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    lines = (line.strip() for line in text[body[0].lineno - 1 : body[-1].end_lineno])
    return sum(1 for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_is_one_small_idea(path: Path) -> None:
    text = path.read_text().splitlines()
    assert len(text) <= MOST_LINES or str(path.relative_to(ROOT)) in WHOLE, (
        f"{len(text)} lines: two ideas in one file?"
    )
    tree = ast.parse("\n".join(text))
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    long = {function.name: _code_lines(function, text) for function in functions}
    assert not {name: lines for name, lines in long.items() if lines > MOST_FUNCTION_LINES}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_introduces_itself(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "say in one line what the file is about"
    defined = [node for node in tree.body if isinstance(node, Function | ast.ClassDef)]
    public = {node.name for node in defined if not node.name.startswith("_")}
    assert public <= _listed(tree), "every public name stands in __all__"


def _imported() -> set[str]:
    """Return the dotted names that a file of ours imports, or takes from a module that it imports."""
    found: set[str] = set()
    for path in {*MODULES, *TESTS, *(ROOT / "benchmarks").rglob("*.py")}:
        tree = ast.parse(path.read_text())
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                found.update(names.values())
                modules |= names
        attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        found |= {
            f"{modules[node.value.id]}.{node.attr}"
            for node in attributes
            if isinstance(node.value, ast.Name) and node.value.id in modules
        }
    return found


def test_a_module_offers_what_others_use() -> None:
    """Functions that no other module asks for stand in no `__all__`; types may, since they stand in signatures."""
    imported, idle = _imported(), dict[str, set[str]]()
    for path in MODULES:
        tree, name = ast.parse(path.read_text()), _name(path)
        functions = {node.name for node in tree.body if isinstance(node, Function)} & _listed(tree)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        unused = {one for one in functions if f"{module}.{one}" not in imported}
        if unused and not name.startswith(BY_NAME):
            idle[name] = unused
    assert not idle


def _listed(tree: ast.Module) -> set[str]:
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
    ]
    return {str(name) for value in values for name in ast.literal_eval(value)}


@pytest.mark.parametrize("path", TESTS, ids=_name)
def test_no_test_is_imported(path: Path) -> None:
    """What tests share stands beside them or in tests/helpers: a test may be moved or removed alone."""
    imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in imported for alias in node.names}
    assert not {name for name in names if name.startswith("tests.") and ".test_" in name}


@pytest.mark.parametrize("package", ["qbeast", "qbeast_spark_bridge", "pyspark_qbeast"])
def test_every_name_that_is_offered_is_there(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) == {name for name in module.__all__ if hasattr(module, name)}

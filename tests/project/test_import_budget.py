"""`import qbeast` stays cheap: it loads errors only, and the first use no operation; workers of Spark import little."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import qbeast

ROOT = Path(__file__).parents[2]
HEAVY = {
    "duckdb",
    "hypothesis",
    "matplotlib",
    "obstore",
    "pandas",
    "pyspark",
    "pyspark_qbeast",
    "qbeast_spark_bridge",
}
USUAL = {"deltalake", "numpy", "polars", "pyarrow", "pydantic"}
MAX_MODULES_OF_IMPORT = 6


def test_import_loads_only_errors(imports: dict[str, list[str]]) -> None:
    """Polars and the rest are loaded when a name is used that needs them."""
    names = imports["import"]
    assert not (HEAVY | USUAL) & {name.partition(".")[0] for name in names}
    assert "importlib.metadata" not in names
    assert len([name for name in names if name.startswith("qbeast")]) <= MAX_MODULES_OF_IMPORT


def test_first_use_loads_no_operation(imports: dict[str, list[str]]) -> None:
    """A third of all modules; each operation loads its own when it is called."""
    names = imports["first use"]
    assert not (HEAVY | {"deltalake", "pyarrow", "sqlglot"}) & {name.partition(".")[0] for name in names}
    rooms = ("check", "commit", "dml", "engine", "estimate", "inspect", "maintenance", "rewrite", "write")
    operations = ("qbeast_carbondata", *(f"qbeast_core.table.{room}" for room in rooms))
    assert all(find_spec(name) for name in operations)
    assert not [name for name in names if name.startswith(operations)]


def test_every_public_name_exists() -> None:
    for name in qbeast.__all__:
        assert getattr(qbeast, name) is not None
        assert name in dir(qbeast)


def test_completion_offers_only_public_names() -> None:
    assert {name for name in vars(qbeast) if not name.startswith("_")} <= set(qbeast.__all__)
    assert {name for name in dir(qbeast) if not name.startswith("__")} == set(qbeast.__all__) - {
        "__version__"
    }


def test_missing_attribute_raises_with_suggestion() -> None:
    with pytest.raises(AttributeError, match="module 'qbeast' has no attribute 'write'"):
        qbeast.write  # noqa: B018 - asked for
    with pytest.raises(AttributeError) as mistyped:
        qbeast.read_tabel  # noqa: B018 - as above
    # By these, Python asks in a traceback: "Did you mean: 'read_table'?"
    assert (mistyped.value.name, mistyped.value.obj) == ("read_tabel", qbeast)


MAX_MODULES = 59  # of ours, packages aside: each costs the first task of a session a part of a second
WORKERS = {
    "write": ("qbeast_spark_bridge.worker.tasks",),
    "append": ("qbeast_spark_bridge.worker.tasks",),
    "rewrite": ("qbeast_spark_bridge.worker.tasks",),
    "read": ("qbeast_spark_bridge.worker.read_task",),
    "count": ("qbeast_spark_bridge.worker.tasks", "qbeast_core.table.dml.tasks"),
    "match": ("qbeast_spark_bridge.worker.match_tasks",),
    "change": ("qbeast_spark_bridge.worker.tasks", "qbeast_core.table.dml.tasks"),
    "feed": ("qbeast_spark_bridge.worker.tasks", "qbeast_core.table.dml.tasks"),
    "carbondata": ("qbeast_spark_bridge.worker.read_task", "qbeast_carbondata.reader"),
    "change in place": (
        "qbeast_spark_bridge.worker.tasks",
        "qbeast_core.table.engine.row_change",
    ),
    "convert": ("qbeast_spark_bridge.worker.tasks", "qbeast_core.table.maintenance.parquet_folder"),
}

OURS = ["qbeast", "qbeast_core", "qbeast_spark_bridge"]
FORBIDDEN = ["deltalake", "obstore", "pyspark", "pandas"]
# The first two lists go first, because they must not load Polars or PyArrow. Each begins without our modules and those
# that no list may have: what other libraries take is paid once.
ANEW = """
import importlib, json, sys
lists, forgotten = json.load(sys.stdin)
found = {}
for name, modules in lists.items():
    for one in [one for one in sys.modules if one.partition(".")[0] in forgotten]:
        del sys.modules[one]
    for module in modules:
        importlib.import_module(module)
    found[name] = list(sys.modules)
json.dump(found, sys.stdout)
"""


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).is_dir()


@pytest.fixture(scope="module")
def imports() -> dict[str, list[str]]:
    """Return for each list of modules what is imported with it, in a fresh interpreter: this one has half of them."""
    lists = {"import": ["qbeast"], "first use": ["qbeast_core.api.functions"], **WORKERS}
    output = subprocess.run(
        [sys.executable, "-W", "error", "-c", ANEW],
        input=json.dumps([lists, [*OURS, *FORBIDDEN]]),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=True,
    ).stdout
    actual: dict[str, list[str]] = json.loads(output)
    return actual


@pytest.mark.parametrize("task", WORKERS)
def test_workers_open_no_log_and_import_little(task: str, imports: dict[str, list[str]]) -> None:
    """What a task is of is imported with these modules: their own imports are at the top, where a lint holds them."""
    names = imports[task]
    assert set(WORKERS[task]) <= set(names)
    assert not set(FORBIDDEN) & {name.partition(".")[0] for name in names}
    ours = [name for name in names if name.partition(".")[0] in OURS and not is_package(name)]
    assert len(ours) <= MAX_MODULES, sorted(ours)

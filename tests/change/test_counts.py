"""How often operations read data files, summarise rows and build trees: once each, wherever that is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest

import qbeast
from qbeast_core.table import commit as commit_module
from qbeast_core.table.dml.change import Change, ChangeOptions, Delete, Update, run_change
from qbeast_core.table.dml.merge import Merge
from qbeast_core.table.dml.merge_rules import Clauses
from qbeast_core.table.dml.merge_sources import FrameMergeSource
from qbeast_core.table.engine import distributed
from qbeast_core.table.engine import local as memory
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.engine.sources import FrameSource
from qbeast_core.table.index import live_index as state_module
from qbeast_core.table.read import tasks as scan_task
from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
from qbeast_core.table.snapshot import delta as delta_module
from qbeast_core.table.snapshot import snapshot as snapshot_module
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.write import write_rows
from tests.helpers import scattering
from tests.helpers.invariants import check_invariants
from tests.helpers.scattering import PartsEngine, PartsSource

COUNT = 600
ROWS = pl.DataFrame({"id": range(COUNT)}).with_columns(
    a=pl.col("id") * 7919 % COUNT, note=pl.lit("as it was")
)
BEYOND = pl.DataFrame({"id": [7, COUNT + 5], "a": [5, COUNT * 3], "note": ["new", "new"]})
INSIDE = pl.DataFrame({"id": [7, 599], "a": [5, 6], "note": ["new", "new"]})

# Reads of a file for some columns, and for all of them; summaries of rows; trees of blocks that are live; trees of
# rows, one for each revision written; checks of the protocol; reads of the log.
COUNTED = ("keys", "files", "summaries", "live trees", "row trees", "checks", "logs")


@contextmanager
def counting() -> Generator[Counter[str]]:
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        return call

    read = scan_task._read  # noqa: SLF001 -- the one place where data files are opened

    def read_counted(scans: Any, keep: Any, *others: Any) -> Any:
        counts["files" if set(keep.columns) == set(keep.schema) else "keys"] += len(scans)
        return read(scans, keep, *others)

    places = [
        ("summaries", memory, "summarise"),
        ("summaries", scattering, "summarise_parts"),
        ("live trees", state_module, "existing_tree"),
        ("row trees", memory, "plan_index"),
        ("row trees", distributed, "draw_outline"),
        ("logs", delta_module, "short_log"),
        ("logs", snapshot_module, "read_log"),
        ("logs", commit_module, "read_log"),
        ("checks", snapshot_module, "check_writable"),
        ("checks", commit_module, "check_writable"),
    ]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(scan_task, "_read", read_counted))
        for name, module, function in places:
            stack.enter_context(mock.patch.object(module, function, counted(name, getattr(module, function))))
        yield counts


def changed(change: Change) -> Callable[[Path, Engine], None]:
    def run(path: Path, engine: Engine) -> None:
        result, _ = run_change(load_snapshot(path), change, ChangeOptions(), engine=engine)
        assert result.committed

    return run


def optimized(path: Path, engine: Engine) -> None:
    result, _ = optimize(load_snapshot(path), OptimizeOptions(full=True), engine=engine)
    assert result.committed


def appended(path: Path, engine: Engine) -> None:
    source = PartsSource([ROWS]) if isinstance(engine, PartsEngine) else FrameSource(ROWS)
    assert write_rows(source, str(path), WriteOptions(mode="append"), engine=engine).committed


OPERATIONS: dict[str, Callable[[Path, Engine], None]] = {
    "delete": changed(Delete("id < 50")),
    "update of another column": changed(Update("id < 50", {"note": pl.lit("new")})),
    "update inside the range": changed(Update("id < 50", {"a": pl.lit(9)})),
    "update outside the range": changed(Update("id < 50", {"a": pl.lit(COUNT * 2)})),
    "merge inside the range": changed(Merge(FrameMergeSource(INSIDE), Clauses(on="id"))),
    "merge outside the range": changed(Merge(FrameMergeSource(BEYOND), Clauses(on="id"))),
    "optimize": optimized,
    "append": appended,
}


WANTED = {
    "delete": (1, 1, 0, 0, 0, 2, 1),
    "update of another column": (1, 1, 0, 0, 0, 2, 1),
    "update inside the range": (1, 1, 1, 1, 1, 2, 1),
    "update outside the range": (1, 1, 1, 1, 2, 2, 1),
    "merge inside the range": (1, 1, 1, 1, 1, 2, 1),
    "merge outside the range": (1, 1, 1, 1, 2, 2, 1),
    "optimize": (0, 1, 0, 1, 1, 2, 1),
    "append": (0, 0, 1, 1, 1, 2, 0),
}

# Workers read files for each pass: one to summarise the rows, one to place those of each revision. A merge tries to
# change files in place first. Rows that are added are summarised apart, to see that no file is read for them.
WANTED_OF_WORKERS = {
    "delete": (1, 1, 0, 0, 0, 2, 1),
    "update of another column": (1, 1, 0, 0, 0, 2, 1),
    "update inside the range": (1, 2, 1, 1, 1, 2, 1),
    "update outside the range": (1, 3, 1, 1, 2, 2, 1),
    "merge inside the range": (1, 3, 1, 1, 1, 2, 1),
    "merge outside the range": (1, 3, 2, 1, 2, 2, 1),
    "optimize": (0, 2, 1, 1, 1, 2, 1),
    "append": (0, 0, 1, 1, 1, 2, 0),
}


class Workers(PartsEngine):
    """Workers that do not fail: each call is made once."""

    def map(self, call: Callable[[Any], Any], items: Sequence[Any], *, at_once: int) -> list[Any]:
        del at_once
        return [call(item) for item in items]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    ("engine", "expected"), [(MEMORY, WANTED), (Workers(), WANTED_OF_WORKERS)], ids=["memory", "workers"]
)
def test_files_are_read_once_for_each_pass(
    tmp_path: Path, name: str, engine: Engine, expected: dict[str, tuple[int, ...]]
) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id:linear", "a:linear"], cube_size=100)
    with counting() as counts:
        OPERATIONS[name](tmp_path, engine)
    assert {kind: counts[kind] for kind in COUNTED} == dict(zip(COUNTED, expected[name], strict=True))
    check_invariants(tmp_path)

"""What does a working day cost: twelve operations, beside deltalake, DuckDB, Lance and PyIceberg?

    python -m benchmarks.bench_day

The first 1.5 million rows of lineitem (16 columns) with an `id`, in the order of the generator. `day_engines` has the
operations as users write them. Each runs in a new process, on a copy of the same state of the table. The process has
done the same on a table of 2,800 rows before, so that imports are not counted; `start` is what these cost. Opening the
table is counted. CPU is user and system time of the process and its children, with all threads. Bytes are those that
the process passes to read and write (rchar and wchar of Linux), from the page cache or not: what an object store would
transfer, in about. A cold disk reads ahead: `cold` is what it reads. Medians of 3, in turns.
Every answer, and the rows after every change, are equal for all engines.
"""

from __future__ import annotations

import ast
import inspect
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
from deltalake import WriterProperties, write_deltalake

from benchmarks import data, day_engines, measure
from benchmarks.day_page import COLD, COLD_OPERATIONS, ENGINES, OPERATIONS, PLAIN, SHARED, SIZE, START, Cost
from benchmarks.report import Figure, table

os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # what Polars uses without an optional package

ROUNDS = 3
ROWS = 1_500_000
PLACE = data.CACHE / "day"
CHANGES = ("upsert", "replace", "delete", "rename", "undo")
STATES = {"write": "empty", "changes": "upserted", "undo": "upserted"}
SOURCES = {"write": "rows", "upsert": "upsert", "replace": "day"}
WHOLE = "empty", "new", "upserted"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine, perhaps with other functions than its own for some operations."""

    name: str
    engine: str
    functions: dict[str, str] = field(default_factory=dict)
    operations: tuple[str, ...] = tuple(OPERATIONS)

    def function(self, operation: str) -> Callable | None:
        name = self.functions.get(operation, f"{self.engine}_{operation}")
        return getattr(day_engines, name, None)

    def call(self, operation: str, place: Path, rows: pl.DataFrame | None) -> Any:
        source = getattr(day_engines, f"{self.engine}_source")
        return self.function(operation)(str(place), *([] if rows is None else [source(rows)]))

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "-").replace(",", "").lower()


MAIN = [Candidate(name, name.lower()) for name in ENGINES]
OPTIONS = [
    Candidate(
        PLAIN,
        "qbeast",
        {"write": "qbeast_write_plain"},
        tuple(operation for operation in OPERATIONS if operation not in SHARED),
    ),
    Candidate("qbeast, change feed", "qbeast", {"write": "qbeast_write_feed"}, ("upsert", "changes")),
    Candidate(
        "deltalake, by date", "deltalake", {"write": "deltalake_write_by_day"}, ("write", "month", "replace")
    ),
    Candidate(
        "deltalake, change feed",
        "deltalake",
        {"write": "deltalake_write_feed", "changes": "deltalake_changes_feed"},
        ("upsert", "changes"),
    ),
    Candidate("DuckDB, index on id", "duckdb", {"write": "duckdb_write_key"}, ("write", "point", "upsert")),
    Candidate(
        "Lance, indexes on id and date",
        "lance",
        {"write": "lance_write_indexed"},
        ("write", "month", "point", "upsert"),
    ),
]
STARTS = {
    "qbeast": "import qbeast; qbeast.read_table(place, where='id = 777777')",
    "deltalake": "import polars as pl; pl.scan_delta(place).filter(pl.col('id') == 777777).collect()",
    "DuckDB": "import duckdb; duckdb.connect(place + '/day.duckdb').sql('FROM lineitem WHERE id = 777777').pl()",
    "Lance": "import lance; lance.dataset(place).to_table(filter='id = 777777')",
    "PyIceberg": "from pyiceberg.catalog.sql import SqlCatalog; SqlCatalog('day', uri=f'sqlite:///{place}/catalog.db')"
    ".load_table('day.lineitem').scan('id = 777777').to_arrow()",
}


def run() -> list[Figure]:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    _prepare()
    candidates = [*MAIN, *OPTIONS]
    for candidate in candidates:
        _make_states(candidate)
    figures = [
        figure
        for operation in OPERATIONS
        for figure in compare(operation, [each for each in candidates if operation in each.operations])
    ]
    return [*figures, *_cold(), *_sizes(), *_starts()]


def compare(operation: str, candidates: list[Candidate]) -> list[Figure]:
    """Measure one operation of all candidates in turns."""
    actual = [each for each in candidates if each.function(operation) is not None]
    results: dict[str, list[tuple[float, int, int]]] = {each.name: [] for each in actual}
    answers: dict[str, Any] = {}
    for turn in range(ROUNDS):
        for candidate in actual[turn:] + actual[:turn]:
            place = _state(candidate, STATES.get(operation, "new"))
            child = measure.in_child(_measured, candidate, operation, place)
            numbers, answers[candidate.name] = child.result
            results[candidate.name].append(numbers)
    assert len(set(answers.values())) == 1, f"all do the same: {answers}"
    return [_cost(each, operation, results[each.name]).figure(operation, each.name) for each in actual]


def lines_of(function: Callable) -> int:
    """Return the lines of a function's body, without its docstring."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def _cost(candidate: Candidate, operation: str, numbers: list[tuple[float, int, int]]) -> Cost:
    cpu_seconds, read, written = (median(each[i] for each in numbers) for i in range(3))
    function = candidate.function(operation)
    assert function is not None
    by_hand = getattr(function, "by_hand", False)
    return Cost(cpu_seconds, read / 1e6, written / 1e6, lines_of(function), by_hand=by_hand)


# --- Rows and states ------------------------------------------------------------------------------------------------


def _prepare() -> None:
    """Store the rows: all, those of the upsert, those of the day, and those of the small table."""
    ids = pl.int_range(pl.len(), dtype=pl.Int64).alias("id")
    rows = pl.scan_parquet(data.lineitem_path()).head(ROWS).select(ids, pl.all()).collect()
    changed = rows.sample(3_000, seed=7).with_columns(l_comment=pl.lit("changed"))
    day = rows.filter(pl.col("l_shipdate") == date(1995, 3, 15)).with_columns(l_comment=pl.lit("changed"))
    deleted = rows.filter(pl.sql_expr(day_engines.SUPPLIER))
    frames = {
        "rows": rows,
        "upsert": pl.concat([changed, changed.with_columns(pl.col("id") + ROWS)]),
        "day": day,
        # Each change finds rows in it, so that the first use of what it needs is not counted.
        "small": pl.concat([rows.slice(777_000, 2_000), day, deleted]).unique("id", maintain_order=True),
    }
    for name, frame in frames.items():
        frame.write_parquet(PLACE / f"{name}.parquet")


def _rows(operation: str, *, small: bool = False) -> pl.DataFrame | None:
    name = SOURCES.get(operation)
    if name is None:
        return None
    return pl.read_parquet(PLACE / f"{'small' if small and name == 'rows' else name}.parquet")


def _make_states(candidate: Candidate) -> None:
    for operation, before, after in (("write", "empty", "new"), ("upsert", "new", "upserted")):
        place = _state(candidate, before)
        measure.in_child(_change, candidate, operation, place)
        shutil.copytree(place, PLACE / "states" / candidate.folder / after)


def _change(candidate: Candidate, operation: str, place: Path) -> None:
    candidate.call(operation, place, _rows(operation))


def _state(candidate: Candidate, state: str) -> Path:
    """Return the folder of the table, which is always the same: PyIceberg's files name it."""
    place = PLACE / "work" / candidate.folder
    shutil.rmtree(place, ignore_errors=True)
    if state == "empty":
        place.mkdir(parents=True)
    else:
        shutil.copytree(PLACE / "states" / candidate.folder / state, place)
    return place


# --- In the child ---------------------------------------------------------------------------------------------------


def _measured(candidate: Candidate, operation: str, place: Path) -> tuple[tuple[float, int, int], Any]:
    """Return the CPU seconds, the bytes read and written, and the answer or a summary of the rows afterwards."""
    warm = small_table(candidate, f"{operation}-{candidate.folder}", operation)
    candidate.call(operation, warm, _rows(operation, small=True))
    shutil.rmtree(warm)
    rows = _rows(operation)
    if rows is not None:
        rows = rows.rechunk()
    source = getattr(day_engines, f"{candidate.engine}_source")
    arguments = [] if rows is None else [source(rows)]
    function = candidate.function(operation)
    assert function is not None
    before = _used()
    answer = function(str(place), *arguments)
    after = _used()
    numbers = tuple(end - start for start, end in zip(before, after, strict=True))
    if operation in CHANGES or operation == "write":
        answer = getattr(day_engines, f"{candidate.engine}_rows")(str(place))
    return numbers, ANSWERS.get(operation, summary)(answer)


def small_table(candidate: Candidate, name: str, operation: str) -> Path:
    """Return a small table in the state that the operation needs."""
    place = PLACE / "small" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    state = STATES.get(operation, "new")
    for step in ("write", "upsert")[: WHOLE.index(state)]:
        candidate.call(step, place, _rows(step, small=True))
    return place


def _used() -> tuple[float, int, int]:
    counts = _counters()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used), counts["rchar"], counts["wchar"]


def _counters() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


# --- Answers --------------------------------------------------------------------------------------------------------


def summary(rows: pl.DataFrame) -> tuple:
    """Return what rows have to have in common: their columns, number and sums."""
    (comment,) = {"l_comment", "l_note"} & set(rows.columns)
    sums = rows.select(pl.sum("id", "l_quantity", "l_tax"), pl.col(comment).str.len_bytes().sum())
    return comment, rows.height, *map(float, sums.row(0))


def _new_rows(changes: pl.DataFrame) -> tuple:
    """Return a summary of the rows after the change; Lance returns only these."""
    if "_change_type" in changes.columns:
        changes = changes.filter(~pl.col("_change_type").is_in(["delete", "update_preimage"]))
    return summary(changes)


def _is_sample(rows: pl.DataFrame) -> bool:
    whole = pl.scan_parquet(PLACE / "rows.parquet").select(pl.mean("l_quantity", "l_partkey")).collect()
    means = rows.select(pl.mean("l_quantity", "l_partkey"))
    near = all(abs(means[name].item() / whole[name].item() - 1) < 0.02 for name in whole.columns)
    assert near, means
    assert 0.008 * ROWS < rows.height < 0.012 * ROWS, rows.height
    return True


def _is_dashboard(rows: pl.DataFrame) -> bool:
    group = day_engines.GROUP
    exact = pl.scan_parquet(PLACE / "rows.parquet").group_by(group).agg(**day_engines.ANSWERS)
    both = rows.join(exact.collect(), on=group, how="full", suffix="_exact")
    errors = [(pl.col(name) / pl.col(f"{name}_exact") - 1).abs().max() for name in ("mean", "rows")]
    assert both.height == 7, both
    assert max(both.select(errors).row(0)) < 0.03, both  # each answer is within 2 % with probability 0.95
    return True


def _sums(rows: pl.DataFrame) -> tuple:
    return rows.height, *map(float, rows.sum().row(0))


def _row(rows: pl.DataFrame) -> tuple:
    return tuple(map(str, rows.row(0)))


ANSWERS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "changes": _new_rows,
    "sample": _is_sample,
    "dashboard": _is_dashboard,
    "month": _sums,
    "epoch": _sums,
    "point": _row,
}


# --- Cold disk, sizes and starts ------------------------------------------------------------------------------------


def _cold() -> list[Figure]:
    return [
        Figure(
            f"{COLD}: {OPERATIONS[operation]}: {each.name}",
            round(measure.in_child(_cold_bytes, each, operation, _state(each, "new")).result / 1e6, 2),
            "MB",
        )
        for operation in COLD_OPERATIONS
        for each in MAIN
    ]


def _cold_bytes(candidate: Candidate, operation: str, place: Path) -> int:
    """Return the bytes that come from the disk, if no page of the table is in the cache."""
    warm = small_table(candidate, f"{operation}-{candidate.folder}", operation)
    candidate.call(operation, warm, None)
    measure.forget_cached(file for file in place.rglob("*") if file.is_file())
    before = _counters()["read_bytes"]
    candidate.call(operation, place, None)
    return _counters()["read_bytes"] - before


def _sizes() -> list[Figure]:
    zstd = PLACE / "zstd"
    write_deltalake(
        zstd,
        pl.read_parquet(PLACE / "rows.parquet"),
        writer_properties=WriterProperties(compression="ZSTD"),
    )
    names = [*MAIN, *(each for each in OPTIONS if "write" in each.operations)]
    folders = {each.name: PLACE / "states" / each.folder / "new" for each in names}
    folders["deltalake, zstd"] = zstd
    return [
        Figure(
            f"{SIZE}: {name}",
            round(measure.folder_bytes(file for file in folder.rglob("*") if file.is_file()) / 1e6, 2),
            "MB",
        )
        for name, folder in folders.items()
    ]


def _starts() -> list[Figure]:
    places = {
        each.name: measure.in_child(small_table, each, f"start-{each.folder}", "point").result
        for each in MAIN
    }
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    for _ in range(ROUNDS + 1):  # the first one fills the caches
        for name, code in STARTS.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            script = f"place = {str(places[name])!r}; {code}"
            subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [Figure(f"{START}: {name}", round(median(each[1:]), 3), "s") for name, each in seconds.items()]


if __name__ == "__main__":
    print(table(run()))

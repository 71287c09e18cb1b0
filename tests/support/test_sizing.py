"""Each size of `Sizing` starts another way of doing the same, and tests with few rows take both ways."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.sampling.sums import Parts, RowSums, Sums
from qbeast_core.support.sizing import Sizing
from qbeast_core.table.dml.merge_rules import KeyColumn
from qbeast_core.table.index.counts import count_keys
from qbeast_core.table.read.planner import TASK_BYTES
from qbeast_core.tree.grid import group_keys
from qbeast_core.tree.pages import Boxes, Gain
from tests.helpers.small_files import resized

ROOT = Path(__file__).parents[2]
PACKAGES = ("qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge")

# Their code depends on the time, or on what ran before.
TIMED = ("lru_cache.py", "machine.py", "temporary_folder.py")

# Files and pages of few rows.
TINY: dict[str, Any] = {
    "min_file_rows": 1,
    "max_file_rows": 45,
    "min_page_rows": 4,
    "min_band_rows": 8,
    "small_file_rows": 40,
    "opened_file_rows": 1,
    "listed_file_rows": 0,
    "pilot_rows": 40,
}

Arc = tuple[CodeType, int, int]
# Prepares a table, and returns the step that is traced.
Step = Callable[[], object]
Scenario = Callable[[Path], Step]


def rows(count: int = 120, first: int = 0) -> pl.DataFrame:
    number = np.arange(first, first + count)
    return pl.DataFrame(
        {
            "id": number,
            "key": number * 7919 % 211,
            "kind": pl.Series(number % 5).replace_strict(dict(enumerate(["a", "b", None, "d", "e"]))),
            "text": [f"text {value * 31 % 977}" for value in number],
            "value": number / 8,
        }
    )


def created(path: Path, **options: Any) -> qbeast.Table:
    qbeast.write_table(rows(), path, columns=["id", "key"], cube_size=15, **options)
    return qbeast.open_table(path)


def appended(path: Path) -> qbeast.Table:
    created(path)
    for start in (1000, 2000):
        qbeast.write_table(rows(35, start), path, mode="append")
    return qbeast.open_table(path)


def matching(
    table: qbeast.Table, where: str | None, *, task_bytes: int = TASK_BYTES, **read: Any
) -> pl.DataFrame:
    """Return matching rows, read in this thread: Polars reads in threads that are not traced."""
    return pl.concat(
        frame for task in table.rows(where, **read).tasks(task_bytes=task_bytes) for frame in task.read()
    )


def write(path: Path) -> Step:
    return lambda: created(path).snapshot.files.height > 0


def spilled(path: Path) -> Step:
    return lambda: created(path, resources=qbeast.Resources(engine="spill")).snapshot.counted_rows


def append(path: Path) -> Step:
    table = appended(path)
    return lambda: table.snapshot.counted_rows


def first_filter(path: Path) -> Step:
    created(path)
    qbeast.write_table(rows(35, 1000), path, mode="append")
    return lambda: matching(qbeast.open_table(path, version=0), "id < 40 AND value > 1")


def planned(path: Path) -> Step:
    """A filter on a table that a checkpoint lists: the first step makes the plan file."""
    created(path)
    DeltaTable(path).create_checkpoint()
    return lambda: matching(qbeast.open_table(path, version=0), "id < 40 AND value > 1")


def filtered(path: Path) -> Step:
    table = created(path)
    return lambda: matching(table, "key = 17")


def sampled(path: Path) -> Step:
    table = created(path)
    return lambda: matching(table, None, sample=0.5)


def changed(path: Path) -> Step:
    created(path, deletion_vectors=True).delete("key < 40")
    return lambda: matching(qbeast.open_table(path), None)


def joined(_: Path) -> Step:
    """Neighbouring boxes of files; which of them are joined is not an answer."""
    lowest = np.array([[0.0, 0.0], [0.3, 0.0], [0.6, 0.0], [0.8, 0.0]])
    highest = lowest + np.array([0.2, 1.0])
    boxes = Boxes(lowest, highest, np.full(4, 1_000.0), np.ones(4))
    gain = Gain(table_rows=4_000, importance=(1.0, 1.0), file_rows=400_000)
    return lambda: gain.joined(boxes, np.zeros(4, np.bool_)) is None


def checked(path: Path) -> Step:
    table = created(path)
    return lambda: table.check().ok


def estimated(path: Path) -> Step:
    qbeast.write_table(rows(), path, columns=["id"], cube_size=15)
    total = {"sum": pl.col("value").sum()}
    return lambda: set(qbeast.estimate(path, total, by="kind", error=0.3).frame["kind"])


def estimated_of_sample(path: Path) -> Step:
    qbeast.write_table(rows(), path, columns=["id"], cube_size=15)
    total = {"sum": pl.col("value").sum()}
    return lambda: set(qbeast.estimate(path, total, by="kind", sample=0.9).frame["kind"])


def hinted(path: Path) -> Step:
    qbeast.write_table(rows(6_000).select("id", "key"), path, columns=["id"])
    plan = qbeast.open_table(path).rows("key < 3").explain()
    return lambda: isinstance(str(plan), str)


def from_files(path: Path) -> Step:
    parts = [path.parent / f"part {number}.parquet" for number in range(3)]
    for number, part in enumerate(parts):
        rows(40, 100 * number).write_parquet(part)
    spill = qbeast.Resources(engine="spill")
    return lambda: qbeast.write_table(pl.scan_parquet(parts), path, columns=["id"], resources=spill).rows


def with_damaged_tag(path: Path) -> Step:
    snapshot = created(path).snapshot
    tags = pl.when(pl.int_range(pl.len()) > 0).then("blocks").otherwise(pl.lit("["))
    files = snapshot.files.with_columns(blocks=tags)

    def decode() -> object:
        table = build_block_table(files, snapshot.config.revisions, snapshot.schema)
        return [len(table.corrupt), len(table)]

    return decode


def grouped(_: Path) -> Step:
    return lambda: [part.tolist() for part in group_keys(np.array([90, 2, 90]), 100)]


def digested(_: Path) -> Step:
    def ends() -> object:
        values = KeyColumn.of(pl.Series([3, 1, None, 2])).values
        return [values.min(), values.max()]

    return ends


def counted_keys(path: Path) -> Step:
    files = created(path).snapshot.files
    return lambda: count_keys(files).lower_bound


def summed(_: Path) -> Step:
    request = RowSums((pl.lit(1), pl.col("id")), (), {"kind": pl.col("kind")}, None, (), {})

    def add() -> object:
        parts = Parts(("kind",))
        for start in range(0, 60, 20):
            parts.add(request.of(rows(20, start), sizes=True))
        return Sums.concat(parts.sums, ["kind"]).groups.sort("kind")

    return add


@dataclass(frozen=True)
class Case:
    """A scenario whose code another value of a field changes; it begins with `sizes`."""

    scenario: Scenario
    value: Any
    sizes: tuple[tuple[str, Any], ...] = ()


MANY = (("many_files", 1),)
LARGE = (("max_file_rows", 6_000), ("min_page_rows", 128))

CASES: dict[str, Case] = {
    "max_file_rows": Case(write, 300),
    "min_page_rows": Case(write, 300),
    "min_band_rows": Case(write, 300),
    "opened_file_rows": Case(joined, 100_000),
    "listed_file_rows": Case(joined, 100_000),
    "chunk_rows": Case(write, 16),
    "checked_rows": Case(checked, 16),
    "domain_rows": Case(spilled, 32),
    "domain_bytes": Case(spilled, 100),
    "max_cubes": Case(append, 2),
    "dense_keys": Case(grouped, 0),
    "max_lookup_cells": Case(spilled, 0),
    "min_trial_bytes": Case(write, 0),
    "sample_bytes": Case(write, 16, (("min_trial_bytes", 0),)),
    "trial_bytes": Case(write, 16, (("min_trial_bytes", 0),)),
    "batch_bytes": Case(filtered, 100),
    "min_searched_pages": Case(filtered, 1),
    "max_matching": Case(filtered, -1.0, (("min_searched_pages", 1),)),  # the search always stops
    "tails_at_once": Case(sampled, 1),
    "max_sliced_sources": Case(from_files, 1),
    "trusted_vector_bytes": Case(changed, 0),
    "trusted_vector_rows": Case(changed, 0),
    "max_chunks": Case(append, 1, (("small_frame_bytes", 0),)),
    "small_frame_bytes": Case(append, 0),
    "many_files": Case(first_filter, 1),
    "plan_chunk_files": Case(planned, 1, MANY),
    "plan_group_files": Case(planned, 1, MANY),
    "plan_batch_files": Case(planned, 1, (*MANY, ("plan_group_files", 1))),
    "plan_part_files": Case(planned, 1, MANY),
    "few_tag_bytes": Case(filtered, 0),
    "few_texts": Case(filtered, 0),
    "max_short_commits": Case(first_filter, 0),
    "max_short_bytes": Case(first_filter, 0),
    "slice_files": Case(with_damaged_tag, 1),
    "max_cached_files": Case(first_filter, 1),
    "min_cached_files": Case(counted_keys, 1),
    "min_merged_groups": Case(summed, 1),
    "max_query_parts": Case(summed, 1),
    "pilot_rows": Case(estimated, 1),
    "listed_keys": Case(digested, 1),
    "hint_files": Case(hinted, 0, LARGE),
    "hint_bytes": Case(hinted, 1, LARGE),
    "part_rows": Case(estimated_of_sample, 1),
    "min_group_rows": Case(estimated_of_sample, 1, (("part_rows", 20),)),
    "min_slice_bytes": Case(spilled, 1 << 30),
}


# Fields that other tests change: where they begin to matter, they need Spark, little memory or an object store.
ELSEWHERE: dict[str, str] = {
    "min_file_rows": "tests/write",
    "small_file_rows": "tests/maintain/optimize",
    "max_value_bytes": "tests/write/data",
    "max_counted_files": "tests/tree",
    "task_bytes": "tests/spark",
    "min_part_rows": "tests/write/engine",
    "min_memory_bytes": "tests/write/engine",
    "min_load_bytes": "tests/helpers",
    "min_moved_bytes": "tests/write/engine",
    "max_moved_bytes": "tests/helpers",
    "small_object_bytes": "tests/read",
    "whole_file_bytes": "tests/io",
    "max_copied_log_bytes": "tests/read/snapshot",
    "cache_share": "tests/read/snapshot",
    "plan_cache_bytes": "tests/read/snapshot",
    "listed_share": "tests/read/snapshot",
    "deciding_share": "tests/estimate",
    "kept_change_bytes": "tests/change",
    "feed_file_bytes": "tests/change",
    "feed_task_rows": "tests/spark",
    "filled_share": "tests/training",
    "advised_rows": "tests/maintain/advise",
    "kept_trial_rows": "tests/maintain/advise",
    "max_plain_characters": "tests/sql",
    "quiet_s": "tests/write",
    "inferred_rows": "tests/cli",
    "text_group_rows": "tests/cli",
    "copied_bytes": "tests/cli",
    "min_sample_rows": "tests/spark",
    "bucket_bytes": "tests/spark",
    "pack_bytes": "tests/spark",
    "pack_batch_bytes": "tests/spark",
    "source_batch_bytes": "tests/spark",
    "max_partition_bytes": "tests/spark",
}


@contextmanager
def recording(arcs: set[Arc]) -> Iterator[None]:
    """Record which line of the packages follows which, in all threads."""
    folders = tuple(f"{ROOT / package}/" for package in PACKAGES)

    traces = dict[int, Any]()

    def enter(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(folders):
            return None
        if frame.f_lineno == code.co_firstlineno:  # else a generator goes on
            traces[id(frame)] = trace_of(code)
        return traces.get(id(frame))

    def trace_of(code: CodeType) -> Any:
        last, seen = 0, set[Arc]()

        def line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal last
            if event == "line":
                arc = (code, last, frame.f_lineno)
                # An arc that is taken again in a call is an arc of its own: a loop goes on.
                arcs.add((code, -last, frame.f_lineno) if arc in seen else arc)
                seen.add(arc)
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Run:
    """A run of a scenario: its result, the code that ran, and the shape of its table."""

    result: object
    arcs: set[Arc]
    shape: object


def run(scenario: Scenario, folder: Path, sizes: Mapping[str, Any]) -> Run:
    """Run a scenario in a new folder with other sizes."""
    arcs = set[Arc]()
    folder.mkdir()
    with resized(**{**TINY, **sizes}):
        step = scenario(folder / "t")
        with recording(arcs):
            result = step()
        shape = shape_of(folder / "t")
    return Run(result, {arc for arc in arcs if not arc[0].co_filename.endswith(TIMED)}, shape)


def shape_of(path: Path) -> object:
    """Return what sizes decide about a table."""
    if not path.exists():
        return None
    table = qbeast.open_table(path)
    files, blocks = table.snapshot.files, table.snapshot.blocks
    chunks = files.n_chunks(), blocks.blocks.n_chunks()
    return files.height, len(blocks), int(blocks.pages.first_page[-1]), table.cube_size, table.version, chunks


def same(result: object, expected: object) -> None:
    """Assert that two results of a scenario are equal; the order of rows may differ."""
    if isinstance(result, pl.DataFrame) and isinstance(expected, pl.DataFrame):
        assert_frame_equal(result, expected, check_row_order=False)
    elif isinstance(result, list) and isinstance(expected, list):
        for one, other in zip(result, expected, strict=True):
            same(one, other)
    else:
        assert result == expected


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], list[Run]]:
    """Run a scenario twice with its own sizes: at first caches are empty."""

    @cache
    def twice(scenario: Scenario, sizes: tuple[tuple[str, Any], ...]) -> list[Run]:
        folder = tmp_path_factory.mktemp(scenario.__name__)
        return [run(scenario, folder / name, dict(sizes)) for name in ("first", "second")]

    return lambda case: twice(case.scenario, case.sizes)


def differs(other: Run, runs: Sequence[Run]) -> bool:
    """Return whether a run took other code than each of some runs, or made another table."""
    ever, always = runs[0].arcs | runs[1].arcs, runs[0].arcs & runs[1].arcs
    return bool(other.arcs - ever or always - other.arcs) or other.shape != runs[1].shape


# Cases of one scenario follow each other: then one process runs it, and keeps its runs.
@pytest.mark.parametrize(
    "field", sorted(CASES, key=lambda field: (CASES[field].scenario.__name__, CASES[field].sizes))
)
def test_each_size_changes_which_code_runs(
    field: str, usual: Callable[[Case], list[Run]], tmp_path: Path
) -> None:
    case = CASES[field]
    runs = usual(case)
    other = run(case.scenario, tmp_path / "other", {**dict(case.sizes), field: case.value})
    same(other.result, runs[1].result)
    assert differs(other, runs), f"{field} changes nothing that runs"


def test_same_sizes_run_the_same_code(usual: Callable[[Case], list[Run]], tmp_path: Path) -> None:
    runs = usual(CASES["max_file_rows"])
    assert not differs(run(write, tmp_path / "other", {}), runs)


def test_every_size_is_changed_by_a_test() -> None:
    assert sorted([*CASES, *ELSEWHERE]) == sorted(field.name for field in fields(Sizing))
    for field, folder in ELSEWHERE.items():
        texts = [path.read_text() for path in (ROOT / folder).rglob("*.py")]
        assert any(re.search(rf"resized\([^()]*\b{field}=", text) for text in texts), (field, folder)


# A number that a module names, and lines that compare it with a number of rows, pages, files, bytes or the like.
NAMED = re.compile(
    r"^(_?[A-Z][A-Z0-9_]*)(?:: Final)? = \(?([\d_.]+)(?: ?(<<|\*\*|\*) ?(\d+))?\)?(?: *#.*)?$", re.MULTILINE
)
WORD = re.compile(r"\w+")
COMPARES = re.compile(r" [<>]=? |range\(.*,.*,|iter_slices\(")
COUNTED = re.compile(
    r"(?:\b|_)(?:len|height|counts?|rows?|pages?|files?|bytes?|sizes?|groups?|chunks?|keys?|cubes?|n|parts?|tasks?|"
    r"commits?|blocks?|values?|calls|sources|entries|columns|distinct|different|partitions)(?:\b|_)"
)

# Constants that start no other way at a size of tables, or one that small tests take, by reason. Names are those of
# modules and constants.
ALLOWED: dict[str, str] = {
    "texts that are shown": """
        cli.output._MAX_CHARACTERS errors._MAX_CHARACTERS log.actions._MAX_CHARACTERS results._MAX_CHARACTERS
        results._FEW spec.blocks._HEAD spec.blocks._MAX_PROBLEMS support.text.MAX_QUOTED
        support.hints._MAX_TEXT support.text._MAX_CHARACTERS
        support.text._MAX_MESSAGE support.text._MAX_VALUES
        support.frames._MAX_PLACES support.frames._MIN_LETTER table.check.faults._SHOWN
        table.data.rules._MAX_CHARACTERS table.inspect.drawings._EDGES table.inspect.drawings._MAX_LABEL
        table.inspect.drawings._MAX_WIDTH table.inspect.drawings._MAX_CHARACTERS
        table.inspect.drawings._MS_PER_DAY table.maintenance.metadata._NAMED""",
    "numbers of a format": """
        carbondata.files.open_file._TRAILER carbondata.files.open_file._MAX_PAGE_ROWS carbondata.pages.numbers._BYTES
        carbondata.pages.numbers._SHORT carbondata.pages.numbers._US_OF_MS
        carbondata.pages.old_measures._BARE carbondata.pages.old_measures._EXACT_DIGITS
        carbondata.pages.old_measures._EXACT_POWER cli.text_files._SHORT
        carbondata.pages.old_measures._INT64 io.encode._INLINE_BYTES io.footer._END
        io.footer._MAX_VARINT log.actions._MAX log.deletion_vectors._CONTAINER_ROWS
        log.deletion_vectors._MAX_LISTED log.deletion_vectors._MIN_WITH_OFFSETS
        log.deletion_vectors._Z85_GROUP plan.blocks._KEYS
        plan.bounds._EXACT_INTEGERS space.hashes._INTEGER_WIDTH spec.blocks.BOX_STEPS
        spec.blocks._CELLS tree.keys.HEAVY_SHARE tree.keys._MAX_RUNS tree.keys._MAX_NUMBER_BYTES
        tree.keys._MIN_STORED_COUNTERS tree.keys.MAX_COUNTERS tree.keys.MAX_LISTED
        tree.summary.KEY_BITS sql.portable._EXACT_DIGITS
        spark_bridge.read._DEFAULT_THRESHOLD""",
    "limits beyond which input is refused or not trusted": """
        carbondata.damage._MIN_BYTES carbondata.damage._MAX_UNEVEN carbondata.files.old_file._MAX_ROWS
        carbondata.files.old_file._MAX_HEADER carbondata.metadata.json_files._MAX_BYTES
        carbondata.pages.codecs._SNAPPY_RATIO carbondata.pages.page._MAX_LOCAL io.directory._MAX_RATIO
        io.address._UNITY_CHARACTERS
        io.catalog.glue_entry._MAX_CHARACTERS io.catalog.unity._MAX_CHARACTERS io.catalog.unity_client._MAX_BYTES
        log.values._MAX_NAME_BYTES log.protocol._MAX_DIGITS
        sql.parse.MAX_BRANCHES sql.parse.MAX_CHARACTERS sql.parse.MAX_ITEMS
        table.read.changes._MAX_FILE_BYTES
        sql.values.MAX_DIGITS sql.values.MAX_NUMBER spec.table_config._MAX_DIGITS
        table.index.revision.MAX_COLUMNS tree.keys._MAX_CHARACTERS
        tree.keys._MAX_ROWS""",
    "ratios": """
        table.read.scan._CERTAIN
        io.encode._MIN_REPEATS sampling.sums._MAX_MEAN_ROWS sampling.sums._SQUARES_ERRORS
        sampling.key_sample._MIN_PARTS table.advise.search.TIE table.advise.search._WORTHWHILE
        table.advise.suggest._WORTHWHILE table.commit._OUTWEIGHING table.estimate.reading._MIN_EFFECT
        table.dml.plan._MANY_COPIES table.estimate.rounds._COPIES table.read.shuffled._ROOM table.read.tasks._READ_FIRST
        tree.pages._MAX_WIDER
        tree.pages._TIMES tree.grid._DENSE_KEYS_PER_ROW tree.files._UPPER_SHARE
        tree.files._WRITE_SHARE tree.fit._KS_95""",
    "as many rows, values or files as tests have": """
        io.encode._MAX_BYTES io.encode._MAX_TRIED_BYTES io.encode._VALUE_BYTES io.encode._MAX_FEW_VALUES
        plan.nodes._FEW plan.predicate._MAX_ALTERNATIVES sampling.confidence.MIN_KEYS
        space.coordinates._BUCKETS space.hashes._FEW_ROWS table.advise.hint._FEW_PAGES
        table.read.planner._FEW_PARTS
        table.advise.hint._VERY_FEW_PAGES table.commit._MAX_COMMITS
        table.index.revision._FIRST_ROWS table.index.revision._MAX_FEW
        table.index.counts._MIN_ROWS table.index.counts._MIN_PARTITIONS
        table.index.planned_cubes._MERGED_ROWS
        table.write.write._FEW_PAGES tree.keys._MIN_COUNTERS tree.keys._MAX_SMALL_ROWS
        tree.build._MAX_CHAIN tree.pages._ALL_LENGTHS tree.pages._FEW_ROWS
        tree.pages._MAX_NODES tree.pages._SMALL_ROWS tree.grid._MAX_INLINE_CALLS
        tree.grid._MIN_THREADED_CHUNKS""",
    "steps of a loop over bytes or rows, with the same result": """
        carbondata.pages.texts._WINDOW io.footer._GUESS table.snapshot.log_files._HEAD
        table.snapshot.planned._PIECE_BYTES
        spark_bridge.worker.read_task._BATCH_ROWS spark_bridge.worker.tasks.BUFFER_BYTES
        spark_bridge.engine.workers._MAX_BATCH_BYTES""",
}


def compared_constants() -> set[str]:
    """Return the names of the numbers above 1 that modules compare with a size."""
    found = set[str]()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        numbers = {name for name, *parts in NAMED.findall(text) if number(*parts) > 1}
        if not numbers:
            continue
        lines = re.compile(rf"^ +.*\b(?:{'|'.join(numbers)})\b.*$", re.MULTILINE)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)[len("qbeast_") :]
        for line in lines.findall(text):
            if COMPARES.search(line) and COUNTED.search(line):
                found |= {
                    f"{module.removeprefix('core.')}.{name}"
                    for name in set(WORD.findall(line)).intersection(numbers)
                }
    return found


def number(first: str, operator: str, second: str) -> float:
    value = float(first.replace("_", ""))
    power = {"": 1.0, "<<": 2.0 ** int(second or 0), "*": float(second or 1)}
    return value ** int(second) if operator == "**" else value * power[operator]


def test_other_thresholds_of_sizes_have_a_reason() -> None:
    """A threshold in a module is not reached by tests: it belongs to `Sizing`."""
    allowed = {name for names in ALLOWED.values() for name in names.split()}
    assert compared_constants() == allowed

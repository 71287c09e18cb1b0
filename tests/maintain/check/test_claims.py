"""Numbers of a log that no file can have take no memory, raise no raw error, and lose no row."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.plan.blocks import build_page_table
from qbeast_core.spec.blocks import MAX_BOUNDS, pack_boxes
from tests.helpers.examples import examples
from tests.helpers.small_files import small_files

ROWS = pl.DataFrame({"id": range(2_000)}).with_columns(x=pl.col("id") * 7919 % 2003, k=pl.col("id") // 4 % 40)
GONE = pl.col("id") % 50 == 3
LEFT = ROWS.filter(~GONE)
MAX_BYTES = 64 << 20
Add = dict[str, Any]


def change(text: str, **values: object) -> str:
    return json.dumps(json.loads(text) | values)


def rows(count: object, *, bands: int | None = None, **fields: object) -> Callable[[Add], None]:
    """Claim a number of rows, in blocks and in a band with pages of `bands` rows too."""

    def claim(add: Add) -> None:
        before = json.loads(add["stats"])["numRecords"]
        add |= {"stats": change(add["stats"], numRecords=count), **fields}
        if bands is not None and isinstance(count, int):
            blocks = json.loads(add["tags"]["blocks"])
            blocks[0]["elementCount"] += count - before
            add["tags"]["blocks"] = json.dumps(blocks)
            add["tags"]["qbeast.layout"] = change(
                add["tags"]["qbeast.layout"],
                bands=[[count, bands, -(2**31)]],
                tail=1 << 30,
                directory=1 << 29,
            )

    return claim


def vector(**fields: object) -> Callable[[Add], None]:
    def claim(add: Add) -> None:
        if "deletionVector" in add:
            add["deletionVector"] |= fields

    return claim


CLAIMS: dict[str, Callable[[Add], None]] = {
    "pages of one row": rows(2**31 - 1, bands=1),
    "pages in a huge file": rows(2**31 - 1, bands=1, size=2**50),
    "a huge page": rows(2**40, bands=2**40),
    "usual pages": rows(10**12, bands=128),
    "bytes": rows(2_000, size=2**62),
    "no bytes": rows(2_000, size=0),
    "less than no bytes": rows(2_000, size=-1),
    "bytes beyond 64 bits": rows(2_000, size=2**63),
    **{
        f"{count!r:.9} rows": rows(count)
        for count in (2**40, 2**62, 2**63, 10**400, -1, 0, 1, "7", 1.5, 1e300, None, True, [7])
    },
    **{f"{count!r} deleted rows": vector(cardinality=count) for count in (2**40, 2**63, -1, "7", None)},
    "bytes of a vector": vector(sizeInBytes=2**31 - 1),
    "many bytes of a vector": vector(sizeInBytes=2**70),
    "place of a vector": vector(offset=2**31 - 1),
}
OPERATIONS: dict[str, Callable[[qbeast.Table], Any]] = {
    "narrow": lambda table: table.read("x < 100"),
    "all": lambda table: table.read(),
    "sample": lambda table: table.read(sample=0.1),
    "count": lambda table: table.count(),
    "count some": lambda table: table.count("x < 100"),
    "head": lambda table: table.rows().head(3).height,
    "estimate": lambda table: table.rows().estimate(pl.col("x").mean(), error=0.2),
    "groups": lambda table: table.rows().estimate(pl.len(), by="k", error=0.3),
    "shuffle": lambda table: sum(rows.height for rows in table.rows().shuffled(1, batch_rows=100)),
    "explain": lambda table: table.rows("x < 100").explain(),
    "metrics": lambda table: repr(table.metrics()),
    "shown": repr,
    "history": lambda table: table.history().height,
    "changes": lambda table: table.changes(since=0).collect().height,
    "explained changes": lambda table: table.explain_changes(since=0).height,
    "diff": lambda table: table.diff(0, key="id").collect().height,
    "check": lambda table: table.check().ok,
    "advise": lambda table: table.advise(["x < 100"]),
    "tasks": lambda table: len(table.rows().tasks()),
    "optimize": lambda table: table.optimize(full=True, dry_run=True),
    "delete": lambda table: table.delete("x = 5", dry_run=True),
    "merge": lambda table: table.merge(ROWS[:2], on="id", dry_run=True),
    "vacuum": lambda table: table.vacuum(),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("claims") / "t"
    with small_files(file_rows=2_000, page_rows=16):
        qbeast.write_table(ROWS, path, columns=["id", "x"], deletion_vectors=True)
        qbeast.open_table(path).delete(GONE)
    result_of("narrow", qbeast.open_table(path))  # loads modules
    return path


def claimed(made: Path, folder: Path, claim: Callable[[Add], None]) -> qbeast.Table:
    path = shutil.copytree(made, folder / "t")
    for commit in (path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                claim(action["add"])
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return qbeast.open_table(path)


@contextmanager
def little_memory() -> Iterator[None]:
    """Raise if more memory is allocated inside. Modules have to be loaded before."""
    tracemalloc.start(1)
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def result_of(operation: str, table: qbeast.Table) -> Any:
    """Return the result. None: an error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.QbeastWarning)
        try:
            return OPERATIONS[operation](table)
        except qbeast.QbeastError:
            return None


@pytest.mark.sweep
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", CLAIMS)
def test_impossible_numbers_raise_no_raw_error(made: Path, tmp_path: Path, name: str, operation: str) -> None:
    try:
        table = claimed(made, tmp_path, CLAIMS[name])
    except qbeast.QbeastError:
        return
    with little_memory():
        result = result_of(operation, table)
    if isinstance(result, pl.DataFrame) and operation != "sample":
        assert result.sort("id").equals(LEFT.filter(pl.col("x") < 100) if operation == "narrow" else LEFT)


@pytest.mark.parametrize("name", ["pages of one row", "pages in a huge file", "a huge page"])
def test_claimed_pages_take_no_memory(made: Path, tmp_path: Path, name: str) -> None:
    table = claimed(made, tmp_path, CLAIMS[name])
    with little_memory():
        assert result_of("narrow", table).sort("id").equals(LEFT.filter(pl.col("x") < 100))


@pytest.mark.parametrize("count", [0, 1.5])
def test_more_deleted_rows_than_rows_are_counted_in_the_file(
    made: Path, tmp_path: Path, count: float
) -> None:
    table = claimed(made, tmp_path, rows(count))
    assert result_of("count", table) == LEFT.height
    assert len(table) == LEFT.height


SIZES = st.integers(0, 2**62)


@examples(20, sweep=500)
@given(
    bands=st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)), min_size=1, max_size=4),
    size=SIZES,
    boxes=st.integers(0, 5_000),
)
def test_pages_of_a_tag_are_bounded(bands: list[tuple[int, int]], size: int, boxes: int) -> None:
    listed = [[count, each, weight] for weight, (count, each) in enumerate(bands)]
    tag = json.dumps(
        {"v": 3, "tail": 8, "directory": 8, "bands": listed, "box": [[0, 1]], "p": pack_boxes(bytes(boxes))}
    )
    total = sum(count for count, _ in bands)
    table = build_page_table(
        pl.Series([tag]), np.array([total]), np.array([True]), size_bytes=pl.Series([size], dtype=pl.Int64)
    )
    claims = sum(-(-count // each) for count, each in bands)
    assert table.count in {0, claims}
    assert table.count <= min(MAX_BOUNDS // 2, size // 8, 1_032 * len(tag))
    if 2 * claims <= boxes and claims * 1_000 <= size:  # what a file has is used
        assert table.count == claims

"""Rows come out as Polars gives them, whatever their types and chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.io.encode import outer_texts
from qbeast_core.io.location import Location
from qbeast_core.log.actions import file_stats
from qbeast_core.log.columns import PLAIN
from qbeast_core.table.data.files import (
    CodedRows,
    FileSettings,
    FileTarget,
    RowShape,
    RowTaker,
    write_data_files,
)
from qbeast_core.tree.files import plan_index
from qbeast_core.tree.grid import frame_weights, grid_columns
from tests.helpers.examples import examples
from tests.helpers.small_files import resized, small_files
from tests.helpers.strategies import VALUES, frames_of
from tests.plan import small

SCHEMA = {f"c{number}": dtype for number, dtype in enumerate(VALUES)}


@examples(10, sweep=600)
@given(st.data())
def test_gathered_rows_equal_polars(data):
    frame = data.draw(frames_of(SCHEMA))
    cuts = sorted(data.draw(st.lists(st.integers(0, frame.height), max_size=4)))
    edges = [0, *cuts, frame.height]
    pieces = [frame.slice(a, b - a) for a, b in pairwise(edges)]
    chunked = pl.concat(pieces, rechunk=False)
    count = data.draw(st.integers(0, frame.height))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = np.sort(rng.permutation(frame.height)[:count]).astype(np.uint32)
    taken = RowTaker(chunked).take(rows)
    assert taken.schema == frame.schema
    assert taken.equals(frame[pl.Series(rows, dtype=pl.UInt32)])


def target(frame: pl.DataFrame, folder: str = "folder") -> FileTarget:
    return FileTarget(
        location=Location.of(folder),
        shape=RowShape("{}", frame.schema, merge=False),
        configuration={},
        dialect="documented",
        columns=PLAIN,
        time_ms=1,
    )


def test_rising_numbers_are_not_compressed_for_nothing():
    random = np.random.default_rng(5)
    frame = pl.DataFrame({"id": np.arange(300_000), "price": random.random(300_000), "flat": 7})
    settings = FileSettings.of(target(frame), frame, ("price",))
    assert settings.levels.get("id") == 0, "random rows of a page differ by random numbers"
    assert "flat" in settings.dictionary


def test_low_cardinality_columns_are_gathered_by_position():
    rng = np.random.default_rng(0)
    height = 70_000
    frame = pl.DataFrame(
        {
            "kind": pl.Series(["a", "bb", None, "ccc"]).gather(np.minimum(np.arange(height) // 20_000, 3)),
            "price": pl.Series(rng.integers(0, 50, height)).cast(pl.Decimal(15, 2)),
            "key": rng.integers(0, 9, height).astype(str),
            "n": np.arange(height),
        }
    )
    expected = FileSettings.of(target(frame), frame, ("key",))
    source = CodedRows(frame, expected)
    for first, last in [(0, 30_000), (40_000, 60_000), (50_000, 70_000)]:
        rows = np.arange(first, last, 2, dtype=np.uint32)
        values = dict[str, pl.Series]()
        taken = source.take(rows, values)
        plain = frame[pl.Series(rows)]
        assert taken.columns == frame.columns
        decoded = [
            values[item.name].gather(item).alias(item.name) if item.name in values else item for item in taken
        ]
        assert pl.DataFrame(decoded).equals(plain)
        assert "key" not in values  # it has statistics of pages
        assert values.keys() == ({"price"} if first == 40_000 else {"kind", "price"})
        for name, some in values.items():
            assert set(some) == set(plain[name].drop_nulls())


def test_kept_cells_change_no_byte_of_files(tmp_path):
    """The slow way computes the cells of each file again."""
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({"x": rng.integers(0, 100, 2_000), "s": rng.integers(0, 500, 2_000).astype(str)})
    frame = frame.with_columns(pl.when(pl.col("x") % 7 > 0).then(pl.col("x")), row=rng.random(2_000))
    revision = small.revision()
    weights, cells = frame_weights(frame, revision.hashed), grid_columns(frame, revision)
    written = []
    with small_files():
        for keeps in (False, True):
            plan = plan_index(cells, revision, weights, existing=None, file_rows=300, keeps_cells=keeps)
            settings = FileSettings.of(target(frame, str(tmp_path)), frame, ("x", "s"))
            adds = write_data_files(CodedRows(frame, settings), plan, settings=settings)
            written.append([((tmp_path / add.path).read_bytes(), add.stats, add.tags) for add in adds])
            assert len(adds) > 3
            assert bool(plan.cells_of(0)) is keeps
    assert written[0] == written[1]


@examples(20, sweep=600)
@given(frames_of({"text": pl.String(), "number": pl.Int64()}))
def test_bounds_of_texts_are_those_of_all(frame):
    with resized(chunk_rows=0):
        few = outer_texts(frame)
    assert file_stats(frame, few=few) == file_stats(frame)
    assert outer_texts(frame) == {}

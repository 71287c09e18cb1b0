"""Which files an optimize takes, on made-up snapshots: no file is opened."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest

from qbeast_core.log.actions import Protocol
from qbeast_core.log.columns import PLAIN
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.spec.blocks import Block, dump_blocks
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.rewrite.candidates import Scope, choose_files
from tests.helpers.intents import revision

LAST = 2**31 - 1
LOW = -(2**31)
ALL = Scope(revision=1, beyond=True)


@dataclass(frozen=True)
class File:
    rows: int
    number: int | None = 1
    rules: str | None = "1"
    blocks: tuple[Block, ...] | None = None
    # Number of hidden rows in the log; "?": a vector without a count.
    hidden: int | str | None = None
    layout: str | None = None
    # Files of one write have the same time.
    time: int = 0
    # Range of the indexed column; None: unknown.
    range: tuple[float, float] | None = None

    @property
    def vector(self) -> str | None:
        counts = {} if self.hidden == "?" else {"cardinality": self.hidden}
        return None if self.hidden is None else json.dumps({"storageType": "i", **counts})

    def columns(self, at: int) -> dict[str, Any]:
        blocks = self.blocks or (Block("", LOW, LAST, self.rows),)
        tag = None if self.number is None else dump_blocks(blocks, dialect="documented")
        return {
            "path": f"f{at}",
            "size_bytes": self.rows * 10,
            "modification_time": self.time,
            "num_records": self.rows,
            "revision": self.number,
            "blocks": tag,
            "rules": self.rules,
            "layout": self.layout,
            "deletion_vector": self.vector,
            "has_deletion_vector": self.vector is not None,
            "min": {"price": self.range and self.range[0]},
            "max": {"price": self.range and self.range[1]},
        }


def state_of(
    *files: File, cube_size: int = 10**9, no_files: bool = False, sample_column: str | None = None
) -> Index:
    overrides = {
        "revision": pl.Int64,
        "blocks": pl.String,
        "rules": pl.String,
        "layout": pl.String,
        "deletion_vector": pl.String,
        "min": pl.Struct({"price": pl.Float64}),
        "max": pl.Struct({"price": pl.Float64}),
    }
    frame = pl.DataFrame([file.columns(at) for at, file in enumerate(files)], schema_overrides=overrides)
    frame = frame.with_columns(pl.lit(None, pl.String).alias("state"))
    frame = frame.clear() if no_files else frame
    item = revision().model_copy(update={"desired_cube_size": cube_size})
    other = revision(50.0, number=2).model_copy(update={"desired_cube_size": cube_size})
    schema = pl.Schema({"price": pl.Float64})
    revisions = {1: item, 2: other}
    snapshot = Mock(
        files=frame,
        logged_files=frame,
        some_files=frame,
        data_paths=frame["path"].to_list(),
        partitions=pl.DataFrame(),
        schema=schema,
        sample_column=sample_column,
        config=Mock(revisions=revisions, latest=item, importance={}),
        protocol=Protocol(min_reader_version=1, min_writer_version=2),
        columns=PLAIN,
        blocks=build_block_table(frame, revisions, schema),
    )
    return Index(snapshot)


def chosen(state: Index, scope: Scope = ALL) -> dict[int, str]:
    choice = choose_files(state, scope)
    return dict(zip(choice.files.tolist(), choice.reasons, strict=True))


def test_files_without_values_of_sample_column_are_taken():
    computed = '{"v":1,"rows":256,"tail":99,"w":"AIAAAA==","hidden":false}'
    files = [File(10**6, layout=computed), File(10**6), File(10**6, number=2), File(10**6, number=None)]
    taken = {1: "foreign layout", 2: "foreign layout", 3: "staged"}
    assert chosen(state_of(*files, sample_column="sample")) == taken
    assert chosen(state_of(*files)) == {3: "staged"}


def test_each_file_has_its_reason():
    files = [File(10**6), File(10**6, number=None), File(10**6, rules=None), File(10**6, hidden=10**5)]
    actual = chosen(state_of(*files, File(10**6, number=2)))
    assert actual == {1: "staged", 2: "foreign layout", 3: "deletion vector"}


def test_files_are_taken_from_a_tenth_of_hidden_rows_on():
    files = [File(10**6, hidden=hidden) for hidden in (None, 0, 99_999, 100_000, 10**6, "?", 10**6 + 1, -1)]
    state = state_of(*files)
    assert chosen(state) == dict.fromkeys(range(3, 8), "deletion vector")
    assert chosen(state, replace(ALL, purge=True)) == dict.fromkeys(range(1, 8), "deletion vector")
    assert chosen(state, replace(ALL, full=True, purge=True)) == dict.fromkeys(range(8), "requested")


def test_table_in_shape_has_no_candidates():
    assert chosen(state_of(*[File(10**5)] * 9)) == {}
    assert chosen(state_of(File(20))) == {}
    assert chosen(state_of(File(20), no_files=True)) == {}


def writes(*sizes: int, first: int = 1) -> list[File]:
    """Return the files of writes of their own, all over the same space."""
    return [File(rows, time=first + at) for at, rows in enumerate(sizes)]


def test_writes_join_while_rows_double():
    large = File(10**6)
    assert chosen(state_of(large, *writes(500, 500, 500))) == dict.fromkeys([1, 2, 3], "small file")
    assert chosen(state_of(large, *writes(500))) == {}
    assert chosen(state_of(large, *writes(500, 5000))) == {}
    assert set(chosen(state_of(large, *writes(500, 500, 2001)))) == {1, 2}
    assert set(chosen(state_of(large, *writes(500, 300, 800, 1600)))) == {1, 2, 3, 4}


def test_small_file_joins_other_rewritten_rows():
    state = state_of(File(10**6), File(500, time=1), File(500, number=None))
    assert chosen(state) == {1: "small file", 2: "staged"}


def test_files_of_one_write_stay_together():
    assert chosen(state_of(File(100_000), File(5_000), File(400))) == {}
    files = [File(20_000), File(5_000), *writes(15_000, 11_000)]
    small = dict.fromkeys(range(4), "small file")
    assert chosen(state_of(*files)) == small
    assert chosen(state_of(File(10**6), *(replace(file, time=file.time + 1) for file in files))) == {
        at + 1: reason for at, reason in small.items()
    }


def test_files_of_older_revisions_count_by_default():
    state = state_of(File(10**6), *(replace(file, number=2) for file in writes(500, 500, 700)))
    assert set(chosen(state)) == {1, 2, 3}
    assert chosen(state, Scope(revision=1, staged=False)) == {}
    older = Scope(revision=1, older=True, staged=False)
    assert chosen(state, older) == dict.fromkeys([1, 2, 3], "older revision")


def test_successive_ranges_are_left_alone():
    days = [File(300_000, time=day, range=(day, day + 1)) for day in range(8)]
    assert chosen(state_of(*days)) == {}
    everywhere = [File(40_000, time=day, range=(0.0, 8.0)) for day in range(8)]
    assert chosen(state_of(*everywhere)) == dict.fromkeys(range(8), "wide pages")


def test_neighbours_are_written_together():
    days = [File(12_000, time=day, range=(day, day + 1)) for day in range(40)]
    choice = choose_files(state_of(*(days[number * 7 % 40] for number in range(40))), ALL)
    assert len(choice.groups) > 1
    assert sorted(np.concatenate(choice.groups).tolist()) == choice.files.tolist()
    numbers = [sorted(at * 7 % 40 for at in group.tolist()) for group in choice.groups]
    assert all(days == list(range(days[0], days[-1] + 1)) for days in numbers)


def test_named_files_are_always_taken():
    state = state_of(File(10**6), File(10**6), File(10**6, number=None), File(10**6, number=2))
    scope = Scope(revision=1, paths=frozenset({"f1", "f2", "f3"}))
    assert chosen(state, scope) == {1: "requested", 2: "requested"}
    assert chosen(state, Scope(revision=2, staged=False, paths=scope.paths)) == {3: "requested"}


@pytest.mark.parametrize(("fraction", "actual"), [(0.0, {0}), (0.3, {0, 1}), (1.0, {0, 1, 2})])
def test_fraction_takes_files_that_begin_below_it(fraction: float, actual: set[int]):
    lows = (LOW, LOW // 2, LAST // 2)
    files = [File(10**5, blocks=(Block("", low, LAST, 10**5),)) for low in lows]
    scope = Scope(revision=1, full=True, fraction=fraction)
    assert set(chosen(state_of(*files), scope)) == actual


@pytest.mark.parametrize(
    ("fraction", "actual"), [(0.0, []), (0.1, [1]), (0.3, [1]), (0.4, [1, 2]), (1.0, [1, 2, 3])]
)
def test_fraction_of_staged_bytes_takes_oldest(fraction: float, actual: list[int]):
    staged = [File(10**5, number=None)] * 3
    scope = Scope(revision=None, fraction=fraction)
    assert sorted(chosen(state_of(File(10**5), *staged), scope)) == actual

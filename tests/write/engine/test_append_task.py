# ruff: noqa: S301 -- what is unpickled was pickled here
"""Appends by tasks that know nothing of each other: no row lost, the invariants kept, whatever they wrote."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from shutil import copytree

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given

import qbeast
from qbeast_core.errors import (
    CommitConflictError,
    CommitUnknownError,
    SchemaMismatchError,
    StorageError,
    TableNotFoundError,
)
from qbeast_core.spec.blocks import Block
from qbeast_core.table.index.revision import blocks_in_order
from qbeast_core.table.write.by_tasks import begin_append, publish_parts
from qbeast_core.tree.grid import frame_weights
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.races import silent_commits
from tests.helpers.stores import failing_puts
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
SMALL: dict[str, int] = {} if is_sweep() else {"most_frames": 2, "most_rows": 20}


def append_by_tasks(table: Path, frames: list[pl.DataFrame], *, txn=None):
    """Append as an engine does: look once, write parts in other processes, commit once."""
    context = begin_append(str(table), frames[0].clear())
    context = pickle.loads(pickle.dumps(context))
    parts = [pickle.loads(pickle.dumps(context.write(frame))) for frame in frames]
    return publish_parts(context, parts, txn=txn)


def numbers(rows: int, *, first: int = 0, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({"id": np.arange(first, first + rows), "x": rng.random(rows) * 0.98 + 0.01})


def data_files(table: Path) -> set[str]:
    return {path.name for path in table.glob("*.parquet")}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 ids 0 to 19,999 and numbers in [0, 1], both linear."""
    place = tmp_path_factory.mktemp("appended") / "table"
    rows = numbers(20_000).with_columns(
        pl.when(pl.col("id") < 2).then(pl.col("id")).otherwise("x").alias("x")
    )
    qbeast.write_table(rows, place, columns=["id:linear", "x:linear"], cube_size=1000)
    return place


@pytest.fixture
def table(master: Path, tmp_path: Path) -> Path:
    return copytree(master, tmp_path / "table")


@examples(4, sweep=125)
@given(case=cases(**SMALL))
def test_independently_planned_parts_keep_invariants(case: Case) -> None:
    with folder() as place, small_files():
        qbeast.write_table(
            case.frames[0], place, columns=case.columns, cube_size=case.cube_sizes[0], dialect=case.dialect
        )
        for frame in case.frames[1:]:
            cut = max(frame.height // 3, 1)
            append_by_tasks(place, list(frame.iter_slices(cut)) or [frame])
        check_invariants(place, may_stage=True)
        assert_same_rows(qbeast.read_table(place), case.rows)
        weights = frame_weights(case.rows, case.indexed)
        for share in (0.1, 0.5):
            limit = int(share * (2**32 - 1) - 2**31)
            drawn = case.rows.filter(pl.Series(weights < limit))
            assert_same_rows(qbeast.read_table(place, sample=share), drawn)


def test_rows_outside_the_space_are_staged(table: Path) -> None:
    inside, outside = numbers(500), numbers(300, first=20_000)
    append_by_tasks(table, [pl.concat([inside, outside])])
    staged = [add for add in read_log(table).adds.values() if "revision" not in (add.get("tags") or {})]
    assert [json.loads(add["stats"])["numRecords"] for add in staged] == [300]
    assert json.loads(staged[0]["stats"])["minValues"]["id"] == 20_000
    stored = pl.read_parquet(table / staged[0]["path"])
    assert (stored["_qbeast_weight"].to_numpy() <= frame_weights(stored, ["id", "x"]) >> 16).all()
    assert stored["_qbeast_weight"].is_sorted()
    assert {block.revision for block in check_invariants(table, may_stage=True)} == {1}
    assert qbeast.scan_table(table).filter(pl.col("id") >= 20_000).collect().height == 300
    assert qbeast.read_table(table).height == 20_800


def test_nulls_and_infinities_need_no_new_space(table: Path) -> None:
    rows = pl.DataFrame({"id": [None, 3, 4, 5], "x": [0.5, None, float("nan"), float("inf")]})
    append_by_tasks(table, [rows])
    check_invariants(table)  # none is staged


def test_single_value_column_stages_other_values(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"a": [7] * 10}), tmp_path / "t", columns=["a:linear"])
    append_by_tasks(tmp_path / "t", [pl.DataFrame({"a": [7, None, 8]})])
    rows = {
        json.loads(add["stats"])["numRecords"]: bool(add.get("tags"))
        for add in read_log(tmp_path / "t").adds.values()
    }
    assert rows == {10: True, 2: True, 1: False}


def test_quantiles_take_any_value(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": [1.0, 2.0, 3.0], "s": ["a", "b", "c"]})
    qbeast.write_table(rows, tmp_path / "t", columns=["a:quantiles", "s"])
    append_by_tasks(tmp_path / "t", [pl.DataFrame({"a": [-1e300, 99.0], "s": ["", "zzz"]})])
    check_invariants(tmp_path / "t")


def test_converted_table_gets_only_staging_files(tmp_path: Path) -> None:
    place = tmp_path / "t"
    write_deltalake(place, numbers(100))
    qbeast.convert_table(place, columns=["id"])
    append_by_tasks(place, [numbers(10, first=100), numbers(10, first=110)])
    assert not any(add.get("tags") for add in read_log(place).adds.values())
    assert sorted(qbeast.read_table(place)["id"]) == list(range(120))


def test_incompatible_parts_are_staged(tmp_path: Path) -> None:
    """Both parts divide a corner without blocks: thresholds of one would be above rows of the other."""
    place = tmp_path / "t"
    bounds = {"a_min": 0.0, "a_max": 1.0, "b_min": 0.0, "b_max": 1.0}
    frames = [_corner(rows) for rows in (1, 30, 14)]
    with small_files(file_rows=5, page_rows=1):
        columns = ["a:linear", "b:linear"]
        qbeast.write_table(frames[0], place, columns=columns, cube_size=2, column_stats=bounds)
        context = begin_append(str(place), frames[0].clear())
        parts = [context.write(frame) for frame in frames[1:]]
        publish_parts(context, parts)
    staged = {
        add["path"] for add in read_log(place).adds.values() if "revision" not in (add.get("tags") or {})
    }
    many, few = ({add.path for add in part.files} for part in parts)
    assert set() < staged < many
    assert len(few) > 1
    assert qbeast.open_table(place).check(data=True).ok
    check_invariants(place, may_stage=True)
    assert_same_rows(qbeast.read_table(place), pl.concat(frames))


def _corner(rows: int) -> pl.DataFrame:
    values = np.random.default_rng(rows).random((rows, 2)) - 0.5
    points = pl.DataFrame(np.clip(values * 0.01, 0, 1), schema=["a", "b"])
    return points.select(pl.int_range(1000 * rows, 1000 * rows + rows).alias("row"), "a", "b")


def test_same_progress_is_applied_once(table: Path) -> None:
    first = append_by_tasks(table, [numbers(50)], txn=("stream", 7))
    before = data_files(table)
    again = append_by_tasks(table, [numbers(50)], txn=("stream", 7))
    older = append_by_tasks(table, [numbers(50)], txn=("stream", 6))
    assert not first.already_applied
    assert again.already_applied
    assert older.already_applied
    assert data_files(table) == before
    assert qbeast.read_table(table).height == 20_050


def test_append_of_no_rows_commits_nothing(table: Path) -> None:
    assert append_by_tasks(table, [numbers(0), numbers(0)], txn=("a", 1)) is None
    assert qbeast.open_table(table).version == 0


def test_concurrent_append_is_not_a_conflict(table: Path) -> None:
    context = begin_append(str(table), numbers(0))
    parts = [context.write(numbers(3000, seed=seed)) for seed in (1, 2)]
    qbeast.write_table(numbers(3000, seed=3), table, mode="append")
    assert publish_parts(context, parts).version == 2
    check_invariants(table)
    assert qbeast.read_table(table).height == 29_000


def test_newer_snapshot_is_checked_from_older(table: Path) -> None:
    context = begin_append(str(table), numbers(0))
    parts = [context.write(numbers(300, seed=seed)) for seed in (1, 2)]
    qbeast.write_table(numbers(300, seed=3), table, mode="append")
    later = begin_append(str(table), numbers(0))
    parts.append(later.write(numbers(300, seed=4)))
    assert publish_parts(later, parts).version == 2
    check_invariants(table)
    assert qbeast.read_table(table).height == 21_200


def test_rows_planned_for_another_index_are_staged(table: Path) -> None:
    context = begin_append(str(table), numbers(0))
    parts = [context.write(numbers(100))]
    qbeast.write_table(numbers(10), table, columns=["x"], mode="overwrite")
    publish_parts(context, parts)
    check_invariants(table, may_stage=True)
    assert qbeast.read_table(table).height == 110
    assert qbeast.open_table(table).indexed_columns == ("x",)


def test_concurrent_schema_change_leaves_no_files(table: Path) -> None:
    context = begin_append(str(table), numbers(0))
    parts = [context.write(numbers(100))]
    other = numbers(10).with_columns(pl.col("x").cast(pl.String))
    qbeast.write_table(other, table, columns=["id"], mode="overwrite", schema_mode="overwrite")
    with pytest.raises(CommitConflictError, match="schema"):
        publish_parts(context, parts)
    assert not data_files(table) & {add.path for part in parts for add in part.files}
    assert qbeast.read_table(table).height == 10


def test_files_stay_when_commit_outcome_is_unknown(table: Path) -> None:
    context = begin_append(str(table), numbers(0))
    part = context.write(numbers(100))
    with silent_commits(), pytest.raises(CommitUnknownError):
        publish_parts(context, [part])
    assert {add.path for add in part.files} <= data_files(table)
    assert qbeast.read_table(table).height == 20_100


def test_part_that_fails_leaves_no_files(table: Path) -> None:
    context = begin_append(str(table), numbers(0))
    before = data_files(table)
    puts = list[str]()

    def is_second(path: str) -> bool:
        puts.append(path)
        return len(puts) == 2

    full = StorageError("disk full", path="x")
    with failing_puts(is_second, full), pytest.raises(StorageError, match="disk full"):
        context.write(numbers(100, first=19_950))  # indexed ones first, then staged
    assert data_files(table) == before


def test_rows_must_fit_the_table(table: Path) -> None:
    with pytest.raises(SchemaMismatchError, match="'y' is not in the table"):
        begin_append(str(table), pl.DataFrame(schema={"id": pl.Int64, "y": pl.Float64}))


def test_null_in_required_column_raises_in_part(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", Schema([Field("id", PrimitiveType("long"), nullable=False)]))
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    context = begin_append(str(tmp_path / "t"), pl.DataFrame(schema={"id": pl.Int64}))
    with pytest.raises(SchemaMismatchError, match="may hold no nulls"):
        context.write(pl.DataFrame({"id": [1, None]}))


def test_no_table_is_created(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="Create it with"):
        begin_append(str(tmp_path / "none"), numbers(0))
    assert not list(tmp_path.iterdir())


def test_context_of_large_tree_is_small(tmp_path: Path) -> None:
    place = tmp_path / "t"
    with small_files(file_rows=1 << 16, page_rows=256):
        qbeast.write_table(numbers(20_000), place, columns=["id", "x"], cube_size=10)
    context = begin_append(str(place), numbers(0))
    assert context.tree is not None
    assert context.tree.cube_count > 1_500
    assert len(pickle.dumps(context)) < 5_000_000 / 15


def test_cube_ended_by_one_part_is_found() -> None:
    """The rule itself, on blocks: the shallow part's threshold covers the deep part's rows."""
    deep = [Block("g", 10, 2**31 - 1, 5)]
    root = [Block("", -50, 20, 5), Block("g", 21, 2**31 - 1, 5)]
    inner = [Block("", -60, 5, 5), Block("w", 6, 2**31 - 1, 5)]
    live = pl.DataFrame({"tree": [0], "cube": [""], "min_weight": [-90], "max_weight": [0]})
    for parts in itertools.permutations([deep, root, inner]):
        assert None not in blocks_in_order(parts, live[:0], dimensions=2)
    assert blocks_in_order([deep, root], live[:0], dimensions=2)[0] is None
    assert None not in blocks_in_order([deep, root], live, dimensions=2)

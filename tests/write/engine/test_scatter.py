"""Workers that see a part of the rows each: no row is lost, the index holds, samples are the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.location import Location
from qbeast_core.table.dml.change import ChangeOptions, Delete, run_change
from qbeast_core.table.engine.files import PlacedFile, PlaceTask
from qbeast_core.table.maintenance.convert import convert
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.tree.summary import SampleLimits
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants
from tests.helpers.scattering import PartsEngine, scatter, sent, write_parts
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, sampled, samples, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
SMALL: dict[str, int] = {} if is_sweep() else {"most_frames": 2, "most_rows": 20}


def split(frame: pl.DataFrame, parts: int) -> list[pl.DataFrame]:
    cuts = [frame.height * i // parts for i in range(parts + 1)]
    return [frame.slice(a, b - a) for a, b in pairwise(cuts)]


@examples(4, sweep=125)
@given(
    case=cases(**SMALL),
    sample_rows=st.sampled_from([2, 9, 40, 1 << 20]),
    parts=st.integers(1, 4),
    flush_rows=st.sampled_from([5, 1 << 20]),
    sample=samples(),
)
def test_rows_are_complete_and_index_holds(case: Case, sample_rows, parts, flush_rows, sample) -> None:
    limits = SampleLimits(sample_rows, 1 << 30)
    with folder() as path:
        for number, (frame, size) in enumerate(zip(case.frames, case.cube_sizes, strict=True)):
            with small_files():
                result = scatter(
                    path,
                    split(frame, parts),
                    flush_rows=flush_rows,
                    limits=limits,
                    columns=case.columns,
                    mode="append" if number else "error",
                    cube_size=size,
                    dialect=case.dialect,
                )
            assert (result.rows, result.version) == (frame.height, number)
        assert_same_rows(qbeast.read_table(path), case.rows)
        assert sum(block.rows for block in check_invariants(path)) == case.rows.height
        actual = qbeast.read_table(path, sample=sample)
        assert_same_rows(actual, sampled(case.rows, case.indexed, sample))


@examples(4, sweep=60)
@given(case=cases(most_frames=1), parts=st.integers(1, 4))
def test_complete_sample_gives_blocks_of_local_write(case: Case, parts) -> None:
    options = {"columns": case.columns, "cube_size": case.cube_sizes[0], "dialect": case.dialect}
    with folder() as here, folder() as there:
        there_rows = scatter(there, split(case.frames[0], parts), **options)
        here_rows = qbeast.write_table(case.frames[0], here, **options)
        columns = ["cube", "min_weight", "max_weight", "element_count"]
        blocks = [qbeast.open_table(path).blocks().select(columns).sort("cube") for path in (here, there)]
        assert blocks[0].equals(blocks[1])
        assert here_rows.design_effect == pytest.approx(there_rows.design_effect)
        assert here_rows.transformers == there_rows.transformers


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    return pl.DataFrame({"a": rng.random(30_000), "b": rng.integers(0, 10**6, 30_000)})


def test_sampled_tree_filters_and_samples_well(rows: pl.DataFrame, tmp_path: Path) -> None:
    options = {"columns": ["a", "b"], "cube_size": 1000}
    qbeast.write_table(rows, tmp_path / "one", **options)
    scatter(tmp_path / "many", split(rows, 7), limits=SampleLimits(3000, 1 << 30), **options)
    item, many = (qbeast.open_table(tmp_path / name) for name in ("one", "many"))
    for request in ({"sample": 0.1}, {"where": pl.col("a") < 0.1}):
        assert many.rows(**request).explain().rows_opened <= 1.25 * item.rows(**request).explain().rows_opened


def test_too_many_rows_for_a_file_spread(tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": [7] * 1000})
    with small_files(file_rows=100):
        result = scatter(tmp_path / "t", split(rows, 3), columns=["k"])
    assert result.files == 10
    assert check_invariants(tmp_path / "t")
    assert qbeast.read_table(tmp_path / "t").height == 1000


def test_changed_rows_raise_and_leave_nothing(rows, tmp_path: Path) -> None:
    changed = rows.with_columns(pl.col("a").reverse() / 2)
    with pytest.raises(qbeast.InputChangedError, match="rows changed"):
        scatter(
            tmp_path / "t", [rows], place=lambda task, _: write_parts(task, split(changed, 2)), columns=["a"]
        )
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_design_effect_is_estimated_from_sample(tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": np.arange(40_000) // 4})
    result = scatter(tmp_path / "t", split(rows, 4), limits=SampleLimits(10_000, 1 << 30), columns=["k"])
    assert result.design_effect == pytest.approx(4.0, rel=0.1)


def test_files_placed_twice_count_once(tmp_path: Path) -> None:
    """The first answers are lost, their files are orphans."""

    def place(task: PlaceTask, parts: Sequence[pl.DataFrame]) -> Sequence[PlacedFile]:
        write_parts(sent(task), parts)
        return write_parts(sent(task), parts)

    numbers = pl.DataFrame({ROW: range(60)}).with_columns(a=pl.col(ROW) % 7)
    qbeast.write_table(numbers, tmp_path / "t", columns=[ROW, "a"], cube_size=10)
    parts = list(numbers.reverse().iter_slices(25))
    scatter(tmp_path / "t", parts, place=place, columns=["a", ROW], mode="overwrite")
    snapshot = load_snapshot(str(tmp_path / "t"))
    done, _ = run_change(snapshot, Delete("a < 2"), ChangeOptions(), engine=PartsEngine(place=place))
    assert done.rows_deleted == 18
    assert_same_rows(qbeast.read_table(tmp_path / "t"), numbers.filter(pl.col("a") >= 2))
    check_invariants(tmp_path / "t")
    assert qbeast.open_table(tmp_path / "t").check().ok


def test_reader_reports_condition_errors(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({ROW: range(60)}), tmp_path, columns=[ROW])
    change = Delete("CAST(CAST(row AS STRING) || 'x' AS INT) = 1")
    with pytest.raises(qbeast.InvalidInputError, match="`where`"):
        run_change(load_snapshot(tmp_path), change, ChangeOptions(), engine=PartsEngine(part_rows=1))
    assert qbeast.open_table(tmp_path).version == 0


def test_engine_inspects_parquet_files(tmp_path: Path) -> None:
    numbers = pl.DataFrame({ROW: range(60)})
    for number, part in enumerate(numbers.iter_slices(20)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    done = convert(Location.of(tmp_path), WriteOptions(columns=[ROW]), engine=PartsEngine())
    assert (done.files, done.rows, done.created_log) == (3, 60, True)
    assert_same_rows(qbeast.read_table(tmp_path), numbers)

"""A filter on the sample column returns the rows of a sample in every engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, sampled, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

NAME = "share"
MULTIPLES = st.integers(0, 65536).map(lambda step: step / 65536)
FRACTIONS = st.one_of(
    st.sampled_from([0.0, 0.01, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1.0]), MULTIPLES, st.floats(0, 1)
)


def with_duckdb(path: Path, fraction: float) -> list[int]:
    files = DeltaTable(path).file_uris()
    if not files:
        return []
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files).filter(f"{NAME} < {fraction!r}::DOUBLE")
        return [row for (row,) in rows.select(ROW).fetchall()]


def with_polars(path: Path, fraction: float) -> list[int]:
    return pl.scan_delta(path).filter(pl.col(NAME) < fraction).collect()[ROW].to_list()


def with_datafusion(path: Path, fraction: float) -> list[int]:
    query = QueryBuilder().register("t", DeltaTable(path))
    text = f"select {ROW} from t where {NAME} < {fraction!r}"  # noqa: S608 -- our own names
    return pl.DataFrame(query.execute(text).read_all())[ROW].to_list()


def with_pyarrow(path: Path, fraction: float) -> list[int]:
    dataset = DeltaTable(path).to_pyarrow_dataset()
    return dataset.to_table(filter=pc.field(NAME) < fraction).column(ROW).to_pylist()


ENGINES: list[Callable[[Path, float], list[int]]] = [with_duckdb, with_polars, with_datafusion, with_pyarrow]


def without_exponent(fraction: float) -> float:
    """Return a fraction that every SQL reads as a double: not in the form 1e-9."""
    return fraction if "e" not in repr(fraction) else 0.0


@examples(2, sweep=60)
@given(
    case=cases(most_frames=4 if is_sweep() else 1, most_rows=60 if is_sweep() else 30),
    fraction=FRACTIONS.map(without_exponent),
    first=st.booleans(),
    spill=st.booleans(),
)
def test_filter_in_engines_is_the_sample_of_next_multiple(
    case: Case, fraction: float, *, first: bool, spill: bool
) -> None:
    case = replace(case, dialect="documented")
    with folder() as path, small_files(file_rows=20, page_rows=4):
        if first:
            qbeast.write_table(
                case.frames[0],
                path,
                case.columns,
                cube_size=case.cube_sizes[0],
                sample_column=NAME,
                resources=SPILL if spill else MEMORY,
            )
            for frame in case.frames[1:]:
                qbeast.write_table(frame, path, mode="append", resources=SPILL if spill else MEMORY)
        else:
            write(path, case)
            qbeast.open_table(path).add_sample_column(NAME)
        table = qbeast.open_table(path)
        assert table.schema.names()[-1] == NAME
        check_invariants(path)
        assert table.check().ok
        expected = sampled(case.rows, case.indexed, math.ceil(fraction * 65536) / 65536)
        for engine in ENGINES:
            assert sorted(engine(path, fraction)) == sorted(expected[ROW]), engine.__name__
        own = table.read(sample=fraction).drop(NAME)
        assert_same_rows(own, sampled(case.rows, case.indexed, fraction))


HIDDEN = "_qbeast_weight"
ROUND = [0.01, 0.05, 0.1, 0.13, 0.2, 0.27, 0.37, 0.5, 0.64, 0.8]


def last_weight(fraction: float) -> int:
    """The largest weight of a sample, by the format."""
    return int(fraction * (2**32 - 1) - 2**31) - 1


def row_groups(path: Path, column: str) -> pl.DataFrame:
    """Rows, and minimum of a column, of all row groups by the footers."""
    with duckdb.connect() as connection:
        chunks = connection.sql(f"from parquet_metadata({DeltaTable(path).file_uris()})")
        chosen = chunks.filter(f"path_in_schema = '{column}'")
        return chosen.select("row_group_num_rows as rows, stats_min::double as least").pl()


@pytest.mark.parametrize("column", [None, NAME])
def test_engines_skip_row_groups_of_other_samples(tmp_path: Path, column: str | None) -> None:
    count = 120_000
    rows = pl.DataFrame({ROW: np.arange(count)}).with_columns(x=pl.col(ROW) * 7919 % 10_007)
    qbeast.write_table(rows, tmp_path, [ROW, "x"], cube_size=count, sample_column=column)
    groups = row_groups(tmp_path, column or HIDDEN)
    assert groups["rows"].sum() == count
    for fraction in ROUND:
        end = fraction if column else (last_weight(fraction) >> 16) + 0.5
        opened = groups.filter(pl.col("least") < end)["rows"].sum()
        assert opened == sampled(rows, [ROW, "x"], math.ceil(fraction * 65536) / 65536).height


@examples(2, sweep=60)
@given(case=cases(most_frames=4 if is_sweep() else 1, most_rows=60 if is_sweep() else 30), fraction=FRACTIONS)
def test_hidden_column_selects_all_rows_of_a_sample(case: Case, fraction: float) -> None:
    case = replace(case, dialect="documented")
    with folder() as path, small_files(file_rows=20, page_rows=2), duckdb.connect() as connection:
        write(path, case)
        files = DeltaTable(path).file_uris()
        if not files:
            return
        selected = connection.read_parquet(files, union_by_name=True).filter(
            f"{HIDDEN} is null or {HIDDEN} <= {last_weight(fraction) >> 16} or {fraction} = 1"
        )
        read = {row for (row,) in selected.select(ROW).fetchall()}
        assert read >= set(sampled(case.rows, case.indexed, fraction)[ROW])

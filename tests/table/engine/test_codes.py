"""Columns of few values go through temporary files as small numbers, and nobody can tell it from the table."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.io.encodings import choose_dictionary
from qbeast_core.io.parquet_write import encode_data_file
from qbeast_core.log.files.stats import file_stats
from qbeast_core.table.engine.spill import rows as spill_rows
from qbeast_core.table.engine.spill.codes import Codes, TooManyValuesError, columns_to_code
from tests.helpers.examples import examples
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import SPILL, assert_same_rows


@examples(20, slow=150)
@given(case=cases(most_frames=1, most_rows=6), batches=st.integers(1, 3), seed=st.integers(0, 9))
def test_a_file_of_codes_is_the_file_of_the_values(case: Case, batches: int, seed: int) -> None:
    few = case.frames[0]
    numbers = np.random.default_rng(seed).integers(0, max(few.height, 1), 80 if few.height else 0)
    rows = few[pl.Series(numbers)]
    codes = Codes(rows.schema, columns_to_code(rows, besides=[]), most_bytes=1 << 20)
    parts = [codes.code(one) for one in rows.iter_slices(80 // batches)] or [codes.code(rows)]
    coded, values = codes.of_file(pl.concat(parts))
    plain = [path for path in choose_dictionary(rows) if path not in codes.names]
    weights = np.arange(rows.height, dtype=np.int32)
    ours = encode_data_file(coded, weights=weights, page_rows=32, dictionary=[*plain, *values], values=values)
    wanted = encode_data_file(rows, weights=weights, page_rows=32, dictionary=choose_dictionary(rows))
    assert (ours.size_bytes, ours.tail_bytes) == (wanted.size_bytes, wanted.tail_bytes)
    assert_frame_equal(pl.read_parquet(io.BytesIO(ours.data)), pl.read_parquet(io.BytesIO(wanted.data)))
    assert file_stats(coded, few=values) == file_stats(rows)


def test_more_values_than_may_be_kept_are_named() -> None:
    rows = pl.DataFrame(
        {"few": ["a", "b"] * 50_000, "many": pl.Series(range(100_000)).cast(pl.Decimal(9, 2))}
    )
    codes = Codes(rows.schema, ["few", "many"], most_bytes=1 << 20)
    codes.code(rows.head(60_000))
    with pytest.raises(TooManyValuesError) as caught:
        codes.code(rows.tail(40_000))
    assert caught.value.name == "many"


def test_a_column_that_gets_many_values_late_is_written_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[list[str]] = []

    class Counted(Codes):
        def __init__(self, schema: pl.Schema, names: list[str], *, most_bytes: int) -> None:
            super().__init__(schema, names, most_bytes=most_bytes)
            tried.append(self.names)

    monkeypatch.setattr(spill_rows, "Codes", Counted)
    n = 40_000
    late = pl.Series(["same"] * (n // 2) + [f"text {row}" for row in range(n // 2)])
    rows = pl.DataFrame({"row": range(n), "kind": ["a", None, "c", "d"] * (n // 4), "late": late})
    spilling = tmp_path / "spilling"
    spilling.mkdir()
    qbeast.write_table(
        rows.lazy(),
        tmp_path / "t",
        columns=["row"],
        resources=SPILL,
        memory_bytes=4 << 20,
        spill_dir=spilling,
    )
    assert tried == [["kind", "late"], ["kind"]]
    assert not list(spilling.iterdir())
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows, "row")
    assert qbeast.open_table(tmp_path / "t").check().ok
    for file in (tmp_path / "t").glob("*.parquet"):
        group = pq.read_metadata(file).row_group(0)
        chunks = [group.column(at) for at in range(group.num_columns)]
        assert [one.path_in_schema for one in chunks if one.has_dictionary_page] == ["kind"]


def test_files_are_encoded_as_those_written_from_memory(tmp_path: Path) -> None:
    n = 150_000
    rng = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "row": np.arange(n),
            "noise": rng.integers(0, 2**62, n),
            "kind": pl.Series(rng.integers(0, 5, n)).cast(pl.String),
            "level": rng.integers(0, 9, n).astype(np.int16),
            "price": pl.Series(rng.integers(0, 40, n)).cast(pl.Decimal(12, 2)),
        }
    )
    found: list[set[tuple[str, str, bool]]] = []
    for engine in ("memory", "spill"):
        path = tmp_path / engine
        qbeast.write_table(
            rows.lazy(),
            path,
            columns=["row"],
            resources=qbeast.Resources(engine=engine),
            memory_bytes=64 << 20,
        )
        groups = [pq.read_metadata(file).row_group(0) for file in path.glob("*.parquet")]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        found.append({(one.path_in_schema, one.compression, one.has_dictionary_page) for one in chunks})
    assert found[0] == found[1]
    assert {("noise", "UNCOMPRESSED", False)} <= found[1]
    assert {name for name, _, has in found[1] if has} == {"kind", "level", "price"}

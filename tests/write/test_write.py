"""Whatever is written and appended: no row is lost, none is there twice, and the index keeps its invariants."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.small_files import resized
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, each_sizes, folder, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


SHARED = (
    *("rows", "files", "cubes", "revision_id", "new_revision"),
    *("transformers", "cube_size", "design_effect"),
)


def contents(path: Path) -> dict[str, bytes]:
    return {str(item): item.read_bytes() for item in path.rglob("*") if item.is_file()}


def write_as_previewed(path: Path, case: Case) -> None:
    """Write all frames; previews name what each write then does, and leave no trace."""
    for number, (frame, size) in enumerate(zip(case.frames, case.cube_sizes, strict=True)):
        options: Any = {"mode": "append" if number else "error", "cube_size": size, "dialect": case.dialect}
        before = contents(path)
        planned = qbeast.write_table(frame, path, case.columns, dry_run=True, **options)
        assert contents(path) == before
        done = qbeast.write_table(frame, path, case.columns, **options)
        assert all(getattr(planned, name) == getattr(done, name) for name in SHARED)
        assert (planned.version, planned.dry_run, planned.committed) == (number - 1, True, False)
        assert (done.version, done.rows) == (number, frame.height)


JVM_KNOWS = {"LinearTransformation", "HashTransformation", "NullToZeroTransformation$"}


def check_jvm_can_read(path: Path, *, asked: tuple[str, ...]) -> None:
    """A released JVM knows three transformations, and fails on a float where it wants an integer."""
    configuration = read_log(path).configuration
    assert configuration["qbeast.blocksDialect"] == "qbeast-spark"
    for key, text in configuration.items():
        if key.startswith("qbeast.revision.") and key != "qbeast.revision.0":
            for spec, space in zip(asked, json.loads(text)["transformations"], strict=True):
                name = space["className"].rpartition(".")[2]
                assert name in JVM_KNOWS or spec.endswith(":quantiles")
                if space.get("orderedDataType") in WHOLE_TYPES and name == "LinearTransformation":
                    assert all(isinstance(space[end], int) for end in ("minNumber", "maxNumber", "nullValue"))


WHOLE_TYPES = {"IntegerDataType", "LongDataType", "TimestampDataType", "DateDataType"}
SHAPES = {"file_rows": st.sampled_from([5, 30, 1 << 16]), "page_rows": st.sampled_from([1, 4, 32])}


@each_sizes
@examples(2, sweep=25)
@given(case=cases(most_rows=200) if is_sweep() else cases(most_frames=2, most_rows=40), **SHAPES)
def test_rows_are_complete_and_index_holds(
    sizes: dict[str, Any], case: Case, file_rows: int, page_rows: int
) -> None:
    with folder() as path, resized(**sizes):
        with small_files(file_rows=file_rows, page_rows=page_rows):
            write_as_previewed(path, case)
        assert_same_rows(qbeast.read_table(path), case.rows)
        if case.dialect == "qbeast-spark":
            check_jvm_can_read(path, asked=case.columns)
        assert sum(block.rows for block in check_invariants(path)) == case.rows.height
        for version in range(len(case.frames)):
            before = sum(frame.height for frame in case.frames[: version + 1])
            assert qbeast.read_table(path, version=version).height == before


def test_preview_raises_and_skips_like_the_write(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(90)})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    planned = qbeast.write_table(rows, tmp_path, columns=["id"], mode="ignore", dry_run=True)
    assert (planned.skipped, planned.rows, planned.version) == (True, 0, 0)
    with pytest.raises(qbeast.TableExistsError):
        qbeast.write_table(rows, tmp_path, columns=["id"], dry_run=True)
    with pytest.raises(qbeast.SchemaMismatchError):
        qbeast.write_table(rows.cast(pl.String), tmp_path, mode="append", dry_run=True)


@pytest.mark.parametrize("count", [4_000, pytest.param(300_000, marks=pytest.mark.sweep)])
def test_large_table_has_every_row_in_place(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(5)
    rows = pl.DataFrame(
        {
            ROW: np.arange(count),
            "price": rng.lognormal(3, 1, count).round(2),
            "day": rng.integers(19_000, 20_000, count).astype(np.int32),
            "brand": rng.zipf(1.5, count) % 1000,
            "note": rng.integers(0, 10**6, count),
        }
    ).with_columns(
        pl.col("day").cast(pl.Date),
        pl.format("brand {}", "brand").alias("brand"),
        pl.when(pl.col("note") % 3 == 0).then(pl.format("note {}", "note")).alias("note"),
        price=pl.when(pl.col(ROW) % 11 != 0).then("price"),
    )
    indexed = ["price", "day:linear", "brand", ROW]
    with nullcontext() if is_sweep() else small_files(file_rows=3000, page_rows=16):
        for part in rows.iter_slices(2 * count // 5):
            qbeast.write_table(part, tmp_path / "t", indexed, mode="append", cube_size=count // 20)
    assert sum(block.rows for block in check_invariants(tmp_path / "t")) == count
    table = qbeast.open_table(tmp_path / "t")
    assert_same_rows(table.read(), rows)
    for expr in (
        (pl.col("price") < 5) & (pl.col("brand") == "brand 7"),
        pl.col("price").is_null() & (pl.col(ROW) < 5000),
        pl.col("day").is_between(date(2024, 1, 1), date(2024, 1, 9)),
        pl.col("brand").str.starts_with("brand 99"),
    ):
        expected = rows.filter(expr)
        assert_same_rows(table.rows().lazy().filter(expr).collect(), expected)
        kept = sampled(expected, ["price", "day", "brand", ROW], 0.1)
        assert_same_rows(table.rows(sample=0.1).lazy().filter(expr).collect(), kept)
        assert table.rows(expr).explain().share < 0.6

"""Tables with older versions of the page layout: their rows are right without pages, and an optimize rewrites them."""

from __future__ import annotations

import json
import shutil
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from tests.format.collection import swept
from tests.helpers.examples import is_sweep
from tests.helpers.invariants import read_log
from tests.helpers.small_files import small_files

FOLDER = Path(__file__).parent / "old_layouts"
HEAVY_FILTERS = [
    pl.col("shop") == 7,
    pl.col("shop") > 200,
    (pl.col("shop") == 11) & (pl.col("price") < 50),
]
FILTERS = {
    "documented": [
        pl.col("fare") < 100,
        pl.col("fare").is_between(495, 530) & (pl.col("seats") == 3),
        pl.col("town").is_null(),
        pl.col("town") == "Bergen 217",
        pl.col("id") >= 4400,
    ],
    "qbeast-spark": [
        pl.col("delay") > 3900,
        pl.col("delay").is_null(),
        pl.col("day") <= date(2020, 2, 1),
        (pl.col("day") > date(2023, 6, 1)) & (pl.col("delay") < 500),
    ],
    "heavy": HEAVY_FILTERS,
    "heavy-shuffled": HEAVY_FILTERS,
    "banded": HEAVY_FILTERS,
}
SAMPLES = (0.01, 0.3, (0.05, 0.2), (0.77, 1.0))

pytestmark = pytest.mark.filterwarnings(
    "ignore::qbeast.DesignEffectWarning", "ignore::qbeast.EmptySampleWarning"
)


def each(*fast: str) -> pytest.MarkDecorator:
    """Run a test on each table, by `make test` only on these if there are any."""
    return pytest.mark.parametrize("name", swept(FILTERS, but=fast or FILTERS))


@cache
def opened(name: str) -> qbeast.Table:
    return qbeast.open_table(FOLDER / name / "table")


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(FOLDER / name / "table", folder / "table", copy_function=shutil.copyfile))


@cache
def rows_of(name: str) -> pl.DataFrame:
    """Expected rows, with Spark's hash of the indexed columns."""
    return pl.read_parquet(FOLDER / name / "expected.parquet")


def sampled(rows: pl.DataFrame, sample: float | tuple[float, float]) -> pl.DataFrame:
    """Return the rows whose weight `w` is in the sample: first <= w < end, all the rest if the end is 1."""
    first, end = sample if isinstance(sample, tuple) else (0.0, sample)
    low, high = (int(bound * (2**32 - 1) - 2**31) for bound in (first, end))
    weight = pl.col("weight").cast(pl.Int64)
    return rows.filter((weight >= low) & ((weight < high) | pl.lit(end == 1)))


def assert_rows(actual: pl.DataFrame, expected: pl.DataFrame) -> None:
    expected = expected.drop("weight", strict=False).sort("id")
    assert_frame_equal(actual.sort("id"), expected, check_exact=True)


def layout_versions(table: Path) -> set[int]:
    return {json.loads(add["tags"]["qbeast.layout"])["v"] for add in read_log(table).adds.values()}


def zero_skipped_files(table: Path, plan: qbeast.Plan) -> int:
    """Zero the data files that a plan skips. Return the number of their bytes."""
    skipped = [table / path for path in plan.files.filter(~pl.col("opened"))["path"]]
    for path in skipped:
        path.write_bytes(bytes(path.stat().st_size))
    return sum(path.stat().st_size for path in skipped)


@each()
def test_sound_files_of_old_versions_have_no_pages(name: str) -> None:
    """Fail if the tables were written again by a newer commit."""
    assert layout_versions(FOLDER / name / "table") == {2 if name == "banded" else 1}
    assert opened(name).check().ok
    files = opened(name).rows().explain().files
    assert files.height > 1
    assert (files["pages_total"] == 0).all()


def test_heavy_keys_have_both_tag_versions() -> None:
    for name, version in {"heavy": "1", "heavy-shuffled": "2"}.items():
        adds = read_log(FOLDER / name / "table").adds.values()
        assert {add["tags"]["qbeast.keys"].partition(":")[0] for add in adds} == {version}


@each()
def test_full_read_and_samples_follow_hash_of_spark(name: str) -> None:
    rows, table = rows_of(name), opened(name)
    assert_rows(table.read(), rows)
    assert_rows(pl.DataFrame(DeltaTable(FOLDER / name / "table").to_pyarrow_table()), rows)
    for sample in SAMPLES:
        assert_rows(table.read(sample=sample), sampled(rows, sample))


@each("qbeast-spark", "heavy", "banded")
def test_filters_return_rows(name: str) -> None:
    rows, table = rows_of(name), opened(name)
    for where in FILTERS[name]:
        expected = rows.filter(where)
        assert 0 < expected.height < rows.height
        assert_rows(table.read(where=where), expected)
        assert_rows(table.rows(sample=0.3).lazy().filter(where).collect(), sampled(expected, 0.3))
        assert table.count(where) == expected.height


@each("documented")
def test_files_outside_plan_do_not_matter(name: str, tmp_path: Path) -> None:
    rows, zeroed_bytes = rows_of(name), 0
    requests: list[Any] = [(where, None) for where in FILTERS[name]] + [(None, sample) for sample in SAMPLES]
    requests.append((FILTERS[name][0], 0.3))
    for number, (where, sample) in enumerate(requests if is_sweep() else requests[::3]):
        copy = copied(name, tmp_path / str(number))
        zeroed_bytes += zero_skipped_files(copy, qbeast.open_table(copy).rows(where, sample=sample).explain())
        expected = rows if sample is None else sampled(rows, sample)
        actual = qbeast.read_table(copy, where=where, sample=sample)
        assert_rows(actual, expected if where is None else expected.filter(where))
    assert zeroed_bytes > 0


@pytest.mark.sweep
@each()
def test_changes_keep_other_rows(name: str, tmp_path: Path) -> None:
    """Append, delete and update in files of this layout, then compare rows and samples."""
    table, rows = copied(name, tmp_path), rows_of(name)
    changed, new = qbeast.open_table(table), rows.drop("weight").with_columns(pl.col("id") + 1_000_000)
    deleted = FILTERS[name][0]
    value = rows.columns[-2]  # not indexed, so that weights stay
    with small_files(file_rows=900, page_rows=64):
        qbeast.write_table(new, table, mode="append")
        changed.delete(deleted)
        changed.update(pl.col("id") % 50 == 0, {value: None})
    both = pl.concat([rows, rows.with_columns(pl.col("id") + 1_000_000)])
    both = both.filter(~deleted.fill_null(value=False))
    expected = both.with_columns(pl.when(pl.col("id") % 50 != 0).then(value).alias(value))
    assert_rows(qbeast.read_table(table), expected)
    for sample in SAMPLES:
        assert_rows(qbeast.read_table(table, sample=sample), sampled(expected, sample))
    assert changed.check().ok


@each("qbeast-spark", "banded")
def test_full_optimize_keeps_rows_and_samples(name: str, tmp_path: Path) -> None:
    path, rows = copied(name, tmp_path), rows_of(name)
    table = qbeast.open_table(path)
    before = set(table.rows().files()["path"])
    with small_files(file_rows=900, page_rows=64):
        assert table.optimize(full=True).committed
    assert not before & set(table.rows().files()["path"])
    assert layout_versions(path) == {3}
    assert_rows(table.read(), rows)
    for sample in SAMPLES:
        assert_rows(table.read(sample=sample), sampled(rows, sample))
    for where in FILTERS[name]:
        assert_rows(table.read(where=where), rows.filter(where))
    assert table.check().ok

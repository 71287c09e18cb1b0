"""Delta tables without an index: all reads, and samples by any columns, which are the same after a conversion."""

from __future__ import annotations

import json
import pickle
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.plan.weights import sample_to_weights
from tests.helpers.deletion_vectors import GONE, ROWS, delete
from tests.helpers.examples import examples
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.strategies import INDEXABLE, ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, sampled, samples, small_files

pytestmark = pytest.mark.filterwarnings(
    "ignore::qbeast.DesignEffectWarning", "ignore::qbeast.UnindexedSampleWarning"
)
TYPES = (*INDEXABLE, pl.Boolean(), pl.Binary(), pl.List(pl.Int64()))
VECTORS = Path(__file__).parents[1] / "space" / "data" / "spark_hash_vectors.json"
PAIRS = pl.DataFrame({"user": [i * 7 % 500 for i in range(4000)], "x": range(4000)})


@st.composite
def requests(draw: st.DrawFn) -> tuple[Case, list[str], Any, pl.Expr | None]:
    case = draw(cases(types=TYPES, most_rows=30))
    hashed = [name for name, dtype in case.rows.schema.items() if dtype != pl.List(pl.Int64())]
    by = draw(st.lists(st.sampled_from(hashed), min_size=1, max_size=3, unique=True))
    return case, by, draw(samples()), draw(st.none() | filters(case.rows))


@given(requests())
@examples(2, sweep=100)
def test_call_returns_same_rows_before_and_after_conversion(request: tuple[Case, Any, Any, Any]) -> None:
    case, by, sample, where = request
    rows = sampled(case.rows, by, sample)
    expected = rows if where is None else kept_rows(rows, where)
    if expected is None:
        return
    with folder() as path, small_files():
        for frame in case.frames:
            frame.write_delta(path, mode="append")

        def check() -> None:
            table = qbeast.open_table(path)
            assert_same_rows(table.read(where, sample=sample, sample_by=by), expected)
            tasks = pickle.loads(pickle.dumps(table.rows(where, sample=sample, sample_by=by).tasks()))  # noqa: S301
            parts = [frame for task in tasks for frame in task.read()]
            assert_same_rows(pl.concat([expected.clear(), *parts]), expected)
            assert table.count(where, sample=sample, sample_by=by) == expected.height

        check()
        qbeast.convert_table(path, columns=case.columns, dialect=case.dialect)
        check()
        qbeast.open_table(path).optimize()
        check()
        if case.dialect == "documented":
            qbeast.open_table(path).reindex([case.indexed[-1]])
            check()


def golden() -> dict[str, list[Any]]:
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for row in json.loads(VECTORS.read_text())["rows"]:
        if len(row["types"]) == 1 and row["types"][0] in ("bigint", "int", "string", "binary", "boolean"):
            groups[row["types"][0]].append(row)
    return groups


@pytest.mark.parametrize("kind", sorted(golden()))
def test_sample_rows_follow_hash_of_spark(kind: str, tmp_path: Path) -> None:
    rows = golden()[kind]
    types: dict[str, Any] = {"bigint": pl.Int64, "int": pl.Int32, "boolean": pl.Boolean}
    values = [None if row["values"][0] is None else row["values"][0] for row in rows]
    if kind == "binary":
        values = [None if value is None else bytes.fromhex(value) for value in values]
    dtype = types.get(kind, pl.Binary if kind == "binary" else pl.String)
    frame = pl.DataFrame({"value": pl.Series(values, dtype=dtype), "hash": [row["hash"] for row in rows]})
    frame.with_row_index(ROW).cast({ROW: pl.Int64}).write_delta(tmp_path)
    for fraction in (0.1, 0.5, 0.9):
        last = sample_to_weights(fraction).last
        found = qbeast.read_table(tmp_path, sample=fraction, sample_by=["value"])
        assert sorted(found["hash"]) == sorted(hash_ for hash_ in frame["hash"] if hash_ <= last)


READS: dict[str, Callable[..., Any]] = {
    "read": lambda path, **options: qbeast.read_table(path, **options).height,
    "scan": lambda path, **options: qbeast.scan_table(path, **options).collect().height,
    "explain": lambda path, **options: qbeast.open_table(path).rows(**options).explain().rows_total,
    "estimate": lambda path, **options: qbeast.estimate(path, "count(x)", **options).frame.height,
    "count": lambda path, **options: qbeast.open_table(path).count(**options),
    "sql": lambda path, **options: (
        qbeast.open_table(path).rows(**options).sql("SELECT * FROM self").collect().height
    ),
    "files": lambda path, **options: qbeast.open_table(path).rows(**options).files().height,
    "batches": lambda path, **options: len(list(qbeast.open_table(path).rows(**options).batches())),
    "head": lambda path, **options: qbeast.open_table(path).rows(**options).head(3).height,
    "arrow": lambda path, **options: qbeast.open_table(path).rows(**options).arrow().num_rows,
    "pandas": lambda path, **options: len(qbeast.open_table(path).rows(**options).pandas()),
    "tasks": lambda path, **options: len(qbeast.open_table(path).rows(**options).tasks()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_sample_without_index_needs_columns(read: Callable[..., Any], tmp_path: Path) -> None:
    PAIRS.write_delta(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match=r"sample_by=.*convert_table") as caught:
        read(tmp_path, sample=0.2)
    assert caught.value.argument == "sample_by"
    assert read(tmp_path, sample=0.2, sample_by=["user"]) > 0


def test_row_count_without_index_needs_columns(tmp_path: Path) -> None:
    PAIRS.write_delta(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="sample_by"):
        qbeast.read_table(tmp_path, rows=10)
    assert qbeast.read_table(tmp_path, where="x < 3000", rows=100, sample_by=["x"]).height == 100
    assert qbeast.read_table(tmp_path, rows=10**6).height == 4000  # all rows
    assert qbeast.read_table(tmp_path, sample=1.0).height == 4000


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("user", "in a list"),
        ([], "at least one"),
        (["User"], "Did you mean 'user'"),
        (["user", "user"], "different names"),
        (["list"], "no hash is known"),
        ([3], "different names"),
    ],
)
def test_invalid_sampling_columns_raise(by: Any, message: str, tmp_path: Path) -> None:
    PAIRS.with_columns(list=pl.concat_list("x")).write_delta(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match=message) as caught:
        qbeast.scan_table(tmp_path, sample_by=by)
    assert caught.value.argument == "sample_by"


@pytest.mark.filterwarnings("default::qbeast.UnindexedSampleWarning")
def test_full_reads_warn_once_per_table(tmp_path: Path) -> None:
    PAIRS.write_delta(tmp_path)
    qbeast.write_table(PAIRS, tmp_path / "indexed", columns=["user"])

    def read_all() -> None:
        qbeast.read_table(tmp_path, sample=0.1, sample_by=["x"])
        qbeast.estimate(tmp_path, "avg(x)", error=0.1)
        qbeast.open_table(tmp_path).rows(sample=0.1, sample_by=["user"]).explain()
        qbeast.read_table(tmp_path / "indexed", sample=0.1, sample_by=["x"])
        qbeast.read_table(tmp_path / "indexed", sample=0.2, sample_by=["x"])

    with pytest.warns(qbeast.UnindexedSampleWarning) as caught:
        read_all()
    first, second = (str(warning.message) for warning in caught)
    assert "qbeast.convert_table(" in first
    assert "not by ['x']" in second
    assert "sample_by=['x']" in second
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}


def test_sample_by_indexed_columns_uses_the_index(tmp_path: Path) -> None:
    qbeast.write_table(PAIRS, tmp_path, columns=["user", "x"], cube_size=100)
    table = qbeast.open_table(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan, rows = (
            table.rows(sample=0.1, sample_by=["user", "x"]).explain(),
            table.read(sample=0.1, sample_by=["user", "x"]),
        )
    assert_same_rows(rows, sampled(PAIRS, ["user", "x"], 0.1), "x")
    assert plan.rows_opened < 0.5 * plan.rows_total
    other = table.rows(sample=0.1, sample_by=["x", "user"]).explain()
    assert (other.rows_opened, other.design_effect_scope) == (4000, "at least")


def test_sample_by_ignores_columns_of_older_files(tmp_path: Path) -> None:
    qbeast.write_table(PAIRS[:2000], tmp_path, columns=["user"])
    qbeast.open_table(tmp_path).reindex(["x"])
    qbeast.write_table(PAIRS[2000:], tmp_path, mode="append")
    found = qbeast.read_table(tmp_path, sample=0.3, sample_by=["x"])
    assert_same_rows(found, sampled(PAIRS, ["x"], 0.3), "x")


def test_statistics_skip_files_without_index(tmp_path: Path) -> None:
    for first in range(0, 4000, 1000):
        PAIRS[first : first + 1000].write_delta(tmp_path, mode="append")
    plan = (
        qbeast.open_table(tmp_path).rows("x BETWEEN 1500 AND 1600", sample=0.5, sample_by=["user"]).explain()
    )
    assert (plan.files["opened"].sum(), plan.rows_opened) == (1, 1000)
    assert "index   none" in repr(plan)
    assert "without index" in repr(qbeast.open_table(tmp_path))


def test_deletion_vectors_apply_without_index(tmp_path: Path) -> None:
    ROWS.write_delta(tmp_path)
    delete(tmp_path, GONE)
    left = ROWS.filter(~pl.col("id").is_in(GONE))
    assert_same_rows(qbeast.read_table(tmp_path), left, "id")
    assert_same_rows(
        qbeast.read_table(tmp_path, sample=0.4, sample_by=["x"]), sampled(left, ["x"], 0.4), "id"
    )
    assert len(qbeast.open_table(tmp_path)) == left.height


@pytest.mark.parametrize("options", [{"error": 0.1}, {"sample": 0.1, "sample_by": ["x"]}])
def test_estimates_without_index_are_exact(options: dict[str, Any], tmp_path: Path) -> None:
    PAIRS.write_delta(tmp_path)
    qbeast.write_table(PAIRS, tmp_path / "indexed", columns=["user"])
    expected = PAIRS.filter(pl.col("user") < 9).group_by("user").agg(mean=pl.col("x").mean()).sort("user")
    indexed = {**options, "sample_by": ["x"]}
    for path, given_ in ((tmp_path, options), (tmp_path / "indexed", indexed)):
        frame = qbeast.estimate(
            path, {"mean": pl.col("x").mean()}, by="user", where="user < 9", **given_
        ).frame
        assert frame.select("user", "mean").sort("user").equals(expected)
        assert frame["mean_low"].equals(frame["mean_high"], check_names=False)


def test_operations_that_need_an_index_name_the_conversion(tmp_path: Path) -> None:
    PAIRS.write_delta(tmp_path)
    table = qbeast.open_table(tmp_path)
    for call in (
        table.blocks,
        table.metrics,
        table.plot,
        table.optimize,
        lambda: table.reindex(["x"]),
        lambda: table.cube_size,
        lambda: table.switch_dialect("qbeast-spark"),
        table.add_sample_column,
        table.upgrade,
        lambda: qbeast.write_table(PAIRS, tmp_path, mode="append"),
    ):
        with pytest.raises(qbeast.NotQbeastTableError, match=r"qbeast\.convert_table\("):
            call()
    assert table.refresh().version == 0

"""Estimates of tables: exact where everything is read, near enough where not, and refused before anything is read."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.estimate.question import Limits, question_of
from qbeast_core.table.estimate.rounds import rounds as rounds_of
from tests.helpers.scattering import PartsEngine
from tests.helpers.small_files import resized
from tests.helpers.tables import estimated, using

ROWS = 120_000
ASKED: dict[str, pl.Expr | str] = {
    "n": pl.len(),
    "mean": pl.col("x").mean(),
    "sum": "sum(x * 2)",
    "std": pl.col("x").std(),
    "median": pl.col("x").median(),
    "large": (pl.col("x") > 15).sum(),
    "ratio": pl.col("cents").sum() / pl.len(),
}
EXPECTED = [
    pl.len().cast(pl.Float64).alias("n"),
    pl.col("x").mean().alias("mean"),
    (pl.col("x") * 2).sum().alias("sum"),
    pl.col("x").std().alias("std"),
    pl.col("x").median().alias("median"),
    (pl.col("x") > 15).sum().cast(pl.Float64).alias("large"),
    (pl.col("cents").sum().cast(pl.Float64) / pl.len()).alias("ratio"),  # Polars rounds quotients of decimals
]


def rows(count: int = ROWS, seed: int = 5) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "id": random.permutation(count),
            "x": pl.Series(random.normal(12, 4, count)).set(pl.Series(random.random(count) < 0.05), None),
            "kind": pl.Series(random.choice(["a", "b", "c"], count, p=[0.6, 0.3, 0.1])),
            "cents": pl.Series(random.integers(0, 10**6, count)).cast(pl.Decimal(12, 2)),
        }
    )


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return rows()


@pytest.fixture(scope="module")
def table(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = str(tmp_path_factory.mktemp("estimate") / "table")
    qbeast.write_table(frame, path, columns=["id", "x"], cube_size=3000)
    return qbeast.open_table(path)


def near(found: pl.DataFrame, expected: pl.DataFrame, error: float, by: list[str] | None = None) -> None:
    names = [name for name in expected.columns if name not in (by or [])]
    both = found.sort(by or names[0]), expected.sort(by or names[0])
    for name in names:
        off = (both[0][name] / both[1][name] - 1).abs().max()
        assert off is not None
        assert off <= error, name


@pytest.mark.parametrize("where", [None, pl.col("x") < 13, "kind <> 'b' AND id < 50000"])
@pytest.mark.parametrize("by", [[], ["kind"]])
def test_estimates_of_everything_equal_polars(
    table: qbeast.Table, frame: pl.DataFrame, where: Any, by: list[str]
) -> None:
    kept = frame if where is None else frame.filter(pl.sql_expr(where) if isinstance(where, str) else where)
    expected = kept.group_by(by).agg(EXPECTED).sort(by) if by else kept.select(EXPECTED)
    actual = table.rows(where, sample=1.0).estimate(ASKED, by=by)
    assert_frame_equal(actual.frame.select(expected.columns), expected, rel_tol=1e-9)
    assert actual.frame["reliable"].all()
    assert actual.frame["mean_low"].equals(actual.frame["mean"])
    assert (actual.fraction, actual.complete, actual.met) == (1.0, True, None)
    assert actual.frame["rows_sampled"].sum() == kept.height


@pytest.mark.parametrize("where", [None, "id < 60000"])
@pytest.mark.parametrize("by", [None, "kind"])
def test_answers_are_near_and_read_less(
    table: qbeast.Table, frame: pl.DataFrame, where: str | None, by: str | None
) -> None:
    request = {name: ASKED[name] for name in ("n", "mean", "sum")}
    actual = table.rows(where).estimate(request, by=by, error=0.06)
    kept = frame if where is None else frame.filter(pl.sql_expr(where))
    names = [by] if by else []
    expected = (kept.group_by(names).agg(EXPECTED) if by else kept.select(EXPECTED)).select(
        [*names, *request]
    )
    near(actual.frame, expected, 0.06, names)
    assert actual.met
    assert 0 < actual.fraction < 0.5
    assert actual.bytes_opened < 0.7 * actual.bytes_total
    assert actual.rows_read < 0.5 * ROWS


def test_log_alone_counts_rows(table: qbeast.Table) -> None:
    actual = table.rows().estimate({"n": pl.len()}, error=0.01)
    assert actual.frame.row(0) == (ROWS, ROWS, ROWS, ROWS, True)
    assert (actual.fraction, actual.rows_read, actual.bytes_opened, actual.met) == (0.0, 0, 0, True)


def test_count_beside_others_is_exact(table: qbeast.Table) -> None:
    actual = table.rows(sample=0.1).estimate({"n": pl.len(), "mean": pl.col("x").mean()})
    assert actual.frame.select("n", "n_low", "n_high").row(0) == (ROWS, ROWS, ROWS)
    low, high = actual.frame.select("mean_low", "mean_high").row(0)
    assert low < high


def test_windows_are_independent_samples(table: qbeast.Table, frame: pl.DataFrame) -> None:
    """Together they hold each row once; each estimates the same."""
    windows = [(at / 5, (at + 1) / 5) for at in range(5)]
    actual = [
        table.rows(where="id >= 0", sample=window).estimate({"s": pl.col("x").sum()}) for window in windows
    ]
    assert sum(item.frame["rows_sampled"].item() for item in actual) == frame.height
    assert len({item.frame["s"].item() for item in actual}) == 5
    for item in actual:
        assert item.frame["s_low"].item() <= item.frame["s"].item() <= item.frame["s_high"].item()
        assert item.fraction == pytest.approx(0.2)


def test_steps_read_new_rows_until_target_met(table: qbeast.Table) -> None:
    request: dict[str, pl.Expr | str] = {"large": (pl.col("x") > 18).sum(), "mean": pl.col("x").mean()}
    where = "id < 90000 AND kind IN ('a', 'b', 'c')"  # not decided by cubes: no rows are counted besides
    steps = list(table.rows(where).estimates(request, error=0.05))
    assert len(steps) > 1
    assert [step.met for step in steps] == [False] * (len(steps) - 1) + [True]
    for before, after in itertools.pairwise(steps):
        assert before.fraction < after.fraction <= 2.0001 * before.fraction or after.fraction == 1.0
    direct = table.rows(where, sample=steps[-1].fraction).estimate(request)
    assert steps[-1].rows_read == direct.rows_read
    assert_frame_equal(steps[-1].frame.select(list(request)), direct.frame.select(list(request)))


def test_files_without_index_are_read_whole(tmp_path: Path) -> None:
    import deltalake  # noqa: PLC0415 - the other writer

    path, indexed, staged = str(tmp_path / "t"), rows(60_000, 1), rows(20_000, 2)
    qbeast.write_table(indexed, path, columns=["id", "x"])
    deltalake.write_deltalake(path, staged.to_arrow(), mode="append")
    table = qbeast.open_table(path)
    request: dict[str, pl.Expr | str] = {
        "n": pl.len(),
        "s": pl.col("x").sum(),
        "median": pl.col("x").median(),
    }
    both = pl.concat([indexed, staged])
    half = table.rows(sample=0.3).estimate(request)
    assert half.frame["n"].item() == 80_000
    assert half.frame["rows_sampled"].item() == table.rows(sample=0.3).lazy().filter(
        pl.col("id") >= 0
    ).collect().height + (
        staged.height
        - table.rows(sample=0.3)
        .lazy()
        .collect()
        .join(staged, on=staged.columns, nulls_equal=True, how="semi")
        .height
    )
    assert half.frame["s"].item() == pytest.approx(both["x"].sum(), rel=0.02)
    # Only rows with an index vary.
    alone = qbeast.open_table(path, version=0).rows(sample=0.3).estimate(request).frame
    assert half.frame["s_high"].item() - half.frame["s"].item() == pytest.approx(
        alone["s_high"].item() - alone["s"].item()
    )
    whole = table.rows(sample=1.0).estimate(request).frame
    assert whole.select(list(request)).row(0) == pytest.approx((80_000, both["x"].sum(), both["x"].median()))


def test_deleted_rows_are_not_counted(frame: pl.DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    qbeast.write_table(frame.head(50_000), path, columns=["id", "x"])
    changed = qbeast.open_table(path)
    changed.delete("kind = 'a'")
    assert (
        changed.rows().estimate({"n": pl.len()}, error=0.1).frame["n"].item()
        == frame.head(50_000).filter(pl.col("kind") != "a").height
    )


def test_limits_stop_reading_with_a_note(table: qbeast.Table) -> None:
    request: dict[str, pl.Expr | str] = {"rare": (pl.col("x") > 25).sum()}
    short = table.rows().estimate(request, error=0.01, max_fraction=0.2)
    assert (short.met, short.fraction) == (False, 0.2)
    assert not short.frame["reliable"].item()
    few = table.rows().estimate(request, error=0.01, max_bytes=short.bytes_total // 3)
    assert not few.met
    assert few.bytes_opened <= few.bytes_total // 3
    everything = table.rows().estimate(request, error=0.01)
    assert (everything.met, everything.fraction) == (True, 1.0)


def test_sums_larger_than_memory_are_dropped(table: qbeast.Table, frame: pl.DataFrame) -> None:
    """Everything is read instead, of which groups alone are held; or nothing more, where that is not allowed."""
    request: dict[str, pl.Expr | str] = {"large": (pl.col("x") > 15).sum(), "sum": pl.col("x").sum()}
    where = "id >= 0 AND kind IN ('a', 'b', 'c')"
    free = table.rows(where).estimate(request, error=0.015)
    assert free.fraction < 0.5
    bound = using(table, qbeast.Resources(memory_bytes=4 << 20)).rows(where).estimate(request, error=0.015)
    assert (bound.met, bound.fraction, bound.frame["large"].item()) == (
        True,
        1.0,
        frame.filter(pl.col("x") > 15).height,
    )
    short = (
        using(table, qbeast.Resources(memory_bytes=4 << 20))
        .rows(where)
        .estimate(request, error=0.015, max_fraction=0.45)
    )
    assert (short.met, short.fraction) == (False, pytest.approx(20_000 / ROWS, rel=0.1))


def test_requested_sums_larger_than_memory_raise(table: qbeast.Table) -> None:
    request: dict[str, pl.Expr | str] = {"sum": pl.col("x").sum(), "money": pl.col("cents").sum()}
    assert (
        using(table, qbeast.Resources(memory_bytes=4 << 20))
        .rows(sample=0.05)
        .estimate(request)
        .frame["reliable"]
        .item()
    )
    for much, cure in (
        ({"aggregates": request, "sample": 0.9}, " keys take .* request an error, or a smaller sample$"),
        ({"aggregates": request, "sample": 1.0, "by": ["id", "cents"]}, " groups take .* fewer groups$"),
        (
            {"aggregates": request, "by": ["id", "cents"], "error": 1e-6},
            " groups take .* or request fewer groups$",
        ),
        (
            {"aggregates": {f"q{q}": pl.col("x").quantile(q / 9) for q in range(8)}, "error": 1e-6},
            "no quantiles",
        ),
    ):
        with pytest.raises(qbeast.InvalidInputError, match=cure) as refused:
            estimated(using(table, qbeast.Resources(memory_bytes=4 << 20)), **much)
        assert refused.value.argument == "memory_bytes"


def test_exhausted_byte_limit_ends_reading(table: qbeast.Table) -> None:
    request: dict[str, pl.Expr | str] = {"mean": pl.col("x").mean()}
    first = next(table.rows("x > 3").estimates(request, error=1e-6))
    steps = table.rows("x > 3").estimates(request, error=1e-6, max_bytes=first.bytes_opened)
    actual = list(itertools.islice(steps, 5))
    assert len(actual) < 5
    assert (actual[-1].met, actual[-1].bytes_opened) == (False, first.bytes_opened)


def test_simultaneous_intervals_are_wider(table: qbeast.Table) -> None:
    request: dict[str, pl.Expr | str] = {"s": pl.col("x").sum(), "m": pl.col("x").mean()}
    each = table.rows(sample=0.2).estimate(request, by="kind").frame
    everything = table.rows(sample=0.2).estimate(request, by="kind", simultaneous=True).frame
    wider = (everything["s_high"] - everything["s"]) / (each["s_high"] - each["s"])
    assert wider.to_list() == pytest.approx([2.638 / 1.96] * 3, rel=1e-3)


def test_empty_table_counts_zero_without_mean(tmp_path: Path) -> None:
    qbeast.write_table(rows(10).clear(), tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    actual = table.rows().estimate(
        {"n": pl.len(), "m": pl.col("x").mean(), "s": pl.col("x").sum()}, error=0.1
    )
    assert actual.frame.select("n", "m", "s").row(0) == (0.0, None, 0.0)
    assert (actual.met, actual.frame["reliable"].item()) == (True, True)
    grouped = table.rows().estimate({"n": pl.len()}, by="kind", error=0.1)
    assert (grouped.frame.height, grouped.met, grouped.complete) == (0, True, True)


def test_null_columns_have_no_mean(tmp_path: Path) -> None:
    some = rows(60_000).with_columns(
        none=pl.lit(None, pl.Float64),
        odd=pl.when(pl.col("id") % 3 == 0).then(math.nan).otherwise(1.0),
        endless=pl.when(pl.col("id") % 3 == 0).then(math.inf).otherwise(1.0),
    )
    qbeast.write_table(some, tmp_path / "t", columns=["id", "x"])
    table = qbeast.open_table(tmp_path / "t")
    actual = table.rows(sample=0.3).estimate({"none": pl.col("none").mean(), "odd": pl.col("odd").sum()})
    assert actual.frame.select("none", "none_low", "odd_low").row(0) == (None, None, None)
    assert math.isnan(actual.frame["odd"].item())
    assert "NaN or infinities" in actual.notes[0]
    exact = table.rows().estimate({"none": pl.col("none").mean()}, error=0.1)
    assert (exact.frame["none"].item(), exact.met) == (None, True)
    assert table.rows().estimate({"odd": pl.col("odd").sum()}, error=0.1).met is False
    endless = table.rows(sample=0.3).estimate(
        {"s": pl.col("endless").sum(), "median": pl.col("endless").median()}
    )
    assert endless.frame.select("s", "s_low", "s_high", "median_low").row(0) == (math.inf, None, None, None)
    assert ["s: rows" in endless.notes[0], "median: rows" in endless.notes[1]] == [True, True]


def test_tables_without_index_name_the_conversion(tmp_path: Path) -> None:
    import deltalake  # noqa: PLC0415 - the other writer

    deltalake.write_deltalake(tmp_path / "plain", rows(10).to_arrow())
    with pytest.warns(qbeast.UnindexedSampleWarning, match="convert_table"):
        answer = qbeast.estimate(tmp_path / "plain", {"n": pl.len()}, where="id < 4", error=0.1)
    assert answer.frame.select("n", "n_low").row(0) == (4, 4)
    with pytest.raises(qbeast.TableNotFoundError):
        qbeast.estimate(tmp_path / "none", {"n": pl.len()}, error=0.1)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_design_effect_equals_that_of_plan(tmp_path: Path) -> None:
    qbeast.write_table(rows(20_000).with_columns(pl.col("id") // 4), tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    actual = table.rows(sample=0.2).estimate({"m": pl.col("x").mean()})
    assert actual.design_effect == table.rows(sample=0.2).explain().design_effect == table.design_effect
    assert actual.design_effect == pytest.approx(4, rel=0.1)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "error 0": ({"error": 0}, "`error` must be a fraction between 0 and 1, above 0"),
    "error below 0": ({"error": -0.1}, "`error` must be a fraction between 0 and 1, above 0"),
    "error NaN": ({"error": math.nan}, "`error` must be a fraction between 0 and 1, above 0"),
    "error in percent": ({"error": 5}, "For 5 % write error=0.05"),
    "error of more": ({"error": "150%"}, "text such as '5%', not '150%'$"),
    "absolute": ({"absolute": {"m": 0}}, "`absolute` must be a number above 0"),
    "absolute of another": ({"error": 0.1, "absolute": {"z": 1}}, "has unknown answer"),
    "confidence 1": (
        {"error": 0.1, "confidence": 1},
        "`confidence` must be a fraction between 0 and 1, without both",
    ),
    "confidence 0": (
        {"error": 0.1, "confidence": 0.0},
        "`confidence` must be a fraction between 0 and 1, without both",
    ),
    "fraction": ({"error": 0.1, "max_fraction": 2}, "`max_fraction` must be"),
    "bytes": ({"error": 0.1, "max_bytes": 0}, "`max_bytes` must be"),
    "too few bytes": ({"error": 0.1, "max_bytes": 10}, "max_bytes=10 is too small"),
    "sample": ({"sample": 1.5}, "`sample` must be a fraction"),
    "no sample": ({"sample": 0.0}, "`sample` must not be empty"),
    "both": ({"sample": 0.1, "error": 0.1}, "use one of them"),
    "by": ({"error": 0.1, "by": "z"}, "`by` names no such column"),
    "by an expression of no column": ({"error": 0.1, "by": pl.col("z") + 1}, "`by` names no such column"),
    "by no name": ({"error": 0.1, "by": 3}, "`by` takes Polars expressions or SQL texts"),
    "by lists": ({"error": 0.1, "by": [["x"]]}, "`by` takes Polars expressions or SQL texts"),
    "by twice": ({"error": 0.1, "by": ["x", pl.col("x") // 2]}, "has two expressions named 'x'"),
    "by several": ({"error": 0.1, "by": pl.all()}, "one column each"),
    "by other rows": ({"error": 0.1, "by": pl.col("x").rank()}, "must say one thing of each row"),
    "by nothing": ({"error": 0.1, "by": pl.lit(1)}, "`by` .* names no column"),
    "by structs": ({"error": 0.1, "by": pl.struct("x")}, "cannot group by 'x', which is Struct"),
    "by its own": ({"error": 0.1, "by": {"reliable": "x"}}, "cannot be named 'reliable'"),
    "where": ({"error": 0.1, "where": "z = 1"}, "`where` names no such column"),
    "where of rows": (
        {"error": 0.1, "where": pl.col("x") > pl.col("x").mean()},
        "must say one thing of each row",
    ),
    "no aggregates": ({"error": 0.1, "aggregates": {}}, "at least one aggregate"),
    "column": ({"error": 0.1, "aggregates": {"m": pl.col("z").sum()}}, "names no such column"),
    "name": ({"error": 0.1, "aggregates": {"m": pl.len(), "m_low": pl.len()}}, "cannot name an answer"),
    "nested": (
        {"error": 0.1, "aggregates": {"m": pl.col("x").sum().sum()}},
        "must say one thing of each row",
    ),
    "random": (
        {"error": 0.1, "aggregates": {"m": pl.col("x").shuffle().sum()}},
        "must say one thing of each row",
    ),
    "literal": ({"error": 0.1, "aggregates": {"m": pl.lit(1).sum()}}, "names no column"),
    "text": ({"error": 0.1, "aggregates": {"m": "x"}}, "is not an aggregate"),
    "join by no name": (
        {"error": 0.1, "join": (pl.DataFrame({"kind": ["a"]}), 3)},
        "`join` takes a column name",
    ),
    "join": ({"error": 0.1, "join": (pl.DataFrame({"kind": ["a", "a"]}), "kind")}, "many to one"),
    "join types": ({"error": 0.1, "join": (pl.DataFrame({"kind": [1]}), "kind")}, "other types"),
    "join columns": (
        {"error": 0.1, "join": (pl.DataFrame({"kind": ["a"], "x": [1]}), "kind")},
        "that the table also has",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_input_raises(table: qbeast.Table, case: str) -> None:
    options, message = WRONG[case]
    request = options.get("aggregates", {"m": pl.col("x").mean()})
    rest = {name: item for name, item in options.items() if name != "aggregates"}
    with pytest.raises(qbeast.InvalidInputError, match=message) as refused:
        estimated(table, request, **rest)
    assert not refused.value.in_change


def test_invalid_budget_in_environment_raises(table: qbeast.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBEAST_MEMORY_BYTES", "much")
    with pytest.raises(qbeast.InvalidInputError, match="QBEAST_MEMORY_BYTES is not a size: 'much'"):
        table.rows().estimate({"m": pl.col("x").mean()}, error=0.1)


@pytest.fixture(scope="module")
def _matplotlib() -> None:
    """Load it, which takes longer than a test may."""
    pytest.importorskip("matplotlib.pyplot")


@pytest.mark.usefixtures("_matplotlib")
def test_answer_shows_itself(table: qbeast.Table) -> None:
    actual = table.rows().estimate({"m": pl.col("x").mean(), "n": pl.len()}, by="kind", error=0.05)
    title = f"Estimate of {Path(table.uri).name}, version 0: error met, 95 % confidence; "
    assert repr(actual).startswith(title)
    assert len(repr(actual).splitlines()[0]) <= 80
    assert repr(actual).splitlines()[1] == actual.groups == "3 sampled groups"
    assert table.rows().estimate("count(*)").groups == ""
    assert table.rows().estimate("count(*)", by="kind", error=1e-9).groups == "3 groups"
    assert "<table" in actual._repr_html_()
    assert actual.to_pandas().shape == actual.frame.shape
    drawn = actual.plot("n")
    assert drawn.axes[0].get_xlabel() == "n"
    with pytest.raises(qbeast.InvalidInputError, match="no answer 'z'"):
        actual.plot("z")


@pytest.mark.parametrize("options", [pytest.param({"sample": 0.4}, marks=pytest.mark.sweep), {"error": 0.05}])
def test_tasks_of_an_engine_answer_the_same(table: qbeast.Table, options: dict[str, Any]) -> None:
    limits, where = Limits.of(**options), "id > 20000 AND x < 18"
    question = question_of(table.planner, ASKED, limits, by="kind", where=where)
    actual = list(rounds_of(table.planner, question, engine=PartsEngine()))[-1]
    here = estimated(table, ASKED, where="id > 20000 AND x < 18", by="kind", **options)
    assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)
    assert (actual.rows_read, actual.bytes_opened) == (here.rows_read, here.bytes_opened)


@pytest.mark.parametrize("engine", [None, pytest.param(PartsEngine(), marks=pytest.mark.sweep)])
@resized(batch_bytes=1)
def test_variances_keep_digits_without_first_rows(tmp_path: Path, engine: Any) -> None:
    far = pl.DataFrame({"id": range(100)}).with_columns(x=1e9 + pl.col("id") % 7)
    qbeast.write_table(far, tmp_path / "t", columns=["id"], cube_size=10)
    table = qbeast.open_table(tmp_path / "t")
    few = table.rows().lazy().tail(5).collect().select("id", few=pl.lit("yes"))
    question = question_of(
        table.planner,
        {"v": pl.col("x").var()},
        Limits.of(sample=1.0),
        where="few = 'yes'",
        join=(few, "id"),
    )
    actual = list(rounds_of(table.planner, question, engine=engine))[-1]
    expected = far.join(few, on="id")["x"].var()
    assert actual.frame["v"].item() == pytest.approx(expected, rel=1e-9)


def test_statistics_find_rows_with_large_values(tmp_path: Path) -> None:
    """No sampled row looks like them, but the log tells that there is one: everything is read."""
    some = pl.DataFrame({"id": range(150_000), "x": np.random.default_rng(2).uniform(1, 7, 150_000)})
    giants = some.with_columns(x=pl.when(pl.col("id") == 70_000).then(9e6).otherwise("x"))
    for name, rows in (("even", some), ("giants", giants)):
        qbeast.write_table(rows, tmp_path / name, columns=["id"])
    request: dict[str, pl.Expr | str] = {"s": pl.col("x").sum(), "m": pl.col("x").mean()}
    even = qbeast.estimate(tmp_path / "even", request, error=0.02)
    actual = qbeast.estimate(tmp_path / "giants", request, error=0.02)
    assert even.met
    assert even.fraction < 0.5
    assert (actual.met, actual.fraction) == (True, 1.0)
    assert actual.frame["s"].item() == pytest.approx(giants["x"].sum())
    wide = qbeast.estimate(tmp_path / "giants", request, sample=0.05).frame
    assert wide["s_low"].item() < giants["x"].sum() < wide["s_high"].item()
    assert not wide["reliable"].item()


def test_rows_without_index_are_counted_exactly(tmp_path: Path) -> None:
    some = rows(30_000)
    some.write_parquet(tmp_path / "raw" / "1.parquet", mkdir=True)
    qbeast.convert_table(tmp_path / "raw", columns=["id"])
    actual = qbeast.estimate(
        tmp_path / "raw", {"n": pl.len(), "m": pl.col("x").mean()}, by="kind", sample=0.1
    )
    assert actual.frame["reliable"].all()
    assert actual.complete
    assert actual.frame["n"].sum() == 30_000
    qbeast.write_table(some, tmp_path / "t", columns=["id"])
    none = qbeast.estimate(tmp_path / "t", {"n": pl.len()}, where="id > 1000000", sample=0.1).frame
    assert none.select("n", "n_high", "reliable").row(0) == (0.0, 0.0, True)


@pytest.mark.parametrize("count", [200, pytest.param(1_200, marks=pytest.mark.sweep)])
def test_condition_with_many_parts_works(table: qbeast.Table, count: int) -> None:
    many = functools.reduce(operator.and_, [pl.col("id") != -item for item in range(count)])
    request = question_of(table.planner, {"n": pl.len()}, Limits.of(sample=0.1), where=many)
    assert request.pushed is not None
    assert request.pushed.meta.eq(many)


def test_failing_condition_is_named(table: qbeast.Table) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=r"`where`.*cannot be evaluated"):
        table.rows(pl.col("kind").cast(pl.Int64) > 1).estimate({"n": pl.len()}, error=0.1)

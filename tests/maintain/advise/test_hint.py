"""A plan that opens much of a table names in one line what would open less: the calls run, and the share is kept."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.cli.running import run, run_json
from tests.helpers.requests import counted, of_data, read_bytes
from tests.helpers.small_files import resized
from tests.helpers.tables import small_files

# Percentage points between the promised share and the share that a plan has afterwards.
TOLERANCE = 8
PROMISE = re.compile(
    r"(?:this filter|a filter on .+) would open about (\d+) % of the bytes after (table\..+)"
)

N = pl.int_range(40_000)
ROWS = pl.select(
    id=N,
    fare=N * 7919 % 10_007 / 100,
    tip=N * 104_729 % 50_021,
    day=pl.date(2026, 1, 1) + pl.duration(days=N * 37 % 365),
    kind=N * 17 % 3,
    user=pl.struct(country=pl.format("c{}", N * 7 % 30), age=N * 11 % 90),
)


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load what a hint needs, which takes longer than a test may."""
    path = tmp_path_factory.mktemp("loaded") / "t"
    qbeast.write_table(ROWS.head(3000), path, columns=["fare"])
    assert qbeast.open_table(path).rows("tip < 10").explain().hint


def promised(plan: qbeast.Plan) -> tuple[int, str]:
    """Return the share and the calls of a hint, which is the last line of the plan."""
    assert plan.hint is not None
    assert "\n" not in plan.hint
    assert repr(plan).splitlines()[-1] == f"  hint    {plan.hint}"
    match = PROMISE.fullmatch(plan.hint)
    assert match, plan.hint
    return int(match[1]), match[2]


def check_promise(path: Path, where: str, after: str | None = None) -> str:
    """Run the calls of a hint, and compare what the filter opens then with the promise."""
    table = qbeast.open_table(path)
    before = table.read().height
    share, calls = promised(table.rows(where).explain())
    exec(calls, {"table": table, "pl": pl})  # noqa: S102 - the calls are what is tested
    plan = qbeast.open_table(path).rows(where if after is None else after).explain()
    assert abs(100 * plan.share - share) <= TOLERANCE, (plan.share, share, calls)
    assert plan.hint is None or plan.share > 1 / 3
    assert table.read().height == before
    return calls


# The columns of a table, a filter, the filter to use afterwards if it is another one, and a part of the calls.
CASES: dict[str, tuple[list[str], str, str | None, str]] = {
    "unindexed": (["fare", "id"], "day = DATE '2026-06-01'", None, "reindex(columns=['fare', 'id', 'day']"),
    "nested": (
        ["fare", "id"],
        "user.country = 'c7'",
        "user_country = 'c7'",
        "table.add_columns({'user_country': pl.String}); table.update(",
    ),
    "one day": (["day", "fare", "tip", "id"], "day = DATE '2026-06-01'", None, "set_importance({'day': "),
    "two columns": (["id"], "tip < 100 AND fare < 60", None, "reindex(columns=['id', "),
    "few keys": (["kind"], "fare < 1", None, "reindex(columns=['kind', 'fare']"),
}
DEAR = {"two columns", "few keys"}


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.sweep if name in DEAR else ()) for name in CASES]
)
def test_promise_of_a_hint_is_kept(case: str, tmp_path: Path) -> None:
    columns, where, after, words = CASES[case]
    qbeast.write_table(ROWS, tmp_path / "t", columns=columns)
    assert words in check_promise(tmp_path / "t", where, after)


def test_small_table_gets_a_smaller_promise_or_none(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.head(300), tmp_path / "tiny", columns=["fare"])
    tiny = qbeast.open_table(tmp_path / "tiny").rows("fare < 1").explain()
    assert tiny.hint == "300 row(s) in 3 page(s) are too few for an index to skip much of them"
    qbeast.write_table(ROWS.head(3000), tmp_path / "small", columns=["day", "fare", "tip", "id"])
    assert "set_importance" in check_promise(tmp_path / "small", "day = DATE '2026-06-01'")


def test_scattered_table_is_to_be_optimized(tmp_path: Path) -> None:
    for number in range(6):
        part = ROWS.slice(number * 4000, 4000)
        qbeast.write_table(part, tmp_path, columns=["fare", "tip", "id"], mode="append", cube_size=500)
    assert check_promise(tmp_path, "fare < 1") == "table.optimize(full=True)"


@pytest.fixture(scope="module")
def rides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hint") / "rides"
    qbeast.write_table(ROWS, path, columns=["day", "fare", "id:hash"])
    return path


@pytest.mark.parametrize(
    "where",
    [
        None,
        "day = DATE '2026-06-01'",
        "fare < 10 AND day >= DATE '2026-06-01' AND day < DATE '2026-07-01'",
        "fare < 70",  # matches most rows
        "kind = 1",  # matches a third
        "tip % 7 = 1",  # an index cannot use it
        "fare < 1000",
        "user.age < 80",
        "FALSE",
        "fare IS NULL",
        pl.col("tip").map_batches(lambda values: values < 9, return_dtype=pl.Boolean),
        pl.lit(value=True),
    ],
)
def test_ordinary_filters_have_no_hint(rides: Path, where: Any) -> None:
    plan = qbeast.open_table(rides).rows(where).explain()
    assert plan.hint is None
    assert "\n  hint" not in repr(plan)


def test_hint_is_computed_when_it_is_printed(rides: Path) -> None:
    with counted() as requests:
        plan = qbeast.open_table(rides).rows("tip < 100").explain()
        assert plan.share == 1.0
        assert plan.unused_conditions
        assert not of_data(requests)
        assert "\n  hint" in repr(plan)
    assert 0 < read_bytes(requests) < 8 << 20


def test_hint_is_in_json_and_survives_pickling(rides: Path) -> None:
    plan = qbeast.open_table(rides).rows("tip < 100").explain()
    _, calls = promised(pickle.loads(pickle.dumps(plan)))  # noqa: S301 - our own
    assert calls == "table.reindex(columns=['day', 'fare', 'id:hash', 'tip'], full=True)" == promised(plan)[1]
    request = ("explain", rides, "--where", "tip < 100")
    in_shell = run_json(*request)["hint"]
    assert plan.hint is not None
    assert in_shell == plan.hint.replace(
        calls, "`qbeast reindex TABLE --columns day,fare,id:hash,tip --full`"
    )
    assert in_shell in run(*request).stdout
    assert run_json("explain", rides, "--where", "fare < 1")["hint"] is None


def test_plan_of_missing_files_prints(rides: Path, tmp_path: Path) -> None:
    shutil.copytree(rides, tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()
    assert "\n  hint" not in repr(table.rows("tip < 100").explain())


def test_expensive_sample_is_left_to_advise(rides: Path) -> None:
    table = qbeast.open_table(rides)
    plan = table.rows("tip < 100").explain()
    with resized(hint_bytes=100):
        assert plan.hint is not None
    assert plan.hint.startswith("table.advise([plan.where]) reads a sample")
    assert "tip" in table.advise([plan.where]).columns
    assert table.rows("fare < 70").explain().hint is None  # the index uses it


def test_tables_that_cannot_be_reindexed_have_no_hint(tmp_path: Path) -> None:
    some = ROWS.head(3000).drop("user")
    qbeast.write_table(some, tmp_path / "none", columns=[])
    qbeast.write_table(some, tmp_path / "jvm", columns=["fare"], dialect="qbeast-spark")
    for name in ("none", "jvm"):
        assert qbeast.open_table(tmp_path / name).rows("tip < 100").explain().hint is None


def test_partitions_keep_their_part_of_the_promise(tmp_path: Path) -> None:
    with small_files(file_rows=2000, page_rows=16):
        qbeast.write_table(ROWS.head(6000), tmp_path, columns=["fare"], partition_by=["kind"], cube_size=500)
        plan = qbeast.open_table(tmp_path).rows("tip < 100").explain()
        assert promised(plan)[1] == "table.reindex(columns=['fare', 'tip'], full=True)"


def test_advice_for_tables_with_structs(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.head(5000), tmp_path, columns=["fare"])
    assert qbeast.open_table(tmp_path).advise(["tip < 100"]).columns[0] == "tip"


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        (90, ["fare"], "90 row(s) fill 1 page(s): filters open all of them"),
        (500, ["fare", "tip"], "500 row(s) fill 4 page(s): filters open a third of them or more"),
        (20_000, ["kind", "id"], "'kind' has 3 values: a filter on one of them opens about 33 % or more"),
    ],
)
def test_first_write_has_one_line_about_its_index(
    rows: int, columns: list[str], words: str, tmp_path: Path
) -> None:
    result = qbeast.write_table(ROWS.head(rows), tmp_path, columns=columns)
    assert result.hint is not None
    assert result.hint.startswith(words)
    assert repr(result).splitlines()[-1].split(maxsplit=1) == ["hint", result.hint]
    assert result.to_dict()["hint"] == result.hint
    assert "hint" in result._repr_html_()
    name = columns[0]
    where = {"kind": "kind = 1", "fare": "fare = 50"}[name]
    assert qbeast.open_table(tmp_path).rows(where).explain().share >= 0.28
    again = qbeast.write_table(ROWS.head(rows), tmp_path, mode="append")
    assert again.hint is None


def test_first_write_leaves_out_a_column_of_few_values(tmp_path: Path) -> None:
    options = {"columns": ["kind", "fare", "id:hash"]}
    planned = qbeast.write_table(ROWS, tmp_path, dry_run=True, **options)
    result = qbeast.write_table(ROWS, tmp_path, **options)
    assert planned.hint == result.hint
    calls = str(result.hint).rpartition(": ")[2]
    assert calls == "table.reindex(columns=['fare', 'id'], full=True)"
    table = qbeast.open_table(tmp_path)
    before = table.rows("fare < 1").explain().share
    exec(calls, {"table": table})  # noqa: S102 - the call is what is tested
    assert table.rows("fare < 1").explain().share < 0.8 * before


def test_columns_of_one_value_or_nulls_are_few(tmp_path: Path) -> None:
    nulls = ROWS.head(5000).with_columns(none=pl.lit(None, pl.Int64), some=pl.when(pl.col("id") < 9).then(1))
    words = "'none' has one value: a filter on it opens all"
    assert str(qbeast.write_table(nulls, tmp_path / "none", columns=["id", "none", "some"]).hint).startswith(
        words
    )
    some = qbeast.write_table(nulls, tmp_path / "some", columns=["some", "id"]).hint
    assert str(some).startswith("'some' has 2 values: a filter on one of them opens about 50 % or more")


@pytest.mark.filterwarnings("error")
def test_ordinary_first_writes_have_no_hint(tmp_path: Path) -> None:
    spread = ROWS.head(20_000).with_columns(many=pl.col("id") % 5)
    for number, columns in enumerate((["day", "fare", "id:hash"], ["id"], ["many", "id"], ["tip"])):
        assert qbeast.write_table(spread, tmp_path / str(number), columns=columns).hint is None
    empty = qbeast.write_table(ROWS.clear(), tmp_path / "empty", columns=["id"])
    assert empty.hint is None
    assert qbeast.write_table(ROWS.head(50), tmp_path / "none", columns=[]).hint is None
    parts = qbeast.write_table(ROWS.head(50), tmp_path / "parts", columns=["id"], partition_by=["kind"])
    assert parts.hint is None


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_table_of_the_demo_has_no_hint(tmp_path: Path) -> None:
    demo = pytest.importorskip("examples.demo")
    months = list(demo.months(demo.flights()))
    results = [qbeast.write_table(month, tmp_path, columns=demo.INDEXED, mode="append") for month in months]
    assert [result.hint for result in results] == [None] * 12
    assert qbeast.open_table(tmp_path).rows(demo.EARLY).explain().hint is None

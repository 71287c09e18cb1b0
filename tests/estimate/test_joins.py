"""Joins of an estimate: with frames, and with tables of the same sampling key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import deltalake
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.estimate.question import Limits, question_of
from qbeast_core.table.estimate.rounds import rounds
from tests.helpers.scattering import PartsEngine
from tests.helpers.small_files import resized
from tests.helpers.tables import estimated

pytestmark = pytest.mark.filterwarnings(
    "ignore::qbeast.DesignEffectWarning", "ignore::qbeast.UnindexedSampleWarning"
)

HOWS: Final = ("left", "inner", "semi", "anti")
USERS: Final = 4_000


def events_of(seed: int, rows: int, first: int = 0) -> pl.DataFrame:
    """Events of some users, which may be null, and of one giant."""
    random = np.random.default_rng(seed)
    users = np.minimum(random.zipf(1.6, rows), USERS - 1) + first
    users[: rows // 3] = random.integers(first, USERS + first, rows // 3)
    nulls = pl.Series(random.random(rows) < 0.05)
    return pl.DataFrame(
        {
            "user": pl.Series(users, dtype=pl.Int64).set(nulls, None),
            "fare": random.integers(0, 100, rows),
            "kind": random.choice(["a", "b", "c"], rows),
        }
    )


def orders_of(seed: int, rows: int) -> pl.DataFrame:
    return events_of(seed, rows, first=1_000).rename({"fare": "cost", "kind": "shop"})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[qbeast.Table, qbeast.Table]:
    """Events, indexed by their columns, and orders, indexed by the key; appended, staged and deleted rows."""
    folder = tmp_path_factory.mktemp("joins")
    events, orders = str(folder / "events"), str(folder / "orders")
    with resized(min_file_rows=2_000, max_file_rows=8_000):
        for seed in range(2):
            qbeast.write_table(
                events_of(seed, 20_000),
                events,
                columns=["fare", "kind"],
                sample_by=["user"],
                cube_size=500,
                mode="append",
            )
            qbeast.write_table(
                orders_of(seed + 10, 5_000), orders, columns=["user"], cube_size=500, mode="append"
            )
    deltalake.write_deltalake(events, events_of(5, 3_000).to_arrow(), mode="append")
    deltalake.write_deltalake(orders, orders_of(15, 1_000).to_arrow(), mode="append")
    found = qbeast.open_table(events), qbeast.open_table(orders)
    found[0].delete("fare = 7")
    found[1].delete("cost > 95")
    return found


ASKED: Final[dict[str, pl.Expr]] = {
    "n": pl.len(),
    "fare": pl.col("fare").sum(),
    "mean": pl.col("fare").mean(),
}


def answers(how: str) -> dict[str, pl.Expr]:
    if how in ("semi", "anti"):
        return ASKED
    return {**ASKED, "both": (pl.col("fare") * pl.col("cost")).sum(), "spread": pl.col("cost").std()}


@pytest.mark.parametrize(("how", "engine"), [*((how, None) for how in HOWS), ("inner", PartsEngine())])
def test_join_of_all_rows_equals_polars(
    tables: tuple[qbeast.Table, qbeast.Table], how: Any, engine: Any
) -> None:
    events, orders = tables
    question = question_of(
        events.planner,
        answers(how),
        Limits.of(sample=1.0),
        by="kind",
        where="fare < 80",
        join=(orders, "user", how),
    )
    actual = list(rounds(events.planner, question, engine=engine))[-1].frame
    joined = events.read("fare < 80").join(orders.read(), on="user", how=how)
    expected = joined.group_by("kind").agg(
        **{name: pl.Expr.cast(e, pl.Float64) for name, e in answers(how).items()}
    )
    assert_frame_equal(actual.select(expected.columns), expected.sort("kind"), rel_tol=1e-9)
    assert actual["reliable"].all()


@pytest.mark.parametrize("how", HOWS)
def test_disjoint_samples_add_up_to_join(tables: tuple[qbeast.Table, qbeast.Table], how: Any) -> None:
    """Each sample holds the join of its range of keys, except for heavy keys: these are in every sample."""
    events, orders = tables
    join = qbeast.Join(orders, "user", how, where="cost >= 20 AND shop <> 'a'")
    sampled, joined = list[float](), list[int]()
    for sample in ((0.0, 0.1), (0.1, 0.45), (0.45, 1.0)):
        answer = events.rows("fare < 60", sample=sample).estimate({"n": pl.len()}, join=join)
        sampled.append(answer.frame["rows_sampled"].item())
        others = orders.read("cost >= 20 AND shop <> 'a'", sample=sample)
        joined.append(events.read("fare < 60", sample=sample).join(others, on="user", how=how).height)
    heavy = (sum(sampled) - sum(joined)) / (len(sampled) - 1)
    heavy_here = [rows + heavy - some for rows, some in zip(joined, sampled, strict=True)]
    assert sum(heavy_here) == heavy
    assert min(heavy_here) >= 0


@pytest.mark.parametrize("how", HOWS)
def test_reliable_answers_of_joins_are_near(tables: tuple[qbeast.Table, qbeast.Table], how: Any) -> None:
    events, orders = tables
    truth = events.read().join(orders.read(), on="user", how=how)
    answer = events.rows().estimate({"n": pl.len(), "s": "sum(fare)"}, join=(orders, "user", how), error=0.1)
    assert answer.met
    assert answer.frame["n"].item() == pytest.approx(truth.height, rel=0.1)
    assert answer.frame["s"].item() == pytest.approx(truth["fare"].sum(), rel=0.1)


def test_users_with_order_and_without_return(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    events, orders = tables
    joins: list[Any] = [
        qbeast.Join(orders, "user", "semi", where="cost < 50"),
        qbeast.Join(orders, "user", "anti", where=pl.col("cost") >= 50),
        (pl.DataFrame({"kind": ["a"], "label": ["first"]}), "kind", "inner"),
    ]
    answer = events.rows(sample=1.0).estimate(
        "SELECT label, count(*) AS n FROM self GROUP BY label", join=joins
    )
    bought = orders.read()
    truth = (
        events.read("kind = 'a'")
        .join(bought.filter(pl.col("cost") < 50), on="user", how="semi")
        .join(bought.filter(pl.col("cost") >= 50), on="user", how="anti")
    )
    assert answer.frame.select("label", "n").rows() == [("first", truth.height)]


@pytest.mark.parametrize("how", HOWS)
def test_frames_join_like_polars(tables: tuple[qbeast.Table, qbeast.Table], how: Any) -> None:
    events, _ = tables
    frame = pl.DataFrame({"kind": ["a", "b"], "label": ["first", "second"]})
    join = qbeast.Join(frame, "kind", how, where="label <> 'second'")
    answer = events.rows(sample=1.0).estimate({"n": pl.len()}, join=join)
    truth = events.read().join(frame.head(1), on="kind", how=how)
    assert answer.frame["n"].item() == truth.height
    counted = events.rows("fare >= 0").estimate({"n": pl.len()}, join=join, error=0.05).frame["n"].item()
    assert counted == pytest.approx(truth.height, rel=0.05)


def test_rows_of_both_sides_may_repeat_in_small_pieces(tmp_path: Path) -> None:
    ids = pl.int_range(900, eager=True)
    left, right = pl.DataFrame({"user": ids % 3, "x": ids}), pl.DataFrame({"user": ids % 4, "y": ids})
    for name, rows in (("left", left), ("right", right)):
        qbeast.write_table(rows, tmp_path / name, columns=["user"])
    with resized(batch_bytes=50_000):
        answer = qbeast.estimate(
            tmp_path / "left",
            {"n": pl.len(), "s": "sum(x * y)"},
            join=(tmp_path / "right", "user"),
            sample=1.0,
        )
    joined = left.join(right, on="user").select(n=pl.len(), s=(pl.col("x") * pl.col("y")).sum())
    assert answer.frame.select("n", "s").row(0) == joined.row(0)


def test_bytes_and_rows_count_both_tables(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    events, orders = tables
    answer = events.rows(sample=1.0).estimate({"n": pl.len()}, join=(orders, "user"))
    sizes = [table.rows().files()["size_bytes"].sum() for table in tables]
    assert answer.bytes_total == sum(sizes)
    plans = [table.rows(columns=["user"]).explain() for table in tables]
    assert answer.bytes_opened == sum(plan.bytes_opened for plan in plans)
    assert answer.rows_read == sum(table.count() for table in tables)
    alone = events.rows(sample=0.1).estimate({"s": "sum(fare)"})
    assert (
        events.rows(sample=0.1).estimate({"s": "sum(fare)"}, join=(orders, "user")).rows_read
        > alone.rows_read
    )


def test_other_version_is_fixed_at_start(tables: tuple[qbeast.Table, qbeast.Table], tmp_path: Path) -> None:
    events, _ = tables
    path = tmp_path / "some"
    qbeast.write_table(orders_of(1, 500), path, columns=["user"])
    old = qbeast.open_table(path)
    qbeast.write_table(orders_of(2, 500), path, mode="append")
    counts = [
        events.rows(sample=1.0).estimate({"n": pl.len()}, join=(other, "user", "inner")).frame["n"].item()
        for other in (old, str(path))
    ]
    rows = [orders_of(1, 500), pl.concat([orders_of(1, 500), orders_of(2, 500)])]
    assert counts == [events.read().join(frame, on="user").height for frame in rows]


def test_unlisted_giant_of_joined_table_is_found(tmp_path: Path) -> None:
    """A giant in a file without tags, whose key a small sample lacks: no narrow interval may hide it."""
    ids = pl.int_range(60_000, eager=True)
    qbeast.write_table(pl.DataFrame({"user": ids % 20_000, "x": ids}), tmp_path / "left", columns=["user"])
    other = pl.DataFrame({"user": ids % 20_000, "y": ids})
    qbeast.write_table(other, tmp_path / "right", columns=["user"])
    giant = pl.DataFrame({"user": [17] * 40_000, "y": range(40_000)})
    deltalake.write_deltalake(str(tmp_path / "right"), giant.to_arrow(), mode="append")
    request: dict[str, Any] = {"aggregates": {"n": pl.len()}, "join": (tmp_path / "right", "user")}
    for start in (0.0, 0.2, 0.4):
        frame = qbeast.estimate(tmp_path / "left", sample=(start, start + 0.05), **request).frame
        truth = 9 * 20_000 + 3 * 40_000
        assert not frame["reliable"].item() or frame["n_low"].item() <= truth <= frame["n_high"].item()
    answer = qbeast.estimate(tmp_path / "left", error=0.05, **request)
    assert answer.frame["n"].item() == pytest.approx(9 * 20_000 + 3 * 40_000, rel=0.05)


def written(folder: Path, rows: pl.DataFrame, **options: Any) -> Path:
    path = folder / f"t{len(list(folder.iterdir()))}"
    qbeast.write_table(rows, path, **options)
    return path


def test_refused_joins_name_the_cure(tables: tuple[qbeast.Table, qbeast.Table], tmp_path: Path) -> None:
    events, orders = tables
    rows = pl.DataFrame({"user": range(9), "fare": range(9)})
    narrow = rows.select(pl.col("user").cast(pl.Int32))
    by_other = written(tmp_path, rows, columns=["user", "fare"])
    no_index = written(tmp_path, rows, columns=[])
    with_narrow = written(tmp_path, narrow, columns=["user"])
    same_name = written(tmp_path, rows, columns=["fare"], sample_by=["user"])
    frame = pl.DataFrame({"user": [1, 1], "z": [1, 2]})
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (
            (by_other, "user"),
            {},
            r"is sampled by \['user', 'fare'\]. Write it with sample_by",
        ),
        ((no_index, "user"), {}, "has no index"),
        ((with_narrow, "user"), {}, "Int64 and Int32.*cast them and write the table again"),
        ((same_name, "user"), {}, "also has a column 'fare', so it is ambiguous"),
        ((orders, "cost"), {}, r"missing in one of them: \['cost'\]"),
        ((orders, ["user", "user"]), {}, "must name different columns"),
        ((orders, "user", "outer"), {}, "can be one of"),
        ((orders, "user"), {"sample_by": ["kind"]}, r"`sample_by` is \['kind'\]"),
        ((orders,), {}, "must be"),
        ((frame, "user", "inner"), {}, "many to one"),
        (qbeast.Join(orders, "user", where="nothing > 1"), {}, "nothing"),
        (qbeast.Join(frame, "user", "semi", where="z"), {}, "`join`"),
    ]
    for join, options, message in cases:
        with pytest.raises(qbeast.InvalidInputError, match=message):
            estimated(events, {"s": pl.col("fare").sum()}, join=join, error=0.1, **options)
    assert (
        events.rows(sample=1.0).estimate({"n": pl.len()}, join=(same_name, "user", "semi")).frame["n"].item()
        > 0
    )


def test_joined_rows_stay_within_memory(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    events, orders = tables
    limits = Limits.of(sample=1.0)
    asked = {"s": "sum(cost)", "n": "count(*)"}
    question = question_of(events.planner, asked, limits, join=(orders, "user"))
    (plenty,) = rounds(events.planner, question)
    (little,) = rounds(
        events.planner, replace(question, limits=replace(limits, memory_bytes=150_000))
    )  # ranges of users
    assert_frame_equal(little.frame, plenty.frame, rel_tol=1e-9)
    assert little.rows_read == plenty.rows_read
    with pytest.raises(qbeast.InvalidInputError, match=r"the rows to join from .* take .* bytes of memory"):
        list(rounds(events.planner, replace(question, limits=replace(limits, memory_bytes=1_500))))


@pytest.mark.parametrize("how", HOWS)
def test_equal_floats_are_joined(tmp_path: Path, how: str) -> None:
    values = [-0.0, float("nan")]
    rows = pl.DataFrame({"id": range(len(values)), "f": values}).sort("f")
    qbeast.write_table(rows, tmp_path, columns=["id"])
    others = pl.DataFrame({"f": [abs(value) for value in values], "w": 1}).sort("f")
    join: Any = (others, "f", how)
    count = (pl.col("w").count() if how == "left" else pl.len()).alias("n")
    answer = qbeast.open_table(tmp_path).rows(sample=1.0).estimate(count, join=join).frame["n"].item()
    assert answer == (0 if how == "anti" else len(values))


def test_groups_of_nan_are_counted(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(4), "f": [-0.0, 0.0, float("nan"), float("nan")]})
    qbeast.write_table(rows[:2], tmp_path, columns=["id"])
    qbeast.write_table(rows[2:], tmp_path, mode="append")
    answer = qbeast.open_table(tmp_path).rows(sample=1.0).estimate(pl.len().alias("n"), by="f").frame
    assert_frame_equal(
        answer.select("f", "n").sort("f"), rows.group_by("f").agg(n=pl.len()).sort("f"), check_dtypes=False
    )

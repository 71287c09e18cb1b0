"""The SQL texts of dashboards: estimates cover the answers of DuckDB, and rows that are called certain are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

import qbeast

ORDERS, USERS = 24_000, 4_000
CHANNELS, STATUSES = ["web", "app", "shop"], ["paid", "paid", "paid", "returned"]


def orders_of(seed: int) -> pl.DataFrame:
    """Return random orders: few brands sell most, and users order in clusters."""
    random = np.random.default_rng(seed)
    users = (random.pareto(1.6, ORDERS) * 400).astype(np.int64) % USERS + random.integers(0, USERS, ORDERS)
    brands = np.minimum(random.geometric(0.18, ORDERS), 24)
    days = random.integers(0, 300, ORDERS).tolist()
    return pl.DataFrame(
        {
            "user_id": users % USERS,
            "brand": [f"brand {number:02}" for number in brands.tolist()],
            "price": np.round(random.gamma(2.0, 20.0, ORDERS), 2),
            "day": [date(2026, 1, 1) + timedelta(days=number) for number in days],
            "ts": [
                datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number, hours=number % 24)
                for number in days
            ],
            "channel": random.choice(CHANNELS, ORDERS).tolist(),
            "status": random.choice(STATUSES, ORDERS).tolist(),
            "address": [{"country": f"c{number % 5}", "zip": number} for number in days],
        }
    )


def users_of() -> pl.DataFrame:
    """Return three of four users."""
    users = pl.DataFrame({"user_id": range(USERS)}).filter(pl.col("user_id") % 4 != 3)
    return users.with_columns(plan=pl.format("plan {}", pl.col("user_id") % 5))


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A text, and which doors it passes."""

    text: str
    estimate: bool = True
    sql: bool = True


DASHBOARDS = {
    "top brands": Dashboard(
        "SELECT brand, sum(price) AS revenue FROM self GROUP BY brand ORDER BY revenue DESC LIMIT 5"
    ),
    "revenue by month": Dashboard(
        "SELECT date_trunc('month', day) AS month, sum(price) AS revenue FROM self GROUP BY 1 "
        "HAVING sum(price) > 90000 ORDER BY 1"
    ),
    "last 30 days": Dashboard(
        "SELECT channel, count(*) AS orders, avg(price) AS basket FROM self "
        "WHERE ts >= TIMESTAMPTZ '2026-10-28 02:00:00+02' - INTERVAL '30 days' GROUP BY channel ORDER BY channel"
    ),
    "users per week": Dashboard(
        "SELECT date_trunc('week', day) AS week, count(DISTINCT user_id) AS users FROM self GROUP BY week "
        "ORDER BY users DESC, week LIMIT 10"
    ),
    "share of returns": Dashboard(
        "SELECT brand, sum(CASE WHEN status = 'returned' THEN 1 ELSE 0 END) * 100.0 / count(*) AS share FROM self "
        "GROUP BY brand HAVING count(*) >= 500 ORDER BY share DESC NULLS LAST, brand"
    ),
    "web only": Dashboard(
        "SELECT count(*) FILTER (WHERE channel = 'web') AS web, avg(price) FILTER (WHERE status <> 'returned') AS kept "
        "FROM self WHERE price BETWEEN 5 AND 200"
    ),
    "countries": Dashboard(
        "SELECT s.address.country AS country, count(*) AS n FROM self AS s WHERE s.address.zip < 250 GROUP BY 1 "
        "ORDER BY n DESC NULLS LAST, country"
    ),
    "quantiles": Dashboard(
        "SELECT channel, median(price) AS mid, quantile_cont(price, 0.9) AS high FROM self GROUP BY ALL "
        "HAVING count(*) > 1000 ORDER BY high DESC"
    ),
    "plans": Dashboard(
        "SELECT u.plan, sum(o.price) AS revenue FROM orders o JOIN users u ON o.user_id = u.user_id "
        "WHERE o.status = 'paid' GROUP BY u.plan ORDER BY 2 DESC LIMIT 3",
        sql=False,
    ),
    "unknown users": Dashboard("SELECT count(*) AS n FROM orders ANTI JOIN users USING (user_id)", sql=False),
    "spend per user": Dashboard(
        "SELECT median(spend) AS mid, count(*) AS users FROM "
        "(SELECT user_id, sum(price) AS spend FROM self GROUP BY user_id) AS q",
        sql=False,
    ),
    "last orders": Dashboard(
        "SELECT DISTINCT user_id, day, price FROM self WHERE channel IN ('web', 'app') AND brand LIKE 'brand 0%' "
        "ORDER BY day DESC, price DESC, user_id LIMIT 20",
        estimate=False,
    ),
}
ESTIMATED = [name for name in DASHBOARDS if DASHBOARDS[name].estimate]
QUERIED = [name for name in DASHBOARDS if DASHBOARDS[name].sql]


def written(path: Path, seed: int) -> tuple[qbeast.Table, dict[str, str]]:
    """Write the orders and the users of a seed; return the orders, and the users by name."""
    qbeast.write_table(
        orders_of(seed), path / "orders", columns=["user_id", "price"], sample_by=["user_id"], cube_size=500
    )
    qbeast.write_table(users_of(), path / "users", columns=["user_id"], sample_by=["user_id"], cube_size=500)
    return qbeast.open_table(path / "orders"), {"users": str(path / "users")}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[qbeast.Table, dict[str, str]]:
    return written(tmp_path_factory.mktemp("dashboards"), 3)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with connection(3) as result:
        yield result


def connection(seed: int) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the rows of a seed."""
    result = duckdb.connect()
    result.execute("SET TimeZone = 'UTC'")
    result.register("orders_", orders_of(seed).to_arrow())
    result.register("users_", users_of().to_arrow())
    for name, rows in {"self": "orders_", "orders": "orders_", "users": "users_"}.items():
        result.table(rows).to_table(name)
    return result


def rows_of(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return rows whose numbers and times compare equal."""
    times = pl.selectors.temporal()
    exact = frame.with_columns(pl.selectors.numeric().cast(pl.Float64).round_sig_figs(9), times.cast(pl.Date))
    return exact.rows()


def join_of(text: str, others: dict[str, str]) -> dict[str, str] | None:
    return others if " JOIN " in text else None


@pytest.mark.parametrize("name", QUERIED)
def test_sql_has_the_rows_of_duckdb(
    tables: tuple[qbeast.Table, dict[str, str]], duck: duckdb.DuckDBPyConnection, name: str
) -> None:
    text = DASHBOARDS[name].text
    assert rows_of(tables[0].sql(text).collect()) == rows_of(duck.sql(text).pl())


@pytest.mark.parametrize("name", ESTIMATED)
def test_estimate_of_all_rows_is_exact(
    tables: tuple[qbeast.Table, dict[str, str]], duck: duckdb.DuckDBPyConnection, name: str
) -> None:
    text = DASHBOARDS[name].text
    expected = duck.sql(text).pl()
    result = tables[0].rows(sample=1.0).estimate(text, join=join_of(text, tables[1]))
    assert rows_of(result.frame.select(expected.columns)) == rows_of(expected)
    assert result.frame["certain"].all() if "certain" in result.frame.columns else True
    assert result.certain_order in (None, True)


@dataclass(frozen=True, slots=True)
class Trial:
    """Intervals that cover their answers, and statements that are true."""

    covered: list[bool]
    certain: int
    is_right: bool


def trial(
    tables: tuple[qbeast.Table, dict[str, str]],
    duck: duckdb.DuckDBPyConnection,
    text: str,
    sample: tuple[float, float],
) -> Trial:
    """Compare an estimate from a sample with the exact answer."""
    result = tables[0].rows(sample=sample).estimate(text, join=join_of(text, tables[1]))
    frame, limited = result.frame, duck.sql(text).pl()
    keys = [name for name in limited.columns if name not in result.names]
    every = duck.sql(text.partition(" HAVING")[0].partition(" ORDER")[0]).pl()
    dates = [pl.col(name).cast(pl.Date) for name in keys if every[name].dtype.is_temporal()]
    frame, limited, every = (item.with_columns(dates) for item in (frame, limited, every))
    names = [*result.names]
    both = (
        frame.join(every, on=keys, suffix="_true")
        if keys
        else frame.hstack(every.rename(lambda n: f"{n}_true"))
    )
    covered = [
        row[f"{name}_low"] - 1e-6 <= float(row[f"{name}_true"]) <= row[f"{name}_high"] + 1e-6
        for row in both.filter("reliable").to_dicts()
        for name in names
    ]
    is_right, certain = True, 0
    if "certain" in frame.columns:
        sure = frame.filter("certain").select(keys)
        certain = sure.height
        is_right = sure.join(limited, on=keys, how="anti").is_empty()
    if result.certain_order and keys:
        shown = frame.select(keys).join(limited.select(keys), on=keys, how="semi")
        is_right &= shown.equals(limited.select(keys).join(shown, on=keys, how="semi", maintain_order="left"))
    return Trial(covered, certain, is_right)


@pytest.mark.parametrize("name", ESTIMATED)
def test_estimate_of_a_sample_covers_the_answers(
    tables: tuple[qbeast.Table, dict[str, str]], duck: duckdb.DuckDBPyConnection, name: str
) -> None:
    result = trial(tables, duck, DASHBOARDS[name].text, (0.0, 0.4))
    assert np.mean(result.covered) >= 0.6
    assert result.is_right


def test_leading_brands_are_certain(tables: tuple[qbeast.Table, dict[str, str]]) -> None:
    result = tables[0].rows(sample=0.4).estimate(DASHBOARDS["top brands"].text)
    assert result.frame["brand"].to_list() == [f"brand {number:02}" for number in range(1, 6)]
    assert result.frame["certain"].sum() >= 3
    assert f"{result.frame['certain'].sum()} of 5 rows are certain" in result.remarks[0]


SEEDS = range(10, 18)
PARTS = [(part / 5, (part + 1) / 5) for part in range(5)]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ESTIMATED)
def test_certain_rows_are_right_in_trials(name: str, tmp_path: Path) -> None:
    """All statements of an answer hold at once in 95 % of the trials, less two standard errors of such a share."""
    results: list[Trial] = []
    for seed in SEEDS:
        tables = written(tmp_path / str(seed), seed)
        with connection(seed) as duck:
            results += [trial(tables, duck, DASHBOARDS[name].text, part) for part in PARTS]
    right = np.mean([result.is_right for result in results])
    covered = np.mean([cover for result in results for cover in result.covered])
    print(
        f"{name}: right {right:.3f}, covered {covered:.3f}, certain {sum(item.certain for item in results)}"
    )
    least = 0.95 - 2 * (0.95 * 0.05 / len(results)) ** 0.5
    assert right >= least
    assert covered >= least

"""A text opens the files and bytes that the equal Polars expression opens."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast

if TYPE_CHECKING:
    from qbeast import Table

x, price, quantity, brand, ts = (pl.col(name) for name in ("x", "price", "quantity", "brand", "ts"))
START = datetime(2025, 6, 1, tzinfo=UTC)
PAIRS = {
    "price < 5": price < 5,
    "5 >= price": price <= 5,
    "quantity = 7": quantity == 7,
    "quantity < 7.5": quantity.cast(pl.Decimal(38, 1)) < Decimal("7.5"),
    "quantity BETWEEN 3 AND 4": quantity.is_between(3, 4),
    "quantity IN (3, 900)": quantity.is_in([3, 900]),
    "brand IN ('brand 01', 'brand 07')": brand.is_in(["brand 01", "brand 07"]),
    "brand LIKE 'brand 0%'": brand.str.starts_with("brand 0"),
    "brand LIKE 'brand 0_%'": brand.str.starts_with("brand 0"),
    "price IS NULL": price.is_null(),
    "price IS NOT NULL AND price < 5": price < 5,
    "NOT price >= 5": price < 5,
    "(price < 5) IS TRUE": price < 5,
    "(price >= 5) IS FALSE": price < 5,
    "price IS NOT DISTINCT FROM NULL": price.is_null(),
    "year(ts) = 2026": ts.dt.year() == 2026,
    "extract(year FROM ts) = 2026": ts.dt.year() == 2026,
    "date_trunc('month', ts) = '2026-11-01'": ts.dt.truncate("1mo") == datetime(2026, 11, 1, tzinfo=UTC),
    "ts >= '2026-11-05'": ts >= datetime(2026, 11, 5, tzinfo=UTC),
    "ts >= DATE '2026-11-05'": ts >= datetime(2026, 11, 5, tzinfo=UTC),
    "ts < TIMESTAMP '2025-07-01' + INTERVAL 1 DAY": ts < datetime(2025, 7, 2, tzinfo=UTC),
    "ts::DATE = '2026-11-05'": ts.dt.date() == date(2026, 11, 5),
    "price + 1 > 95": price > 94,
    "price / 2 < 1": price < 2,
    "quantity * 2 <= 7": quantity * 2 <= 7,
    "quantity + 1 > 990": quantity + 1 > 990,
    "-quantity > -10": -quantity > -10,
    "10 - quantity * 3 > 0": 10 - quantity * 3 > 0,
    "-x < 3": x > -3,
    "-x < 3 AND x * 2 < 4": x.is_between(-2, 1),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    n = pl.int_range(40_000)
    rows = pl.select(
        x=(n * 7919 % 2_003 - 1_000).cast(pl.Int32),
        price=pl.when(n % 11 > 0).then(n * 101 % 10_007 / 100),
        quantity=n * 31 % 1_009,
        brand=pl.format("brand {}", (n * 37 % 40).cast(pl.String).str.zfill(2)),
        ts=pl.lit(START).cast(pl.Datetime("us", "UTC")) + pl.duration(minutes=n * 3_571 % 40_009 * 20),
    )
    path = tmp_path_factory.mktemp("skipping") / "table"
    qbeast.write_table(
        rows, path, columns=["x", "price", "quantity", "brand", "ts"], cube_size=400, progress=False
    )
    return qbeast.open_table(path)


@pytest.mark.parametrize("text", PAIRS)
def test_text_skips_like_the_expression(table: Table, text: str) -> None:
    actual, expected = table.rows(text).explain(), table.rows(PAIRS[text]).explain()
    assert (actual.bytes_opened, actual.rows_opened) == (expected.bytes_opened, expected.rows_opened)
    assert table.count(text) == table.count(PAIRS[text])
    if text != "price IS NOT DISTINCT FROM NULL":
        assert actual.share < 1

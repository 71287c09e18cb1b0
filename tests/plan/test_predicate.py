# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from qbeast_core.plan.nodes import (
    And,
    Compare,
    IsIn,
    IsNotNull,
    IsNull,
    Node,
    Nothing,
    Or,
    StartsWith,
    Unknown,
    keeps_order,
)
from qbeast_core.plan.predicate import parse_predicate

SCHEMA = pl.Schema(
    {
        "i": pl.Int64,
        "small": pl.Int8,
        "f": pl.Float64,
        "narrow": pl.Float32,
        "s": pl.String,
        "d": pl.Date,
        "t": pl.Datetime("us"),
        "b": pl.Boolean,
        "list": pl.List(pl.Int64),
    }
)
x, f, s, b = pl.col("i"), pl.col("f"), pl.col("s"), pl.col("b")


def parse(expression: pl.Expr) -> Node:
    return parse_predicate(expression, SCHEMA)


def shown(node: Node) -> Any:
    """A node as plain values, to compare with."""
    if isinstance(node, Compare):
        return (node.operand.column, node.op, node.value.item())
    if isinstance(node, IsIn):
        return (node.operand.column, "in", node.values.to_list())
    if isinstance(node, StartsWith):
        return (node.operand.column, "starts", node.prefix)
    if isinstance(node, (And, Or)):
        return (type(node).__name__, *map(shown, node.children))
    return node


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (x > 5, ("i", ">", 5)),
        (pl.lit(5) > x, ("i", "<", 5)),
        (~(x > 5), ("i", "<=", 5)),
        (~(pl.lit(5) >= x), ("i", ">", 5)),
        (x == 2**53 + 1, ("i", "==", 2**53 + 1)),
        (x > pl.lit(3) * 4, ("i", ">", 12)),
        ((x > 1) & (x < 5) & (s == "x"), ("And", ("i", ">", 1), ("i", "<", 5), ("s", "==", "x"))),
        (~((x > 1) & s.is_null()), ("Or", ("i", "<=", 1), IsNotNull("s"))),
        (~((x > 1) | s.is_null()), ("And", ("i", "<=", 1), IsNotNull("s"))),
        (x.is_between(1, 5, closed="left"), ("And", ("i", ">=", 1), ("i", "<", 5))),
        (~x.is_between(1, 5, closed="none"), ("Or", ("i", "<=", 1), ("i", ">=", 5))),
        (x.is_in([3, 1, 3]), ("i", "in", [1, 3])),
        (s.is_in(["a", None]), ("s", "in", ["a"])),
        (s.is_in(["a", None], nulls_equal=True), ("Or", ("s", "in", ["a"]), IsNull("s"))),
        (x.is_in([]), Nothing()),
        (x.eq_missing(None), IsNull("i")),
        (x.ne_missing(None), IsNotNull("i")),
        (x.ne_missing(3), ("Or", ("i", "!=", 3), IsNull("i"))),
        (b, ("b", "==", True)),
        (~b, ("b", "==", False)),
        (b & (x > 1), ("And", ("b", "==", True), ("i", ">", 1))),
        (s.str.starts_with("ab"), ("s", "starts", "ab")),
        (s.str.starts_with(""), IsNotNull("s")),
        (f.is_infinite(), ("f", "in", [float("-inf"), float("inf")])),
        (pl.lit(value=True), Unknown()),
        (pl.lit(value=False), Nothing()),
        (pl.lit(value=True) & (x > 1), ("i", ">", 1)),
        (pl.lit(None, dtype=pl.Boolean), Nothing()),
        (x > pl.lit(None, dtype=pl.Int64), Nothing()),
        (pl.when(x > 1).then(b).otherwise(pl.lit(value=False)), ("And", ("i", ">", 1), ("b", "==", True))),
        (pl.all_horizontal(x > 1, b), ("And", ("i", ">", 1), ("b", "==", True))),
        (pl.any_horizontal(x > 1, b).alias("any"), ("Or", ("i", ">", 1), ("b", "==", True))),
        (pl.col("small").cast(pl.Int64) > 5, ("small", ">", 5)),
        (pl.col("t").dt.date() > pl.date(2020, 1, 1), ("t", ">", datetime(2020, 1, 1).date())),
    ],
)
def test_filter_is_parsed_into_atoms(expression: pl.Expr, expected: Any) -> None:
    assert shown(parse(expression)) == expected


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("i") > pl.col("small"),
        pl.col("i") // 2 > 5,
        pl.col("i") + pl.col("i") > 5,
        pl.col("i").cast(pl.Int8) > 5,
        pl.col("s").str.to_lowercase() == "a",
        pl.col("s").str.contains("a"),
        pl.col("s").cast(pl.Categorical) == "a",
        pl.col("s") > pl.col("s").max(),
        pl.col("i") > pl.len(),
        pl.col("i").is_in(pl.col("list")),
        pl.col("list").list.first() > 1,
        pl.col("missing") > 1,
        pl.col("d").cast(pl.Datetime("ns"), strict=False).is_null(),  # too far dates become null
        pl.col("d").cast(pl.Datetime("ns"), strict=False).eq_missing(None),
        pl.col("^i.*$") > 1,
        (pl.col("i") > 1) ^ pl.col("b"),
        ~pl.col("i").is_in([1]),
        ~pl.col("s").str.starts_with("a"),
        pl.col("s").dt.date() > pl.date(2020, 1, 1),
    ],
)
def test_unsupported_predicates_prune_nothing(expression: pl.Expr) -> None:
    assert parse(expression) == Unknown()


def test_only_unsupported_parts_are_lost() -> None:
    assert shown(parse((x % 3 > 5) & (x > 1))) == ("i", ">", 1)
    assert parse((x % 3 > 5) | (x > 1)) == Unknown()


def test_python_function_disables_only_its_own_side() -> None:
    odd = x.map_batches(lambda column: column % 2 == 1, return_dtype=pl.Boolean)
    assert shown(parse(odd & (x > 1))) in (("i", ">", 1), Unknown())
    assert parse(odd | (x > 1)) == Unknown()


def test_infinities_and_nan_survive_json() -> None:
    for value in (float("inf"), float("-inf")):
        assert shown(parse(f == value)) == ("f", "==", value)
        assert shown(parse(value == f)) == ("f", "==", value)
    node = parse(f.is_in([1.0, float("nan")]))
    assert isinstance(node, IsIn)
    assert np.isnan(node.values[-1])


def test_literal_between_float32_values_matches_both() -> None:
    low, high = 0.1, float(np.float32(0.1))
    narrow = pl.col("narrow")
    assert shown(parse(narrow < 0.1)) == ("narrow", "<=", high)
    assert shown(parse(narrow > 0.1)) == ("narrow", ">=", low)
    assert shown(parse(narrow == 0.1)) == ("And", ("narrow", ">=", low), ("narrow", "<=", high))
    assert shown(parse(narrow != 0.1)) == Unknown()
    assert shown(parse(narrow < 0.5)) == ("narrow", "<", 0.5)


def test_long_and_deep_filters_are_accepted() -> None:
    chain = x == 0
    for number in range(1, 200):
        chain = chain | (x == number)
    node = parse(chain)
    assert isinstance(node, Or)
    assert len(node.children) == 200
    deep = x == 0
    for number in range(1, 1500):
        deep = (deep | (x == number)) & (f > number)
    assert isinstance(parse(deep), Node)


def test_casts_that_lose_order_do_not_prune() -> None:
    kept = [
        (pl.Int8(), pl.Int16()),
        (pl.Int64(), pl.Float64()),
        (pl.Float32(), pl.Float64()),
        (pl.Decimal(9, 2), pl.Decimal(12, 4)),
        (pl.Date(), pl.Datetime("ns")),
        (pl.Datetime("us", "UTC"), pl.Date()),
        (pl.Datetime("us"), pl.Datetime("ms", "Europe/Paris")),
    ]
    lost = [
        (pl.Int64(), pl.Int8()),
        (pl.Int64(), pl.Float32()),
        (pl.Float64(), pl.Float32()),
        (pl.Decimal(9, 4), pl.Decimal(9, 2)),
        (pl.Datetime("us", "Europe/Paris"), pl.Date()),
        (pl.Int64(), pl.String()),
        (pl.String(), pl.Date()),
        (pl.Int64(), pl.UInt64()),
    ]
    assert all(keeps_order(*pair) for pair in kept)
    assert not any(keeps_order(*pair) for pair in lost)


@pytest.mark.parametrize("late", [2**63 - 10, 8_210_266_876_799_000_000])
def test_truncated_times_near_the_end_prune(late: int) -> None:
    """The end of the unit is out of range: a lower bound does not need it."""
    value = pl.lit(late).cast(pl.Datetime("us"))
    schema = pl.Schema({"t": pl.Datetime("us")})
    for node in (pl.col("t").dt.truncate("1y") >= value, pl.col("t").dt.truncate("1y") > value):
        assert isinstance(parse_predicate(node, schema), Compare)
    assert isinstance(parse_predicate(pl.col("t").dt.truncate("1y") < value, schema), Unknown)

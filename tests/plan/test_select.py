from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from qbeast_core.log.replay import without_copies
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.plan.nodes import Node, Unknown
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.select import Selection, match, select
from qbeast_core.plan.weights import WeightRange, sample_to_weights
from qbeast_core.space.cubes import Cubes, encode_cubes
from tests.helpers.damage import packed
from tests.plan.small import LEAF, SCHEMA, block, file, files_frame, layout, revision, table

X, S = pl.col("x"), pl.col("s")


def node(expression: pl.Expr, schema: pl.Schema = SCHEMA) -> Node:
    return parse_predicate(expression, schema)


def cube(depth: int, x: int, s: int) -> str:
    return encode_cubes(Cubes(np.array([depth], np.uint8), np.array([[x, s]], np.uint64)))[0]


def reasons(selection: Selection) -> list[str]:
    return selection.reasons.to_list()


QUARTERS = [file(block(cube(2, place, 0))) for place in range(4)]
"""Files of x in [0, 25), [25, 50), [50, 75) and [75, 100]."""


@pytest.mark.parametrize(
    ("expression", "opened"),
    [
        (X < 25, [0, 1]),  # the literal lies on the edge, and ends are closed
        (X < 24, [0]),
        (X > 75, [3]),
        (X >= 1000, [3]),
        (X == 50, [2]),
        (X.is_between(30, 60), [1, 2]),
        (~X.is_between(30, 60), [0, 1, 2, 3]),
        (X.is_in([1, 99]), [0, 3]),
        (X.is_null(), [2]),  # nulls lie at 50
        (X.is_not_null(), [0, 1, 2, 3]),
        ((X < 10) | (X > 90), [0, 3]),
        ((X < 10) & (X > 90), []),
        (pl.lit(value=False), []),
        (X.cast(pl.Float64) < 24.5, [0]),
    ],
)
def test_cubes_prune(expression: pl.Expr, opened: list[int]) -> None:
    actual = select(table(*QUARTERS), node(expression))
    assert np.flatnonzero(actual.opened).tolist() == opened
    expected = [number in opened for number in range(4)]
    assert [reason == "matches" for reason in reasons(actual)] == expected
    assert actual.rows_opened.tolist() == [10 * is_open for is_open in expected]


def test_hashed_column_prunes_only_on_equality() -> None:
    halves = table(*(file(block(cube(1, 0, place))) for place in range(2)))
    # h("a") & 0x7fffffff = 1962208078 and h("日本") = 385798561: upper and lower half
    assert select(halves, node(S == "a")).opened.tolist() == [False, True]
    assert select(halves, node(S == "日本")).opened.tolist() == [True, False]
    assert select(halves, node(S.is_in(["a", "日本"]))).opened.all()
    assert select(halves, node(S > "a")).opened.all()
    assert select(halves, node(S.str.starts_with("a"))).opened.all()


def test_thousands_of_values_prune_separately() -> None:
    cubes = table(*(file(block(cube(10, place, 0))) for place in range(1024)))
    expected = list(range(0, 100, 7))
    few = select(cubes, node(X.is_in(expected)))
    assert few.opened.sum() == len(expected)
    many = select(cubes, node(X.is_in([*expected, *range(200, 9_000)])))
    assert (many.opened[:-1] == few.opened[:-1]).all()
    assert many.opened[-1]  # what is outside the range lies at its end


def stats(low: Any, high: Any, nulls: int = 0, column: str = "x") -> dict[str, Any]:
    return {"min": {column: low}, "max": {column: high}, "null_count": {column: nulls}}


def test_statistics_prune_files_without_an_index() -> None:
    bare = {"num_records": 10}
    files = table({**bare, **stats(0, 9)}, {**bare, **stats(10, 19)}, {**bare, **stats(None, None, 10)}, bare)
    assert select(files, node(X > 9)).opened.tolist() == [False, True, False, True]
    assert select(files, node(X == 5)).opened.tolist() == [True, False, False, True]
    assert select(files, node(X.is_null())).opened.tolist() == [False, False, True, True]
    assert select(files, node(X.is_not_null())).opened.tolist() == [True, True, False, True]
    assert reasons(select(files, node(X > 9))) == ["statistics", "matches", "statistics", "matches"]


def test_bounds_of_foreign_floats_may_hide_nan() -> None:
    schema = pl.Schema({"f": pl.Float64})
    f = pl.col("f")
    files = [{"num_records": 10, "rules": rules, **stats(0.0, 9.0, column="f")} for rules in ("1", None)]
    actual = table(*files, schema=schema)
    for expression in (f > 10, f >= 10, f.is_nan(), f.is_in([20.0, float("nan")])):
        assert select(actual, node(expression, schema)).opened.tolist() == [False, True]
    for expression in (f == 10, f < 0, f.is_in([20.0])):
        assert not select(actual, node(expression, schema)).opened.any()


def test_weights_close_blocks_with_a_reason() -> None:
    files = table(file(block("", 10, (-(2**31), 0))), file(block("w", 10, (1, LEAF))))
    assert reasons(select(files, Unknown(), WeightRange(-(2**31), 1))) == ["matches", "weights"]
    assert reasons(select(files, Unknown(), WeightRange(1, 2**31))) == ["weights", "matches"]
    assert not select(files, Unknown(), sample_to_weights(0.0)).opened.any()
    assert select(files, Unknown(), sample_to_weights((0.9999, 1.0))).opened.tolist() == [False, True]


def test_copies_are_never_read() -> None:
    flat = {"num_records": 10, "revision": 1, "cube": "", "min_weight": 0, "element_count": 10}
    files = files_frame(
        [
            {**flat, "state": "REPLICATED"},
            {**flat, "state": "ANNOUNCED"},
            {**flat, "state": "FLOODED"},
            file(block("", replicated=True), block("w")),
            file(block("", replicated=True)),
            file(block("w"), block("", replicated=True), rules=None),
            file(block("", replicated=True), num_records=9),
            {**flat, "state": "REPLICATED", "num_records": 9},
        ]
    )
    live, copies = without_copies(files)
    assert live["path"].to_list() == ["f2", "f3", "f5", "f6"], "tags that contradict their file hide nothing"
    assert copies.files["path"].to_list() == ["f0", "f1", "f4", "f7"]
    assert copies.mixed == ("f3", "f5"), "rows of a block need not be neighbours"
    actual = select(build_block_table(live, {1: revision()}, SCHEMA), Unknown())
    assert actual.opened.all()


MINIMUM, STEP = -(2**31), 2**30
BANDS = [(10, 10, weight) for weight in (MINIMUM, MINIMUM + STEP, 0, STEP)]


def test_sample_takes_bands_of_its_weights() -> None:
    item = table(file(block("", 40), layout=layout(BANDS)))
    for weights, pages in [
        ((MINIMUM, MINIMUM + STEP), [0]),
        ((MINIMUM, MINIMUM + STEP + 1), [0, 1]),
        ((1, STEP), [2]),
        ((STEP - 1, STEP), [2]),
        ((STEP, STEP + 1), [3]),
        ((LEAF, LEAF + 1), [3]),
    ]:
        actual = select(item, Unknown(), WeightRange(*weights))
        assert actual.pages(0).tolist() == pages
        assert actual.rows_opened.tolist() == [10 * len(pages)]
    assert select(item, Unknown()).pages(0).tolist() == [0, 1, 2, 3]
    assert select(item, Unknown()).rows_opened.tolist() == [40]


def test_filter_takes_pages_whose_boxes_it_touches() -> None:
    # Two bands of three pages: x in [0, 25), [25, 50) and [50, 100], and s in the lower or upper half.
    x = [(0, 63), (64, 127), (128, 255)]
    s = [(0, 127)] * 3 + [(128, 255)] * 3
    item = table(file(block("", 50), layout=layout([(25, 10, MINIMUM), (25, 10, 0)], [x * 2, s])))
    assert select(item, node(X < 20)).pages(0).tolist() == [0, 3]
    assert select(item, node(X.is_between(30, 60))).pages(0).tolist() == [1, 2, 4, 5]
    assert select(item, node((X < 20) | (X > 80))).rows_opened.tolist() == [30]
    assert select(item, node(X >= 1000)).pages(0).tolist() == [2, 5]  # values outside lie at the end
    assert select(item, node((X < 20) & (S == "a"))).pages(0).tolist() == [3]
    assert select(item, node(X > 80), WeightRange(MINIMUM, 0)).pages(0).tolist() == [2]
    assert select(item, node(X < 20), WeightRange(0, 1)).rows_opened.tolist() == [10]


def test_steps_of_a_page_may_have_widths_of_their_own() -> None:
    # x in [0, 1), [1, 10.3) and [10.3, 100]: the first group has steps of 1 / 1600 of the space, the others of 1 / 161.
    box = [[0, 2**32 // 1600, *[2**32 // 161] * 15], [0, 2**24]]
    x = [(0, 15), (16, 30), (31, 255)]
    item = table(file(block("", 30), layout=layout([(30, 10, MINIMUM)], [x, [(0, 255)] * 3], box=box)))
    for value, page in ((0.5, 0), (0.99, 0), (1.1, 1), (10.1, 1), (10.4, 2), (99.0, 2)):
        assert select(item, node(X.is_between(value, value))).pages(0).tolist() == [page]


def test_file_without_matching_pages_stays_closed() -> None:
    item = table(file(block("", 40), layout=layout([(40, 40, STEP)], [[(0, 63)], [(0, 255)]])))
    assert reasons(select(item, Unknown(), WeightRange(MINIMUM, 0))) == ["weights"]
    assert reasons(select(item, node(X > 80))) == ["cubes"]
    assert reasons(select(item, node(X < 80))) == ["matches"]


def test_filters_of_one_match_share_boxes() -> None:
    files = [
        file(block("", 40), layout=layout(BANDS, [[(64 * k, 64 * k + 63)] * 4, [(0, 255)] * 4]))
        for k in range(4)
    ]
    matching = match(table(*files), node(X.is_between(30, 60)))
    for weights, pages in [((0, 1), 1), ((MINIMUM, 1), 3), ((MINIMUM, LEAF), 4)]:
        actual = matching.within(WeightRange(*weights))
        assert actual.pages_opened.tolist() == [0, pages, pages, 0]


@pytest.mark.parametrize(
    "more",
    [
        {"layout": layout(BANDS, v=1)},
        {"layout": layout(BANDS, v=4)},
        {"layout": layout(BANDS).replace('"directory": 50, ', "")},
        {"layout": layout(BANDS[:3])},
        {"layout": layout(BANDS[::-1])},
        {"layout": layout([*BANDS[:3], (10, 10, 2**31)])},
        {"layout": layout(BANDS, bands=[*BANDS[:3], (10, 0, STEP)])},
        {"layout": layout(BANDS, bands=[[40, 10]])},
        {"layout": layout(BANDS, bands=[])},
        {"layout": layout(BANDS, bands="x")},
        {"layout": "oops"},
        {"layout": "[]"},
        {"layout": None},
        {"layout": layout(BANDS), "rules": None},
        {"layout": layout(BANDS), "revision": 7},
        {"layout": layout(BANDS), "num_records": 39},
    ],
)
def test_file_with_uncertain_pages_is_read_whole(more: dict[str, Any]) -> None:
    actual = select(
        table(file(block("", 40), **more), file(block("", 40), layout=layout(BANDS))),
        Unknown(),
        WeightRange(MINIMUM, MINIMUM + 10),
    )
    assert actual.opened.all()
    assert actual.pages_total.tolist() == [0, 4]
    assert actual.pages(1).tolist() == [0]


@pytest.mark.parametrize(
    "more",
    [
        {"p": ""},
        {"p": "!"},
        {"p": packed(bytes(15))},
        {"p": packed(bytes(17))},
        {"box": []},
        {"box": [[0, 1]]},
        {"box": [[0, 0], [0, 1]]},
        {"box": [[-1, 1], [0, 1]]},
        {"box": [[2**62, 2**62], [0, 1]]},
        {"box": [[2**70, 1], [0, 1]]},
        {"box": "x"},
        {"box": [[0], [0]]},
        {"box": [[0, *[1] * 15], [0, 1]]},
        {"box": [[0, *[1] * 15, 0], [0, 1]]},
        {"box": [[0, *[1] * 17], [0, 1]]},
        {"box": [[0, [1] * 16], [0, 1]]},
        {"unknown": float("nan")},
    ],
)
def test_pages_with_uncertain_boxes_are_all_read(more: dict[str, Any]) -> None:
    steps = [[(0, 63)] * 4, [(0, 255)] * 4]
    right, wrong = layout(BANDS, steps), layout(BANDS, steps, **more)
    actual = select(table(*(file(block("", 40), layout=text) for text in (wrong, right))), node(X > 80))
    assert actual.pages_opened.tolist() == [4, 0]


def test_weight_bounds_are_exact() -> None:
    item = table(file(block("", 10, (5, 9))))
    for weights, opened in (((0, 5), False), ((0, 6), True), ((9, 10), True), ((10, 11), False)):
        assert select(item, Unknown(), WeightRange(*weights)).opened.tolist() == [opened]

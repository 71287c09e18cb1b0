"""The page about a working day shows the figures that were measured."""

from __future__ import annotations

import json

from benchmarks.day_page import (
    ENGINES,
    OPERATIONS,
    PAGE,
    RECORDS,
    TABLES,
    Cost,
    cost_table,
    costs,
    figures_of,
    line_table,
    with_tables,
)


def test_page_shows_measured_figures() -> None:
    text = PAGE.read_text()
    assert text.count("<!-- table: ") == len(TABLES)
    figures = figures_of(json.loads(RECORDS.read_text()))
    assert text == with_tables(text, figures), "run: python -m benchmarks.day_page"


def test_results_have_each_operation() -> None:
    actual = costs(figures_of(json.loads(RECORDS.read_text())))
    missing = {
        (title, name) for title in OPERATIONS.values() for name in ENGINES if (title, name) not in actual
    }
    assert missing == {(OPERATIONS[name], "DuckDB") for name in ("changes", "undo")}


def test_costs_survive_the_record() -> None:
    cost = Cost(0.123, 4.5, 0.06, 1, by_hand=True)
    figure = cost.figure("undo", "Lance")
    assert costs([figure]) == {("undo the last change", "Lance"): cost}


def test_lowest_numbers_of_a_row_are_bold() -> None:
    figures = [
        Cost(0.2, 3, 0, 1, by_hand=False).figure("undo", "qbeast"),
        Cost(0.1, 40, 0, 2, by_hand=True).figure("undo", "Lance"),
    ]
    (row,) = [line for line in cost_table(figures).splitlines() if "undo" in line]
    assert (
        row
        == "| undo the last change | 0.20 / **3.0** / 0.00 | none | none | **0.10** / 40 / 0.00\\* | none |"
    )
    (row,) = [line for line in line_table(figures).splitlines() if "undo" in line]
    assert row == "| undo the last change | 1 | none | none | 2\\* | none |"

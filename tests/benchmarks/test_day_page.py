"""The page about a working day shows the figures that were measured."""

from __future__ import annotations

import json

from benchmarks.day_page import (
    COLUMNS,
    OPERATIONS,
    PAGE,
    PLAIN,
    RECORDS,
    SHARED,
    TABLES,
    Cost,
    costs,
    cpu_table,
    figures_of,
    line_table,
    read_table,
    with_tables,
    written_table,
)


def test_page_shows_measured_figures() -> None:
    text = PAGE.read_text()
    assert text.count("<!-- table: ") == len(TABLES)
    figures = figures_of(json.loads(RECORDS.read_text()))
    assert text == with_tables(text, figures), "run: python -m benchmarks.day_page"


def test_results_have_each_operation() -> None:
    actual = costs(figures_of(json.loads(RECORDS.read_text())))
    shared = {(OPERATIONS[name], PLAIN) for name in SHARED}
    missing = {(title, name) for title in OPERATIONS.values() for name in COLUMNS} - actual.keys() - shared
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
    assert (
        row_of(cpu_table(figures))
        == "| undo the last change | none | 0.20<br>2.0x | none | none | **0.10**\\* | none |"
    )
    assert (
        row_of(read_table(figures))
        == "| undo the last change | none | **3.0** | none | none | 40\\*<br>13x | none |"
    )
    assert row_of(line_table(figures)) == "| undo the last change | 1 | none | none | 2\\* | none |"


def test_bytes_written_list_only_operations_that_write() -> None:
    figures = [
        Cost(0.2, 3, 0.003, 1, by_hand=False).figure("sample", "qbeast"),
        Cost(0.2, 3, 5.9, 1, by_hand=False).figure("undo", "qbeast"),
        Cost(0.1, 3, 0, 1, by_hand=False).figure("undo", "Lance"),
    ]
    table = written_table(figures)
    assert "sample" not in table
    assert row_of(table) == "| undo the last change | none | 5.9<br>590x | none | none | **0.00** | none |"


def row_of(table: str) -> str:
    (row,) = [line for line in table.splitlines() if "undo" in line]
    return row

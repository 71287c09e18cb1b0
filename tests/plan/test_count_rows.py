"""Rows that the log counts, and rows that a count has to read, are the rows that a filter keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qbeast_core.plan.predicate import parse_complement, parse_predicate
from qbeast_core.plan.select import count_rows, match, select
from qbeast_core.plan.weights import ALL_WEIGHTS
from tests.helpers.examples import examples as tries
from tests.plan.filters import filters
from tests.plan.small import block, file, layout, table
from tests.plan.tables import FAMILIES, SETTINGS, Example, examples, kept_rows

MINIMUM = -(2**31)


@dataclass(frozen=True)
class Deleted:
    """Deleted rows, by their places in files."""

    rows: dict[int, np.ndarray]
    files: int

    @property
    def counts(self) -> np.ndarray:
        return np.array([len(self.rows.get(number, ())) for number in range(self.files)])

    def of(self, numbers: Iterable[int]) -> Mapping[int, np.ndarray]:
        return {number: self.rows[number] for number in numbers if number in self.rows}


def places(example: Example) -> np.ndarray:
    """The place of each row in its file."""
    order = np.lexsort((example.page, example.file))
    actual = np.empty(len(order), np.int64)
    actual[order] = np.arange(len(order)) - np.searchsorted(example.file[order], example.file[order])
    return actual


@pytest.mark.parametrize("family", FAMILIES)
@tries(5, sweep=400, parent=SETTINGS)
@given(data=st.data())
def test_counted_and_read_rows_are_those_a_filter_keeps(family: str, data: st.DataObject) -> None:
    example = data.draw(examples(FAMILIES[family]))
    predicate = data.draw(filters(example, depth=2))
    kept = kept_rows(example.frame, predicate)
    assume(kept is not None)
    index, rows = example.table, np.arange(example.frame.height)
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=index.files.height, max_size=index.files.height)), np.bool_
    )
    deleted = Deleted(
        {
            number: np.sort(places(example)[gone & (example.file == number)])
            for number in set(example.file[gone].tolist())
        },
        index.files.height,
    )
    schema = example.frame.schema
    leaves = select(index, parse_complement(predicate, schema))
    count = count_rows(
        select(index, parse_predicate(predicate, schema)), leaves, files=chosen, hidden=deleted
    )
    if count is None:
        assert (index.num_records < 0).any()  # a file whose number of rows is not trusted
        return
    numbers = count.undecided.page_offsets
    is_read = count.undecided.opened[example.file] & chosen[example.file] & ~gone
    for row in rows[is_read & (example.page >= 0)].tolist():
        first, end = numbers[example.file[row] : example.file[row] + 2]
        own = count.undecided.page_numbers[first:end] - index.pages.first_page[example.file[row]]
        is_read[row] = example.page[row] in own
    assert count.rows_read == is_read.sum()
    is_kept = np.isin(rows, kept) & chosen[example.file] & ~gone
    assert count.known + (is_kept & is_read).sum() == is_kept.sum()


def test_pages_inside_of_filter_are_not_read() -> None:
    quarters = layout([(40, 10, MINIMUM)], [[(64 * k, 64 * k + 63) for k in range(4)], [(0, 255)] * 4])
    index = table(file(block("", 40), layout=quarters))
    schema = pl.Schema({"x": pl.Int64, "s": pl.String})
    keeps, leaves = (
        match(index, parse(pl.col("x") < 40, schema)).within(ALL_WEIGHTS)
        for parse in (parse_predicate, parse_complement)
    )
    count = count_rows(keeps, leaves, files=np.ones(1, np.bool_), hidden=Deleted({0: np.array([3, 12])}, 1))
    assert count is not None
    assert (count.known, count.undecided.pages(0).tolist(), count.rows_read) == (9, [1], 9)

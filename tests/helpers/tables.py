"""Write the cases of `tests.helpers.strategies`, with small files and pages, and compare frames row by row."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.api.keywords import EstimateKeywords, ReadKeywords, split
from qbeast_core.plan.weights import Sample
from qbeast_core.table.write.write import WriteResult
from qbeast_core.tree.grid import frame_weights
from tests.helpers.small_files import TINY, resized, small_files
from tests.helpers.strategies import ROW, Case

__all__ = [
    "MEMORY",
    "SPILL",
    "assert_same_rows",
    "estimated",
    "estimated_rounds",
    "first_plans_by_statistics",
    "folder",
    "sampled",
    "samples",
    "small_files",
    "using",
    "write",
]

MEMORY, SPILL = qbeast.Resources(engine="memory"), qbeast.Resources(engine="spill")


def using(table: qbeast.Table, resources: qbeast.Resources) -> qbeast.Table:
    """Return the newest version of a table, whose calls use these resources."""
    return qbeast.open_table(table.uri, resources=resources)


def estimated(table: qbeast.Table, aggregates: Any, where: Any = None, **options: Any) -> qbeast.Estimate:
    """Estimate aggregates, by arguments of the estimate and of the read."""
    asked, read = split(options, EstimateKeywords, ReadKeywords)
    return table.rows(where, **read).estimate(aggregates, **asked)


def estimated_rounds(
    table: qbeast.Table, aggregates: Any, where: Any = None, **options: Any
) -> Iterator[qbeast.Estimate]:
    """Estimate aggregates in rounds, as `estimated` does."""
    asked, read = split(options, EstimateKeywords, ReadKeywords)
    return table.rows(where, **read).estimates(aggregates, **asked)


@contextmanager
def folder() -> Iterator[Path]:
    """Yield the path of a new table; Hypothesis runs many examples within a test."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "table"


each_sizes = pytest.mark.parametrize("sizes", [{}, TINY], ids=["usual sizes", "tiny sizes"])
"""Run a test with the usual sizes, and with those at which all ways of large tables start."""


@contextmanager
def first_plans_by_statistics() -> Iterator[None]:
    """Make filters decode only tags of files that may match, as for thousands of files."""
    with resized(many_files=0):
        yield


def write(path: Path, case: Case) -> list[WriteResult]:
    """Create the table and append to it."""
    results = []
    for number, (frame, size) in enumerate(zip(case.frames, case.cube_sizes, strict=True)):
        results.append(
            qbeast.write_table(
                frame,
                path,
                columns=case.columns,
                mode="append" if number else "error",
                cube_size=size,
                dialect=case.dialect,
            )
        )
    return results


def assert_same_rows(actual: pl.DataFrame, expected: pl.DataFrame, key: str = ROW) -> None:
    """Assert that two frames have the same rows, in any order."""
    assert_frame_equal(actual.sort(key), expected.sort(key), check_exact=True)


@st.composite
def samples(draw: st.DrawFn) -> Sample | None:
    """Draw a fraction, two fractions, or None."""
    bounds = st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.0])
    low, high = sorted([draw(bounds), draw(bounds)])
    return draw(st.sampled_from([None, None, high, (low, high)]))


def sampled(rows: pl.DataFrame, indexed: list[str], sample: Sample | None) -> pl.DataFrame:
    """Return the rows of a sample by the format: from <= weight < to, where 1 includes all."""
    if sample is None:
        return rows
    low, high = sample if isinstance(sample, tuple) else (0.0, sample)
    first, end = (int(bound * (2**32 - 1) - 2**31) for bound in (low, high))
    weights = pl.Series(frame_weights(rows, indexed)).cast(pl.Int64)
    return rows.filter((weights >= first) & ((weights < end) | (high == 1)))

"""A call passes through no more names than it did: a reader has to find them all."""

from __future__ import annotations

from pathlib import Path

import pytest

import qbeast
from benchmarks.journeys import ROWS, Journey, counted, journeys

# Modules, kinds of records, and steps that are done again.
MOST = {
    "write_table, new": (55, 57, 5),
    "write_table, append": (58, 54, 5),
    "read_table": (35, 14, 0),
    "delete": (69, 74, 5),
    "update": (77, 94, 8),
    "merge": (71, 81, 4),
    "optimize": (64, 72, 6),
}


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Journey]:
    return journeys(tmp_path_factory.mktemp("journeys"))


def test_append_passes_through_few_names(tmp_path: Path) -> None:
    for first in (0, 100):  # imports are not part of a call
        qbeast.write_table(ROWS.slice(first, 100), tmp_path, columns=["id"], mode="append")
    with counted() as journey:
        qbeast.write_table(ROWS.slice(200, 100), tmp_path, mode="append")
    assert 50 < len(journey.files) <= MOST["write_table, append"][0]
    assert 20 < len(journey.records) <= MOST["write_table, append"][1]


@pytest.mark.sweep
@pytest.mark.parametrize("name", MOST)
def test_calls_pass_through_few_names(counts: dict[str, Journey], name: str) -> None:
    journey = counts[name]
    modules, records, again = MOST[name]
    assert len(journey.files) <= modules
    assert len(journey.records) <= records, sorted(journey.records)
    assert sum(journey.again.values()) <= again, journey.again

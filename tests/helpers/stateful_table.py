"""A state machine that changes a table, and checks every version against a model."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

import qbeast
from qbeast_core.errors import UnsupportedTableError
from qbeast_core.plan.weights import Sample
from tests.helpers.invariants import check_invariants
from tests.helpers.mixed_columns import sampled_by_files
from tests.helpers.others import rows_of_others
from tests.helpers.stateful_model import Batch, Row, State
from tests.helpers.stored_names import stored_name
from tests.helpers.tables import assert_same_rows, small_files

__all__ = ["INDEXED", "SAMPLE", "Known", "without_samples"]

INDEXED = ["a", "s"]
SAMPLE = "sample"

Shown = TypeVar("Shown", pl.DataFrame, pl.Schema)


class Known(RuleBasedStateMachine):
    """A table, and a model of its versions; tests add the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "table"
        self.stack = ExitStack()
        self.stack.enter_context(small_files(file_rows=40))
        self.versions: dict[int, State] = {}
        self.next_id = 0
        self.first: qbeast.Table  # opened at the first version: changes still start at the newest
        self.ours_alone = True
        self.began_before_06 = False
        self.has_copies = False

    def teardown(self) -> None:
        try:
            if self.versions:
                self.check(data=True)
        finally:
            self.stack.close()
            shutil.rmtree(self.folder)

    @property
    def now(self) -> State:
        return self.versions[max(self.versions)]

    def table(self, *, stale: bool = False) -> qbeast.Table:
        return self.first if stale else qbeast.open_table(self.path)

    def take(self, batch: Batch) -> list[Row]:
        rows = batch.rows(self.next_id)
        self.next_id += len(rows)
        return rows

    def becomes(self, state: State) -> None:
        """Record the expected state of the newest version; versions before it are not checked."""
        table = self.table()
        self.versions[table.version] = state
        self.has_copies = self.began_before_06 and bool(table.blocks()["replicated"].any())

    def refused(self, change: Callable[[qbeast.Table], object]) -> bool:
        """Return whether the table has copies of rows; then changes must raise and suggest the upgrade."""
        if not self.has_copies:
            return False
        with pytest.raises(UnsupportedTableError, match="upgrade"):
            change(self.table())
        return True

    def sampled(self, rows: pl.DataFrame, sample: Sample | None, version: int | None = None) -> pl.DataFrame:
        """Return the rows of a sample: each file by the columns of its revision."""
        stored = stored_name(self.path, "id")
        return sampled_by_files(self.path, rows, sample, key="id", key_in_files=stored, version=version)

    @invariant()
    def every_row_is_there_once_and_samples_are_nested(self) -> None:
        if not self.versions:
            return
        table, state = self.table(), self.now
        assert dict(without_samples(table.schema)) == dict(state.schema)
        rows = without_samples(table.read())
        assert_same_rows(rows, state.frame, "id")
        taken: set[int] = set()
        for fraction in (0.1, 0.45, 0.8):
            sample = without_samples(table.read(sample=fraction))
            assert_same_rows(sample, self.sampled(state.frame, fraction), "id")
            assert taken <= set(sample["id"])
            taken = set(sample["id"])
        rows = without_samples(table.rows(sample=(0.2, 0.9)).lazy().filter(pl.col("a") < 40).collect())
        below = state.kept(lambda row: None if row["a"] is None else row["a"] < 40)
        assert_same_rows(rows, self.sampled(below.frame, (0.2, 0.9)), "id")

    @invariant()
    def the_format_is_kept(self) -> None:
        if self.versions:
            self.check(data=False)

    def check(self, *, data: bool) -> None:
        """Check the log, or the files too, and read them with other readers."""
        report = self.table().check(data=data)
        assert report.faults.filter(pl.col("severity") == "error").is_empty(), report
        if data and not self.has_copies:
            assert_same_rows(without_samples(rows_of_others(self.path)), self.now.frame, "id")
            self.check_samples_of_others()
        if data and self.ours_alone and report.blocks:
            check_invariants(self.path, may_stage=True)

    def check_samples_of_others(self) -> None:
        """Assert that a filter on the sample column selects a sample, but for files that others wrote."""
        table = self.table()
        if SAMPLE not in table.schema:
            return
        missing = table.metrics().health.rows_without_sample
        for fraction in (0.25, 0.5, 1 / 3):
            step = math.ceil(fraction * 65536) / 65536
            found = rows_of_others(self.path).filter(pl.col(SAMPLE) < fraction)
            expected = self.sampled(self.now.frame, step)
            assert missing or set(found["id"]) == set(expected["id"])


def without_samples(rows: Shown) -> Shown:
    """Return rows or a schema without the sample column, which the model does not have."""
    if isinstance(rows, pl.DataFrame):
        return rows.drop(SAMPLE, strict=False)
    return pl.Schema({name: dtype for name, dtype in rows.items() if name != SAMPLE})

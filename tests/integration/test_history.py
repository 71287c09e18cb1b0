"""A table that qbeast and other Delta writers change by turns: every version reads as a list of rows would."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import qbeast
from tests.integration.expressions import filters, kept_rows
from tests.integration.tables import assert_same_rows, sampled, samples, small_files
from tests.strategies import ROW, frames_of

SCHEMA: dict[str, pl.DataType] = {"a": pl.Int64(), "s": pl.String(), "x": pl.Float64()}
INDEXED = ["a", "s"]
FRAMES = frames_of(SCHEMA, most_rows=30)


class History(RuleBasedStateMachine):
    """Changes of a table, and of the rows it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "t"
        self.versions: list[pl.DataFrame] = []
        self.next_row = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def numbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame.with_row_index(ROW, self.next_row).cast({ROW: pl.Int64})
        self.next_row += frame.height
        return rows

    def write(self, frame: pl.DataFrame, mode: Any, **options: Any) -> pl.DataFrame:
        rows = self.numbered(frame)
        with small_files(file_rows=12, page_rows=2):
            result = qbeast.write_table(rows, self.path, columns=INDEXED, mode=mode, **options)
        assert result.version == len(self.versions)
        return rows

    @property
    def rows(self) -> pl.DataFrame:
        return self.versions[-1]

    @initialize(frame=FRAMES, cube_size=st.sampled_from([1, 5, 100]))
    def create(self, frame: pl.DataFrame, cube_size: int) -> None:
        self.versions.append(self.write(frame, "error", cube_size=cube_size))

    @rule(frame=FRAMES, cube_size=st.sampled_from([None, None, 3]))
    def append(self, frame: pl.DataFrame, cube_size: int | None) -> None:
        rows = self.write(frame, "append", cube_size=cube_size)
        self.versions.append(pl.concat([self.rows, rows]))

    @rule(frame=FRAMES)
    def overwrite(self, frame: pl.DataFrame) -> None:
        self.versions.append(self.write(frame, "overwrite"))

    @rule(frame=FRAMES)
    def append_by_another_writer(self, frame: pl.DataFrame) -> None:
        rows = self.numbered(frame)
        write_deltalake(self.path, rows, mode="append")
        self.versions.append(pl.concat([self.rows, rows]))

    @precondition(lambda self: self.rows.height > 0)
    @rule(data=st.data())
    def delete_by_another_writer(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(self.rows[ROW].min(), self.rows[ROW].max()))
        DeltaTable(self.path).delete(f"row between {first} and {first + 7}")
        kept = self.rows.filter(~pl.col(ROW).is_between(first, first + 7))
        if DeltaTable(self.path).version() == len(self.versions):  # nothing to delete is no version
            self.versions.append(kept)

    @rule()
    def compact_by_another_writer(self) -> None:
        DeltaTable(self.path).optimize.compact(min_commit_interval=None)
        if DeltaTable(self.path).version() == len(self.versions):
            self.versions.append(self.rows)

    @rule()
    def checkpoint(self) -> None:
        DeltaTable(self.path).create_checkpoint()

    @invariant()
    def every_read_is_right(self) -> None:
        if self.versions:
            assert_same_rows(qbeast.read_table(self.path), self.rows)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        sample, expr = data.draw(samples()), data.draw(filters(self.rows))
        version = data.draw(st.integers(0, len(self.versions) - 1))
        wanted = kept_rows(sampled(self.versions[version], INDEXED, sample), expr)
        if wanted is not None:
            found = qbeast.read_table(self.path, filter=expr, sample=sample, version=version)
            assert_same_rows(found, wanted)


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=12, stateful_step_count=8)
TestHistory = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")(TestHistory)


@pytest.mark.slow
class TestLongHistory(History.TestCase):
    settings = settings(max_examples=100, stateful_step_count=25)
    pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

"""The life of a table: whatever we and others do to it, in whatever order, it reads as a list of rows would."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

import qbeast
from qbeast_core.log.rebase import dialect_of
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.collection import find
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.small_files import NO_BANDS, TINY, resized
from tests.helpers.stateful_features import Featured, Features, new_name
from tests.helpers.stateful_model import KEYS, Batch, Condition, State, assignments, batches, conditions
from tests.helpers.stateful_table import INDEXED, SAMPLE, without_samples
from tests.helpers.tables import assert_same_rows, each_sizes, samples

BEGINNINGS = [*["written"] * 6, *["featured"] * 6, "converted", "converted", "Parquet", "legacy"]
FEATURES = st.builds(
    Features,
    st.booleans(),
    st.sampled_from(["none", "name", "id"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
COLUMNS = [None, INDEXED, ["a"], ["x", "s:hash"], ["id", "a:quantiles", "s"]]
CUBE_SIZES = st.sampled_from([None, None, None, 5, 40])


class Life(Featured):
    """Everything that can be done."""

    @initialize(
        begin=st.sampled_from(BEGINNINGS),
        batch=batches(),
        cube_size=st.sampled_from([2, 7, 30]),
        sample=st.sampled_from([None, SAMPLE]),
        key=st.sampled_from([None, None, "s", ["s", "id"]]),
        features=FEATURES,
    )
    def begin(
        self,
        begin: str,
        batch: Batch,
        cube_size: int,
        sample: str | None,
        key: list[str] | str | None,
        features: Features,
    ) -> None:
        state = State(self.take(batch))
        if begin == "legacy":
            golden = find("legacy/v050_mixed_states")
            shutil.copytree(golden.path, self.path)
            state = State(golden.expected.rows(named=True))
            self.next_id = max(state.ids) + 1
            self.ours_alone, self.began_before_06 = False, True
        elif begin == "written":
            qbeast.write_table(
                state.frame,
                self.path,
                columns=INDEXED,
                cube_size=cube_size,
                sample_column=sample,
                sample_by=key,
                deletion_vectors=features.vectors,
            )
        elif begin == "featured":
            self.tracked = features.tracked
            features.create(self.path)
            assert qbeast.convert_table(self.path, INDEXED, cube_size=cube_size, sample_by=key).committed
            qbeast.write_table(state.frame, self.path, mode="append")
        else:
            self.path.mkdir()
            if begin == "converted":
                write_deltalake(self.path, state.frame)
            else:
                state.frame.write_parquet(self.path / "a.parquet")
            assert qbeast.convert_table(self.path, INDEXED, cube_size=cube_size).committed
        self.becomes(state)
        self.first = self.table()

    @rule(bands=st.booleans())
    def files_have_bands(self, *, bands: bool) -> None:
        self.stack.enter_context(resized(min_band_rows=4 if bands else NO_BANDS))

    # ---- rows come ----

    @rule(batch=batches(), cube_size=CUBE_SIZES, partly=st.booleans())
    def append(self, batch: Batch, cube_size: int | None, *, partly: bool) -> None:
        state = self.now.with_rows(self.take(batch))
        frame = state.frame.select(list(KEYS)) if partly else state.frame
        qbeast.write_table(frame, self.path, mode="append", cube_size=cube_size, schema_mode="merge")
        self.becomes(self.now.plus(state.rows))

    @precondition(lambda self: not self.has_copies)
    @rule(parts=st.lists(batches(), min_size=3, max_size=6))
    def grow(self, parts: list[Batch]) -> None:
        for batch in parts:
            state = self.now.with_rows(self.take(batch))
            qbeast.write_table(state.frame, self.path, mode="append", schema_mode="merge")
            self.becomes(self.now.plus(state.rows))
        self.table().optimize()
        self.becomes(self.now)

    @precondition(lambda self: self.others_write)
    @rule(batch=batches())
    def append_by_others(self, batch: Batch) -> None:
        more = self.now.with_rows(self.take(batch))
        frame = more.frame
        if SAMPLE in self.table().schema:
            stale = pl.Series(SAMPLE, [None if row["id"] % 2 else 0.75 for row in more.rows], pl.Float32)
            frame = frame.with_columns(stale)
        write_deltalake(self.path, frame, mode="append")
        self.becomes(self.now.plus(more.rows))

    @rule(batch=batches())
    def overwrite(self, batch: Batch) -> None:
        state = self.now.with_rows(self.take(batch))
        qbeast.write_table(state.frame, self.path, columns=INDEXED, mode="overwrite")
        self.becomes(state)

    @precondition(lambda self: self.others_write and not self.is_mapped)
    @rule(batch=batches(), cube_size=st.sampled_from([None, 7]))
    def begin_anew_elsewhere_and_convert(self, batch: Batch, cube_size: int | None) -> None:
        state = self.now.with_rows(self.take(batch))
        DeltaTable.create(self.path, state.frame.to_arrow().schema, mode="overwrite")
        write_deltalake(self.path, state.frame, mode="append")
        assert qbeast.convert_table(self.path, INDEXED, cube_size=cube_size).committed
        self.becomes(state)

    # ---- rows change ----

    @rule(condition=conditions, as_text=st.booleans(), stale=st.booleans())
    def delete(self, condition: Condition, *, as_text: bool, stale: bool) -> None:
        if self.refused(lambda table: table.delete(condition.expr)):
            return
        before, state = self.now, self.now.without(condition.meets)
        result = self.table(stale=stale).delete(condition.text if as_text else condition.expr)
        assert result.rows_deleted == len(before.rows) - len(state.rows)
        self.becomes(state)

    @rule(condition=conditions, change=assignments(), as_text=st.booleans(), stale=st.booleans())
    def update(self, condition: Condition, change: Any, *, as_text: bool, stale: bool) -> None:
        exprs, on_row = change
        if self.refused(lambda table: table.update(condition.expr, exprs)):
            return
        result = self.table(stale=stale).update(condition.text if as_text else condition.expr, exprs)
        assert result.rows_updated == len(self.now.kept(condition.meets).rows)
        self.becomes(self.now.changed(condition.meets, on_row))

    @rule(
        batch=batches(),
        first=st.floats(0, 1),
        matched=st.sampled_from(["update", "update", "delete", "ignore"]),
        new=st.sampled_from(["insert", "insert", "ignore"]),
        lonely=st.sampled_from(["ignore", "ignore", "ignore", "delete"]),
        stale=st.booleans(),
    )
    def merge(self, batch: Batch, *, first: float, matched: Any, new: Any, lonely: Any, stale: bool) -> None:
        """Merge rows whose ids begin somewhere among those that are, or were, there."""
        source = self.now.with_rows(batch.rows(int(self.next_id * first)))
        self.next_id = max(self.next_id, *(row["id"] + 1 for row in source.rows), 0)
        request = {"when_matched": matched, "when_not_matched": new, "when_not_matched_by_source": lonely}
        if self.refused(lambda table: table.merge(source.frame, "id", **request)):
            return
        if set(request.values()) == {"ignore"}:
            with pytest.raises(qbeast.QbeastError, match="does nothing"):
                self.table(stale=stale).merge(source.frame, "id", **request)
            return
        self.table(stale=stale).merge(source.frame, "id", **request)
        self.becomes(self.now.merged(source.rows, matched=matched, new=new, lonely=lonely))

    @precondition(lambda self: not self.has_copies and self.others_write)
    @rule(condition=conditions)
    def delete_by_others(self, condition: Condition) -> None:
        if " x " not in f" {condition.text} ".replace("(", " "):  # engines differ on NaN
            self.ours_alone = False
            DeltaTable(self.path).delete(condition.text)
            self.becomes(self.now.without(condition.meets))

    @precondition(lambda self: not self.has_copies and self.others_write)
    @rule(number=st.integers(0, 100))
    def update_by_others(self, number: int) -> None:
        self.ours_alone = False
        DeltaTable(self.path).update({"s": "'theirs'"}, predicate=f"a < {number}")
        self.becomes(
            self.now.changed(
                lambda row: row["a"] is not None and row["a"] < number, lambda _: {"s": "theirs"}
            )
        )

    # ---- rows stay ----

    @rule(
        form=st.sampled_from(["", "", "", "full", "into", "all", "staged", "fraction", "files"]),
        stale=st.booleans(),
    )
    def optimize(self, form: str, *, stale: bool) -> None:
        if self.refused(lambda table: table.optimize(full=True)):
            return
        files = self.table().rows().files()["path"].sort()[:3].to_list()
        options: dict[str, Any] = {
            "": {},
            "full": {"full": True},
            "into": {"into": "newest"},
            "all": {"revision": "all"},
            "staged": {"revision": 0},
            "fraction": {"fraction": 0.2},
            "files": {"files": files},
        }[form]
        self.table(stale=stale).optimize(**options)
        self.becomes(self.now)
        if form in ("", "full"):
            assert self.table().rows().files()["revision_id"].null_count() == 0

    @precondition(lambda self: not self.has_copies and self.others_write and not self.is_mapped)
    @rule(z_order=st.booleans())
    def compact_by_others(self, *, z_order: bool) -> None:
        self.ours_alone = False
        table = DeltaTable(self.path)
        if z_order:
            table.optimize.z_order(["a"])
        else:
            table.optimize.compact()
        self.becomes(self.now)

    @rule(copies=st.sampled_from(["keep", "drop"]))
    def upgrade(self, copies: Literal["keep", "drop"]) -> None:
        qbeast.open_table(self.path).upgrade(replicated=copies)
        self.becomes(self.now)
        assert not qbeast.open_table(self.path).upgrade(replicated=copies).committed
        assert not (copies == "drop" and self.has_copies)

    @rule()
    def vacuum(self) -> None:
        done = self.table().vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
        state = self.now
        if done.files:
            self.versions = {}  # the others lost files
        self.becomes(state)

    @rule(data=st.data(), stale=st.booleans())
    def restore(self, data: st.DataObject, *, stale: bool) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.table(stale=stale).restore(version)
        self.becomes(self.versions[version])

    # ---- columns and properties ----

    @precondition(lambda self: len(self.now.schema) < 7)
    @rule(dtype=st.sampled_from([pl.Int8(), pl.String(), pl.Float64()]), stale=st.booleans())
    def add_column(self, dtype: pl.DataType, *, stale: bool) -> None:
        name = new_name(self.now.schema)
        self.table(stale=stale).add_columns({name: dtype})
        wider = State(self.now.rows, {**self.now.schema, name: dtype})
        self.becomes(wider.with_rows(wider.rows))

    @precondition(lambda self: pl.Int8() in self.now.schema.values())
    @rule(dtype=st.sampled_from([pl.Int16(), pl.Int32()]))
    def widen_columns(self, dtype: pl.DataType) -> None:
        narrow = [name for name, kind in self.now.schema.items() if kind == pl.Int8()]
        self.table().widen_columns(dict.fromkeys(narrow, dtype))
        self.becomes(State(self.now.rows, {**self.now.schema, **dict.fromkeys(narrow, dtype)}))

    @precondition(lambda self: not self.has_copies and SAMPLE not in self.table().schema)
    @rule(stale=st.booleans())
    def add_sample_column(self, *, stale: bool) -> None:
        table = self.table(stale=stale)
        if dialect_of(load_snapshot(self.path)) == "qbeast-spark":
            with pytest.raises(qbeast.InvalidInputError, match="qbeast-spark"):
                table.add_sample_column(SAMPLE)
            return
        table.add_sample_column(SAMPLE)
        self.becomes(self.now)
        assert not self.table().metrics().health.rows_without_sample

    @rule(columns=st.sampled_from(COLUMNS), cube_size=CUBE_SIZES, full=st.booleans(), stale=st.booleans())
    def reindex(self, columns: list[str] | None, cube_size: int | None, *, full: bool, stale: bool) -> None:
        if self.refused(lambda table: table.reindex(columns, cube_size=cube_size)):
            return
        table = self.table(stale=stale)
        if dialect_of(load_snapshot(self.path)) == "qbeast-spark":
            with pytest.raises(qbeast.InvalidInputError, match="qbeast-spark"):
                table.reindex(columns, cube_size=cube_size)
            return
        result = table.reindex(columns, cube_size=cube_size, full=full)
        self.becomes(self.now)
        assert not (full and result.rows_left)

    @precondition(lambda self: not self.has_copies)
    @rule()
    def switch_dialect(self) -> None:
        config = load_snapshot(self.path).config
        other: BlocksDialect = "documented" if config.dialect == "qbeast-spark" else "qbeast-spark"
        columns = load_snapshot(self.path).columns
        if not columns.is_plain and other == "qbeast-spark":
            with pytest.raises(
                (qbeast.InvalidInputError, qbeast.UnsupportedTableError), match="qbeast-spark"
            ):
                self.table().switch_dialect(other)
            return
        if config.has_other_columns and other == "qbeast-spark" and SAMPLE not in self.table().schema:
            with pytest.raises(qbeast.InvalidInputError, match="reindex"):
                self.table().switch_dialect(other)
            return
        hides = load_snapshot(self.path).files["has_deletion_vector"].any() and columns.is_plain
        if hides and other == "qbeast-spark" and SAMPLE not in self.table().schema:
            with pytest.raises(qbeast.InvalidInputError, match="hidden rows"):
                self.table().switch_dialect(other)
            return
        has_vectors = "deletionVectors" in (load_snapshot(self.path).protocol.reader_features or ())
        if has_vectors and other == "qbeast-spark" and SAMPLE not in self.table().schema:
            with pytest.raises(qbeast.InvalidInputError, match="DROP FEATURE"):
                self.table().switch_dialect(other, jvm="0.8")
            return
        if config.sample_by and other == "qbeast-spark" and SAMPLE not in self.table().schema:
            with pytest.raises(qbeast.InvalidInputError, match="its samples are by"):
                self.table().switch_dialect(other)
            return
        if SAMPLE in self.table().schema and other == "qbeast-spark":
            with pytest.raises(qbeast.InvalidInputError, match="sample column"):
                self.table().switch_dialect(other)
            return
        self.table().switch_dialect(other, jvm="0.8")
        self.becomes(self.now)

    @rule(interval=st.sampled_from(["1", "3"]), stale=st.booleans())
    def set_properties(self, interval: str, *, stale: bool) -> None:
        self.table(stale=stale).set_properties({"delta.checkpointInterval": interval})
        self.becomes(self.now)

    @rule(
        importance=st.dictionaries(
            st.sampled_from(sorted(KEYS)), st.sampled_from([0.5, 1.0, 4.0]), max_size=2
        )
    )
    def set_importance(self, importance: dict[str, float]) -> None:
        table = self.table()
        chosen = {name: number for name, number in importance.items() if name in table.indexed_columns}
        if self.has_copies or not table.indexed_columns:
            return
        table.set_importance(chosen)
        self.becomes(self.now)

    @rule()
    def checkpoint_by_others(self) -> None:
        DeltaTable(self.path).create_checkpoint()

    @rule(data=st.data())
    def read_any_version(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        rows = self.versions[version].frame
        sample, expr = data.draw(samples()), data.draw(filters(rows.select(list(KEYS))))
        expected = kept_rows(self.sampled(rows, sample, version), expr)
        if expected is not None:
            actual = qbeast.read_table(self.path, where=expr, sample=sample, version=version)
            assert_same_rows(without_samples(actual), expected, "id")


PARTS = 10
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning"),
]


LOW = Condition("a < 30", pl.col("a") < 30, lambda row: None if row["a"] is None else row["a"] < 30)
ONE = Condition("id = 7", pl.col("id") == 7, lambda row: row["id"] == 7)
ONE_MORE = Condition("id = 20", pl.col("id") == 20, lambda row: row["id"] == 20)
LATER: Any = ({"s": pl.lit("later")}, lambda _: {"s": "later"})
SOME = Batch(15, 60, 1)
PROBES: dict[str, list[Callable[[Life], None]]] = {
    "written": [
        lambda life: life.append_by_others(SOME),
        lambda life: life.delete(LOW, as_text=True, stale=True),
        lambda life: life.optimize("", stale=False),
    ],
    "featured": [
        lambda life: life.append(Batch(60, 60, 2), None, partly=False),
        lambda life: life.delete(ONE, as_text=True, stale=False),
        lambda life: life.update(ONE_MORE, LATER, as_text=False, stale=True),
    ],
    "converted": [
        lambda life: life.add_column(pl.Int8(), stale=True),
        lambda life: life.append(SOME, None, partly=True),
        lambda life: life.reindex(["x", "s:hash"], None, full=True, stale=False),
    ],
}


@each_sizes
@pytest.mark.parametrize("begin", PROBES)
def test_few_operations_keep_tables_consistent(begin: str, sizes: dict[str, Any]) -> None:
    with resized(**sizes), ExitStack() as stack:
        life = Life()
        stack.callback(life.teardown)
        life.begin(begin, SOME, 7, None, None, Features(vectors=begin == "featured", tracked=True))
        for step in PROBES[begin]:
            step(life)
        life.every_row_is_there_once_and_samples_are_nested()


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_random_operations_keep_tables_consistent(part: int, sweep_seed: int) -> None:
    """A part takes half a minute; each draws from a seed of its own, else all were the same."""
    item = seed(sweep_seed * PARTS + part)(type(f"Life{part}", (Life,), {}))
    chosen = settings(RELAXED, derandomize=False, max_examples=14, stateful_step_count=8)
    with resized(**(TINY if part % 2 else {})):
        run_state_machine_as_test(item, settings=chosen)

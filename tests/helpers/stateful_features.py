"""Tables with features of Delta for the state machine, and the rules and invariants of these features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import qbeast
from qbeast_core.log.rebase import dialect_of
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.change_feed import apply_feed, enable_feed
from tests.helpers.handmade_log import features, metadata, replay, write_log
from tests.helpers.row_ids import ENABLED, check_log, commits, domain, row_ids
from tests.helpers.stateful_model import KEYS, Batch, Row, State, batches
from tests.helpers.stateful_table import Known, without_samples
from tests.helpers.stored_names import stored_name
from tests.helpers.vectors import ENABLED as VECTORS
from tests.helpers.vectors import enable_vectors

__all__ = ["Featured", "Features", "new_name"]

MappingMode = Literal["none", "name", "id"]
_TYPES = {pl.Int32(): "integer", pl.String(): "string", pl.Float64(): "double"}
_RULE = "a IS NULL OR a >= -100"


@dataclass(frozen=True)
class Features:
    """What a table of another writer has."""

    partitioned: bool = False
    mapping: MappingMode = "none"
    feed: bool = False
    tracked: bool = False
    vectors: bool = False

    def create(self, path: Path) -> None:
        """Write the log of an empty table with the columns of the model."""
        columns: list[dict[str, Any]] = []
        for number, (name, dtype) in enumerate(KEYS.items(), 1):
            notes = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
            columns.append({
                "name": name,
                "type": _TYPES[dtype],
                "nullable": True,
                "metadata": {} if self.mapping == "none" else notes,
            })  # fmt: skip
        configuration, writer, reader = dict[str, str](), ["appendOnly"], list[str]()
        commit: list[dict[str, Any]] = []
        if self.mapping != "none":
            reader = ["columnMapping"]
            configuration |= {"delta.columnMapping.mode": self.mapping}
            configuration |= {"delta.columnMapping.maxColumnId": str(len(columns))}
        if self.vectors:
            writer.append("deletionVectors")
            reader.append("deletionVectors")
            configuration |= VECTORS
        if self.feed:
            writer.append("changeDataFeed")
            configuration["delta.enableChangeDataFeed"] = "true"
        if self.tracked:
            writer += ["rowTracking", "domainMetadata"]
            configuration |= ENABLED
            commit = [domain("delta.rowTracking", {"rowIdHighWaterMark": 100})]
        schema = {"type": "struct", "fields": columns}
        partitions = ["s"] if self.partitioned else []
        head = [
            features(*dict.fromkeys([*writer, *reader]), reader=reader),
            metadata(schema, configuration, partitions),
        ]
        write_log(path, [*head, *commit])


def new_name(schema: Mapping[str, pl.DataType]) -> str:
    """Return a name for a new column, perhaps of one that was dropped."""
    return next(name for number in range(4, 99) if (name := f"c{number}") not in schema)


class Featured(Known):
    """Rules that need or change features, and what must hold for them."""

    def __init__(self) -> None:
        super().__init__()
        self.tracked = False
        self.seen = 0
        self.ids: dict[int, dict[int, tuple[int, int]]] = {}

    @property
    def is_mapped(self) -> bool:
        return load_snapshot(self.path).columns.is_mapped

    @property
    def others_write(self) -> bool:
        columns = load_snapshot(self.path).columns
        # deltalake does not read back its own files of mapped partitions whose values have a space.
        return not self.tracked and not (columns.is_mapped and columns.partitions)

    def may_change_names(self, column: str, *, upgrade: bool) -> bool:
        """Return whether columns can be renamed; if not, the rename must raise."""
        snapshot, table = load_snapshot(self.path), self.table()
        error: type[Exception] | None = None
        if dialect_of(snapshot) == "qbeast-spark":
            error = qbeast.UnsupportedTableError
        elif column == "a" and "delta.constraints.low" in table.properties:
            error = qbeast.InvalidInputError
        elif not upgrade and not snapshot.columns.is_mapped:
            error = qbeast.UnsupportedTableError
        if error is not None:
            with pytest.raises(error):
                table.rename_column(column, "other", upgrade_protocol=upgrade)
            return False
        return True

    # ---- names ----

    @precondition(lambda self: not self.has_copies)
    @rule(
        column=st.sampled_from(sorted(KEYS)),
        batch=batches(),
        optimizes=st.booleans(),
        upgrade=st.sampled_from([False, False, True]),
    )
    def rename_append_and_rename_back(
        self, column: str, batch: Batch, *, optimizes: bool, upgrade: bool
    ) -> None:
        if not self.may_change_names(column, upgrade=upgrade):
            return
        table = self.table()
        table.rename_column(column, "renamed", upgrade_protocol=upgrade)
        state = self.now.with_rows(self.take(batch))
        qbeast.write_table(state.frame.rename({column: "renamed"}), self.path, mode="append")
        if optimizes:
            self.table().optimize()
        self.table().rename_column("renamed", column)
        self.becomes(self.now.plus(state.rows))

    @precondition(lambda self: not self.has_copies and len(self.now.schema) > len(KEYS) + 1)
    @rule(data=st.data(), upgrade=st.sampled_from([False, False, True]))
    def swap_names(self, data: st.DataObject, *, upgrade: bool) -> None:
        left, right = data.draw(st.permutations(list(self.now.schema)[len(KEYS) :]))[:2]
        if not self.may_change_names(left, upgrade=upgrade):
            return
        table = self.table()
        table.rename_column(left, "renamed", upgrade_protocol=upgrade)
        table.rename_column(right, left)
        table.rename_column("renamed", right)
        names = {left: right, right: left}
        schema = {names.get(name, name): dtype for name, dtype in self.now.schema.items()}
        rows = [{names.get(name, name): value for name, value in row.items()} for row in self.now.rows]
        self.becomes(State(rows, schema))

    @precondition(lambda self: not self.has_copies and len(self.now.schema) > len(KEYS))
    @rule(data=st.data(), upgrade=st.sampled_from([False, False, True]))
    def drop_column(self, data: st.DataObject, *, upgrade: bool) -> None:
        column = data.draw(st.sampled_from(list(self.now.schema)[len(KEYS) :]))
        if not self.may_change_names(column, upgrade=upgrade):
            return
        self.table().drop_column(column, upgrade_protocol=upgrade)
        schema = {name: dtype for name, dtype in self.now.schema.items() if name != column}
        rows = [{name: value for name, value in row.items() if name != column} for row in self.now.rows]
        self.becomes(State(rows, schema))

    @precondition(lambda self: not self.has_copies)
    @rule(batch=batches(), seed=st.integers(0, 99))
    def append_more_fields(self, batch: Batch, seed: int) -> None:
        old = self.now.schema.get("n", pl.Struct([]))
        if not isinstance(old, pl.Struct):
            return  # `swap_names` gave the name to another column
        names = [field.name for field in old.fields]
        new = pl.Field(f"f{seed % 5}", pl.Int64())
        fields = old.fields if new.name in names else [*old.fields, new]
        state = State([], {**self.now.schema, "n": pl.Struct(fields)})
        rows = [
            {**row, "n": None if row["id"] % 4 == 0 else {new.name: row["id"]}} for row in self.take(batch)
        ]
        state = state.with_rows(rows)
        qbeast.write_table(state.frame, self.path, mode="append", schema_mode="merge")
        before = State([], state.schema).with_rows(self.now.rows)
        self.becomes(before.plus(state.rows))

    # ---- rules of rows, feed, tags ----

    @precondition(lambda self: not self.has_copies)
    @rule(stale=st.booleans())
    def constrain(self, *, stale: bool) -> None:
        table, key = self.table(stale=stale), "delta.constraints.low"
        if key in self.table().properties:
            table.drop_constraint("low")
        else:
            table.add_constraint("low", _RULE)
            row: Row = dict.fromkeys(self.now.schema) | {"id": self.next_id, "a": -101}
            broken = State([row], self.now.schema).frame
            with pytest.raises(qbeast.ConstraintViolationError, match="low"):
                qbeast.write_table(broken, self.path, mode="append")
            with pytest.raises(qbeast.ConstraintViolationError, match="low"):
                self.table().merge(broken, "id")
        self.becomes(self.now)

    @precondition(lambda self: not self.has_copies and not self.tracked and not self.is_mapped)
    @rule()
    def enable_feed(self) -> None:
        enable_feed(self.path)
        self.becomes(self.now)

    @precondition(lambda self: not self.has_copies)
    @rule()
    def hide_rows_from_now_on(self) -> None:
        if dialect_of(load_snapshot(self.path)) == "qbeast-spark":
            with pytest.raises(qbeast.UnsupportedTableError, match="qbeast-spark reads files without them"):
                enable_vectors(self.path)
            return
        enable_vectors(self.path)
        self.becomes(self.now)

    @precondition(lambda self: not self.has_copies)
    @rule(data=st.data(), repairs=st.booleans())
    def lose_tags(self, data: st.DataObject, *, repairs: bool) -> None:
        """Add files again without tags, as other tools do."""
        self.ours_alone = False
        # Of the files that deltalake lists: a commit of the legacy table removes and adds one file.
        listed = set(load_snapshot(self.path).logged_files["path"])
        live = [add for path, add in replay(self.path).items() if path in listed]
        if not live:
            return
        lost = data.draw(st.lists(st.sampled_from(live), unique_by=lambda add: add["path"], min_size=1))
        info = {"commitInfo": {"timestamp": 1, "operation": "ADD"}}
        again = [info, *({"add": {**add, "tags": None, "dataChange": False}} for add in lost)]
        write_log(self.path, again, first=self.table().version + 1)
        if repairs:
            self.table().repair()
        self.becomes(self.now)

    # ---- invariants ----

    @invariant()
    def the_feed_maps_each_version_to_the_next(self) -> None:
        newest = self.table().version if self.versions else 0
        for version in range(self.seen + 1, newest + 1):
            before, after = (self.state_at(number) for number in (version - 1, version))
            # Other readers of a feed count copies too.
            if before is not None and after is not None and not self.began_before_06:
                apply_feed(self.path, version, before, after)
        self.seen = newest

    def state_at(self, version: int) -> pl.DataFrame | None:
        table = qbeast.open_table(self.path, version=version)
        if table.properties.get("delta.enableChangeDataFeed") != "true":
            return None
        return without_samples(table.read())

    @invariant()
    def rows_keep_their_ids(self) -> None:
        if not self.tracked or not self.versions:
            return
        check_log(self.path)
        version = self.table().version
        found = row_ids(self.path, stored_name(self.path, "id"))
        assert found.keys() == self.now.ids
        infos = [
            next(action["commitInfo"] for action in commit if "commitInfo" in action)
            for commit in commits(self.path)[max(self.ids, default=version) + 1 :]
        ]
        old = self.ids[max(self.ids)] if self.ids else {}
        for info in infos:
            if info["operation"] == "RESTORE":
                # Versions within a step were not looked at.
                old = self.ids.get(int(info["operationParameters"]["version"]), {})
        if all(info.get("tags", {}).get("delta.rowTracking.preserved") != "false" for info in infos):
            kept = old.keys() & found.keys()
            assert {key: found[key][0] for key in kept} == {key: old[key][0] for key in kept}
        self.ids[version] = found

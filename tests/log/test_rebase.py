from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import polars as pl
import pytest

from qbeast_core.log.actions import AddFile, Metadata, Protocol, RemoveFile, Txn
from qbeast_core.log.protocol import WriteIntent, merge_metadata
from qbeast_core.log.rebase import Rebased, found_dialect, rebase
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.log.values import FileChange, LiveFiles
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import TableConfig
from tests.helpers.intents import METADATA, block, revision

NO_FILES = pl.DataFrame(
    schema={
        "path": pl.String,
        "size_bytes": pl.Int64,
        "revision": pl.Int64,
        "blocks": pl.String,
        "deletion_vector": pl.String,
        "base_row_id": pl.Int64,
        "default_row_commit_version": pl.Int64,
    }
)
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
SPARK = '[{"cubeId":"","minWeight":0,"maxWeight":1,"elementCount":1}]'
DOCUMENTED = '[{"cube":"","minWeight":0,"maxWeight":1,"replicated":false,"elementCount":1}]'


@dataclass(frozen=True)
class State:
    metadata: Metadata = METADATA
    protocol: Protocol = PROTOCOL
    files: pl.DataFrame = field(default_factory=lambda: NO_FILES)
    version: int = 0
    domains: Mapping[str, str] = field(default_factory=dict)

    @property
    def logged_files(self) -> pl.DataFrame:
        return self.files

    @property
    def some_files(self) -> pl.DataFrame:
        return self.files

    def revisions_without(self, paths: Collection[str]) -> set[int]:
        kept = self.files.filter(~pl.col("path").is_in(list(paths)))
        return set(kept["revision"].drop_nulls().to_list())


NO_TABLE = State(METADATA.model_copy(update={"schema_string": '{"fields":[]}'}), version=-1)


def files(*rows: tuple[str, int | None, str | None, str | None]) -> pl.DataFrame:
    listed = [(path, 10, number, blocks, vector, None, None) for path, number, blocks, vector in rows]
    return pl.DataFrame(listed, schema=NO_FILES.schema, orient="row")


def configured(*revisions: Revision, base: Metadata = METADATA, **more: str) -> Metadata:
    config = TableConfig.from_configuration({**base.configuration, **more}).with_revisions(list(revisions))
    return base.model_copy(update={"configuration": config.to_configuration()})


def new_file(**fields: object) -> AddFile:
    return AddFile(path="new", size=1, modification_time=1, **{"blocks": (block(),), **fields})


def append(**fields: object) -> WriteIntent:
    return WriteIntent(**{"mode": "append", "adds": (new_file(),), "revision": revision(), **fields})


def on(state: State, intent: WriteIntent, base: Metadata | None = None) -> Rebased:
    done = rebase(intent, base=base or state.metadata, head=state, now_ms=9)
    assert isinstance(done, Rebased), done
    return done


def adds(done: Rebased) -> list[AddFile]:
    return [action for action in done.actions if isinstance(action, AddFile)]


def published(done: Rebased) -> TableConfig:
    return TableConfig.from_configuration(done.metadata.configuration)


def test_append_tags_its_adds() -> None:
    done = on(State(configured(revision())), append())
    assert len(done.actions) == 1
    assert adds(done)[0].tags == {"revision": "1", "blocks": adds(done)[0].tags["blocks"]}
    assert done.revision_id == 1


def test_caller_tags_and_unindexed_files_are_kept() -> None:
    plain = AddFile(path="plain", size=1, modification_time=1)
    done = on(State(configured(revision())), append(adds=(new_file(tags={"qbeast.rules": "1"}), plain)))
    assert set(adds(done)[0].tags or {}) == {"revision", "blocks", "qbeast.rules"}
    assert adds(done)[1].tags is None


def test_first_revision_adds_staging_and_dialect() -> None:
    done = on(
        NO_TABLE,
        WriteIntent(mode="create", metadata=METADATA, revision=revision(number=7), adds=(new_file(),)),
    )
    config = published(done)
    assert (list(config.revisions), config.last_revision_id, config.dialect) == ([0, 1], 1, "documented")
    assert config.revisions[0].timestamp_ms == revision().timestamp_ms - 1
    assert [type(action).__name__ for action in done.actions] == ["Protocol", "Metadata", "AddFile"]


def test_new_revision_takes_next_unused_number() -> None:
    head = State(configured(revision(), revision(5.0, number=4)))
    assert on(head, append(new_revision=True)).revision_id == 5
    tagged = State(configured(revision()), files=files(("lost", 8, SPARK, None)))
    assert on(tagged, append(new_revision=True)).revision_id == 9


def test_replaced_revision_gets_a_new_number() -> None:
    ours, theirs = revision(100.0), revision(200.0)
    done = on(State(configured(theirs)), append(revision=ours), base=configured(ours))
    config = published(done)
    assert (done.revision_id, config.last_revision_id) == (2, 2)
    assert (config.revisions[1], config.revisions[2]) == (theirs, ours.with_id(2))
    assert adds(done)[0].tags["revision"] == "2"


def test_append_for_other_columns_fails() -> None:
    schema = schema_to_delta(pl.Schema({"price": pl.Float64, "size": pl.Float64}))
    base = METADATA.model_copy(update={"schema_string": schema})
    head = State(configured(revision(column="size"), base=base))
    done = rebase(append(), base=configured(revision(), base=base), head=head, now_ms=9)
    assert isinstance(done, str)
    assert "indexed by size now" in done


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}


def test_overwrite_removes_live_files_and_continues_ids() -> None:
    live = files(("a", 1, SPARK, None), ("b%20c", None, None, json.dumps(VECTOR | {"maxRowIndex": None})))
    head = State(configured(revision(), revision(5.0, number=2), base=METADATA, kept="yes"), files=live)
    done = on(head, append(mode="overwrite"))
    removes = [action for action in done.actions if isinstance(action, RemoveFile)]
    assert [remove.path for remove in removes] == ["a", "b%20c"]
    assert all(
        (item.deletion_timestamp, item.size, item.extended_file_metadata) == (9, 10, True) for item in removes
    )
    assert [remove.deletion_vector for remove in removes] == [None, VECTOR]
    config = published(done)
    assert (list(config.revisions), config.last_revision_id) == ([0, 3], 3)
    assert config.entries["kept"] == "yes"


def test_overwrite_may_index_other_columns() -> None:
    done = on(State(configured(revision())), append(mode="overwrite", revision=revision(column="size")))
    assert published(done).revisions[0].columns == ("size",)


@pytest.mark.parametrize(
    ("tags", "key", "mode", "options", "expected"),
    [
        ([SPARK], "documented", "append", "documented", "qbeast-spark"),
        ([DOCUMENTED, None], "qbeast-spark", "append", None, "documented"),
        ([DOCUMENTED, SPARK], "documented", "append", None, "documented"),
        ([None], "documented", "append", "qbeast-spark", "documented"),
        (["[]"], None, "append", "documented", "qbeast-spark"),
        ([SPARK], None, "overwrite", "documented", "documented"),
        ([SPARK], "documented", "overwrite", None, "qbeast-spark"),
    ],
)
def test_blocks_use_the_dialect_of_the_table(tags, key, mode, options, expected) -> None:
    live = files(*((str(number), 1, text, None) for number, text in enumerate(tags)))
    metadata = configured(revision(), **({} if key is None else {"qbeast.blocksDialect": key}))
    intent = append(mode=mode, dialect=options)
    assert found_dialect(intent, metadata, live) == expected
    spelled = adds(on(State(metadata, files=live), intent))[0].tags["blocks"]
    assert ('"cubeId"' in spelled) == (expected == "qbeast-spark")


@pytest.mark.parametrize("options", [None, "documented", "qbeast-spark"])
def test_table_without_index_takes_requested_dialect(options) -> None:
    done = on(State(), append(dialect=options, new_revision=True))
    assert published(done).dialect == (options or "documented")


def test_added_columns_rebase_but_changed_ones_conflict() -> None:
    wider = METADATA.model_copy(
        update={"schema_string": schema_to_delta(pl.Schema({"price": pl.Float64, "x": pl.Int8}))}
    )
    on(State(configured(revision(), base=wider)), append(), base=configured(revision()))
    other = METADATA.model_copy(update={"schema_string": schema_to_delta(pl.Schema({"price": pl.String}))})
    done = rebase(append(), base=METADATA, head=State(configured(revision(), base=other)), now_ms=9)
    assert isinstance(done, str)
    assert "price is string now" in done


def test_properties_merge_unless_writers_set_the_same() -> None:
    base = METADATA.model_copy(update={"configuration": {"a": "1", "b": "1", "c": "1"}})
    ours = base.model_copy(update={"configuration": {"a": "2", "c": "1"}})
    theirs = base.model_copy(update={"configuration": {"a": "1", "b": "1", "c": "3"}, "name": "n"})
    merged = merge_metadata(base=base, ours=ours, theirs=theirs)
    assert isinstance(merged, Metadata)
    assert (merged.configuration, merged.name) == ({"a": "2", "c": "3"}, "n")
    clash = theirs.model_copy(update={"configuration": {"a": "9"}})
    assert "a" in str(merge_metadata(base=base, ours=ours, theirs=clash))
    schema = schema_to_delta(pl.Schema({"y": pl.Int8}))
    ours, theirs = (base.model_copy(update={"schema_string": text}) for text in (schema, "{}"))
    assert "schema" in str(merge_metadata(base=base, ours=ours, theirs=theirs))


def test_timestamp_ntz_upgrades_the_protocol() -> None:
    ntz = METADATA.model_copy(update={"schema_string": schema_to_delta(pl.Schema({"t": pl.Datetime("us")}))})
    for head in (NO_TABLE, State()):
        done = on(head, WriteIntent(mode="create" if head is NO_TABLE else "metadata", metadata=ntz))
        assert [action for action in done.actions if isinstance(action, Protocol)] == [done.protocol]
        assert "timestampNtz" in (done.protocol.writer_features or ())


def test_progress_gets_a_timestamp() -> None:
    done = on(State(configured(revision())), append(txn=Txn(app_id="a", version=3)))
    assert Txn(app_id="a", version=3, last_updated=9) in done.actions


def test_append_without_table_fails() -> None:
    assert isinstance(rebase(append(), base=METADATA, head=NO_TABLE, now_ms=9), str)


def test_live_files_are_planned_on_newest_state() -> None:
    seen: list[tuple[LiveFiles, str]] = []

    def plan(live: LiveFiles, dialect: str) -> FileChange:
        seen.append((live, dialect))
        return FileChange(adds=live.listed[:1], removed=live.listed[1:])

    vector = AddFile(path="b", size=2, modification_time=1, tags={"x": "1"}, deletion_vector=VECTOR)
    live = LiveFiles((new_file(blocks=None), vector))
    head = State(configured(revision()), files=files(("new", 1, SPARK, None)))
    done = rebase(
        WriteIntent(mode="metadata", files=plan), base=head.metadata, head=head, now_ms=9, live=live
    )
    assert isinstance(done, Rebased)
    remove, add = done.actions
    assert seen == [(live, "qbeast-spark")]
    assert add == live.listed[0]
    assert isinstance(remove, RemoveFile)
    assert (remove.path, remove.size, remove.tags, remove.deletion_vector) == ("b", 2, {"x": "1"}, VECTOR)
    assert (remove.deletion_timestamp, remove.data_change) == (9, False)


def test_overwrite_removes_files_of_other_replays() -> None:
    head = State(configured(revision()), files=files(("a", 1, SPARK, None)))
    live = LiveFiles((new_file(),), (new_file().model_copy(update={"path": "hidden"}),))
    done = rebase(append(mode="overwrite"), base=head.metadata, head=head, now_ms=9, live=live)
    assert isinstance(done, Rebased)
    removes = [action for action in done.actions if isinstance(action, RemoveFile)]
    assert [remove.path for remove in removes] == ["a", "hidden"]
    assert all(remove.data_change for remove in removes)

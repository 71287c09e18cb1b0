from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from qbeast_core.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidMetadataError,
    QbeastWarning,
    StorageError,
    TableExistsError,
    UnsupportedTableError,
)
from qbeast_core.io.address import refuse_unsafe_locking
from qbeast_core.io.store import LocalStore
from qbeast_core.log.actions import Txn
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.table.commit import commit
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, refresh
from tests.helpers.handmade_log import PROTOCOL, add, features, metadata, remove, write_log
from tests.helpers.intents import METADATA, append, block, create, data_file, revision, revisions_of
from tests.helpers.small_files import resized


def prices(root: Path | str) -> list[float]:
    return sorted(DeltaTable(root).to_pyarrow_table()["price"].to_pylist())


def lines(root: Path | str, version: int) -> list[dict]:
    text = (Path(root) / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


class FaultyStore(LocalStore):
    """A store whose first answers to a put are wrong, as those of object stores may be."""

    def __init__(self, root: Path | str, *faults: str, remote: bool = False) -> None:
        super().__init__(root)
        self.faults: Iterator[str] = iter(faults)
        self.puts: list[str] = []
        if remote:
            self.local_root = None  # only what `commit` itself asks
        self._inner = LocalStore(root)

    def get(self, path: str) -> bytes:
        return self._inner.get(path)

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        self.puts.append(path)
        fault = next(self.faults, "none")
        if fault in ("stored", "stored, exists", "none"):
            self._inner.put_if_absent(path, data)
        if fault in ("exists", "stored, exists"):
            raise FileExistsError(path)
        if fault in ("lost", "stored"):
            message = "the connection was reset"
            raise StorageError(message, path=path)


# --- plain commits ----------------------------------------------------------------------------------------------


def test_created_table_and_appends_are_delta(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    outcome = append(snapshot, "a b.parquet".replace(" ", "-"), txn=Txn(app_id="loader", version=4))
    assert (outcome.version, outcome.attempts, outcome.revision_id) == (1, 1, 1)
    assert not outcome.already_applied
    assert prices(tmp_path) == [1.0, 1.0]
    table = DeltaTable(tmp_path)
    assert table.transaction_version("loader") == 4
    assert [entry["operation"] for entry in table.history()] == ["WRITE", "CREATE TABLE AS SELECT"]
    loaded = load_snapshot(tmp_path)
    assert outcome.snapshot is not None
    assert outcome.snapshot.files.sort("path").equals(loaded.files.sort("path"))
    assert set(loaded.files["revision"]) == {1}
    assert set(loaded.files["rules"]) == {"1"}
    assert loaded.files["max"].to_list() == [{"price": 1.0}] * 2


def test_first_line_describes_the_commit(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    store = LocalStore(tmp_path)
    intent = WriteIntent(
        mode="append",
        adds=(data_file(store, "x.parquet"),),
        revision=snapshot.config.latest,
        commit_info={"userMetadata": "m", "txnId": "forged", "operationMetrics": {"numOutputRows": "1"}},
    )
    commit(store, snapshot, intent, clock=lambda: 123, ids=lambda: "id")
    info = lines(tmp_path, 1)[0]["commitInfo"]
    engine = info.pop("engineInfo")
    assert engine.startswith("qbeast")
    assert info == {
        "timestamp": 123,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {
            "numFiles": "1",
            "numOutputBytes": str(store.size("x.parquet")),
            "numOutputRows": "1",
        },
        "txnId": "id",
        "userMetadata": "m",
    }


def test_tags_survive_a_checkpoint_every_ten_commits(tmp_path: Path) -> None:
    snapshot: Snapshot | None = create(tmp_path)
    for number in range(10):
        assert snapshot is not None
        snapshot = append(snapshot, f"{number}.parquet").snapshot
    (actual,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    assert actual.name.startswith(f"{10:020d}")
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if int(path.stem) < 10:
            path.unlink()
    assert set(revisions_of(tmp_path).values()) == {1}
    assert len(prices(tmp_path)) == 11


def test_checkpoint_interval_is_configurable_and_failures_warn(tmp_path: Path, monkeypatch) -> None:
    everything = METADATA.model_copy(update={"configuration": {"delta.checkpointInterval": "2"}})
    first = append(create(tmp_path, metadata=everything), "a.parquet").snapshot
    assert first is not None

    def panic(_: DeltaTable) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", panic)
    with pytest.warns(QbeastWarning, match="commit itself is complete"):
        assert append(first, "b.parquet").version == 2
    assert len(prices(tmp_path)) == 3


def test_overwrite_leaves_own_files_and_history(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), "a.parquet").snapshot
    assert snapshot is not None
    outcome = append(snapshot, "new.parquet", mode="overwrite", revision=revision(7.0))
    assert revisions_of(tmp_path) == {"new.parquet": 2}
    assert outcome.revision_id == 2
    assert load_snapshot(tmp_path, version=1).files.height == 2
    removed = [line["remove"] for line in lines(tmp_path, 2) if "remove" in line]
    assert {item["path"] for item in removed} == {"first.parquet", "a.parquet"}
    assert all(item["deletionTimestamp"] > 0 and item["extendedFileMetadata"] for item in removed)


def test_files_without_index_are_staging(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    store = LocalStore(tmp_path)
    commit(store, snapshot, WriteIntent(mode="append", adds=(data_file(store, "raw.parquet", blocks=None),)))
    assert revisions_of(tmp_path) == {"first.parquet": 1, "raw.parquet": None}


def test_metadata_alone_can_be_published(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    wish = {**snapshot.metadata.configuration, "k": "v"}
    changed = snapshot.metadata.model_copy(update={"configuration": wish})
    outcome = commit(LocalStore(tmp_path), snapshot, WriteIntent(mode="metadata", metadata=changed))
    assert outcome.snapshot is not None
    assert outcome.snapshot.metadata.configuration["k"] == "v"
    assert outcome.snapshot.config.latest == revision()


@pytest.mark.parametrize("kind", ["", "-preview"])
def test_in_commit_timestamps_never_decrease(kind: str, tmp_path: Path) -> None:
    protocol = features(f"inCommitTimestamp{kind}")
    on = {f"delta.enableInCommitTimestamps{kind}": "true"}
    first = {"commitInfo": {"inCommitTimestamp": 5_000_000_000_000, "timestamp": 5}}
    root = write_log(tmp_path, [first, protocol, metadata(configuration=on)])
    snapshot = load_snapshot(root)
    assert snapshot.timestamp_ms == 5_000_000_000_000
    store = LocalStore(tmp_path)
    intent = WriteIntent(mode="append", adds=(data_file(store, "a.parquet", blocks=None),))
    commit(store, snapshot, intent)
    info = lines(root, 1)[0]["commitInfo"]
    assert info["inCommitTimestamp"] == 5_000_000_000_001
    assert info["timestamp"] < 5_000_000_000_000


# --- answers that are not what they seem ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["stored", "stored, exists"])
@pytest.mark.parametrize("remote", [False, True])
def test_own_late_commit_succeeds(tmp_path: Path, fault: str, *, remote: bool) -> None:
    snapshot = create(tmp_path)
    store = FaultyStore(tmp_path, fault, remote=remote)
    intent = WriteIntent(
        mode="append", adds=(data_file(LocalStore(tmp_path), "a.parquet"),), revision=snapshot.config.latest
    )
    outcome = commit(store, snapshot, intent)
    assert (outcome.version, outcome.attempts, len(store.puts)) == (1, 1, 1)
    assert len(prices(tmp_path)) == 2


def test_conflict_without_a_commit_retries_the_version(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    store = FaultyStore(tmp_path, "exists", "exists")
    pauses: list[float] = []
    intent = WriteIntent(
        mode="append", adds=(data_file(store, "a.parquet"),), revision=snapshot.config.latest
    )
    outcome = commit(store, snapshot, intent, sleep=pauses.append, jitter=lambda: 0.5)
    assert (outcome.version, outcome.attempts) == (1, 3)
    assert len(set(store.puts)) == 1
    assert pauses[0] < pauses[1]


def test_lost_reply_on_object_store_is_unknown(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    intent = WriteIntent(mode="append", revision=snapshot.config.latest)
    with pytest.raises(CommitUnknownError, match="the version may exist") as caught:
        commit(FaultyStore(tmp_path, "lost", remote=True), snapshot, intent, ids=lambda: "token")
    assert (caught.value.version, caught.value.txn_id) == (1, "token")
    with pytest.raises(StorageError, match="connection was reset"):
        commit(FaultyStore(tmp_path, "lost"), snapshot, intent)
    assert load_snapshot(tmp_path).version == 0


def test_retries_are_limited(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    pauses: list[float] = []
    with pytest.raises(CommitConflictError, match="committed first each time") as caught:
        commit(
            FaultyStore(tmp_path, *["exists"] * 12),
            snapshot,
            WriteIntent(mode="append"),
            sleep=pauses.append,
            max_attempts=12,
        )
    assert caught.value.attempts == 12
    assert max(pauses) <= 1.0


def test_failed_reload_does_not_undo_the_commit(tmp_path: Path, monkeypatch) -> None:
    snapshot = create(tmp_path)

    def fail(_: DeltaTable) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(DeltaTable, "update_incremental", fail)
    changed = snapshot.metadata.model_copy(update={"name": "prices"})
    with pytest.warns(QbeastWarning, match="is committed"):
        outcome = commit(snapshot.source.store, snapshot, WriteIntent(mode="metadata", metadata=changed))
    assert outcome.snapshot is None
    monkeypatch.undo()
    assert load_snapshot(tmp_path).version == 1


# --- other writers ------------------------------------------------------------------------------------------------


def test_stale_append_lands_after_any_append(tmp_path: Path) -> None:
    stale = create(tmp_path)
    append(stale, "a.parquet")
    write_deltalake(tmp_path, pl.DataFrame({"price": [9.0]}), mode="append")
    outcome = append(stale, "b.parquet")
    assert (outcome.version, outcome.attempts) == (3, 2)
    assert prices(tmp_path) == [1.0, 1.0, 1.0, 9.0]
    assert lines(tmp_path, 3)[0]["commitInfo"]["readVersion"] == 2


def test_concurrent_revisions_get_different_numbers(tmp_path: Path) -> None:
    stale = create(tmp_path)
    first = append(stale, "a.parquet", revision=revision(200.0), new_revision=True)
    second = append(stale, "b.parquet", revision=revision(300.0), new_revision=True)
    assert (first.revision_id, second.revision_id) == (2, 3)
    config = load_snapshot(tmp_path).config
    assert [config.revisions[number].to_json() for number in (2, 3)] == [
        revision(200.0, number=2).to_json(),
        revision(300.0, number=3).to_json(),
    ]
    assert revisions_of(tmp_path) == {"first.parquet": 1, "a.parquet": 2, "b.parquet": 3}


def test_replaced_revision_is_published_with_new_number(tmp_path: Path) -> None:
    stale = create(tmp_path)
    theirs = metadata(json.loads(METADATA.schema_string), {
        "qbeast.lastRevisionID": "1", "qbeast.revision.1": revision(900.0).to_json()
    })  # fmt: skip
    write_log(tmp_path, [theirs, remove("first.parquet")], first=1)  # an overwrite that counts from 1 again
    outcome = append(stale, "a.parquet")
    config = load_snapshot(tmp_path).config
    assert outcome.revision_id == 2
    assert config.revisions[1] == revision(900.0)
    assert config.revisions[2].to_json() == revision(number=2).to_json()


def test_overwrite_removes_concurrently_added_files(tmp_path: Path) -> None:
    stale = create(tmp_path)
    append(stale, "a.parquet")
    append(stale, "new.parquet", mode="overwrite")
    assert revisions_of(tmp_path) == {"new.parquet": 2}


def test_append_uses_the_existing_dialect(tmp_path: Path) -> None:
    stale = create(tmp_path)
    files = stale.files.filter(pl.col("path") == "first.parquet")
    tags = {"revision": "1", "blocks": files["blocks"][0].replace('"cube"', '"cubeId"')}
    write_log(
        tmp_path, [add("first.parquet", size=files["size_bytes"][0], dataChange=False, tags=tags)], first=1
    )
    append(stale, "a.parquet")
    assert load_snapshot(tmp_path).files["blocks"].str.contains('"cubeId"').all()


def test_second_creator_sees_the_existing_table(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    store = LocalStore(tmp_path)
    for existing in (Snapshot.empty(snapshot.location), snapshot):
        with pytest.raises(TableExistsError, match="nothing of this write is visible"):
            commit(store, existing, WriteIntent(mode="create", metadata=METADATA))


def test_progress_of_an_application_is_applied_once(tmp_path: Path) -> None:
    stale = create(tmp_path)
    with resized(max_short_commits=0):  # they learn it from the lost race
        apart = {version: load_snapshot(tmp_path) for version in (4, 5)}
    append(stale, "a.parquet", txn=Txn(app_id="x", version=5))
    for version, snapshot in apart.items():
        again = append(snapshot, "b.parquet", txn=Txn(app_id="x", version=version))
        assert (again.already_applied, again.attempts, again.version) == (True, 1, 1)
    fresh = append(refresh(stale), "b.parquet", txn=Txn(app_id="x", version=5))
    assert (fresh.already_applied, fresh.attempts, fresh.version) == (True, 0, 1)
    with pytest.raises(CommitConflictError, match="'x'"):
        append(stale, "b.parquet", txn=Txn(app_id="x", version=6))
    assert append(refresh(stale), "b.parquet", txn=Txn(app_id="x", version=6)).version == 2


def test_changed_column_or_property_conflicts(tmp_path: Path) -> None:
    stale = create(tmp_path)
    configuration = {**stale.metadata.configuration, "k": "theirs"}
    schema = json.loads(METADATA.schema_string.replace("double", "string"))
    write_log(tmp_path, [metadata(schema, configuration)], first=1)
    with pytest.raises(CommitConflictError, match="price is string now"):
        append(stale, "a.parquet")
    wish = {**stale.metadata.configuration, "k": "ours"}
    ours = stale.metadata.model_copy(update={"configuration": wish})
    with pytest.raises(CommitConflictError, match="set k to something else"):
        commit(LocalStore(tmp_path), stale, WriteIntent(mode="metadata", metadata=ours))


def test_concurrent_new_constraint_is_a_conflict(tmp_path: Path) -> None:
    stale = create(tmp_path)
    configuration = {**stale.metadata.configuration, "delta.constraints.c": "price > 0"}
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}
    write_log(tmp_path, [protocol, metadata(json.loads(METADATA.schema_string), configuration)], first=1)
    with pytest.raises(CommitConflictError, match="changed the rules"):
        append(stale, "a.parquet")
    assert load_snapshot(tmp_path).version == 1


def test_blocks_below_lost_threshold_become_unindexed(tmp_path: Path) -> None:
    root = tmp_path / "t"
    store = LocalStore(root)
    low = data_file(store, "low.parquet", blocks=[block("", -(2**31), 0)])
    high = data_file(store, "high.parquet", blocks=[block("", -(2**31), 100)])
    stale = create(root, adds=(low, high))
    child = data_file(store, "child.parquet", blocks=[block("g", 50)])
    apart = data_file(store, "apart.parquet", blocks=[block("g", 101)])
    write_log(root, [remove("low.parquet")], first=1)
    outcome = append(stale, "-", adds=(child, apart))
    assert (outcome.version, outcome.staged_files) == (2, 1)
    assert revisions_of(root) == {"high.parquet": 1, "child.parquet": None, "apart.parquet": 1}
    assert lines(root, 2)[1]["add"]["tags"] == {"qbeast.rules": "staged"}


@pytest.mark.parametrize(("body", "problem"), [("", "is empty"), ('{"add":{"pa', "ends within a line")])
def test_torn_foreign_commit_raises_and_loses_nothing(tmp_path: Path, body: str, problem: str) -> None:
    stale = create(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(body)
    with pytest.raises(InvalidMetadataError, match=rf"damaged: .*{1:020d}\.json {problem}"):
        append(stale, "a.parquet")
    assert not (tmp_path / "_delta_log" / f"{2:020d}.json").exists()


# --- tables and stores that must be left alone -----------------------------------------------------------------


@pytest.mark.parametrize("feature", ["icebergCompatV3", "qbeast"])
def test_table_with_unknown_writer_feature_is_unchanged(tmp_path: Path, feature: str) -> None:
    snapshot = load_snapshot(write_log(tmp_path, [features(feature, "domainMetadata"), metadata()]))
    with pytest.raises(UnsupportedTableError, match=feature):
        commit(LocalStore(tmp_path), snapshot, WriteIntent(mode="append"))
    assert load_snapshot(tmp_path).version == 0


def test_deletion_vectors_are_repeated_in_removes(tmp_path: Path) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    vector["cardinality"] = 6
    protocol = features("deletionVectors", reader=["deletionVectors"])
    root = write_log(
        tmp_path, [protocol, metadata(), add("a", stats='{"numRecords":9}', deletionVector=vector)]
    )
    DeltaTable(root).create_checkpoint()
    commit(LocalStore(root), load_snapshot(root), WriteIntent(mode="overwrite"))
    (removed,) = (line["remove"] for line in lines(root, 1) if "remove" in line)
    assert removed["deletionVector"] == vector
    assert load_snapshot(root).files.is_empty()


@pytest.mark.parametrize(
    ("uri", "options", "environ", "refused"),
    [
        ("s3://b/t", {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}, {}, True),
        ("s3a://b/t", {"aws_s3_allow_unsafe_rename": "true"}, {}, True),
        ("s3://b/t", None, {"AWS_S3_ALLOW_UNSAFE_RENAME": "1"}, True),
        ("s3://b/t", {"AWS_S3_ALLOW_UNSAFE_RENAME": "false"}, {"AWS_S3_ALLOW_UNSAFE_RENAME": "1"}, False),
        ("s3://b/t", {"AWS_S3_ALLOW_UNSAFE_RENAME": "0"}, {}, False),
        ("s3://b/t", {"AWS_S3_LOCKING_PROVIDER": ""}, {}, False),
        ("s3://b/t", {"AWS_REGION": "x"}, {}, False),
        ("/local/t", None, {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}, False),
    ],
)
def test_stores_with_other_locking_raise(
    uri, options, environ, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    if refused:
        with pytest.raises(UnsupportedTableError, match="conditional puts"):
            refuse_unsafe_locking(uri, options)
    else:
        refuse_unsafe_locking(uri, options)


def test_handmade_table_is_indexed_in_place(tmp_path: Path) -> None:
    """A plain Delta table gets its first revision with an append."""
    root = write_log(tmp_path, [PROTOCOL, metadata(json.loads(METADATA.schema_string))])
    outcome = append(load_snapshot(root), "a.parquet", revision=revision(), new_revision=True)
    assert outcome.snapshot is not None
    config = outcome.snapshot.config
    assert (list(config.revisions), config.dialect) == ([0, 1], "documented")

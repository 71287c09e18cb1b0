from __future__ import annotations

import pytest

from qbeast_core.log.actions import AddFile, Commit, Metadata, Protocol, RemoveFile, Txn
from qbeast_core.log.protocol import WriteIntent, already_applied, find_conflict

ADD = AddFile(path="new", size=1, modification_time=1)
METADATA = Metadata(id="i", schema_string="{}")
WINNERS = {
    "append": Commit(version=5, adds=(ADD,)),
    "new revision": Commit(version=5, adds=(ADD,), metadata=METADATA),
    "optimize": Commit(version=5, adds=(ADD,), removes=(RemoveFile(path="old", data_change=False),)),
    "delete": Commit(version=5, removes=(RemoveFile(path="old"),)),
    "deletion vector": Commit(version=5, adds=(ADD.model_copy(update={"path": "old"}),)),
    "protocol": Commit(version=5, protocol=Protocol(min_reader_version=1, min_writer_version=2)),
}
TOUCHING = {"optimize", "delete", "deletion vector"}


@pytest.mark.parametrize("mode", ["append", "overwrite", "metadata"])
@pytest.mark.parametrize("winner", WINNERS)
def test_changes_without_removes_never_conflict(mode, winner: str) -> None:
    assert find_conflict(WriteIntent(mode=mode), WINNERS[winner]) is None


@pytest.mark.parametrize("winner", WINNERS)
def test_change_conflicts_when_its_file_changed(winner: str) -> None:
    intent = WriteIntent(mode="append", removes=(RemoveFile(path="old"),))
    actual = find_conflict(intent, WINNERS[winner])
    assert (actual is not None) == (winner in TOUCHING)
    assert actual is None or "old" in actual


@pytest.mark.parametrize("winner", WINNERS)
def test_table_is_created_once(winner: str) -> None:
    assert find_conflict(WriteIntent(mode="create"), WINNERS[winner]) is not None


@pytest.mark.parametrize(
    ("app", "version", "applied", "conflict"),
    [
        ("ours", 3, True, None),
        ("ours", 4, True, None),
        ("ours", 2, False, "'ours'"),
        ("other", 9, False, None),
    ],
)
def test_own_progress_is_applied_or_conflicts(app, version, applied, conflict) -> None:
    intent = WriteIntent(mode="append", txn=Txn(app_id="ours", version=3))
    winner = Commit(version=5, txns=(Txn(app_id=app, version=version),))
    assert already_applied(intent, winner) == applied
    if not applied:
        assert (conflict or "") in (find_conflict(intent, winner) or "")
        assert (find_conflict(intent, winner) is None) == (conflict is None)
    assert not already_applied(WriteIntent(mode="append"), winner)

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest

from qbeast_core.log.actions import AddFile
from qbeast_core.log.replay import LogState, whole_files
from qbeast_core.log.values import LiveFiles, retag
from tests.helpers.handmade_log import add, remove

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 4, "sizeInBytes": 9, "cardinality": 1}


def commit(*actions: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


def live_files(listed: list[str], checkpoint: list[pl.DataFrame | bytes], commits: list[bytes]) -> LiveFiles:
    log = LogState(uri="t", version=len(commits), checkpoint=tuple(checkpoint), commits=tuple(commits))
    return whole_files(listed, log)


def paths(files: tuple[AddFile, ...]) -> list[str]:
    return [file.path for file in files]


def dumped(file: AddFile) -> dict[str, Any]:
    return file.model_dump(exclude_none=True)


def test_newest_add_keeps_unknown_keys() -> None:
    old = add("a", tags={"x": "1"}, stats="old")
    new = add("a", tags={"x": "2", "y": ""}, stats='{"numRecords":3}', deletionVector=VECTOR, baseRowId=7)
    actual = live_files(["a"], [], [commit(old, add("b")), commit(remove("a"), new)])
    assert dumped(actual.listed[0]) == new["add"]
    assert actual.unlisted == ()


def test_readded_files_are_disputed() -> None:
    other = VECTOR | {"offset": 5}
    log = [
        commit(add("a"), add("b"), add("c", deletionVector=VECTOR), add("d%20e")),
        commit(remove("a"), add("a", deletionVector=VECTOR)),
        commit(remove("b"), add("b", tags={"state": "REPLICATED"})),
        commit(remove("c", deletionVector=VECTOR), add("c", deletionVector=other)),
        commit(add("d%20e"), remove("d%20e")),
    ]
    actual = live_files(["a", "c"], [], log)
    assert [item.deletion_vector for item in actual.listed] == [VECTOR, other]
    assert paths(actual.unlisted) == ["b", "d%20e"]
    assert actual.unlisted[0].tags == {"state": "REPLICATED"}


@pytest.mark.parametrize("later", [[remove("a")], [add("a", tags={"x": "1"})]])
def test_later_commit_settles_a_dispute(later: list[dict[str, Any]]) -> None:
    log = [commit(add("a")), commit(remove("a"), add("a")), commit(*later)]
    assert live_files([], [], log).unlisted == ()


def test_files_listed_by_other_replay_are_undisputed() -> None:
    log = [commit(add("a")), commit(remove("a"), add("a"))]
    assert live_files(["a"], [], log) == LiveFiles((AddFile.model_validate(add("a")["add"]),))


def test_checkpoint_gives_adds_as_commits_do() -> None:
    file = {
        "path": "a",
        "partitionValues": {},
        "size": 5,
        "modificationTime": 1,
        "dataChange": False,
        "stats": '{"numRecords":3}',
        "tags": {"revision": "1", "blocks": "[]"},
        "deletionVector": VECTOR | {"offset": None},
        "baseRowId": 7,
    }
    plain = {"path": "b", "size": 1, "modificationTime": 2, "dataChange": True, "deletionVector": None}
    texts = pl.Map(pl.String(), pl.String())
    schema = {"partitionValues": texts, "tags": texts}
    adds = pl.DataFrame([file, plain | dict.fromkeys(file.keys() - plain.keys())], schema_overrides=schema)
    frame = adds.select(add=pl.struct(pl.all()))
    actual = live_files(["a", "b"], [frame, commit(add("c"))], [])
    expected = file | {"deletionVector": {key: part for key, part in VECTOR.items() if key != "offset"}}
    assert [dumped(item) for item in actual.listed] == [
        expected,
        {"partitionValues": {}} | _without_vector(plain),
    ]
    assert paths(live_files(["c"], [frame, commit(add("c"))], []).listed) == ["c"]
    assert live_files([], [pl.DataFrame({"txn": [1]})], []).listed == ()


def _without_vector(add: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in add.items() if key != "deletionVector"}


def test_parsed_checkpoint_statistics_become_json() -> None:
    when = datetime(2024, 1, 1, tzinfo=UTC)
    bounds = {"i": 1, "s": "x", "d": date(2024, 2, 3), "t": when, "f": float("inf"), "in": {"g": 1.5}}
    parsed = {"numRecords": 3, "minValues": bounds, "nullCount": {"i": 0, "in": {"g": 2}}}
    row = {"path": "a", "size": 1, "modificationTime": 1, "stats_parsed": parsed}
    frame = pl.DataFrame([row]).select(add=pl.struct(pl.all()))
    (file,) = live_files(["a"], [frame], []).listed
    assert "stats_parsed" not in dumped(file)
    low = {"i": 1, "s": "x", "d": "2024-02-03", "in": {"g": 1.5}}
    assert json.loads(file.stats or "") == parsed | {"minValues": low}


def test_retag_changes_only_edited_files() -> None:
    files = [
        AddFile.model_validate(add(name, stats="s", extra=1)["add"]) for name in ("same", "other", "gone")
    ]

    def edit(file: AddFile, listed: bool) -> AddFile | None:  # noqa: FBT001 -- the callback's form
        if file.path == "gone":
            return None
        return file.model_copy(update={"tags": {"x": str(listed)}}) if file.path == "other" else file

    change = retag(LiveFiles((files[0], files[2]), (files[1],)), edit)
    assert [dumped(item) for item in change.adds] == [
        add("other", stats="s", extra=1, tags={"x": "False"}, dataChange=False)["add"]
    ]
    assert (change.removed, change.data_change) == ((files[2],), False)

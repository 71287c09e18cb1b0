"""Processes that change one table at random, on disk and in a bucket: nothing is lost or doubled, no commit dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.pool import Pool
from pathlib import Path

import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.io.location import open_store
from tests.helpers.change_feed import apply_feed
from tests.helpers.flaky_s3 import FlakyS3
from tests.helpers.others import rows_of_others
from tests.helpers.storm import INDEXED, Event, Ledger, make_table, replay, storm
from tests.helpers.tables import assert_same_rows, sampled

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")]

Place = tuple[str, dict[str, str]]
WRITERS = 4
SETUP = 3
"""Version from which a table with features has all of them."""


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where the table goes, and the storage options."""
    if request.param == "disk":
        yield str(tmp_path / "t"), {}
        return
    server = FlakyS3()
    server.start()
    yield f"s3://bucket/{tmp_path.name}", server.options  # tests of one process share the bucket
    server.stop()


def run(pool: Pool, place: Place, steps: int, seed: int) -> list[Ledger]:
    jobs = [pool.apply_async(storm, (*place, writer, steps, seed)) for writer in range(WRITERS)]
    return [job.get(timeout=3 * 3600) for job in jobs]


def check(place: Place, first: Event, ledgers: list[Ledger]) -> None:
    uri, options = place
    events = [first, *(event for ledger in ledgers for event in ledger.events)]
    check_log(place, events)
    rows = replay(events)
    table = qbeast.open_table(uri, storage_options=options or None)
    assert_same_rows(table.read(), rows)
    keys = {key: text for key, text in options.items() if key.startswith("AWS")} or None
    assert_same_rows(rows_of_others(uri, keys), rows)
    for share in (0.05, 0.5):
        assert_same_rows(table.read(sample=share), sampled(rows, INDEXED, share))
    faults = table.check(data=True).faults
    assert faults.is_empty(), faults["message"].to_list()
    assert DeltaTable(uri, storage_options=keys).version() == table.version


def check_log(place: Place, events: list[Event]) -> None:
    """Every version was acknowledged to one process, and holds what that one did.

    An optimize may commit more than once. It tells the last version, and none if a later commit meets a conflict.
    """
    uri, options = place
    store = open_store(uri, options or None)
    names = [name for name in store.list("_delta_log") if name.endswith(".json") and "checkpoint" not in name]
    assert [int(name[-25:-5]) for name in names] == list(range(len(names)))
    report = {event.version: event for event in events}
    assert len(report) == len(events)
    assert max(report) < len(names)
    words = {"append": "WRITE", "overwrite": "WRITE", "merge": "MERGE", "optimize": "OPTIMIZE"}
    words |= {"delete": "DELETE", "update": "UPDATE"}
    for version, name in enumerate(names):
        info = json.loads(store.get(name).split(b"\n")[0])["commitInfo"]
        if info["operation"] in ("SET TBLPROPERTIES", "RENAME COLUMN"):
            continue  # of the table before the storm
        kind = report[version].kind if version in report else "optimize"
        assert info["operation"] == ("CREATE TABLE AS SELECT" if version == 0 else words[kind])


def storm_and_check(
    pool: Pool, place: Place, steps: int, seed: int, *, with_features: bool = False, vectors: bool = False
) -> None:
    first = make_table(*place, with_features=with_features, vectors=vectors)
    ledgers = run(pool, place, steps, seed)
    check(place, first, ledgers)
    refused = Counter(text.partition(":")[0] for ledger in ledgers for text in ledger.refused)
    assert not refused["append"] + refused["overwrite"], [ledger.refused for ledger in ledgers]
    print(
        f"{len(ledgers)} processes, {steps} operations each:",
        f"{sum(len(ledger.events) for ledger in ledgers)} commits,",
        f"{sum(ledger.attempts for ledger in ledgers)} attempts,",
        f"{sum(ledger.reads for ledger in ledgers)} reads,",
        f"refused: {dict(refused)}",
    )


@pytest.mark.timeout(1800)  # five processes on a machine that may be busy with others
def test_concurrent_changes_of_mapped_partitions_lose_nothing(
    tmp_path: Path, four: Pool, sweep_seed: int
) -> None:
    path = tmp_path / "t"
    vectors = sweep_seed % 2 == 1
    storm_and_check(four, (str(path), {}), steps=15, seed=sweep_seed, with_features=True, vectors=vectors)
    versions = [qbeast.read_table(path, version=version) for version in range(DeltaTable(path).version() + 1)]
    for version, (before, after) in enumerate(pairwise(versions), 1):
        if version > SETUP:
            apply_feed(path, version, before, after, "row")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("vectors", [False, True])
def test_random_concurrent_changes_lose_nothing(
    place: Place, four: Pool, sweep_seed: int, *, vectors: bool
) -> None:
    storm_and_check(four, place, steps=8 if place[1] else 25, seed=sweep_seed, vectors=vectors)

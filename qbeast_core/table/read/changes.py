"""The rows that commits changed, one commit after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError, InvalidMetadataError, VersionNotFoundError, invalid_argument
from qbeast_core.log.actions import Commit, Metadata, Protocol, parse_commit
from qbeast_core.log.protocol import has_change_feed
from qbeast_core.log.replay import newest_settings
from qbeast_core.plan.nodes import named_columns
from qbeast_core.table.data.schema import FEED_COLUMNS
from qbeast_core.table.read.changed_files import ChangeReader, CommitChanges
from qbeast_core.table.read.scan import lazy_frame
from qbeast_core.table.snapshot.log_files import read_history, read_log, version_at
from qbeast_core.table.snapshot.snapshot import Snapshot, version_or_time

# A version number, or a time as `qbeast.open_table` takes it.
VersionLike: TypeAlias = int | str | date

_EMPTY: Final = -1  # the version before the first one


def commits_between(snapshot: Snapshot, since: VersionLike, until: VersionLike | None) -> list[CommitChanges]:
    """Return the commits after the version `since`, up to `until`; see `Table.changes`."""
    first, last = _number(snapshot, since, "since") + 1, snapshot.version
    if until is not None:
        last = _number(snapshot, until, "until")
    if first > last:
        return []
    commits = read_commits(snapshot, first, last, cure="Begin with a later version")
    feeds = _keep_feeds(snapshot, commits)
    infos = {info["version"]: info for info in read_history(snapshot.store, version=last)}
    return [
        _changes(commit, infos[commit.version], keeps_feed=keeps_feed)
        for commit, keeps_feed in zip(commits, feeds, strict=True)
    ]


def read_commits(snapshot: Snapshot, first: int, last: int, *, cure: str) -> list[Commit]:
    """Read the commits of versions; raise with `cure` if the log does not have all of them any more."""
    try:
        bodies = read_log(snapshot.store, last, after=first - 1).commits
    except FileNotFoundError as error:
        msg = (
            f"the log of {snapshot.uri} does not have all versions from {first} to {last} any more. {cure}; "
            "Table.versions() lists the versions."
        )
        raise VersionNotFoundError(msg, path=snapshot.uri, version=first) from error
    return [parse_commit(body, version=number) for number, body in enumerate(bodies, start=first)]


def changes_of(snapshot: Snapshot, commits: Sequence[CommitChanges]) -> pl.LazyFrame:
    """Return the changed rows of commits, with the columns of a version and `FEED_COLUMNS`."""
    reader = change_reader(snapshot)
    return lazy_frame(partial(_rows, reader, commits), reader.shown)


def change_reader(snapshot: Snapshot) -> ChangeReader:
    """Return the reader of changed rows in the columns of a version."""
    taken = [name for name in snapshot.schema if name.lower() in FEED_COLUMNS]
    if taken:
        msg = f"changes add columns, and {snapshot.uri!r} has {taken} already. Rename them first: Table.rename_column."
        raise InvalidInputError(msg, argument="since")
    return ChangeReader(snapshot.data_files, snapshot.schema)


def changes_of_commit(commit: Commit) -> CommitChanges:
    """Return the files that a commit removes and adds, without those that only move rows; without its time."""
    return CommitChanges(
        version=commit.version,
        timestamp_ms=0,
        operation=None,
        removes=tuple(remove for remove in commit.removes if remove.data_change),
        adds=tuple(add for add in commit.adds if add.data_change),
    )


def plan_frame(commits: Sequence[CommitChanges]) -> pl.DataFrame:
    """Return one row per commit; see `Table.explain_changes`."""
    facts = {
        "version": [commit.version for commit in commits],
        "timestamp": [commit.timestamp_ms * 1000 for commit in commits],
        "operation": [commit.operation for commit in commits],
        "source": [commit.source for commit in commits],
        "files": [len(commit.sizes) for commit in commits],
        "bytes": [commit.size_bytes for commit in commits],
    }
    types = {"operation": pl.String, "source": pl.String}
    frame = pl.DataFrame(facts, schema={name: types.get(name, pl.Int64) for name in facts})
    return frame.with_columns(pl.col("timestamp").cast(pl.Datetime("us", "UTC")))


def shown_rows(
    frames: Iterator[pl.DataFrame], names: Sequence[str], predicate: pl.Expr | None, n_rows: int | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a filter with some columns, up to a limit."""
    for frame in frames:
        rows = frame if predicate is None else frame.filter(predicate)
        yield rows.select(names).head(rows.height if n_rows is None else n_rows)
        n_rows = None if n_rows is None else n_rows - min(rows.height, n_rows)
        if n_rows == 0:
            return


def _number(snapshot: Snapshot, version: object, argument: str) -> int:
    """Return the newest version at a time, -1 before the first one, or the number itself."""
    number, moment = (_EMPTY, None) if version == _EMPTY else version_or_time(version, argument)
    if moment is not None:
        found, _ = version_at(snapshot.store, int(moment.timestamp() * 1000))
        return _EMPTY if found is None else min(found, snapshot.version)
    if number is None or number > snapshot.version:
        problem = f"must be a version up to {snapshot.version}, the version of this table, or a time"
        invalid_argument(argument, problem, value=version)
    return number


def _keep_feeds(snapshot: Snapshot, commits: Sequence[Commit]) -> list[bool]:
    """Return whether the table kept a feed at each commit; False where the log does not show it any more."""
    is_last = commits[-1].version == snapshot.version
    if is_last and not any(commit.protocol or commit.metadata for commit in commits):
        return [has_change_feed(snapshot.protocol, snapshot.metadata)] * len(commits)
    protocol, metadata = _settings_before(snapshot, commits[0].version)
    feeds: list[bool] = []
    for commit in commits:
        protocol, metadata = commit.protocol or protocol, commit.metadata or metadata
        # A table that has had a feed keeps the feature in its protocol.
        feeds.append(metadata is not None and has_change_feed(protocol or snapshot.protocol, metadata))
    return feeds


def _settings_before(snapshot: Snapshot, version: int) -> tuple[Protocol | None, Metadata | None]:
    """Return protocol and metadata before a version. None: the first version sets them, or the log was cleaned up."""
    with suppress(FileNotFoundError, InvalidMetadataError):
        return newest_settings(read_log(snapshot.store, version - 1, actions=("protocol", "metaData")))
    return None, None


def _changes(commit: Commit, info: dict[str, Any], *, keeps_feed: bool) -> CommitChanges:
    return replace(
        changes_of_commit(commit),
        timestamp_ms=info["timestamp"],
        operation=info.get("operation"),
        feed=commit.changes,
        keeps_feed=keeps_feed,
    )


def _rows(
    reader: ChangeReader,
    commits: Sequence[CommitChanges],
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _size: int | None,
) -> Iterator[pl.DataFrame]:
    """Read changed rows for Polars."""
    names = list(reader.shown) if with_columns is None else with_columns
    needed = list(dict.fromkeys([*names, *named_columns(predicate)]))
    frames = (frame for commit in commits for frame in reader.read(commit, needed))
    yield from shown_rows(frames, names, predicate, n_rows)

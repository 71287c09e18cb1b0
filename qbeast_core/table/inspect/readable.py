"""Which versions of a table can still be read: the log has all of it, and the files exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.store import Store, map_files, status_of
from qbeast_core.log.deletion_vectors import FileKey, file_key, file_paths, parse_vector
from qbeast_core.log.replay import actions_of
from qbeast_core.spec.blocks import FilePath
from qbeast_core.table.snapshot.log_files import COMMIT, LogFiles, complete_checkpoints, read_commit
from qbeast_core.table.snapshot.snapshot import Snapshot


class _LoggedFile(NamedTuple):
    """A data file with its deletion vector, in an action of the log."""

    key: FileKey
    paths: tuple[FilePath, ...]


class _Changes(NamedTuple):
    version: int
    removed: Sequence[_LoggedFile]
    added: Sequence[_LoggedFile]


class _Lifetime(NamedTuple):
    """A file is live in the versions from `start` to before `end`."""

    file: _LoggedFile
    start: int
    end: int


def readable_versions(snapshot: Snapshot) -> set[int]:
    """Return the versions up to this one that can be read. Costs a listing and the commits; opens no data file.

    Files at absolute paths count as there.
    """
    names = snapshot.store.list("")
    commits = sorted(
        number
        for path in names
        if (match := COMMIT.fullmatch(path)) and (number := int(match[1])) <= snapshot.version
    )
    log = snapshot.source.log
    changes = [part for part in map_files(snapshot.store, partial(_changes, log), commits) if part]
    changes_of = {part.version: part for part in changes}
    checkpoints = [item.version for item in complete_checkpoints(names, version=snapshot.version)]
    live = [
        _logged(path, parse_vector(vector))
        for path, vector in snapshot.logged_files.select("path", "deletion_vector").iter_rows()
    ]
    readable: set[int] = set()
    for run in _runs(list(changes_of)):
        bases = [0] if run[0] == 0 else [number for number in checkpoints if run[0] - 1 <= number <= run[-1]]
        if not bases:
            continue
        at_end = live if run[-1] == snapshot.version else ()
        lifetimes = list(_lifetimes([changes_of[number] for number in run], at_end))
        broken = _broken(snapshot.store, set(names), lifetimes, run)
        readable |= {number for number in run if number >= min(bases)} - broken
    return readable


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs of consecutive numbers."""
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _logged(path: str, vector: dict[str, object] | None) -> _LoggedFile:
    return _LoggedFile(file_key(path, vector), tuple(file_paths(path, vector)))


def _changes(log: LogFiles, version: int) -> _Changes | None:
    """Return the changes of a commit. None: its end is missing."""
    try:
        body = read_commit(log, version)
    except InvalidMetadataError:
        return None
    removed, added = (
        [_logged(action["path"], action.get("deletionVector")) for action in actions_of(body, kind)]
        for kind in ("remove", "add")
    )
    return _Changes(version, removed, added)


def _lifetimes(changes: Iterable[_Changes], at_end: Iterable[_LoggedFile]) -> Iterator[_Lifetime]:
    """Yield when files were live; files that were there before the first change, from its version on."""
    started: dict[FileKey, tuple[_LoggedFile, int]] = {}
    first, last = None, 0
    for version, removed, added in changes:
        first, last = version if first is None else first, version
        for file in removed:
            _, start = started.pop(file.key, (file, first))
            yield _Lifetime(file, start, version)
        for file in added:
            started.setdefault(file.key, (file, version))
    for file in at_end:
        started.setdefault(file.key, (file, first or 0))
    for file, start in started.values():
        yield _Lifetime(file, start, last + 1)


def _broken(
    store: Store, names: Collection[str], lifetimes: Sequence[_Lifetime], run: Sequence[int]
) -> set[int]:
    """Return the versions of a run with a missing file."""
    paths = {path.text for item in lifetimes for path in item.file.paths if path.kind == "inside"}
    missing = paths.difference(names)
    if store.local_root is not None:  # a listing does not follow links
        missing = {path for path in missing if status_of(store.local_root / path) is None}
    steps = [0] * (len(run) + 1)
    for item in lifetimes:
        if any(path.text in missing for path in item.file.paths):
            steps[item.start - run[0]] += 1
            steps[item.end - run[0]] -= 1
    return {number for number, count in zip(run, accumulate(steps), strict=False) if count}

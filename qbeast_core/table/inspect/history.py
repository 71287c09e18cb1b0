"""The history of a table as a frame, and which of its versions can still be read."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.store import Store, map_files, status_of
from qbeast_core.log.actions import LAST_MS
from qbeast_core.log.deletion_vectors import FileKey, file_key, file_paths, parse_vector
from qbeast_core.log.replay import actions_of
from qbeast_core.spec.blocks import FilePath
from qbeast_core.table.snapshot.log_files import COMMIT, LogFiles, complete_checkpoints, read_commit
from qbeast_core.table.snapshot.snapshot import Snapshot

# What is printed, for frames that have all of it: the others would make several lines of each row.
_PRINTED: Final = ("version", "timestamp", "operation", "summary")
_MAX_CHARACTERS: Final = 40  # of a text

_TIMES: Final = ("timestamp", "inCommitTimestamp")  # the first is the time of the version, see `commit_times`

# Names of metrics in the log; the first one that a commit has is used.
_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "rows_written": ("numOutputRows",),
    "rows_inserted": ("numTargetRowsInserted",),
    "rows_updated": ("numUpdatedRows", "numTargetRowsUpdated"),
    "rows_deleted": ("numDeletedRows", "numTargetRowsDeleted"),
    "files_added": ("numAddedFiles", "numTargetFilesAdded", "numRestoredFiles", "numFiles"),
    "files_removed": ("numRemovedFiles", "numTargetFilesRemoved"),
    "bytes_added": ("numAddedBytes", "numTargetBytesAdded", "numOutputBytes"),
}
_IN_COLUMNS: Final = frozenset(
    {
        *_TIMES,
        "engineInfo",
        "isBlindAppend",
        "isolationLevel",
        "operation",
        "operationMetrics",
        "operationParameters",
        "readVersion",
        "txnId",
        "version",
    }
)


class HistoryFrame(pl.DataFrame):
    """A frame that prints its first columns, a line for each row, and has all of them."""

    def __str__(self) -> str:
        printed = self._printed()
        if printed.width == self.width:
            return str(printed)
        with pl.Config(tbl_width_chars=-1, fmt_str_lengths=_MAX_CHARACTERS, tbl_hide_dataframe_shape=True):
            return f"shape: {self.shape}, of which these columns are printed:\n{printed}"

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        return self._printed()._repr_html_(_from_series=_from_series)

    def _printed(self) -> pl.DataFrame:
        frame = pl.DataFrame(self)
        if not set(_PRINTED) <= set(frame.columns):
            return frame
        lines = pl.col("operation").str.replace_all(r"\s+", " ")
        seconds = pl.col("timestamp").dt.truncate("1s")
        return frame.select(_PRINTED).with_columns(lines, seconds)


def history_frame(commits: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return one row per commit, in the given order; see `Table.history` for the columns.

    >>> commit = {"version": 3, "timestamp": 0, "operation": "WRITE", "operationMetrics": {"numFiles": "2"}}
    >>> history_frame([commit]).select("version", pl.col("metrics").struct.field("numFiles")).rows()
    [(3, 2)]
    """
    times = [next((commit[key] for key in _TIMES if key in commit), None) for commit in commits]
    others = [{key: value for key, value in commit.items() if key not in _IN_COLUMNS} for commit in commits]
    numbers = [_counts_of(commit) for commit in commits]
    flags = [commit.get("isBlindAppend") for commit in commits]
    flags = [flag if isinstance(flag, bool) else None for flag in flags]
    columns = [
        _whole("version", [commit["version"] for commit in commits]),
        _times(times),
        _texts("operation", commits, "operation"),
        pl.Series("summary", [summary_of(commit) for commit in commits], dtype=pl.String),
        *(_whole(name, [counts.get(name) for counts in numbers]) for name in _NUMBERS),
        _numbers(_struct("metrics", [commit.get("operationMetrics") for commit in commits])),
        _struct("parameters", [commit.get("operationParameters") for commit in commits]),
        _struct("metadata", others),
        _texts("engine", commits, "engineInfo"),
        _whole("read_version", [commit.get("readVersion") for commit in commits]),
        pl.Series("is_blind_append", flags, dtype=pl.Boolean),
        _texts("isolation_level", commits, "isolationLevel"),
        _texts("txn_id", commits, "txnId"),
    ]
    return HistoryFrame(columns)


def _counts_of(commit: Mapping[str, Any]) -> dict[str, int]:
    """Return the metrics of a commit by common names. Missing metrics are omitted."""
    metrics = commit.get("operationMetrics")
    values = metrics if isinstance(metrics, Mapping) else {}
    counts = {key: int(text) for key, value in values.items() if (text := str(value)).isdecimal()}
    return {
        name: next(counts[key] for key in keys if key in counts)
        for name, keys in _NUMBERS.items()
        if not counts.keys().isdisjoint(keys)
    }


def summary_of(commit: Mapping[str, Any]) -> str | None:
    """Return a summary of the metrics of a commit.

    >>> summary_of({"operationMetrics": {"numOutputRows": "1000", "numFiles": 2}})
    '1,000 rows, +2 files'
    >>> summary_of({"operationMetrics": {"numDeletedRows": "7", "numAddedFiles": "1", "numRemovedFiles": "2"}})
    '7 deleted, +1 -2 files'
    """
    numbers = _counts_of(commit)
    rows = {word: numbers.get(f"rows_{word}") for word in ("inserted", "updated", "deleted")}
    changed = [f"{count:,} {word}" for word, count in rows.items() if count]
    if not changed and numbers.get("rows_written"):
        changed = [f"{numbers['rows_written']:,} rows"]
    files = {"+": numbers.get("files_added"), "-": numbers.get("files_removed")}
    moved = " ".join(f"{sign}{count:,}" for sign, count in files.items() if count)
    return ", ".join([*changed, f"{moved} files"] if moved else changed) or None


def _whole(name: str, values: Sequence[object]) -> pl.Series:
    numbers = [value if isinstance(value, int) and not isinstance(value, bool) else None for value in values]
    return pl.Series(name, numbers, dtype=pl.Int64, strict=False)


def _times(values: Sequence[object]) -> pl.Series:
    stamps = _whole("timestamp", values)
    valid = stamps.set(~stamps.is_between(0, LAST_MS), None)
    return valid.cast(pl.Datetime("ms", "UTC")).dt.cast_time_unit("us")


def _texts(name: str, commits: Sequence[Mapping[str, Any]], key: str) -> pl.Series:
    return pl.Series(name, [_text(commit.get(key)) for commit in commits], dtype=pl.String)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)


def _struct(name: str, values: Sequence[object]) -> pl.Series:
    """Return a struct with a field for each key of the mappings, or nulls if there are no keys."""
    mappings = [value if isinstance(value, Mapping) and value else None for value in values]
    fields = dict.fromkeys(key for mapping in mappings if mapping is not None for key in mapping)
    if not fields:  # files cannot store a struct without fields
        return pl.Series(name, [None] * len(mappings), dtype=pl.Null)
    rows = [None if item is None else {key: _text(item.get(key)) for key in fields} for item in mappings]
    return pl.Series(name, rows, dtype=pl.Struct(dict.fromkeys(fields, pl.String)))


def _numbers(texts: pl.Series) -> pl.Series:
    """Convert the fields that hold only whole numbers to integers."""
    if texts.dtype == pl.Null:
        return texts
    numbers = {field.name: field.cast(pl.Int64, strict=False) for field in texts.struct.unnest()}
    fields = [
        number if number.null_count() == texts.struct.field(name).null_count() else texts.struct.field(name)
        for name, number in numbers.items()
    ]
    return pl.select(pl.when(texts.is_not_null()).then(pl.struct(fields)).alias(texts.name)).to_series()


# The paths of data files with their deletion vectors, by what identifies them.
_Files: TypeAlias = Mapping[FileKey, Sequence[FilePath]]

# The paths of a file, and the versions in which it is live: from the first to before the second.
_Lifetime: TypeAlias = tuple[Sequence[FilePath], int, int]


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
    changes = map_files(snapshot.store, partial(_changes, log), commits)
    changes_of = {number: part for number, part in zip(commits, changes, strict=True) if part is not None}
    checkpoints = [item.version for item in complete_checkpoints(names, version=snapshot.version)]
    live = _doubtful(snapshot, names)
    readable: set[int] = set()
    for run in _runs(list(changes_of)):
        bases = [0] if run[0] == 0 else [number for number in checkpoints if run[0] - 1 <= number <= run[-1]]
        if not bases:
            continue
        at_end = live if run[-1] == snapshot.version else {}
        lifetimes = list(_lifetimes({number: changes_of[number] for number in run}, at_end))
        broken = _broken(snapshot.store, set(names), lifetimes, run)
        readable |= {number for number in run if number >= min(bases)} - broken
    return readable


def _doubtful(snapshot: Snapshot, names: Sequence[str]) -> _Files:
    """Return the live files that may be missing: all others are in the listing."""
    logged = snapshot.with_copies.light(["path", "deletion_vector"])
    is_listed = pl.col("path").is_in(pl.Series(names, dtype=pl.String).implode())
    # An encoded path may be the name of another file.
    is_plain = pl.col("deletion_vector").is_null() & ~pl.col("path").str.contains("%", literal=True)
    left = logged.filter(~(is_listed & is_plain))
    return _files((path, parse_vector(vector)) for path, vector in left.iter_rows())


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


def _files(logged: Iterable[tuple[str, dict[str, object] | None]]) -> _Files:
    return {file_key(path, vector): list(file_paths(path, vector)) for path, vector in logged}


def _changes(log: LogFiles, version: int) -> tuple[_Files, _Files] | None:
    """Return the files that a commit removes and adds. None: its end is missing."""
    try:
        body = read_commit(log, version)
    except InvalidMetadataError:
        return None
    removed, added = (
        _files((action["path"], action.get("deletionVector")) for action in actions_of(body, kind))
        for kind in ("remove", "add")
    )
    return removed, added


def _lifetimes(changes: Mapping[int, tuple[_Files, _Files]], at_end: _Files) -> Iterator[_Lifetime]:
    """Yield when files were live; files that were there before the first change, from its version on."""
    started: dict[FileKey, tuple[Sequence[FilePath], int]] = {}
    first, last = min(changes), max(changes)
    for version, (removed, added) in changes.items():
        for key, paths in removed.items():
            _, start = started.pop(key, (paths, first))
            yield paths, start, version
        for key, paths in added.items():
            started.setdefault(key, (paths, version))
    for key, paths in at_end.items():
        started.setdefault(key, (paths, first))
    for paths, start in started.values():
        yield paths, start, last + 1


def _broken(
    store: Store, names: Collection[str], lifetimes: Sequence[_Lifetime], run: Sequence[int]
) -> set[int]:
    """Return the versions of a run with a missing file."""
    paths = {path.text for files, _, _ in lifetimes for path in files if path.kind == "inside"}
    missing = paths.difference(names)
    if store.local_root is not None:  # a listing does not follow links
        missing = {path for path in missing if status_of(store.local_root / path) is None}
    steps = [0] * (len(run) + 1)
    for files, start, end in lifetimes:
        if any(path.text in missing for path in files):
            steps[start - run[0]] += 1
            steps[end - run[0]] -= 1
    return {number for number, count in zip(run, accumulate(steps), strict=False) if count}

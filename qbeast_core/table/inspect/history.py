"""The history of a table as a frame: time, operation, metrics and metadata of each commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

# The first is the version's where there is one: the other is the clock of its writer.
_TIMES: Final = ("inCommitTimestamp", "timestamp")

# The metrics that Delta writers know by several names, the first one that a commit has counts.
_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "rows_written": ("numOutputRows",),
    "rows_inserted": ("numTargetRowsInserted",),
    "rows_updated": ("numUpdatedRows", "numTargetRowsUpdated"),
    "rows_deleted": ("numDeletedRows", "numTargetRowsDeleted"),
    "files_added": ("numAddedFiles", "numTargetFilesAdded", "numRestoredFiles", "numFiles"),
    "files_removed": ("numRemovedFiles", "numTargetFilesRemoved"),
    "bytes_added": ("numAddedBytes", "numTargetBytesAdded", "numOutputBytes"),
}
# The end of the year 9999: what lies beyond is no time of a commit, and no `datetime`.
_LAST_MS: Final = 253_402_300_799_999

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


def history_frame(commits: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a row a commit, in their order; see `Table.history` for the columns.

    >>> told = {"version": 3, "timestamp": 0, "operation": "WRITE", "operationMetrics": {"numFiles": "2"}}
    >>> history_frame([told]).select("version", pl.col("metrics").struct.field("numFiles")).rows()
    [(3, 2)]
    """
    times = [next((one[key] for key in _TIMES if key in one), None) for one in commits]
    others = [{key: value for key, value in one.items() if key not in _IN_COLUMNS} for one in commits]
    numbers = [_counts_of(one) for one in commits]
    columns = [
        _whole("version", [one["version"] for one in commits]),
        _times(times),
        _texts("operation", commits, "operation"),
        pl.Series("summary", [summary_of(one) for one in commits], dtype=pl.String),
        *(_whole(name, [one.get(name) for one in numbers]) for name in _NUMBERS),
        _numbers(_struct("metrics", [one.get("operationMetrics") for one in commits])),
        _struct("parameters", [one.get("operationParameters") for one in commits]),
        _struct("metadata", others),
        _texts("engine", commits, "engineInfo"),
        _whole("read_version", [one.get("readVersion") for one in commits]),
        pl.Series("is_blind_append", [_flag(one.get("isBlindAppend")) for one in commits], dtype=pl.Boolean),
        _texts("isolation_level", commits, "isolationLevel"),
        _texts("txn_id", commits, "txnId"),
    ]
    return pl.DataFrame(columns)


def _counts_of(commit: Mapping[str, Any]) -> dict[str, int]:
    """Return the metrics of a commit under common names, as far as it has them."""
    metrics = commit.get("operationMetrics")
    values = metrics if isinstance(metrics, Mapping) else {}
    counts = {key: int(text) for key, value in values.items() if (text := str(value)).isdecimal()}
    return {
        name: next(counts[key] for key in keys if key in counts)
        for name, keys in _NUMBERS.items()
        if not counts.keys().isdisjoint(keys)
    }


def summary_of(commit: Mapping[str, Any]) -> str | None:
    """Return the numbers of a commit in words.

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
    wanted = [value if isinstance(value, int) and not isinstance(value, bool) else None for value in values]
    return pl.Series(name, wanted, dtype=pl.Int64, strict=False)


def _times(values: Sequence[object]) -> pl.Series:
    stamps = _whole("timestamp", values)
    sane = stamps.set(~stamps.is_between(0, _LAST_MS), None)
    return sane.cast(pl.Datetime("ms", "UTC")).dt.cast_time_unit("us")


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _texts(name: str, commits: Sequence[Mapping[str, Any]], key: str) -> pl.Series:
    return pl.Series(name, [_text(one.get(key)) for one in commits], dtype=pl.String)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)


def _struct(name: str, values: Sequence[object]) -> pl.Series:
    """Return a struct with a field for each name that any of them has; plain nulls where none has one."""
    found = [one if isinstance(one, Mapping) and one else None for one in values]
    fields = dict.fromkeys(key for one in found if one is not None for key in one)
    if not fields:  # a struct without fields can be written to no file
        return pl.Series(name, [None] * len(found), dtype=pl.Null)
    rows = [None if one is None else {key: _text(one.get(key)) for key in fields} for one in found]
    return pl.Series(name, rows, dtype=pl.Struct(dict.fromkeys(fields, pl.String)))


def _numbers(texts: pl.Series) -> pl.Series:
    """Make whole numbers of the fields that hold nothing else."""
    if texts.dtype == pl.Null:
        return texts
    fields = {field.name: field.cast(pl.Int64, strict=False) for field in texts.struct.unnest()}
    kept = [
        number if number.null_count() == texts.struct.field(name).null_count() else texts.struct.field(name)
        for name, number in fields.items()
    ]
    return pl.select(pl.when(texts.is_not_null()).then(pl.struct(kept)).alias(texts.name)).to_series()

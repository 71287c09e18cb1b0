"""The options of a write, checked against the table at its path: mode, partitions, sampling key."""

from __future__ import annotations

import json
import math
import reprlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

import polars as pl

from qbeast_core.errors import (
    InvalidInputError,
    NotQbeastTableError,
    TableExistsError,
    TableNotFoundError,
    check_choice,
    invalid_argument,
    unknown_columns,
)
from qbeast_core.io.location import Location
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.protocol import CHANGE_FEED, COMPRESSION, DELETION_VECTORS, stored_codec
from qbeast_core.space.values import NumberColumn, number_values
from qbeast_core.spec.blocks import WEIGHT_COLUMN, BlocksDialect
from qbeast_core.spec.table_config import MAX_IMPORTANCE, SAMPLE_BY, TableConfig
from qbeast_core.support.process import ProgressCallback
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import convert_call, did_you_mean
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.data.schema import LOG_DIRECTORY, SchemaMode, listed_names, log_instead
from qbeast_core.table.snapshot.log_files import commit_path
from qbeast_core.table.snapshot.snapshot import Snapshot, newest_snapshot
from qbeast_core.tree.fit import ColumnBounds
from qbeast_core.tree.grid import can_be_hashed, to_index_column

if TYPE_CHECKING:
    from qbeast_core.table.index.revision import IndexColumns


_PAUSE_S: Final = 0.05

Mode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]


def find_target(location: Location, mode: Mode) -> Snapshot:
    """Return the table that a write of this mode works on. A write to an empty table creates it."""
    uri = location.uri
    try:
        snapshot = newest_snapshot(location)
    except TableNotFoundError as error:
        _refuse_what_is_there(location, error)
        return Snapshot.empty(location)
    if mode == "error":
        cure = 'Use mode="append", mode="overwrite" or mode="ignore", or choose another path.'
        msg = f"a table is at {uri!r} already. {cure}"
        raise TableExistsError(msg, path=uri, argument="mode")
    if mode == "ignore":
        return snapshot
    config = snapshot.config
    if mode == "append" and not (config.is_indexed or config.is_left_unindexed):
        msg = (
            f"{uri!r} is a Delta table without Qbeast index. Convert it ({convert_call(uri)}), or "
            'write to another path, or replace it with mode="overwrite".'
        )
        raise NotQbeastTableError(msg, path=uri)
    snapshot.check_writable(mode)
    return snapshot


def find_target_once_created(location: Location, mode: Mode) -> Snapshot:
    """Return the table that a write works on, as `find_target` does, but wait for one that is being created.

    The files of a first write are in the folder before its log is, and look like those of a writer that died. So
    a write that may follow waits for the log while something happens in the folder, and ten seconds more.
    """
    try:
        return find_target(location, mode)
    except TableExistsError:
        root = location.store.local_root
        if mode == "error" or root is None or not _may_be_underway(root) or not _created(root):
            raise
    return find_target(location, mode)


def _may_be_underway(root: Path) -> bool:
    return root.is_dir() and all(_is_id(path.stem) or _is_ours(path) for path in root.glob("*.parquet"))


def _is_id(name: str) -> bool:
    """Return whether a file has a name as ours have: our files for JVMs lack the hidden column."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _created(root: Path) -> bool:
    """Wait while files in the folder change; return whether there is a log in the end."""
    seen, patience = 0.0, time.monotonic()
    while not (root / commit_path(0)).exists():
        newest = max(_times(root), default=0.0)
        if newest != seen:
            # Counted from the last change: files that were left long ago cause no wait.
            seen, patience = newest, time.monotonic() + sizing().quiet_s - max(time.time() - newest, 0.0)
        if time.monotonic() >= patience:
            return False
        time.sleep(_PAUSE_S)
    return True


def _times(root: Path) -> Iterator[float]:
    """Yield when each thing in the folder and its log was changed, seconds since 1970 UTC."""
    for folder in (root, root / LOG_DIRECTORY):
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in (folder, *folder.iterdir()):
                with suppress(FileNotFoundError):
                    yield path.stat().st_mtime


def _refuse_what_is_there(location: Location, error: TableNotFoundError) -> None:
    """Raise if the place holds a file, or data without a Delta log."""
    uri = location.uri
    if log_instead(uri) is not None:
        raise error
    root = location.store.local_root
    if root is None or not root.exists():
        return
    files = list(root.glob("*.parquet"))
    if not root.is_dir():
        msg = f"{uri!r} is a file, not a folder. Choose another path."
    elif files and all(map(_is_ours, files)):
        msg = (
            f"{uri!r} holds data files of a table, but no log that names them: an interrupted write left them, or the "
            "log was lost. Delete them if nobody needs them, or choose another path."
        )
    elif files or (root / LOG_DIRECTORY).exists():
        msg = (
            f"{uri!r} holds files but no readable Delta table. Convert it to a table first "
            f"({convert_call(uri)}), or choose an empty place."
        )
    else:
        return
    raise TableExistsError(msg, path=uri) from error


def _is_ours(path: Path) -> bool:
    """Return whether this library wrote a Parquet file."""
    try:
        return WEIGHT_COLUMN in pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError):
        return False


# Names of the columns of a sampling key, or the name of one.
SampleBy: TypeAlias = Sequence[str] | str

_SAMPLE_BY: Final = "sample_by"


def sampling_key(
    requested: SampleBy | None,
    schema: pl.Schema,
    *,
    now: tuple[str, ...],
    may_change: bool,
    dialect: BlocksDialect,
    sample_column: str | None = None,
) -> tuple[str, ...]:
    """Return the sampling key of a table of these columns after a write. Empty: the indexed columns.

    `now` is that of the table. Without a request, a table keeps its sampling key.
    """
    names = now if requested is None else listed_names(requested, _SAMPLE_BY)
    if names != now and not may_change:
        has = f"has the sampling key {list(now)}" if now else "has no sampling key"
        cure = 'replace the rows with mode="overwrite"'
        msg = f"the table {has}, not {list(names)}. Leave `{_SAMPLE_BY}` out, or {cure}."
        raise InvalidInputError(msg, argument=_SAMPLE_BY, value=list(names))
    if names:
        _check_key(names, schema, dialect, sample_column)
    return names


def with_sampling_key(metadata: Metadata, names: tuple[str, ...]) -> Metadata:
    """Return the metadata with this sampling key, by the names of columns in files."""
    if not names and SAMPLE_BY not in metadata.configuration:
        return metadata
    columns = StoredColumns.of(metadata)
    config = TableConfig.from_configuration(metadata.configuration)
    stored = tuple(columns.stored_name(name) for name in names)
    if stored == config.sample_by:
        return metadata
    return metadata.model_copy(update={"configuration": config.with_sample_by(stored).to_configuration()})


def with_importance(metadata: Metadata, importance: Mapping[str, float], indexed: Sequence[str]) -> Metadata:
    """Return the metadata with an importance of indexed columns; raise if one is not indexed."""
    unknown = [name for name in importance if name not in indexed]
    if unknown:
        unknown_columns("importance", unknown, indexed)
    columns, config = StoredColumns.of(metadata), TableConfig.from_configuration(metadata.configuration)
    stored = {columns.stored_name(name): float(number) for name, number in importance.items()}
    return metadata.model_copy(update={"configuration": config.with_importance(stored).to_configuration()})


def _check_key(
    names: tuple[str, ...], schema: pl.Schema, dialect: BlocksDialect, sample_column: str | None
) -> None:
    """Raise if a table of these columns cannot have this sampling key."""
    unknown = [name for name in names if name not in schema]
    twice = sorted({name for name in names if names.count(name) > 1})
    known = {name: schema[name] for name in names if name in schema}
    unfit = [name for name, dtype in known.items() if dtype.is_float() or not can_be_hashed(dtype)]
    if unknown:
        msg = (
            f"the rows have no column(s) {unknown} to sample by. They have {list(schema)}."
            f"{did_you_mean(unknown, schema)} A table without a sampling key: {_SAMPLE_BY}=[]."
        )
    elif twice:
        msg = f"columns to sample by named twice: {twice}. Name each once."
    elif sample_column in names:
        msg = (
            f"{sample_column!r} is the sample column, which is computed from the sampling key. "
            "Choose other columns."
        )
    elif unfit:
        types = ", ".join(f"{name!r} ({schema[name]})" for name in unfit)
        msg = (
            f"columns of these types cannot be a sampling key: {types}. Equal keys must have equal "
            "bytes, so floats and nested columns are refused: cast them to integers, decimals or text."
        )
    elif dialect == "qbeast-spark":
        msg = (
            "tables of the dialect 'qbeast-spark' cannot have a sampling key: the JVM samples by the indexed "
            "columns. Use the dialect 'documented'."
        )
    else:
        return
    raise InvalidInputError(msg, argument=_SAMPLE_BY, value=list(names), known=list(schema))


# Names of partition columns, or the name of one.
PartitionBy: TypeAlias = Sequence[str] | str

_PARTITION_BY: Final = "partition_by"


def partition_columns(
    requested: PartitionBy | None,
    schema: pl.Schema,
    *,
    now: tuple[str, ...],
    may_change: bool,
    dialect: BlocksDialect,
) -> tuple[str, ...]:
    """Return the partition columns of a table of these columns after a write.

    `now` are those of the table. Without a request, a table keeps its partition columns.
    """
    names = now if requested is None else listed_names(requested, _PARTITION_BY)
    if names != now and not may_change:
        has = f"is partitioned by {list(now)}" if now else "has no partitions"
        msg = (
            f"the table {has}, not by {list(names)}. Leave `{_PARTITION_BY}` out, or replace the table with "
            'mode="overwrite", schema_mode="overwrite".'
        )
        raise InvalidInputError(msg, argument=_PARTITION_BY, value=list(names))
    if names:
        _check_partitions(names, schema, dialect)
    return names


def _check_partitions(names: tuple[str, ...], schema: pl.Schema, dialect: BlocksDialect) -> None:
    """Raise if a table of these columns cannot have these partition columns."""
    unknown = [name for name in names if name not in schema]
    nested = [name for name in names if name in schema and schema[name].is_nested()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if unknown:
        msg = (
            f"the rows have no column(s) {unknown} to partition by. They have {list(schema)}."
            f"{did_you_mean(unknown, schema)} A table without partitions: {_PARTITION_BY}=[]."
        )
    elif twice:
        msg = f"columns to partition by named twice: {twice}. Name each once."
    elif nested:
        types = ", ".join(f"{name!r} ({schema[name]})" for name in nested)
        msg = f"lists, structs and maps cannot be partition columns: {types}. Choose other columns."
    elif len(names) == len(schema):
        msg = "all columns are partition columns, so files would have no column. Leave one out."
    elif dialect == "qbeast-spark":
        msg = (
            f"tables of the dialect 'qbeast-spark' cannot have partitions. Index {list(names)} instead, "
            "or use the dialect 'documented'."
        )
    else:
        return
    raise InvalidInputError(msg, argument=_PARTITION_BY, value=list(names), known=list(schema))


# Compression of the files of a new table.
Compression: TypeAlias = Literal["zstd", "snappy", "none"]

_MAX_CHARACTERS: Final = 1 << 20

_MAX_ROWS: Final = 2**31 - 1  # the JVM counts the rows of a cube in 32 bits

# Every commit sets these, but for those that Spark's Delta knows as structs, maps or numbers: a text in one of
# them makes its DESCRIBE HISTORY fail.
_OWN_KEYS: Final = frozenset(
    {
        "engineInfo",
        "inCommitTimestamp",
        "isBlindAppend",
        "isolationLevel",
        "job",
        "notebook",
        "operation",
        "operationMetrics",
        "operationParameters",
        "readVersion",
        "tags",
        "timestamp",
        "txnId",
        "version",
    }
)

# A mapping, or the same as JSON text.
ColumnStats: TypeAlias = Mapping[str, Any] | str

_SUFFIXES = ("_min", "_max", "_quantiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write, as `qbeast.write_table` documents them."""

    columns: IndexColumns | None = None
    columns_if_none: Sequence[str] | None = None  # where neither `columns` nor a table names any
    mode: Mode = "error"
    # Condition on the rows to replace. None: an overwrite replaces all rows.
    where: Predicate | None = None
    cube_size: int | None = None
    column_stats: ColumnStats | None = None
    schema_mode: SchemaMode | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    register: str | None = None  # a name in Unity Catalog
    txn: tuple[str, int] | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    properties: Mapping[str, str] = field(default_factory=dict[str, str])  # of a new table
    comment: str | None = None  # of a new table or schema
    column_comments: Mapping[str, str] = field(default_factory=dict[str, str])  # the same
    field_metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    dialect: BlocksDialect | None = None
    sample_column: str | None = None
    # None: a table keeps its partition columns.
    partition_by: PartitionBy | None = None
    # None: a table keeps its sampling key.
    sample_by: SampleBy | None = None
    # Properties of a new table. None: a table keeps what it has.
    deletion_vectors: bool | None = None
    change_feed: bool | None = None
    compression: Compression | None = None
    # None: a table keeps what it has.
    importance: Mapping[str, float] | None = None
    dry_run: bool = False
    progress: ProgressCallback | None = None

    @property
    def table_properties(self) -> dict[str, str]:
        """Properties of a new table."""
        flags = {DELETION_VECTORS: self.deletion_vectors, CHANGE_FEED: self.change_feed}
        stored = {key: "true" for key, flag in flags.items() if flag}
        if self.compression is not None:
            stored[COMPRESSION] = stored_codec(self.compression)
        return {**self.properties, **stored}


def check_options(options: WriteOptions) -> None:
    """Validate options before anything is read."""
    check_choice("mode", options.mode, get_args(Mode))
    check_choice("schema_mode", options.schema_mode, (None, *get_args(SchemaMode)))
    check_choice("dialect", options.dialect, (None, *get_args(BlocksDialect)))
    check_choice("compression", options.compression, (None, *get_args(Compression)))
    if options.where is not None and options.mode != "overwrite":
        msg = '`where` needs mode="overwrite": it selects the rows that the new rows replace'
        raise InvalidInputError(msg, argument="where")
    if options.register is not None and options.where is not None:
        msg = "`register` is for writes of whole tables, not for `where`"
        raise InvalidInputError(msg, argument="register")
    size = cast("object", options.cube_size)  # callers without a type checker pass anything
    if size is not None and not (
        isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= _MAX_ROWS
    ):
        what = f"must be a whole number of rows, from 1 to {_MAX_ROWS:,}"
        invalid_argument("cube_size", what, value=size)
    if options.schema_mode == "overwrite" and options.mode == "append":
        msg = 'schema_mode="overwrite" needs mode="overwrite"'
        raise InvalidInputError(msg, argument="schema_mode")
    for name in ("deletion_vectors", "change_feed"):
        if not isinstance(cast("object", getattr(options, name)), bool | None):
            invalid_argument(name, "must be True, False or None", value=getattr(options, name))
    comments = {"comment": options.comment} if options.comment is not None else {}
    for argument, text in (
        *comments.items(),
        *(("column_comments", t) for t in options.column_comments.values()),
    ):
        if not _is_text(text):
            invalid_argument(argument, "must be a text", value=text)
    check_importance(options.importance)
    check_txn(options.txn)
    metadata_of(options.commit_metadata)  # an import of CarbonData adds its own


def check_importance(importance: Mapping[str, float] | None) -> None:
    """Raise if an importance is not valid."""
    valid = importance is None or (
        isinstance(cast("object", importance), Mapping)
        and all(_is_importance(number) for number in importance.values())
    )
    if not valid:
        problem = f"must map columns to numbers above 0, at most {MAX_IMPORTANCE:g}"
        invalid_argument("importance", problem, value=importance)


def _is_importance(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= MAX_IMPORTANCE


def metadata_of(commit_metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the argument `commit_metadata`, or raise if it would break the history."""
    if commit_metadata is not None and not isinstance(cast("object", commit_metadata), Mapping):
        invalid_argument("commit_metadata", "must map texts to texts", value=commit_metadata)
    metadata = dict(commit_metadata or {})
    for key, value in metadata.items():
        if not _is_text(key) or not _is_text(value) or key in _OWN_KEYS:
            msg = (
                f"`commit_metadata` maps texts to texts, and may not use {sorted(_OWN_KEYS)}; got "
                f"{reprlib.repr(key)}: {reprlib.repr(value)}."
            )
            raise InvalidInputError(msg, argument="commit_metadata", value=key)
    length = sum(len(key) + len(value) for key, value in metadata.items())
    if length > _MAX_CHARACTERS:
        msg = (
            f"`commit_metadata` has {length:,} characters, more than {_MAX_CHARACTERS:,}, which every reader of the "
            "log would read. Store it elsewhere, and its address here."
        )
        raise InvalidInputError(msg, argument="commit_metadata")
    return metadata


def _is_text(value: object) -> bool:
    """Return whether this is text with a UTF-8 encoding: half a surrogate pair has none."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


def parse_column_stats(
    stats: ColumnStats | None, schema: pl.Schema, indexed: Sequence[str]
) -> dict[str, ColumnBounds]:
    """Return the bounds per indexed column, in the format's units.

    >>> parse_column_stats('{"a_min": 0, "a_max": 9}', pl.Schema({"a": pl.Int64()}), ["a"])
    {'a': ColumnBounds(lowest=0, highest=9, quantiles=None)}
    """
    values = _as_mapping(stats)
    keys = {f"{name}{suffix}" for name in indexed for suffix in _SUFFIXES}
    unknown = sorted(set(values) - keys)
    if unknown:
        msg = (
            f"`column_stats` names {unknown}, which belong to no indexed column. Keys are one of "
            f"{list(indexed)} followed by _min, _max or _quantiles.{did_you_mean(unknown, sorted(keys))}"
        )
        raise InvalidInputError(msg, argument="column_stats", value=unknown, known=sorted(keys))
    bounds_of = {name: _bounds(name, schema[name], values) for name in indexed}
    return {name: bounds for name, bounds in bounds_of.items() if bounds != ColumnBounds()}


def check_txn(txn: object) -> None:
    """Raise on a transaction that a Delta log cannot hold."""
    match txn:
        case None:
            return
        case (str(app), int(version)) if (
            app and _is_text(app) and not isinstance(version, bool) and 0 <= version < 2**63
        ):
            return
        case _:
            what = "must be (application id, version), a text and a whole number below 2**63"
            invalid_argument("txn", what, value=txn)


def _as_mapping(stats: ColumnStats | None) -> Mapping[str, Any]:
    if not isinstance(stats, str):
        if not isinstance(cast("object", stats), Mapping | None):
            problem = "must be a mapping or the text of a JSON object"
            invalid_argument("column_stats", problem, value=stats)
        return stats or {}
    try:
        parsed = json.loads(stats)
    except json.JSONDecodeError as error:
        msg = f"column_stats is not valid JSON: {error}"
        raise InvalidInputError(msg, argument="column_stats") from error
    if not isinstance(parsed, dict):
        invalid_argument("column_stats", "must be a JSON object", value=stats)
    return parsed


def _bounds(name: str, dtype: pl.DataType, stats: Mapping[str, Any]) -> ColumnBounds:
    ends = (stats.get(f"{name}_min"), stats.get(f"{name}_max"))
    lowest, highest = (None if end is None else _in_format_unit(name, dtype, [end])[0] for end in ends)
    if lowest is not None and highest is not None and lowest > highest:  # type: ignore[operator] # one column, one type
        msg = f"column_stats: {name}_min {lowest!r} lies above {name}_max {highest!r}"
        raise InvalidInputError(msg, argument="column_stats")
    quantiles = stats.get(f"{name}_quantiles")
    if quantiles is None:
        return ColumnBounds(lowest, highest)
    listed = [] if isinstance(quantiles, str) or not isinstance(quantiles, Iterable) else list(quantiles)
    values = _in_format_unit(name, dtype, listed) if listed else []
    if len(set(values)) < 2:
        msg = f"column_stats: {name}_quantiles needs at least two different values, got {quantiles!r}"
        raise InvalidInputError(msg, argument="column_stats")
    return ColumnBounds(lowest, highest, tuple(values))  # type: ignore[arg-type] # one column, one type


def _in_format_unit(name: str, dtype: pl.DataType, values: list[Any]) -> list[float | str]:
    try:
        cast = pl.concat([_as_column_value(value, dtype) for value in values])
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        msg = f"column_stats: {values!r} does not fit column {name!r} of type {dtype}"
        raise InvalidInputError(msg, argument="column_stats") from error
    if dtype == pl.String or dtype.is_integer():
        return cast.to_list()
    column = to_index_column(cast)
    if not isinstance(column, NumberColumn):
        return []
    numbers = number_values(column).tolist()
    return [int(v) for v in numbers] if dtype.is_temporal() else list(numbers)


def _as_column_value(value: Any, dtype: pl.DataType) -> pl.Series:
    """Return a value as a column of one row; raise TypeError if it is of another kind, or not finite."""
    if dtype.is_temporal():
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        fits = isinstance(moment, date)
    elif dtype == pl.String:
        moment, fits = value, isinstance(value, str)
    else:
        moment, fits = value, _is_number(value) and (not dtype.is_integer() or value == int(value))
    if not fits:
        msg = f"{value!r} is of another kind"
        raise TypeError(msg)
    series = pl.Series([moment])
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None and series.dtype == pl.Datetime("us"):
        return series.dt.replace_time_zone("UTC").cast(dtype)
    return series.cast(dtype, strict=True)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, Real | Decimal) and math.isfinite(value)

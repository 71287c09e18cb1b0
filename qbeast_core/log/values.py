"""Live files: the values that the log has of each, and their changes in a commit with all fields kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.log.actions import AddFile, RemoveFile
from qbeast_core.log.columns import PLAIN, StoredColumns
from qbeast_core.log.deletion_vectors import parse_vector
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.frames import has_text

# Texts of the values of the partition columns of a file.
PartitionTexts: TypeAlias = tuple[str | None, ...]

# Formats of times that Delta writers use, see "Partition Value Serialization" of the protocol.
_TIMES: Final = (
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.fZ",
    "%Y-%m-%dT%H:%M:%S%.f%:z",
    "%Y-%m-%dT%H:%M:%S%.f",
)
_LONG_YEAR: Final = r"^(\d{5,}-)"  # Polars expects a sign before such years; so do deltalake and Spark
_TIME_OF_DAY: Final = r"[ T].*$"


def typed_values(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values of a partition column from their texts; null and the empty text are null.

    Raises `polars.exceptions.InvalidOperationError` if a text is not a value of the type.

    >>> typed_values(pl.Series(["2024-05-01", "", None]), pl.Date()).to_list()
    [datetime.date(2024, 5, 1), None, None]
    """
    name = texts.name
    present = texts.replace("", None)
    match dtype:
        case pl.String():
            return present
        case pl.Binary():
            return present.cast(pl.Binary)
        case pl.Boolean():
            lower = present.str.to_lowercase()
            values = lower.replace_strict({"true": True, "false": False}, return_dtype=pl.Boolean)
        case pl.Datetime():
            values = _times(present, dtype)
        case pl.Decimal():
            values = present.str.to_decimal(scale=dtype.scale).cast(dtype)
        case pl.Date():
            values = _signed(present).str.replace(_TIME_OF_DAY, "").str.to_date("%Y-%m-%d")
        case _:
            values = present.cast(dtype)
    return values.alias(name)


def partition_texts(values: pl.Series) -> pl.Series:
    """Return the texts of values of a partition column, as the protocol of Delta serialises them.

    >>> partition_texts(pl.Series([True, None])).to_list()
    ['true', None]
    """
    _refuse_far(values)
    match values.dtype:
        case pl.Binary():
            texts = _texts_of_bytes(values)
        case pl.Datetime(time_zone=zone):
            shape = "%Y-%m-%d %H:%M:%S%.6f" if zone is None else "%Y-%m-%dT%H:%M:%S%.6fZ"
            texts = values.dt.strftime(shape)
        case pl.Date():
            texts = values.dt.strftime("%Y-%m-%d")
        case pl.Float32() | pl.Float64():
            texts = values.cast(pl.String).replace({"inf": "Infinity", "-inf": "-Infinity"})
        case _:
            texts = values.cast(pl.String)
    return texts.replace("", None)


def partition_values(rows: pl.DataFrame, columns: StoredColumns) -> dict[str, str | None]:
    """Return the ``partitionValues`` of a file with these rows, which all have the same values."""
    first = rows.select(columns.partitions).head(1)
    return {columns.stored_name(series.name): partition_texts(series).item() for series in first}


def _values_of_files(files: pl.DataFrame, columns: StoredColumns) -> list[dict[str, str | None]]:
    """Return the ``partitionValues`` of live files."""
    if not columns.partitions:
        return [{} for _ in range(files.height)]
    names = [columns.stored_name(name) for name in columns.partitions]
    values = files["partition"].struct.unnest().select(columns.partitions)
    rows = pl.DataFrame([partition_texts(column) for column in values]).iter_rows()
    return [dict(zip(names, row, strict=True)) for row in rows]


def typed_partitions(values: Sequence[Mapping[str, str | None]], columns: StoredColumns) -> pl.DataFrame:
    """Return the partition columns by their names in the table, from the ``partitionValues`` of files."""
    texts = {
        name: [of_file.get(columns.stored_name(name)) for of_file in values] for name in columns.partitions
    }
    return pl.DataFrame(
        [
            typed_values(pl.Series(name, of_files, dtype=pl.String), columns.columns[name].dtype)
            for name, of_files in texts.items()
        ]
    )


def folder_of(values: Mapping[str, str | None]) -> str:
    """Return the folder of the files of a partition, as Hive names it; empty if a name would be too long.

    The names are ASCII, as those of delta-rs are: Spark and delta-rs encode other letters differently in a log, and
    each compares paths as texts.

    >>> folder_of({"day": "2024-05-01", "city": "a/b=ü"}), folder_of({"day": None})
    ('day=2024-05-01/city=a%2Fb%3D%C3%BC/', 'day=__HIVE_DEFAULT_PARTITION__/')
    """
    parts = [
        f"{_escaped(name)}={NULL_FOLDER if text is None else _escaped(text)}" for name, text in values.items()
    ]
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        return ""  # the path of a file has no meaning in Delta
    return "".join(f"{part}/" for part in parts)


# Folder of null.
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_MAX_NAME_BYTES: Final = 200
# All that Hive does not leave as it is. A class of these characters themselves takes long to compile.
_ESCAPED: Final = re.compile(r"[^ !$&()+,\-.0-9;<>@A-Z_`a-z|~]")


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: quote(match[0], safe=""), text)


def _texts_of_bytes(values: pl.Series) -> pl.Series:
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError as error:
        message = (
            f"the partition column {values.name!r} holds bytes that are not UTF-8, and Delta stores the values of "
            "partitions as texts. Encode them, or do not partition by this column."
        )
        raise InvalidInputError(message, argument="df") from error


def _signed(texts: pl.Series) -> pl.Series:
    return texts.str.replace(_LONG_YEAR, "+${1}")


def _refuse_far(values: pl.Series) -> None:
    """Raise if dates or times have no text: Polars panics."""
    if has_text(values):
        return
    message = (
        f"the partition column {values.name!r} has values outside the years -262143 to 262142. Delta stores the values "
        "of partitions as texts, and such values have none that can be read back. Replace them, "
        "by null for example, or do not partition by this column."
    )
    raise InvalidInputError(message, argument="df")


def _times(texts: pl.Series, dtype: pl.Datetime) -> pl.Series:
    shapes: Sequence[str] = _TIMES
    texts = _signed(texts).str.replace(r"^([+-]?\d+-\d+-\d+)$", "${1} 00:00:00")
    parsed = pl.Series(texts.name, [None] * len(texts), dtype=pl.Datetime("us"))
    for shape in shapes:
        times = texts.str.to_datetime(shape, time_unit="us", strict=False)
        if times.dtype.time_zone is not None:  # type: ignore[attr-defined]
            times = times.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        parsed = parsed.fill_null(times)
    if parsed.null_count() > texts.null_count():
        wrong = texts.filter(parsed.is_null() & texts.is_not_null())[0]
        msg = f"{wrong!r} is not a time"
        raise pl.exceptions.InvalidOperationError(msg)
    return parsed.dt.replace_time_zone(dtype.time_zone)


_BOUNDS: Final = ("min", "max")


def statistics_by_name(files: pl.DataFrame, columns: StoredColumns) -> pl.DataFrame:
    """Return the files of `deltalake` with statistics by the names of columns in the table.

    A partition column has its value as minimum and maximum, so filters skip files by it as by others.

    >>> no_statistics = {"min": [{}], "max": [{}], "null_count": [{}]}
    >>> files = pl.DataFrame({"num_records": [3], "partition": [{"d": 1}], **no_statistics})
    >>> statistics_by_name(files, StoredColumns({}, partitions=("d",))).select("min", "null_count").row(0)
    ({'d': 1}, {'d': 0})
    """
    if columns.is_plain:
        return files
    renamed = {kind: _fields(kind, files.schema[kind], columns) for kind in (*_BOUNDS, "null_count")}
    for name in columns.partitions:
        value = pl.col("partition").struct.field(name)
        nulls = pl.when(value.is_null()).then("num_records").otherwise(0).cast(pl.Int64)
        for kind in _BOUNDS:
            bound = value.fill_nan(None) if files.schema["partition"].to_schema()[name].is_float() else value  # type: ignore[attr-defined]
            renamed[kind][name] = bound
        renamed["null_count"][name] = nulls
    structs = {
        kind: pl.struct([value.alias(name) for name, value in fields.items()])
        for kind, fields in renamed.items()
        if fields
    }
    return files.with_columns(**structs)


def _fields(kind: str, dtype: pl.DataType, columns: StoredColumns) -> dict[str, pl.Expr]:
    """Return the statistics of each column."""
    if not isinstance(dtype, pl.Struct):
        return {}
    inner = dtype.to_schema()
    fields: dict[str, pl.Expr] = {}
    for name, column in columns.columns.items():
        if column.stored_name in inner:
            value = pl.col(kind).struct.field(column.stored_name)
            fields[name] = _named(value, inner[column.stored_name], column.stored_type, column.dtype)
    return fields


def _named(value: pl.Expr, found: Any, stored: Any, dtype: Any) -> pl.Expr:
    """Return a value of structs with the names of fields in the table. Lists and maps have no statistics."""
    if not (isinstance(found, pl.Struct) and isinstance(stored, pl.Struct) and isinstance(dtype, pl.Struct)):
        return value
    present = found.to_schema()
    names = zip(stored.fields, dtype.fields, strict=True)
    fields = [
        _named(value.struct.field(old.name), present[old.name], old.dtype, new.dtype).alias(new.name)
        for old, new in names
        if old.name in present
    ]
    return pl.struct(fields) if fields else value


def joined_files(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the files of several parts. Columns that one of them lacks are null there, also in structs."""
    schema = parts[-1].schema
    if all(part.schema == schema for part in parts):
        return pl.concat(parts)
    return pl.concat([_like(part, schema) for part in parts])


def _like(files: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return files with the columns and the fields of structs in a schema."""
    columns: list[pl.Expr] = []
    for name, dtype in schema.items():
        found = files.schema.get(name)
        if isinstance(dtype, pl.Struct) and isinstance(found, pl.Struct):
            present = found.to_schema()
            fields = [
                pl.col(name).struct.field(inner).cast(kind)
                if inner in present
                else pl.lit(None, kind).alias(inner)
                for inner, kind in dtype.to_schema().items()
            ]
            columns.append((pl.struct(fields) if fields else pl.lit(None, dtype)).alias(name))
        else:
            columns.append(pl.lit(None, dtype).alias(name) if found is None else pl.col(name).cast(dtype))
    return files.select(columns)


def statistics_of(files: pl.DataFrame, columns: Collection[str]) -> list[pl.Expr]:
    """Return the statistics of some columns of the table."""
    found: list[pl.Expr] = []
    for kind in ("min", "max", "null_count"):
        dtype = files.schema.get(kind)
        known = dtype.to_schema() if isinstance(dtype, pl.Struct) else {}
        fields = [pl.col(kind).struct.field(name) for name in columns if name in known]
        found += [pl.struct(fields).alias(kind)] if fields else []
    return found


# A text of a Float32 in the log, read as a Float64, differs from the value by at most half of its last bit.
_RELATIVE: Final = 2.0**-23
_SMALLEST: Final = 1.5e-45


def sound_bounds(files: pl.DataFrame, columns: StoredColumns) -> pl.DataFrame:
    """Return the files with wider bounds, or none, where the bounds in the log do not enclose the values.

    The statistics of files from before a change from Float32 to Float64 are texts of the narrow numbers: 3.4 for a
    value that is 3.4000000953674316 now. The bounds of strings with a collation may follow its order, not that of
    bytes, which filters of Polars compare.

    >>> columns = StoredColumns({})
    >>> sound_bounds(pl.DataFrame({"path": ["a"]}), columns).height
    1
    """
    widened = {
        change.column for change in columns.type_changes if change.to_type == "double" and change.is_whole
    }
    unknown = set(columns.collated)
    unknown |= {change.column for change in columns.type_changes if change.to_type == "double"} - widened
    if not widened and not unknown:
        return files
    changed: list[pl.Expr] = []
    for kind, sign in (("min", -1.0), ("max", 1.0)):
        dtype = files.schema[kind]
        fields = dtype.to_schema() if isinstance(dtype, pl.Struct) else {}
        bounds: list[pl.Expr] = []
        for name in fields:
            bound = pl.col(kind).struct.field(name)
            if name in unknown:
                bounds.append(pl.lit(None, fields[name]).alias(name))
            elif name in widened and fields[name] == pl.Float64:
                bounds.append(bound + sign * (bound.abs() * _RELATIVE + _SMALLEST))
        if bounds:
            changed.append(pl.col(kind).struct.with_fields(*bounds))
    return files.with_columns(changed)


# The time (the end of the year 9999) in the remove of a path whose file lives on under another encoding. A vacuum that
# compares texts would delete the file once the remove is old; this one never is.
NEVER_MS: Final = 253_402_300_799_000


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of one version."""

    # Every live file, as in its newest add.
    listed: tuple[AddFile, ...]
    # Files that their newest commit both removes and adds. Delta forbids such commits; Spark takes these
    # files for live, `deltalake` and this library do not (format 11).
    unlisted: tuple[AddFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What happens to the files of a version."""

    adds: tuple[AddFile, ...] = ()
    removed: tuple[AddFile, ...] = ()
    # Whether taking them back changes what the table holds.
    data_change: bool = False
    # Files whose adds come back under another encoding of their path.
    renamed: tuple[AddFile, ...] = ()


# What to do with the files that live when a commit lands, and the dialect of the table's blocks.
FileChangePlanner: TypeAlias = Callable[[LiveFiles, BlocksDialect], FileChange]


class LastChange:
    """A planner that keeps its newest change: a commit that loses a race plans again, and the last plan counts."""

    def __init__(self, plan: FileChangePlanner) -> None:
        self._plan = plan
        self.change = FileChange()

    def __call__(self, live: LiveFiles, dialect: BlocksDialect) -> FileChange:
        """Return the change of the plan."""
        self.change = self._plan(live, dialect)
        return self.change


def retag(live: LiveFiles, edit: Callable[[AddFile, bool], AddFile | None]) -> FileChange:
    """Return the change that replaces the adds of files, for other tags or another encoding of the path.

    >>> file = AddFile(path="a", size=1, modification_time=1, tags={"x": "1"})
    >>> change = retag(LiveFiles((file,)), lambda add, _: add.model_copy(update={"tags": None}))
    >>> [(add.path, add.tags, add.data_change) for add in change.adds], change.removed
    ([('a', None, False)], ())
    """
    edited = [(add, edit(add, True)) for add in live.listed]  # noqa: FBT003 -- a callback has no keywords
    edited += [(add, edit(add, False)) for add in live.unlisted]  # noqa: FBT003 -- the same
    adds = (new.model_copy(update={"data_change": False}) for old, new in edited if new not in (None, old))
    return FileChange(
        adds=tuple(adds),
        removed=tuple(old for old, new in edited if new is None),
        renamed=tuple(old for old, new in edited if new is not None and new.path != old.path),
    )


def removes_of(
    files: pl.DataFrame, columns: StoredColumns = PLAIN, *, data_change: bool
) -> tuple[RemoveFile, ...]:
    """Return the removes of files; the time is set when they are committed. `columns` are the columns of the table.

    >>> files = pl.DataFrame({"path": ["a"], "size_bytes": [7], "deletion_vector": [None], "base_row_id": [3],
    ...     "default_row_commit_version": [1]})
    >>> removes_of(files, data_change=False)[0].size
    7
    """
    ids = ("base_row_id", "default_row_commit_version")
    listed = files.select("path", "size_bytes", pl.col("deletion_vector").cast(pl.String), *ids)
    return tuple(
        RemoveFile(
            path=path,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=values,
            size=size,
            deletion_vector=parse_vector(vector),
            base_row_id=base_row_id,
            default_row_commit_version=version,
        )
        for (path, size, vector, base_row_id, version), values in zip(
            listed.iter_rows(), _values_of_files(files, columns), strict=True
        )
    )


def remove_of(add: AddFile, *, data_change: bool) -> RemoveFile:
    """Return the remove of an add; it repeats every field that Delta has for it."""
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )

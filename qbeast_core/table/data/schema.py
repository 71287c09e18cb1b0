"""Fit rows to a schema: columns after a write, their names, and paths that hold other data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast

import orjson
import polars as pl

from qbeast_core.errors import (
    InvalidColumnsError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedTableError,
    invalid_argument,
)
from qbeast_core.io.store import entries_of
from qbeast_core.log.actions import Protocol
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.protocol import CHANGE_FEED
from qbeast_core.log.schema import FieldPath, fields_of
from qbeast_core.spec.blocks import WEIGHT_COLUMN, BlocksDialect
from qbeast_core.spec.revision import Revision
from qbeast_core.support.text import SCANS, convert_call, copy_call, write_call
from qbeast_core.tree.grid import can_be_hashed, data_type_of

SchemaMode: TypeAlias = Literal["merge", "overwrite"]

# From narrow to wide.
_INTEGERS: Final[tuple[pl.DataType, ...]] = (pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64())
_FLOATS: Final[tuple[pl.DataType, ...]] = (pl.Float32(), pl.Float64())
# Problems that schema_mode="merge" solves.
_MISSING: Final = "is missing"
_NEW: Final = "is not in the table"
# Columns that a change data feed adds to those of the table, with the names and types of Delta.
CHANGE_TYPE: Final = "_change_type"
FEED_COLUMNS: Final = pl.Schema(
    {
        CHANGE_TYPE: pl.String(),
        "_commit_version": pl.Int64(),
        "_commit_timestamp": pl.Datetime("us", "UTC"),
    }
)


def _is_wider(wanted: pl.DataType, now: pl.DataType) -> bool:
    """Return whether a type of integers, or of floats, holds all values of another one, and more.

    >>> _is_wider(pl.Int64(), pl.Int8()), _is_wider(pl.Float64(), pl.Int8())
    (True, False)
    """
    return any(wanted in types[types.index(now) + 1 :] for types in (_INTEGERS, _FLOATS) if now in types)


def fit_frame(
    frame: pl.DataFrame, schema_json: str, schema: pl.Schema, *, merge: bool, replaces: bool = False
) -> pl.DataFrame:
    """Return the rows with the table's columns, order and types; new columns follow at the end.

    The same holds for fields of structs, of elements of lists, and of values of maps. Narrower integers and floats are
    widened to the table's type; a column of nulls takes any type. Floats fit integers if all of them are whole: pandas
    makes floats of integers with nulls, and longs of integers. NaN does not fit an integer. Rows that replace all
    others have to have the types.
    """
    required = {path for path, f in fields_of(orjson.loads(schema_json)) if not f.get("nullable", True)}
    columns_now = frame.schema  # once: Polars makes it anew each time
    if columns_now == schema and not required:
        return frame
    new = [name for name in columns_now if name not in schema]
    problems = [f"column {name!r} {_NEW}" for name in new]
    if merge:
        problems = case_problems(new, schema)
    columns: list[pl.Expr] = []
    for name, dtype in schema.items():
        if dtype.is_nested() and name in columns_now:
            nested = _Nested(merge=merge, required=required)
            wanted = nested.type_of(columns_now[name], dtype, (name,))
            column = pl.col(name) if wanted == columns_now[name] else pl.col(name).cast(wanted)
            found = nested.problems
        else:
            problem, column = _column(frame, columns_now, name, dtype, merge=merge, by_value=not replaces)
            found = [problem] if problem else []
        problems += found
        if not found and (name,) in required and (name not in columns_now or frame[name].null_count()):
            problems.append(f"column {name!r} may hold no nulls")
        columns.append(column)
    if problems:
        named = not merge and any(problem.endswith((_MISSING, _NEW)) for problem in problems)
        cure = "Cast or fill them."
        if replaces:
            cure = 'With schema_mode="overwrite" the columns of the table are replaced too.'
        elif named:
            cure = 'With schema_mode="merge" columns, and fields inside of them, may be new or missing.'
        msg = f"the rows do not fit the table: {'; '.join(problems)}. {cure}"
        argument = "schema_mode" if replaces or named else "df"
        raise SchemaMismatchError(msg, problems=problems, argument=argument)
    return frame.select(*columns, *new)


@dataclass(frozen=True, slots=True)
class _Nested:
    """Compares nested types of rows with those of the table, and records the problems."""

    merge: bool
    # Fields that may hold no nulls.
    required: Collection[FieldPath]
    problems: list[str] = field(default_factory=list[str])

    def type_of(self, now: Any, table: Any, path: FieldPath) -> pl.DataType:
        """Return the type to cast values to: the type of the table, with new fields at the end of structs."""
        match now, table:
            case pl.Struct(), pl.Struct():
                return self._struct(now.to_schema(), table.to_schema(), path)
            case pl.List(), pl.List():
                return pl.List(self.type_of(now.inner, table.inner, (*path, "element")))
            case pl.Map(), pl.Map():
                key = replace(self, merge=False).type_of(now.key, table.key, (*path, "key"))
                return pl.Map(key, self.type_of(now.value, table.value, (*path, "value")))
            case _:
                if now != table and not _fits_losslessly(now, table):
                    self._add(path, f"is {now} and the table has {table}")
        return table  # type: ignore[no-any-return]

    def _struct(self, now: Mapping[str, Any], table: Mapping[str, Any], path: FieldPath) -> pl.Struct:
        missing = [name for name in table if name not in now]
        # A field that is null in all rows has no type: it is not added.
        new = {name: dtype for name, dtype in now.items() if name not in table and dtype != pl.Null()}
        if self.merge:
            self.problems.extend(f"in {'.'.join(path)!r}: {text}" for text in case_problems(list(new), table))
            for name in missing:
                if (*path, name) in self.required:
                    self._add((*path, name), "may hold no nulls")
        else:
            for names, problem in ((missing, _MISSING), (new, _NEW)):
                for name in names:
                    self._add((*path, name), problem)
            new = {}
        kept = {
            name: self.type_of(now[name], dtype, (*path, name)) if name in now else dtype
            for name, dtype in table.items()
        }
        return pl.Struct({**kept, **new})

    def _add(self, path: FieldPath, problem: str) -> None:
        kind = "field" if len(path) > 1 else "column"
        self.problems.append(f"{kind} {'.'.join(path)!r} {problem}")


def case_problems(new: list[str], schema: Mapping[str, Any]) -> list[str]:
    """Return the problems of new columns whose names differ from columns of the table in case alone."""
    names = {name.lower(): name for name in schema}
    return [
        f"column {name!r} differs in case alone from {names[name.lower()]!r}, which Delta cannot tell apart"
        for name in new
        if name.lower() in names
    ]


def _column(
    frame: pl.DataFrame, schema: pl.Schema, name: str, dtype: pl.DataType, *, merge: bool, by_value: bool
) -> tuple[str | None, pl.Expr]:
    if name not in schema:
        missing = None if merge else f"column {name!r} {_MISSING}"
        return missing, pl.lit(None, dtype=dtype).alias(name)
    now = schema[name]
    if now == dtype or _fits_losslessly(now, dtype):
        return None, pl.col(name) if now == dtype else pl.col(name).cast(dtype)
    problem = f"column {name!r} is {now} and the table has {dtype}"
    if not by_value or dtype not in _INTEGERS or now not in (*_FLOATS, *_INTEGERS):
        return problem, pl.col(name)
    whole = frame[name].cast(dtype, strict=False)
    if whole.cast(now).eq_missing(frame[name]).all():
        return None, pl.lit(whole)
    return f"{problem}, which does not hold all of its values", pl.col(name)


def _fits_losslessly(now: pl.DataType, wanted: pl.DataType) -> bool:
    if now == pl.Null or _is_wider(wanted, now) or _has_same_fields(now, wanted):
        return True
    if isinstance(now, pl.Decimal) and isinstance(wanted, pl.Decimal):
        digits = (wanted.precision or 38) - wanted.scale
        return now.scale <= wanted.scale and (now.precision or 38) - now.scale <= digits
    return False


def _has_same_fields(now: Any, wanted: Any) -> bool:
    """Return whether types differ in nothing but the order of fields in structs."""
    match now, wanted:
        case pl.Struct(), pl.Struct():
            fields, types = dict(now.to_schema()), dict(wanted.to_schema())
            return fields.keys() == types.keys() and all(
                _has_same_fields(fields[name], dtype) for name, dtype in types.items()
            )
        case pl.List(), pl.List():
            return _has_same_fields(now.inner, wanted.inner)
        case pl.Map(), pl.Map():
            return _has_same_fields(now.key, wanted.key) and _has_same_fields(now.value, wanted.value)
        case _:
            return bool(now == wanted)


def name_problems(fields: Mapping[str, Any]) -> list[str]:
    """Return why columns of a Delta table cannot have these names; empty if they can.

    >>> name_problems(pl.Schema({"a": pl.Int64, "A": pl.Int64, "b": pl.Int64}))
    ["'a' and 'A' differ in case alone, which Delta cannot tell apart"]
    """
    problems: list[str] = []
    for name in fields:
        if not name:
            problems.append("one has no name")
        if name.lower() == WEIGHT_COLUMN:
            problems.append(f"{name!r} is the name of a column of qbeast's own")
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            problems.append(f"{name!r} is a pattern to Polars")
    return [*problems, *_inner_problems(fields)]


def refuse_names(fields: Mapping[str, Any], *, argument: str) -> None:
    """Raise if a column cannot have its name."""
    problems = name_problems(fields)
    if problems:
        msg = f"columns cannot be called so: {'; '.join(problems)}. Rename them."
        raise InvalidInputError(msg, argument=argument)


def listed_names(value: object, argument: str) -> tuple[str, ...]:
    """Return an argument that names columns, in a list or one alone. Raise if it is of another type.

    >>> listed_names("year", "partition_by"), listed_names(["a", "b"], "")
    (('year',), ('a', 'b'))
    """
    if isinstance(value, str):
        return (value,)
    is_list = isinstance(value, Iterable) and not isinstance(value, Mapping | set | frozenset)
    names = list(cast("Iterable[object]", value)) if is_list else [value]
    texts = tuple(name for name in names if isinstance(name, str))
    if not is_list or len(texts) < len(names):
        invalid_argument(argument, "must be a list of names of columns", value=value)
    return texts


def check_sample_column(
    name: object, columns: Iterable[str], dialect: BlocksDialect, *, argument: str = "sample_column"
) -> str:
    """Return the name of a new sample column; raise if a table of these columns and this dialect cannot have it."""
    if not isinstance(name, str):
        invalid_argument(argument, "must be the name of a new column", value=name)
    taken = [column for column in columns if column.lower() == name.lower()]
    problems = [f"there is a column {column!r}" for column in taken] + name_problems({name: None})
    if problems:
        cure = "Choose another name, or drop the column from the rows."
        msg = f"{name!r} cannot be the name of a sample column: {'; '.join(problems)}. {cure}"
        raise InvalidInputError(msg, argument=argument, value=name)
    if dialect == "qbeast-spark":
        msg = (
            "tables of the dialect 'qbeast-spark' cannot have a sample column: appends of the JVM would leave nulls "
            "in it. Use the dialect 'documented' (Table.switch_dialect)."
        )
        raise InvalidInputError(msg, argument=argument, value=name)
    return name


def refuse_sample_column(name: str | None, names: Iterable[str], *, argument: str) -> None:
    """Raise if an argument names the sample column, whose values are computed."""
    if name is not None and name in names:
        msg = (
            f"`{argument}` names the sample column {name!r}, which is computed from the indexed columns. "
            "Leave it out; to change samples, index other columns: Table.reindex."
        )
        raise InvalidInputError(msg, argument=argument, value=name)


def refuse_feed_columns(properties: Mapping[str, str], names: Iterable[str], table: str) -> None:
    """Raise if properties enable the change data feed, and a column has the name of a column of the feed."""
    taken = sorted(name for name in names if name.lower() in FEED_COLUMNS)
    if properties.get(CHANGE_FEED, "").lower() == "true" and taken:
        msg = (
            f"{table!r} cannot have a change data feed: the feed uses the names of the column(s) {taken}. "
            "Rename them first: Table.rename_column."
        )
        raise UnsupportedTableError(msg, path=table, feature=CHANGE_FEED)


def _inner_problems(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of columns and of fields inside of them: no Delta reader would open the table."""
    seen: dict[str, str] = {}
    for name, dtype in fields.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            yield f"{other!r} and {name!r} differ in case alone, which Delta cannot tell apart"
        if "\0" in name:
            yield f"{name!r} holds the character NUL"
        match dtype:
            case pl.Struct():
                inner: Mapping[str, Any] = dtype.to_schema()
            case pl.List() | pl.Array():
                inner = {"element": dtype.inner}
            case pl.Map():
                inner = {"key": dtype.key, "value": dtype.value}
            case _:
                continue
        yield from (f"in {name!r}: {problem}" for problem in _inner_problems(inner))


def lost_columns(indexed: Sequence[str], schema: pl.Schema) -> dict[str, str]:
    """Return the indexed columns whose values have no weight any more, and why.

    >>> lost_columns(["a", "b", "c"], pl.Schema({"a": pl.Int64, "b": pl.Boolean}))
    {'b': 'has type Boolean, which cannot be indexed', 'c': 'is gone'}
    """
    lost: dict[str, str] = {}
    for name in indexed:
        if name not in schema:
            lost[name] = "is gone"
            continue
        try:
            data_type_of(name, schema[name])
        except InvalidColumnsError:
            lost[name] = f"has type {schema[name]}, which cannot be indexed"
    return lost


def lost_key_columns(revision: Revision, schema: pl.Schema, columns: StoredColumns) -> dict[str, str]:
    """Return the columns of the index and of the sampling key whose values do not give the weights, and why."""
    lost = lost_columns(revision.columns, schema)
    for name in revision.sample_by:
        if name not in schema:
            lost[name] = "is gone"
        elif not can_be_hashed(schema[name]):
            lost[name] = f"has type {schema[name]}, which cannot be hashed"
        elif name in columns.reweighted:
            lost[name] = "has a wider type, whose values have another hash than in older files"
    return lost


def refuse_lost_columns(uri: str, revision: Revision, schema: pl.Schema, columns: StoredColumns) -> None:
    """Refuse what needs the weights of rows where columns of the index or of the sampling key are lost."""
    indexed = revision.columns
    lost = lost_key_columns(revision, schema, columns)
    if not lost:
        return
    if not set(lost) & set(indexed):
        _refuse_lost_key(uri, revision, lost)
    kept = [repr(spec) for name, spec in zip(indexed, revision.column_specs, strict=True) if name not in lost]
    why = ", ".join(f"{name!r} {reason}" for name, reason in lost.items())
    message = (
        f"{uri!r} is indexed by {list(indexed)}, and another writer changed its columns: {why}. A "
        "sample is chosen by the values of these columns, and rows are placed by them; reads without a sample go on. "
        f"Index it anew: qbeast.write_table(qbeast.read_table({uri!r}), {uri!r}, "
        f"columns=[{', '.join([*kept, '...'])}], mode='overwrite', schema_mode='overwrite')."
    )
    raise InvalidColumnsError(message, columns=list(lost))


def _refuse_lost_key(uri: str, revision: Revision, lost: Mapping[str, str]) -> NoReturn:
    """Raise where columns of the sampling key alone are lost."""
    why = ", ".join(f"{name!r} {reason}" for name, reason in lost.items())
    message = (
        f"{uri!r} has the sampling key {list(revision.sample_by)}, and another writer changed its columns: {why}. "
        f"A sample is chosen by the values of these columns; reads without a sample go on. Copy "
        f"the rows to a new table: qbeast.write_table(qbeast.scan_table({uri!r}), new, "
        f"columns={list(revision.columns)}, sample_by=[...])."
    )
    raise InvalidColumnsError(message, columns=list(lost))


def refuse_mapping(uri: str, columns: StoredColumns) -> None:
    """Refuse the dialect qbeast-spark where files name columns in their own way: the JVM would miss them."""
    if columns.is_mapped:
        msg = (
            f"{uri!r} maps columns (the table feature columnMapping), which qbeast-spark does not support. "
            "Use the dialect 'documented', or copy the rows to a new table with dialect=\"qbeast-spark\"."
        )
        raise UnsupportedTableError(msg, path=uri, feature="columnMapping")


def refuse_vectors(uri: str, protocol: Protocol) -> None:
    """Refuse the dialect qbeast-spark where files may have deletion vectors: the JVM would return hidden rows."""
    if "deletionVectors" in (protocol.reader_features or ()):
        msg = (
            f"{uri!r} may have deletion vectors (the table feature deletionVectors). qbeast-spark reads files without "
            "them, and its optimize refuses the table. Use the dialect 'documented', or copy the rows to a new table "
            'with dialect="qbeast-spark".'
        )
        raise UnsupportedTableError(msg, path=uri, feature="deletionVectors")


def visible_columns(schema: pl.Schema) -> pl.Schema:
    """Return the columns that reads show: not one that took the name of the column hidden in our files.

    Our files would give weights for its values. Some readers ignore case, so a name in any case counts.

    >>> list(visible_columns(pl.Schema({"a": pl.Int64, "_Qbeast_Weight": pl.String})))
    ['a']
    """
    return pl.Schema({name: dtype for name, dtype in schema.items() if name.lower() != WEIGHT_COLUMN})


def taken_name(schema_json: str) -> str | None:
    """Return the column that took the name of the hidden one; None: there is none."""
    names: list[str] = [field["name"] for field in orjson.loads(schema_json)["fields"]]
    return next((name for name in names if name.lower() == WEIGHT_COLUMN), None)


def refuse_taken_name(uri: str, schema_json: str) -> None:
    """Refuse to write rows where another writer added a column of the hidden one's name: its values would be lost."""
    name = taken_name(schema_json)
    if name is None:
        return
    message = (
        f"another writer added a column {name!r} to {uri!r}: {WEIGHT_COLUMN} is the name of a column of qbeast's own, "
        "so no read shows it. Rename it or drop it with the program that added it, or replace the "
        'table with mode="overwrite", schema_mode="overwrite".'
    )
    raise InvalidInputError(message)


# The folder that makes a table of the one that it is in.
LOG_DIRECTORY: Final = "_delta_log"

_MAX_ENTRIES: Final = 1000


def found_instead(uri: str, root: Path) -> str:
    """Return why a local place is not a table, and how to make a table of its data."""
    if root.is_file():
        what = f"{uri} is a file, not a table (give the directory of the table)"
        _, scan = SCANS.get(root.suffix.lower(), ("", None))
        copy = "" if scan is None else f": {copy_call(f'pl.{scan}({uri!r})')} makes a table of it elsewhere"
        return what + copy
    if not root.is_dir():
        return f"there is no table at {uri}: nothing is there. {write_call(uri)} would make one."
    no_table = f"but no Delta table (it holds no {LOG_DIRECTORY})"
    entries = islice(entries_of(root), _MAX_ENTRIES)
    visible = [entry for entry in entries if not entry.name.startswith(("_", "."))]
    kinds = Counter(Path(entry.name).suffix.lower() for entry in visible if entry.is_file())
    folders = [entry.name for entry in visible if "=" in entry.name and entry.is_dir()]
    hive = list(dict.fromkeys(name.partition("=")[0] for name in folders))
    if kinds[".parquet"]:
        what = f"{uri} is a directory of Parquet files, {no_table}"
        return f"{what}: {convert_call(uri)} makes it one and moves no data"
    if hive:
        what = f"{uri} is a directory of partitions ({', '.join(hive)}), {no_table}"
        return f"{what}: {convert_call(uri)} makes it one if the files are Parquet files, and moves no data"
    for suffix in (suffix for suffix, _ in kinds.most_common() if suffix in SCANS):
        what, scan = SCANS[suffix]
        files = f"{uri.rstrip('/')}/*{suffix}"
        copy = copy_call(f"pl.{scan}({files!r})")
        return f"{uri} is a directory of {what} files, {no_table}: {copy} makes one elsewhere"
    return f"{uri} is a directory, {no_table}; if it is empty, {write_call(uri)} makes one there"


def log_instead(uri: str) -> str | None:
    """Return a message if a place is the log of a table, or lies in one; else None.

    >>> log_instead("/sales/_delta_log")
    "/sales/_delta_log lies in the log of a table. Give the table's folder: '/sales'."
    """
    table, log, _ = f"{uri}/".partition(f"/{LOG_DIRECTORY}/")
    message = f"{uri} lies in the log of a table. Give the table's folder: {table!r}."
    return message if log else None


def hive_copy(uri: str, names: Sequence[str]) -> str:
    """Return the call that copies Parquet files in folders like ``day=2024-05-01`` into a table.

    >>> hive_copy("sales", ["day"])
    "qbeast.write_table(pl.scan_parquet('sales/', hive_partitioning=True), new, columns=['day', ...])"
    """
    listed = ", ".join(map(repr, names))
    folder = f"{uri.rstrip('/')}/"
    return f"qbeast.write_table(pl.scan_parquet({folder!r}, hive_partitioning=True), new, columns=[{listed}, ...])"

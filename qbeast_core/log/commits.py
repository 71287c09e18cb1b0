"""The live files from the texts of commits, in the frame that `deltalake` gives with the tags, without it.

Whatever is unusual in a commit is left to `deltalake`, so that its verdicts and errors count.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import orjson
import polars as pl

from qbeast_core.log.actions import AddFile, Metadata, Protocol, leaves_of, stats_columns
from qbeast_core.log.columns import MAPPING_MODE
from qbeast_core.log.deletion_vectors import FileKey, file_key
from qbeast_core.log.protocol import NAMED_READER, NAMED_WRITER
from qbeast_core.log.replay import FIELD_KEYS, FLAT_KEYS, SPELLED_DIFFERENTLY, TAG_COLUMNS, TAG_KEYS
from qbeast_core.log.schema import DECIMAL, schema_from_delta
from qbeast_core.spec.blocks import MAX_ROWS
from qbeast_core.support.sizing import sizing

_FAULTS: Final = (
    *(ValueError, TypeError, ArithmeticError, AttributeError, LookupError, RecursionError),
    pl.exceptions.PolarsError,
)

# Types of JSON.
_TEXT: Final = (str, type(None))
_FLAG: Final = (bool, type(None))

# --- columns ------------------------------------------------------------------------------------------------------

_STATISTICS: Final = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}
# Types of columns with a minimum and a maximum, beside decimals and structs.
_BOUNDED: Final = (
    *(pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Float32(), pl.Float64(), pl.String(), pl.Boolean()),
    *(pl.Date(), pl.Datetime("us"), pl.Datetime("us", "UTC")),
)
_COUNTED: Final = (*_BOUNDED, pl.Binary())


def has_plain_statistics(schema: Mapping[str, Any], configuration: Mapping[str, str]) -> bool:
    """Return whether all of these columns have statistics, of types that `no_files` knows.

    >>> types = (pl.Int8(), pl.Binary(), pl.Struct({"a": pl.Int8()}), pl.List(pl.Int8()), pl.Null())
    >>> [has_plain_statistics(pl.Schema({"x": dtype}), {}) for dtype in types]
    [True, True, True, True, False]
    """
    leaves = list(leaves_of(schema))
    known = (dtype in _COUNTED or isinstance(dtype, pl.Decimal | pl.List | pl.Map) for _, dtype in leaves)
    return all(known) and len(stats_columns(pl.Schema(schema), configuration)) == len(leaves)


def no_files(schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return the live files of a new table with these columns, see `has_plain_statistics`.

    >>> no_files(pl.Schema({"x": pl.Int8(), "raw": pl.Binary()})).schema["min"]
    Struct({'x': Int8})
    """
    return pl.DataFrame(schema=_frame_schema(schema))


def _frame_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    number = pl.Int64()
    ends = pl.Struct(dict(_ends(schema)))
    texts = dict.fromkeys(TAG_COLUMNS[2:], pl.String())
    return {
        "path": pl.String(),
        **dict.fromkeys(("size_bytes", "modification_time", "num_records"), number),
        "null_count": pl.Struct({name: _counts(dtype) for name, dtype in schema.items()}),
        **dict.fromkeys(("min", "max"), ends),
        "revision": number,
        **texts,
        **dict.fromkeys(("base_row_id", "default_row_commit_version"), number),
        **dict.fromkeys(("has_deletion_vector", "miscounted"), pl.Boolean()),
    }


def _counts(dtype: Any) -> pl.DataType:
    if not isinstance(dtype, pl.Struct):
        return pl.Int64()
    return pl.Struct({name: _counts(inner) for name, inner in dtype.to_schema().items()})


def _ends(schema: Mapping[str, Any]) -> Iterator[tuple[str, pl.DataType]]:
    """Yield the columns with a minimum and a maximum; structs without any are left out."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Struct):
            inner = dict(_ends(dtype.to_schema()))
            if inner:
                yield name, pl.Struct(inner)
        elif dtype in _BOUNDED or isinstance(dtype, pl.Decimal):
            yield name, dtype


# --- rows ---------------------------------------------------------------------------------------------------------


def with_adds(files: pl.DataFrame, adds: Sequence[AddFile]) -> pl.DataFrame | None:
    """Return live files and those that a commit adds, which come last; None: only the log has them.

    >>> files = no_files({"x": pl.Int64()})
    >>> stats = '{"numRecords":2,"minValues":{"x":3},"maxValues":{"x":4},"nullCount":{"x":0}}'
    >>> add = AddFile(path="b", size=7, modification_time=9, stats=stats, tags={"revision": "1"})
    >>> files = with_adds(files, [add])
    >>> files.select("path", "num_records", "max", "revision").rows()
    [('b', 2, {'x': 4}, 1)]
    >>> with_adds(files, [add]) is None
    True
    """
    schema = files.schema
    try:
        rows = _rows((add.model_dump(exclude_none=True) for add in adds), schema)
        if any(list(row) != list(schema) for row in rows):
            return None  # files have columns that are not derived here
        new = _frame(rows, schema)
        is_listed = files["path"].is_in(new["path"].implode()).any()  # added again, with new tags for example
        return None if is_listed else _joined(files, new)
    except _FAULTS:
        return None


def _joined(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return rows and a few more at the end; a large frame is not copied each time for them."""
    grown = old.vstack(new)
    is_small = grown.estimated_size() < sizing().small_frame_bytes
    return grown.rechunk() if is_small or grown.n_chunks() > sizing().max_chunks else grown


def _rows(adds: Iterable[Mapping[str, Any]], schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return adds as rows of live files. Raise one of `_FAULTS` for what is unusual."""
    readers = {kind: _reader(schema[kind]) for kind in _STATISTICS}
    return [_row(add, readers) for add in adds]


def _frame(rows: Sequence[dict[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([tuple(row.values()) for row in rows], schema=schema, orient="row")


def _row(add: Mapping[str, Any], readers: Mapping[str, _Reader]) -> dict[str, Any]:
    stats, count = _statistics(add.get("stats"))
    tags: Mapping[str, Any] = add.get("tags") or {}
    texts = {name: tags.get(key) for name, key in TAG_KEYS.items()}
    _expect(texts["state"] is None and not any(key in tags for key in FLAT_KEYS.values()))  # an old layout
    _expect(re.search(SPELLED_DIFFERENTLY, add["path"]) is None)
    vector = add.get("deletionVector")
    return {
        "path": add["path"],
        "size_bytes": add["size"],
        "modification_time": add["modificationTime"],
        "num_records": count,
        **{kind: readers[kind](stats.get(key)) for kind, key in _STATISTICS.items()},
        **texts,
        "revision": _number(texts["revision"]),
        "deletion_vector": orjson.dumps(vector).decode() if vector else None,
        **{name: add.get(key) for name, key in FIELD_KEYS.items()},
        "has_deletion_vector": bool(vector),
        "miscounted": False,
    }


def _statistics(text: str | None) -> tuple[Mapping[str, Any], int | None]:
    """Return the statistics of a file, and its number of rows; None: it has none."""
    if text is None:
        return {}, None
    stats: Any = json.loads(text, parse_float=Decimal, object_pairs_hook=_once)
    count = stats["numRecords"]
    _expect(type(count) is int and 0 <= count <= MAX_ROWS)
    return stats, count


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    _expect(len(values) == len(pairs))
    return values


def _number(text: str | None) -> int | None:
    _expect(text is None or re.fullmatch(r"\d{1,18}", text, re.ASCII) is not None)
    return None if text is None else int(text)


def _expect(condition: object) -> None:
    if not condition:
        raise ValueError


# --- values of statistics -----------------------------------------------------------------------------------------

# Returns a value of statistics in the type of its column; a missing one is null.
_Reader: TypeAlias = Callable[[Any], Any]

_BITS: Final = {pl.Int8(): 8, pl.Int16(): 16, pl.Int32(): 32, pl.Int64(): 64}
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def _reader(dtype: Any) -> _Reader:
    if isinstance(dtype, pl.Struct):
        return _struct_reader({name: _reader(inner) for name, inner in dtype.to_schema().items()})
    if isinstance(dtype, pl.Decimal):
        return _decimal_reader(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Datetime):
        return _time_reader(zoned=dtype.time_zone is not None)
    if dtype.is_float():
        return _real
    if dtype in _BITS:
        return _whole_reader(1 << _BITS[dtype] - 1)
    return {pl.Date: _date, pl.String: _text, pl.Boolean: _flag}[dtype.base_type()]


def _text(value: Any) -> str | None:
    _expect(type(value) in _TEXT)
    return value  # type: ignore[no-any-return]


def _flag(value: Any) -> bool | None:
    _expect(type(value) in _FLAG)
    return value  # type: ignore[no-any-return]


def _whole_reader(end: int) -> _Reader:
    def read(value: Any) -> int | None:
        _expect(value is None or (type(value) is int and -end <= value < end))
        return value  # type: ignore[no-any-return]

    return read


def _struct_reader(readers: Mapping[str, _Reader]) -> _Reader:
    def read(value: Any) -> dict[str, Any] | None:
        if value is None or not readers:
            return None
        return {name: inner(value.get(name)) for name, inner in readers.items()}

    return read


def _decimal_reader(precision: int | None, scale: int) -> _Reader:
    def read(value: Any) -> Decimal | None:
        if value is None:
            return None
        _expect(type(value) in (int, Decimal))
        number = Decimal(value)
        _, digits, exponent = number.as_tuple()
        _expect(isinstance(exponent, int) and -scale <= exponent <= 0)
        _expect(len(digits) + scale + int(exponent) <= (precision or 0))
        return number

    return read


def _time_reader(*, zoned: bool) -> _Reader:
    def read(value: Any) -> datetime | None:
        match = None if value is None else _TIME.fullmatch(value)
        _expect(value is None or (match is not None and (match[1] is not None) == zoned))
        return None if value is None else datetime.fromisoformat(value)

    return read


def _real(value: Any) -> float | None:
    if value is None:
        return None
    _expect(type(value) in (int, Decimal) and math.isfinite(value))
    return float(value)


def _date(value: Any) -> date | None:
    _expect(value is None or _DATE.fullmatch(value))
    return None if value is None else date.fromisoformat(value)


# --- a whole log --------------------------------------------------------------------------------------------------

_Action: TypeAlias = Mapping[str, Any]


def _one_of(*types: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in types


def _whole(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _optional_whole(value: Any) -> bool:
    return value is None or _whole(value)


def _texts(value: Any) -> bool:
    return value is None or (type(value) is dict and all(type(text) in _TEXT for text in value.values()))


def _names(value: Any) -> bool:
    return value is None or (type(value) is list and all(type(name) is str for name in value))


def _whole_texts(value: Any) -> bool:
    return type(value) is dict and all(type(text) is str for text in value.values())


def _parquet(value: Any) -> bool:
    return value.get("provider") == "parquet" and _whole_texts(value.get("options", {}))


def _vector(value: Any) -> bool:
    return value is None or all(is_known(value.get(name)) for name, is_known in _VECTOR.items())


# The fields of each kind of action, with checks of their values.
_VECTOR: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("storageType", "pathOrInlineDv"), _one_of(str)),
    **dict.fromkeys(("sizeInBytes", "cardinality"), _whole),
    "offset": _optional_whole,
}
_FILE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "path": _one_of(str),
    "dataChange": _one_of(bool),
    "tags": _texts,
    "partitionValues": _texts,
    "deletionVector": _vector,
    "stats": _one_of(*_TEXT),
    **dict.fromkeys(("baseRowId", "defaultRowCommitVersion"), _optional_whole),
}
_FIELDS: Final[Mapping[str, Mapping[str, Callable[[Any], bool]]]] = {
    "add": {
        **_FILE,
        **dict.fromkeys(("size", "modificationTime"), _whole),
        "clusteringProvider": _one_of(*_TEXT),
    },
    "remove": {
        **_FILE,
        **dict.fromkeys(("size", "deletionTimestamp"), _optional_whole),
        "extendedFileMetadata": _one_of(*_FLAG),
    },
    "metaData": {
        **dict.fromkeys(("id", "schemaString"), _one_of(str)),
        **dict.fromkeys(("name", "description"), _one_of(*_TEXT)),
        "format": _parquet,
        "partitionColumns": _names,
        "configuration": _whole_texts,
        "createdTime": _optional_whole,
    },
    "protocol": {
        **dict.fromkeys(("minReaderVersion", "minWriterVersion"), _whole),
        **dict.fromkeys(("readerFeatures", "writerFeatures"), _names),
    },
    "txn": {"appId": _one_of(str), "version": _whole, "lastUpdated": _optional_whole},
    "domainMetadata": {**dict.fromkeys(("domain", "configuration"), _one_of(str)), "removed": _one_of(bool)},
    "commitInfo": {},
    "cdc": {},
}
# Features that change nothing in how the log is read, beside deletion vectors.
_READER_FEATURES: Final = frozenset({"deletionVectors", "timestampNtz"})
_WRITER_FEATURES: Final = _READER_FEATURES | {
    *("appendOnly", "changeDataFeed", "checkConstraints", "clustering", "domainMetadata", "generatedColumns"),
    *("identityColumns", "invariants", "rowTracking"),
}
_TYPE_NAMES: Final = frozenset(
    (
        *("byte", "short", "integer", "long", "float", "double"),
        *("string", "binary", "boolean", "date", "timestamp"),
    )
)


def version_of_commits(commits: Sequence[bytes]) -> tuple[Metadata, Protocol, pl.DataFrame] | None:
    r"""Return metadata, protocol and live files with tags from all commits of a table. None: `deltalake` has to.

    >>> lines = [
    ...     b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
    ...     b'{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"schemaString":'
    ...     b'"{\\"type\\":\\"struct\\",\\"fields\\":[]}","partitionColumns":[],"configuration":{}}}',
    ... ]
    >>> version_of_commits(lines[1:]) is None
    True
    """
    try:
        replayed = [_actions(body) for body in commits]
        metadata, protocol = (_last(replayed, kind) for kind in ("metaData", "protocol"))
        # `deltalake` checks all protocols.
        features = [
            _features(action) for commit in replayed for kind, action in commit if kind == "protocol"
        ][-1]
        schema_string = _schema_string(metadata, features)
        live, adds = _replay(replayed)
        _expect("deletionVectors" in features or not any(add.get("deletionVector") for add in adds))
        schema = schema_from_delta(schema_string)
        _expect(has_plain_statistics(schema, metadata["configuration"]))
        columns = _frame_schema(schema)
        rows = _rows(adds, columns)  # `deltalake` reads the statistics of all files
        files = _frame([rows[number] for number in live], columns)
    except _FAULTS:
        return None
    named = {key: metadata.get(key) for key in ("id", "name", "description", "createdTime", "configuration")}
    known = Metadata.model_validate({**named, "schemaString": schema_string})
    return known, _protocol(protocol), files


def _actions(body: bytes) -> list[tuple[str, _Action]]:
    """Return the actions of a commit with their kinds. Raise for lines that engines may understand differently."""
    actions: list[tuple[str, _Action]] = []
    for line in body.splitlines():
        action: dict[str, Any] = orjson.loads(line)
        _expect(len(orjson.dumps(action)) == len(line))  # no repeated keys
        ((kind, value),) = action.items()
        _expect(all(is_known(value.get(name)) for name, is_known in _FIELDS[kind].items()))
        actions.append((kind, value))
    _expect(actions)  # an empty file is damage
    return actions


def _last(replayed: Sequence[list[tuple[str, _Action]]], wanted: str) -> _Action:
    """Return the newest action of a kind. Raise if there is none, or a commit has two."""
    found: _Action | None = None
    for commit in replayed:
        of_commit = [action for kind, action in commit if kind == wanted]
        _expect(len(of_commit) <= 1)
        found = next(iter(of_commit), found)
    if found is None:
        raise ValueError(wanted)
    return found


def _features(protocol: _Action) -> frozenset[str]:
    """Return the features that readers have to know."""
    versions = protocol["minReaderVersion"], protocol["minWriterVersion"]
    reader, writer = protocol.get("readerFeatures"), protocol.get("writerFeatures")
    _expect(versions[0] in (1, NAMED_READER) and versions[1] in range(1, NAMED_WRITER + 1))
    _expect((versions[0] == NAMED_READER) == (reader is not None))
    _expect((versions[1] == NAMED_WRITER) == (writer is not None))
    _expect(versions[0] == 1 or versions[1] == NAMED_WRITER)
    _expect(len({*(reader or ())}) == len(reader or ()) and len({*(writer or ())}) == len(writer or ()))
    _expect(_READER_FEATURES.issuperset(reader or ()) and _WRITER_FEATURES.issuperset(writer or ()))
    _expect(_READER_FEATURES.intersection(writer or ()) == frozenset(reader or ()))
    return frozenset(reader or ())


def _protocol(action: _Action) -> Protocol:
    """Return a protocol in the form that `deltalake` gives."""
    names = {key: action.get(key) for key in ("readerFeatures", "writerFeatures")}
    return Protocol(
        min_reader_version=action["minReaderVersion"],
        min_writer_version=action["minWriterVersion"],
        reader_features=None if names["readerFeatures"] is None else tuple(sorted(names["readerFeatures"])),
        writer_features=None if names["writerFeatures"] is None else tuple(sorted(names["writerFeatures"])),
    )


def _schema_string(metadata: _Action, features: frozenset[str]) -> str:
    """Return the schema of a table as `deltalake` writes it. Raise for mapping, partitions and unusual parts."""
    _expect(MAPPING_MODE not in metadata["configuration"] and not metadata["partitionColumns"])
    schema = json.loads(metadata["schemaString"], object_pairs_hook=_once)
    return orjson.dumps(_plain_type(schema, features)).decode()


def _plain_type(dtype: Any, features: frozenset[str]) -> Any:
    """Return a type of a schema with its parts in the order of `deltalake`."""
    if isinstance(dtype, str):
        digits = DECIMAL.fullmatch(dtype)
        is_known = dtype in _TYPE_NAMES or (dtype == "timestamp_ntz" and "timestampNtz" in features)
        _expect(is_known or digits)
        return f"decimal({digits[1]},{digits[2]})" if digits else dtype
    parts = {key: value for key, value in dtype.items() if key not in {"type", "fields"}}
    match dtype["type"]:
        case "struct":
            names = {field["name"].lower() for field in dtype["fields"]}
            _expect(names and not parts and len(names) == len(dtype["fields"]))
            return {"type": "struct", "fields": [_plain_field(field, features) for field in dtype["fields"]]}
        case "array":
            element = _plain_type(parts.pop("elementType"), features)
            _expect(list(parts) == ["containsNull"])
            return {"type": "array", "elementType": element, **parts}
        case "map":
            key, value = (_plain_type(parts.pop(part), features) for part in ("keyType", "valueType"))
            _expect(list(parts) == ["valueContainsNull"])
            return {"type": "map", "keyType": key, "valueType": value, **parts}
        case _:
            raise ValueError(dtype)


def _plain_field(field: Mapping[str, Any], features: frozenset[str]) -> dict[str, Any]:
    _expect(set(field) == {"name", "type", "nullable", "metadata"} and type(field["nullable"]) is bool)
    notes: Mapping[str, Any] = field["metadata"]
    _expect(all(type(note) in (str, int, bool) for note in notes.values()))
    _expect(not any(name.startswith("delta.columnMapping") for name in notes))
    dtype = _plain_type(field["type"], features)
    return {
        "name": field["name"], "type": dtype, "nullable": field["nullable"], "metadata": dict(sorted(notes.items())),
    }  # fmt: skip


def _replay(replayed: Sequence[list[tuple[str, _Action]]]) -> tuple[list[int], list[_Action]]:
    """Return all adds in the order of `deltalake`, the newest commit first, after the numbers of the live ones."""
    live: list[int] = []
    adds: list[_Action] = []
    seen: set[FileKey] = set()
    added: set[str] = set()
    for commit in reversed(replayed):
        files = [(kind, _key(action), action) for kind, action in commit if kind in ("add", "remove")]
        keys = {key for _, key, _ in files}
        paths = [path for kind, (path, _), _ in files if kind == "add"]
        _expect(len(keys) == len(files) and len(set(paths)) == len(paths))
        for _, key, add in (file for file in files if file[0] == "add"):
            if key not in seen:
                _expect(key[0] not in added)
                live.append(len(adds))
            adds.append(add)
        seen |= keys
        added.update(paths)
    return live, adds


def _key(file: _Action) -> FileKey:
    """Return the identity of a file. Raise if it has partition values, or others may write its path differently."""
    _expect(not file.get("partitionValues") and re.search(SPELLED_DIFFERENTLY, file["path"]) is None)
    return file_key(file["path"], file.get("deletionVector"))

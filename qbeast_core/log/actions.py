"""The actions of a commit as the log stores them, with the statistics of files.

A bound is written only where every reader may rely on it: none beyond NaN or an infinity (JSON has neither,
and engines disagree on NaN), no cut string below the real maximum, no timestamp below the last microsecond.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias

import orjson
import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from qbeast_core.errors import InvalidInputError, InvalidMetadataError
from qbeast_core.spec.blocks import MAX_ROWS, Block

_MAX: Final = 2**63

# Folder of the change data files.
CHANGE_FOLDER: Final = "_change_data"


def _as_text(value: Any) -> Any:
    """Return other JSON values as text, as deltalake does."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _as_texts(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {key: _as_text(value) for key, value in values.items()}


def _as_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and abs(value) < _MAX else value


def _time_or_none(value: Any) -> int | None:
    """Return a valid time, else None: a commit is not refused because of its provenance."""
    whole = _as_whole(value)
    fits = isinstance(whole, int) and not isinstance(whole, bool) and abs(whole) < _MAX
    return whole if fits else None


_Text: TypeAlias = Annotated[str | None, BeforeValidator(_as_text)]
_Texts: TypeAlias = Annotated[Mapping[str, str | None] | None, BeforeValidator(_as_texts)]
_Whole: TypeAlias = Annotated[int, BeforeValidator(_as_whole)]
_OptionalWhole: TypeAlias = Annotated[int | None, BeforeValidator(_as_whole)]
_Time: TypeAlias = Annotated[int | None, BeforeValidator(_time_or_none)]


# Tags of a file of ours that is published without its index: its copy of the tags is not one that the log lost.
STAGED_TAGS: Final[Mapping[str, str | None]] = {"qbeast.rules": "staged"}


class _Action(BaseModel):
    """snake_case in Python, camelCase in the log; unknown keys are kept and written back."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        defer_build=True,  # most processes use few of them
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class AddFile(_Action):
    """A data file that belongs to the table from this commit on."""

    # As in the log: relative to the table, percent-encoded.
    path: str
    size: _Whole
    modification_time: _Whole
    # False if the rows come from files removed by the same commit, or the same file is added again.
    data_change: bool = True
    # Delta statistics as JSON text (`qbeast_core.log.actions`).
    stats: _Text = None
    # Tag keys and texts (format 7).
    tags: _Texts = None
    partition_values: Mapping[str, str | None] = {}
    # The descriptor as in the log.
    deletion_vector: Mapping[str, Any] | None = None
    # Row tracking: the id of the first row, and the version that added the file. A commit fills in missing ones.
    base_row_id: _OptionalWhole = None
    default_row_commit_version: _OptionalWhole = None
    # Name of the implementation that clustered the file, in tables with the feature ``clustering``.
    clustering_provider: str | None = None
    # Blocks that a commit writes as the `blocks` tag, in the dialect of the table. Never part of the JSON.
    # None: the file is not indexed, or its tags are complete.
    blocks: Annotated[tuple[Block, ...] | None, Field(exclude=True)] = None
    # Whether it was written with the column `_qbeast_weight`, which a JVM does not expect. Never part of the
    # JSON.
    has_hidden_weights: Annotated[bool, Field(exclude=True)] = False
    # Whether it was written with the columns of row tracking, so copied rows keep their ids. Never part of the JSON.
    has_row_ids: Annotated[bool, Field(exclude=True)] = False

    def without_index(self) -> AddFile:
        """Return the file as staging knows it: readers open it whole, and optimize indexes it later."""
        tags = STAGED_TAGS if self.blocks else None  # only indexed files have a copy of their tags
        return self.model_copy(update={"tags": tags, "blocks": None})


class RemoveFile(_Action):
    """A data file that leaves the table with this commit.

    A vacuum keeps the file for a while from ``deletion_timestamp`` (ms) on. The deletion vector of the add has to
    be repeated here, or the file stays live.
    """

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: _OptionalWhole = None
    tags: _Texts = None
    deletion_vector: Mapping[str, Any] | None = None
    # Repeated from the add.
    base_row_id: _OptionalWhole = None
    default_row_commit_version: _OptionalWhole = None


class CdcFile(_Action):
    """A file of rows that this commit changes. If a commit has one, its feed consists of these files only."""

    # As in the log: relative to the table, percent-encoded.
    path: str
    size: Annotated[int | None, BeforeValidator(_as_whole)] = None
    partition_values: Mapping[str, str | None] = {}
    data_change: bool = False
    tags: _Texts = None


class Metadata(_Action):
    """What the table is: identity, schema and configuration; the newest one counts as a whole."""

    id: str
    schema_string: str
    configuration: Mapping[str, str] = {}
    partition_columns: tuple[str, ...] = ()
    name: str | None = None
    description: str | None = None
    created_time: int | None = None
    format: Mapping[str, Any] = {"provider": "parquet", "options": {}}


class Protocol(_Action):
    """What a program must understand to read or write the table; no features before versions 3 and 7."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Txn(_Action):
    """An application's own progress: the table holds everything up to `version` of `app_id`."""

    app_id: str
    version: int
    last_updated: int | None = None


class DomainMetadata(_Action):
    """Settings of one domain; the newest one counts. Names that begin with ``delta.`` belong to features of Delta."""

    domain: str
    configuration: str = ""
    # Whether this action removes the domain.
    removed: bool = False


class CommitInfo(_Action):
    """Provenance, in any form; a writer recognises its own commit by ``txn_id``.

    Invalid times count as missing, and other values than texts as their JSON.
    """

    timestamp: _Time = None
    operation: _Text = None
    txn_id: _Text = None
    in_commit_timestamp: _Time = None

    @property
    def time(self) -> int | None:
        """The in-commit timestamp, or else the timestamp, in ms since 1970 UTC; None: unknown."""
        return self.timestamp if self.in_commit_timestamp is None else self.in_commit_timestamp


Action: TypeAlias = AddFile | RemoveFile | CdcFile | Metadata | Protocol | Txn | DomainMetadata | CommitInfo

_KEYS: Final[Mapping[type[Action], str]] = {
    CommitInfo: "commitInfo",
    Protocol: "protocol",
    Metadata: "metaData",
    Txn: "txn",
    DomainMetadata: "domainMetadata",
    RemoveFile: "remove",
    AddFile: "add",
    CdcFile: "cdc",
}
_TYPES: Final[Mapping[str, type[Action]]] = {key: model for model, key in _KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of the log; kinds of actions that no writer here needs are left out."""

    version: int
    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    changes: tuple[CdcFile, ...] = ()


def dump_commit(actions: Iterable[Action]) -> bytes:
    r"""Return the body of a commit: one JSON object a line, each line ended.

    >>> dump_commit([Txn(app_id="loader", version=7)])
    b'{"txn":{"appId":"loader","version":7}}\n'
    """
    try:
        lines = ({_KEYS[type(action)]: action.model_dump(exclude_none=True)} for action in actions)
        return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
    except (TypeError, ValueError) as error:  # callers check what users give; what they miss costs no orphans
        message = f"the commit cannot be written as JSON: {error}."
        raise InvalidInputError(message) from error


def parse_commit(body: bytes, *, version: int) -> Commit:
    """Return the actions of one commit; an empty body is a commit without any.

    >>> parse_commit(b'{"txn":{"appId":"loader","version":7}}', version=3).txns[0].version
    7
    """
    by_type: dict[type[Action], list[Any]] = {model: [] for model in _KEYS}
    try:
        for line in body.splitlines():
            for key, raw in orjson.loads(line).items() if line.strip() else ():
                model = _TYPES.get(key)
                free = model is CommitInfo and not isinstance(raw, dict)  # Delta ignores it
                if model is not None and raw is not None and not free:
                    by_type[model].append(model.model_validate(raw))
    except (ValueError, AttributeError) as error:  # no JSON, not an object, or a field is missing
        message = f"version {version} of the Delta log is damaged: {error}"
        raise InvalidMetadataError(message) from error
    return Commit(
        version=version,
        commit_info=next(iter(by_type[CommitInfo]), None),
        protocol=next(iter(by_type[Protocol]), None),
        metadata=next(iter(by_type[Metadata]), None),
        txns=tuple(by_type[Txn]),
        domains=tuple(by_type[DomainMetadata]),
        adds=tuple(by_type[AddFile]),
        removes=tuple(by_type[RemoveFile]),
        changes=tuple(by_type[CdcFile]),
    )


# End of the year 9999, the maximum of `datetime`. Later times are invalid.
LAST_MS: Final = 253_402_300_799_999


def commit_times(commits: Sequence[tuple[CommitInfo | None, int]]) -> list[int]:
    """Return the times of consecutive commits, oldest first, in ms since 1970 UTC.

    Each commit is given by its info and the modification time of its file. Its in-commit timestamp is its time.
    Otherwise it is the timestamp that its writer noted or, without one, the modification time, but not after the next
    commit. Such times ascend, as in Delta: a time that is not after the previous one is moved one ms behind it.

    >>> infos = [CommitInfo(timestamp=5), None, CommitInfo(timestamp=9), CommitInfo(timestamp=7), None]
    >>> commit_times([(info, 100) for info in infos])
    [5, 8, 9, 10, 100]
    """
    times: list[int] = []
    later: int | None = None
    for info, modified_ms in reversed(commits):
        noted = None if info is None else info.time
        if noted is None or not 0 <= noted <= LAST_MS:
            noted = modified_ms if later is None else min(modified_ms, later - 1)
        times.append(noted)
        later = noted
    times.reverse()
    for number, (info, _) in enumerate(commits):
        is_fixed = info is not None and info.in_commit_timestamp == times[number]
        if number and not is_fixed:
            times[number] = max(times[number], times[number - 1] + 1)
    return times


# Names from a column down to a field that is not a struct.
Leaf: TypeAlias = tuple[str, ...]

_DEFAULT_LEAVES: Final = 32
_MAX_CHARACTERS: Final = 32
_LAST_CHARACTER: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = (date.min - _EPOCH.date()).days
_LAST_DAY: Final = (date.max - _EPOCH.date()).days
_DAY_US: Final = 86_400_000_000
_NAME_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.,]+?))\s*([.,]|$)")

# What is before a value of an object of JSON.
_MEMBER: Final = re.compile(r'\s*,?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')

# The table property that names the columns with statistics; other columns have none.
STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


def stats_columns(schema: pl.Schema, configuration: Mapping[str, str]) -> list[Leaf]:
    """Return the leaf columns that a table wants statistics of, in schema order.

    >>> schema = pl.Schema({"a": pl.Int64, "s": pl.Struct({"x": pl.Int8, "y": pl.String})})
    >>> stats_columns(schema, {"delta.dataSkippingStatsColumns": "s.y,a"})
    [('a',), ('s', 'y')]
    """
    leaves = [leaf for leaf, _ in leaves_of(schema)]
    named = configuration.get(STATS_COLUMNS)
    if named is not None:
        wanted = set(parse_names(named))
        return [leaf for leaf in leaves if any(leaf[:end] in wanted for end in range(1, len(leaf) + 1))]
    text = configuration.get("delta.dataSkippingNumIndexedCols", "")
    count = int(text) if re.fullmatch(r"-?\d{1,9}", text) else _DEFAULT_LEAVES
    return leaves if count < 0 else leaves[:count]


def parse_names(text: str) -> Iterator[Leaf]:
    """Split ``a,b.c,`d.e` `` into names: backticks quote, a dot goes into a struct."""
    parts: list[str] = []
    for match in _NAME_PART.finditer(text):
        quoted, plain, end = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        if end != ".":
            yield tuple(parts)
            parts = []


def names_text(leaves: Iterable[Leaf]) -> str:
    """Return names as `parse_names` splits them.

    >>> names_text([("a",), ("b", "c d"), ("e.f",)])
    'a,b.`c d`,`e.f`'
    """
    return ",".join(".".join(map(_quoted, leaf)) for leaf in leaves)


def row_count(text: str | None) -> int | None:
    """Return the number of rows that statistics give. None: they give none, or one that no file can have.

    >>> [row_count(text) for text in ('{"numRecords":7}', '{"numRecords":-7}', '{"numRecords":"7"}', "[7]", None)]
    [7, None, None, None, None]
    """
    try:
        stats: Any = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    count = stats.get("numRecords") if isinstance(stats, dict) else None
    is_possible = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_ROWS
    return count if is_possible else None


def with_wide_bounds(text: str) -> str:
    """Return statistics whose bounds may be wider than the values.

    All other texts stay: numbers may have more digits than floats have.

    >>> with_wide_bounds('{"minValues":{"x":1.10}, "tightBounds":true}')
    '{"minValues":{"x":1.10},"tightBounds":false}'
    """
    decode, members, place = json.JSONDecoder().raw_decode, list[str](), text.index("{") + 1
    while (member := _MEMBER.match(text, place)) is not None:
        _, place = decode(text, member.end())
        if member[1] != "tightBounds":
            members.append(f'"{member[1]}":{text[member.end() : place]}')
    return "{" + ",".join([*members, '"tightBounds":false']) + "}"


def leaves_of(schema: Mapping[str, Any], above: Leaf = ()) -> Iterator[tuple[Leaf, pl.DataType]]:
    """Yield the leaf columns of a schema with their types; lists and maps are leaves."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Struct):
            yield from leaves_of(dtype.to_schema(), (*above, name))
        else:
            yield (*above, name), dtype


def leaf_column(leaf: Leaf) -> pl.Expr:
    """Return the values of a leaf column."""
    column = pl.col(leaf[0])
    for name in leaf[1:]:
        column = column.struct.field(name)
    return column


def file_stats(
    frame: pl.DataFrame | pl.LazyFrame,
    *,
    columns: Sequence[Leaf] | None = None,
    few: Mapping[str, pl.Series] | None = None,
    named: Callable[[Leaf], Leaf] = tuple,
) -> str:
    """Return the ``stats`` text of an add action for a file of these rows.

    Numbers, dates, timestamps and strings get bounds; other types a null count only. Strings are cut after 32
    characters, the maximum upwards. Timestamps are in milliseconds, the maximum rounded up. A bound is
    missing if it is unknown: the maximum of a float column with NaN, an infinite bound, a year beyond 9999.
    `named` returns the names of a column in the text.

    >>> file_stats(pl.DataFrame({"x": [1.5, None, float("nan")], "s": ["b", "a", "b"]}))
    '{"numRecords":3,"minValues":{"x":1.5,"s":"a"},"maxValues":{"s":"b"},"nullCount":{"x":1,"s":0}}'
    """
    distinct = {} if few is None else few
    schema = pl.Schema({**frame.collect_schema(), **{name: item.dtype for name, item in distinct.items()}})
    leaves = stats_columns(schema, {}) if columns is None else list(columns)
    dtypes = [_type_at(schema, leaf) for leaf in leaves]
    queries, queries_of_few = [pl.len().alias("rows")], [pl.lit(0)]
    for i, (leaf, dtype) in enumerate(zip(leaves, dtypes, strict=True)):
        queries.append(leaf_column(leaf).null_count().alias(f"{i}.nulls"))
        if leaf[0] in distinct:
            queries_of_few += _bounds(str(i), pl.lit(distinct[leaf[0]]), dtype)
        else:
            queries += _bounds(str(i), leaf_column(leaf), dtype)
    summary = frame.select(queries)
    summary = summary.collect(engine="streaming") if isinstance(summary, pl.LazyFrame) else summary
    answers = summary.row(0, named=True)
    if distinct:
        answers |= pl.select(queries_of_few).row(0, named=True)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for i, (leaf, dtype) in enumerate(zip(map(named, leaves), dtypes, strict=True)):
        _put(nulls, leaf, answers[f"{i}.nulls"])
        minimum, maximum = answers.get(f"{i}.min"), answers.get(f"{i}.max")
        _put(low, leaf, None if minimum is None else _bound(minimum, dtype, upper=False))
        unbounded = maximum is None or answers.get(f"{i}.nan", False)
        _put(high, leaf, None if unbounded else _bound(maximum, dtype, upper=True))
    stats = {"numRecords": answers["rows"], "minValues": low, "maxValues": high, "nullCount": nulls}
    return orjson.dumps(stats).decode()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _type_at(schema: Mapping[str, Any], leaf: Leaf) -> pl.DataType:
    """Return the type of a leaf, which is a struct if it is a variant."""
    dtype = schema[leaf[0]]
    return dtype if len(leaf) == 1 else _type_at(dtype.to_schema(), leaf[1:])


def _bounds(key: str, column: pl.Expr, dtype: pl.DataType) -> Iterator[pl.Expr]:
    if dtype.is_temporal():
        # As integers: Python's own types end at the year 9999.
        column = column.dt.cast_time_unit("us") if isinstance(dtype, pl.Datetime) else column
        column = column.to_physical()
    elif not (dtype.is_numeric() or dtype == pl.String):
        return
    yield column.min().alias(f"{key}.min")
    yield column.max().alias(f"{key}.max")
    if dtype.is_float():
        yield column.is_nan().any().alias(f"{key}.nan")


def _put(stats: dict[str, Any], leaf: Leaf, value: Any) -> None:
    if value is None:
        return
    for name in leaf[:-1]:
        stats = stats.setdefault(name, {})
    stats[leaf[-1]] = value


def _bound(value: Any, dtype: pl.DataType, *, upper: bool) -> Any:
    """Return a bound as JSON that encloses the values, or None."""
    if isinstance(dtype, pl.Datetime):
        return _timestamp(-(-value // 1000) if upper else value // 1000, dtype)
    if isinstance(value, str):
        return _cut_above(value) if upper else value[:_MAX_CHARACTERS]
    if dtype.is_float():
        if value == 0:  # engines that order -0.0 before 0.0 would take one zero for less than the other
            return 0.0 if upper else -0.0
        return value if math.isfinite(value) else None
    if dtype == pl.Date:
        inside = _FIRST_DAY <= value <= _LAST_DAY
        return (_EPOCH.date() + timedelta(days=value)).isoformat() if inside else None
    # A JSON number with every digit: a float would round decimals beyond the 15th.
    return orjson.Fragment(format(value, "f").encode()) if dtype.is_decimal() else value


def _timestamp(milliseconds: int, dtype: pl.Datetime) -> str | None:
    if not _FIRST_DAY <= milliseconds * 1000 // _DAY_US <= _LAST_DAY:
        return None
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    separator, zone = (" ", "") if dtype.time_zone is None else ("T", "Z")
    return moment.replace(tzinfo=None).isoformat(separator, "milliseconds") + zone


def _cut_above(text: str) -> str | None:
    """Return a text of about 32 characters that is not below `text`; None if every such text is long."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    for end in range(_MAX_CHARACTERS, min(len(text), 2 * _MAX_CHARACTERS)):
        if text[end] != _LAST_CHARACTER:  # a cut before the last character of all could not go up
            return text[:end] + ("\x7f" if text[end] < "\x7f" else _LAST_CHARACTER)
    return text if len(text) <= 2 * _MAX_CHARACTERS else None

"""The actions of a Delta log as frozen values, and the lines of JSON they are stored as."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from qbeast_core.errors import InvalidInputError, InvalidMetadataError
from qbeast_core.spec.blocks import Block

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
    # Delta statistics as JSON text (`qbeast_core.log.files.stats`).
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

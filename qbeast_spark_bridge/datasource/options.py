"""Parse the options of ``format("qbeast")``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.location import Location
from qbeast_core.plan.weights import fractions_of

# The newest version, if none of them is given.
_VERSIONS: Final = ("version", "versionAsOf", "timestampAsOf")
_READ_OPTIONS: Final = (
    *("path", "sample", "sampleBy", "where", "columns", *_VERSIONS, "stale", "allowAbsolutePaths"),
    "readChangeFeed",
)
_STARTS: Final = ("startingVersion", "startingTimestamp")
_ENDS: Final = ("endingVersion", "endingTimestamp")
_FEED_OPTIONS: Final = ("path", "readChangeFeed", *_STARTS, *_ENDS, "columns", "allowAbsolutePaths")
WRITE_OPTIONS: Final = (
    *("path", "columnsToIndex", "cubeSize", "columnStats", "partitionBy", "sampleBy", "sampleColumn"),
    *("compression", "overwriteSchema", "optimize", "userMetadata", "txnAppId", "txnVersion"),
    "stale",  # INSERT INTO passes the options of a view; a write is always into the newest version
)
_ONLY_STREAMS: Final = ("maxFilesPerTrigger", "maxBytesPerTrigger", "skipChangeCommits", "ignoreDeletes")
_STREAM_OPTIONS: Final = (*_STARTS, *_ONLY_STREAMS, "readChangeFeed")
SINK_OPTIONS: Final = ("path", "txnAppId", "checkpointLocation")

_CATALOG: Final = (
    "CREATE TABLE ... USING qbeast and saveAsTable cannot work: Spark does not hand the path of such tables to Python, "
    "and may keep their name, which DROP TABLE removes. Create a table by "
    'df.write.format("qbeast").mode("append").option("columnsToIndex", "a,b").save(path), and give it a name in SQL by '
    "qbeast_spark_bridge.register_table(spark, path, name)."
)
_CATALOG_OPTIONS: Final = frozenset({"location", "owner", "provider"})
_STORAGE: Final = "storage."
_NUMBER: Final = re.compile(r"\d+")
_AMOUNT: Final = re.compile(r"(\d{1,18})\s*([kmgt]?)(?:i?b)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteByTasks:
    """The options of a write of a DataFrame."""

    location: Location
    # Columns to index, as `qbeast.write_table` takes them; None: those of the table.
    columns: tuple[str, ...] | None
    cube_size: int | None
    # JSON, as `column_stats` of `qbeast.write_table`.
    column_stats: str | None
    partition_by: tuple[str, ...] | None
    sample_by: tuple[str, ...] | None
    sample_column: str | None
    compression: str | None
    overwrites_schema: bool
    # Whether to optimize the table after the write, in the process of the driver.
    optimizes: bool
    user_metadata: str | None
    txn: tuple[str, int] | None

    @staticmethod
    def of(options: Mapping[str, str]) -> WriteByTasks:
        """Parse the options of Spark."""
        refuse_unknown(options, WRITE_OPTIONS)
        lowered = {key.lower(): value for key, value in options.items()}
        size = lowered.get("cubesize")
        if size is not None and not _NUMBER.fullmatch(size.strip()):
            msg = f"option cubeSize must be a number of rows, not {size!r}"
            raise InvalidInputError(msg, argument="cubeSize")
        return WriteByTasks(
            location=location_of(options),
            columns=_columns(options, "columnsToIndex"),
            cube_size=None if size is None else int(size),
            column_stats=lowered.get("columnstats"),
            partition_by=_columns(options, "partitionBy"),
            sample_by=_columns(options, "sampleBy"),
            sample_column=lowered.get("samplecolumn"),
            compression=lowered.get("compression"),
            overwrites_schema=_flag(options, "overwriteSchema"),
            optimizes=_flag(options, "optimize"),
            user_metadata=lowered.get("usermetadata"),
            txn=_txn(lowered),
        )


def _txn(lowered: Mapping[str, str]) -> tuple[str, int] | None:
    app, version = lowered.get("txnappid"), lowered.get("txnversion")
    if app is None and version is None:
        return None
    if not app or version is None or not version.isdecimal() or int(version) >= 2**63:
        msg = f"txnAppId and txnVersion, a number below 2**63, go together; got {app!r} and {version!r}."
        raise InvalidInputError(msg, argument="txnAppId")
    return app, int(version)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read."""

    location: Location
    sample: tuple[float, float] | None
    # Columns by whose hash rows are sampled; None: by the index.
    sample_by: tuple[str, ...] | None
    where: str | None
    # Columns to return, in order; None for all.
    columns: tuple[str, ...] | None
    # A number, or a time as text.
    version: int | str | None
    # Whether a query raises an error if the table has a newer version than the one that was planned.
    refuses_stale: bool

    @staticmethod
    def of(options: Mapping[str, str]) -> ReadOptions:
        """Parse the options of Spark."""
        _refuse_ranges(options)
        refuse_unknown(options, _READ_OPTIONS)
        version, stale = _version(options), options.get("stale", "allow").lower()
        if stale not in ("allow", "refuse"):
            msg = f"option stale must be refuse or allow, not {stale!r}"
            raise InvalidInputError(msg, argument="stale")
        return ReadOptions(
            location=location_of(options, allow_absolute_paths=_flag(options, "allowAbsolutePaths")),
            sample=fractions_of(options["sample"]) if options.get("sample") else None,
            sample_by=_columns(options, "sampleBy"),
            where=options.get("where") or None,
            columns=_columns(options, "columns"),
            version=version,
            refuses_stale=stale == "refuse" and version is None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The options of a read of changed rows, with the names and the meaning that Delta has for them."""

    location: Location
    # Columns to return, in order; None for all.
    columns: tuple[str, ...] | None
    # The first version, or a time at or before it.
    starting_version: int | None
    starting_timestamp: str | None
    # The last version, or a time at or after it; neither: the newest version.
    ending_version: int | None
    ending_timestamp: str | None

    @staticmethod
    def of(options: Mapping[str, str]) -> FeedOptions:
        """Parse the options of Spark."""
        _refuse_beside_feed(options)
        refuse_unknown(options, _FEED_OPTIONS)
        for pair in (_STARTS, _ENDS):
            _one_of(options, pair)
        return FeedOptions(
            location=location_of(options, allow_absolute_paths=_flag(options, "allowAbsolutePaths")),
            columns=_columns(options, "columns"),
            starting_version=_number(options, "startingVersion"),
            starting_timestamp=options.get("startingTimestamp") or None,
            ending_version=_number(options, "endingVersion"),
            ending_timestamp=options.get("endingTimestamp") or None,
        )


def read_options(options: Mapping[str, str]) -> ReadOptions | FeedOptions:
    """Parse the options of a read that is not a stream."""
    return FeedOptions.of(options) if _flag(options, "readChangeFeed") else ReadOptions.of(options)


def _version(options: Mapping[str, str]) -> int | str | None:
    """Return the number or the time of the version to read."""
    _one_of(options, _VERSIONS)
    version, time = options.get("version"), options.get("timestampAsOf")
    if version and _NUMBER.fullmatch(version):
        return int(version)
    if time:
        _refuse_no_time(time)
    return version or time or _number(options, "versionAsOf")


def _refuse_no_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        other = f'; for a version: .option("versionAsOf", {text})' if _NUMBER.fullmatch(text) else ""
        msg = f'timestampAsOf must be a time such as "2026-11-28 06:00:00", not {text!r}{other}'
        raise InvalidInputError(msg, argument="timestampAsOf") from None


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text.strip()):
        other = "timestampAsOf" if name == "versionAsOf" else name.replace("Version", "Timestamp")
        msg = f'{name} must be the number of a version, not {text!r}; for a time: .option("{other}", "2026-11-28")'
        raise InvalidInputError(msg, argument=name)
    return int(text)


def _one_of(options: Mapping[str, str], names: Sequence[str]) -> None:
    given = [name for name in names if options.get(name)]
    if len(given) > 1:
        msg = f"{' and '.join(given)} exclude each other: give one of them"
        raise InvalidInputError(msg, argument=given[1])


def _refuse_ranges(options: Mapping[str, str]) -> None:
    """Raise if versions are given as for changes, and changes are not requested: Delta returns the newest version."""
    given = [name for name in (*_STARTS, *_ENDS) if options.get(name)]
    if given:
        msg = (
            f'{given[0]} is an option of the changed rows: add .option("readChangeFeed", "true"). For the rows of a '
            'version: .option("versionAsOf", 3), or .option("timestampAsOf", "2026-11-28").'
        )
        raise InvalidInputError(msg, argument=given[0])


def _refuse_beside_feed(options: Mapping[str, str]) -> None:
    """Raise if a read of changes has options of rows."""
    for name in _VERSIONS:
        if options.get(name):
            end = "endingTimestamp" if name == "timestampAsOf" else "endingVersion"
            msg = f'{name} cannot be used with readChangeFeed; the last version: .option("{end}", "{options[name]}")'
            raise InvalidInputError(msg, argument=name)
    for name in ("sample", "sampleBy", "where"):
        if options.get(name):
            msg = f'{name} cannot be used with readChangeFeed; filter the changed rows: .load(path).where("id = 5")'
            raise InvalidInputError(msg, argument=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions:
    """The options of a stream, with the names that Delta has for them."""

    location: Location
    # "latest" or a number.
    starting_version: int | str | None
    starting_timestamp: str | None
    max_files: int | None
    max_bytes: int | None
    skip_change_commits: bool
    ignore_deletes: bool
    read_change_feed: bool

    @staticmethod
    def of(options: Mapping[str, str]) -> StreamReadOptions:
        """Parse the options of Spark."""
        refuse_unknown(options, ("path", "allowAbsolutePaths", *_STREAM_OPTIONS))
        _one_of(options, _STARTS)
        version, time = options.get("startingVersion"), options.get("startingTimestamp")
        files, size = (_count(options, f"max{what}PerTrigger") for what in ("Files", "Bytes"))
        return StreamReadOptions(
            location=location_of(options, allow_absolute_paths=_flag(options, "allowAbsolutePaths")),
            starting_version=int(version) if version and _NUMBER.fullmatch(version) else version or None,
            starting_timestamp=time or None,
            max_files=files,
            max_bytes=size,
            skip_change_commits=_flag(options, "skipChangeCommits"),
            ignore_deletes=_flag(options, "ignoreDeletes"),
            read_change_feed=_flag(options, "readChangeFeed"),
        )


def is_stream(options: Mapping[str, str]) -> bool:
    """Return whether only a stream can have these options: Spark requests the schema before it says which it is.

    The columns of changes are the same for both.
    """
    names = {name.lower() for name in (*_ONLY_STREAMS, *_STARTS)}
    given = {key.lower() for key, value in options.items() if value}
    is_feed = "readchangefeed" in given and _flag(options, "readChangeFeed")
    return bool(given & ({name.lower() for name in _ONLY_STREAMS} if is_feed else names))


def _count(options: Mapping[str, str], name: str) -> int | None:
    """Return a number; one of bytes may have a unit, such as 10g."""
    text = options.get(name)
    if not text:
        return None
    found = _AMOUNT.fullmatch(text.strip().lower())
    number = 0 if found is None else int(found[1]) << 10 * (" kmgt".index(found[2] or " "))
    if number < 1:
        msg = f"option {name} must be a number of at least 1, not {text!r}"
        raise InvalidInputError(msg, argument=name)
    return number


def location_of(options: Mapping[str, str], *, allow_absolute_paths: bool = False) -> Location:
    """Return where the table is."""
    path = options.get("path")
    if path:
        return Location.of(path, storage_options(options), allow_absolute_paths=allow_absolute_paths)
    several = " Give one path, not several." if "paths" in options else ""
    msg = (
        'format("qbeast") needs the path of a table: .load("/tables/orders"), .save("/tables/orders"), or in SQL '
        f"CREATE TEMPORARY VIEW orders USING qbeast OPTIONS (path '/tables/orders').{several} {_CATALOG}"
    )
    raise InvalidInputError(msg, argument="path")


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        msg = f"option {name} must be true or false, not {text!r}"
        raise InvalidInputError(msg, argument=name)
    return text == "true"


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the object store: ``storage.aws_region`` becomes ``aws_region``."""
    return {key[len(_STORAGE) :]: value for key, value in options.items() if key.lower().startswith(_STORAGE)}


def refuse_unknown(options: Mapping[str, str], names: Collection[str]) -> None:
    """Raise on unknown options: a misspelt ``sample`` would read the whole table."""
    allowed = {name.lower() for name in names} | {"paths"}
    unknown = sorted(
        key for key in options if key.lower() not in allowed and not key.lower().startswith(_STORAGE)
    )
    if _CATALOG_OPTIONS & set(unknown):
        raise InvalidInputError(_CATALOG, argument="path")
    if unknown:
        msg = f'format("qbeast") has no option {unknown} here; it has {list(names)} and {_STORAGE}<option of the store>'
        raise InvalidInputError(msg, argument=unknown[0])


def _columns(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = options.get(name)
    if not text:
        return None
    if not text.lstrip().startswith("["):
        return tuple(part.strip() for part in text.split(","))
    try:
        names: Any = json.loads(text)
    except json.JSONDecodeError:
        names = None
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    msg = f'{name} must be names separated by commas, "id,price", or a JSON list, not {text!r}'
    raise InvalidInputError(msg, argument=name)

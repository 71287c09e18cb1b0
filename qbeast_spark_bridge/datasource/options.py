"""Parse the options of ``format("qbeast")``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.location import Location
from qbeast_core.plan.weights import fractions_of

_READ_OPTIONS: Final = (
    *("path", "sample", "sampleBy", "where", "columns", "version", "stale", "allowAbsolutePaths"),
)
WRITE_OPTIONS: Final = (
    *("path", "columnsToIndex", "cubeSize", "columnStats", "partitionBy", "sampleBy", "sampleColumn"),
    *("compression", "overwriteSchema", "optimize", "userMetadata", "txnAppId", "txnVersion"),
    "stale",  # INSERT INTO passes the options of a view; a write is always into the newest version
)
_STREAM_OPTIONS: Final = (
    *("startingVersion", "startingTimestamp", "maxFilesPerTrigger", "maxBytesPerTrigger"),
    *("skipChangeCommits", "ignoreDeletes", "readChangeFeed"),
)
SINK_OPTIONS: Final = ("path", "txnAppId", "checkpointLocation")

_CATALOG: Final = (
    "CREATE TABLE ... USING qbeast and saveAsTable cannot work: Spark does not hand the path of such tables to Python, "
    "and may keep their name, which DROP TABLE removes. Create a table by "
    'df.write.format("qbeast").mode("append").option("columnsToIndex", "a,b").save(path); in SQL, use it through a '
    "temporary view."
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
        refuse_unknown(options, _READ_OPTIONS)
        version, stale = options.get("version"), options.get("stale", "allow").lower()
        if stale not in ("allow", "refuse"):
            msg = f"option stale must be refuse or allow, not {stale!r}"
            raise InvalidInputError(msg, argument="stale")
        return ReadOptions(
            location=location_of(options, allow_absolute_paths=_flag(options, "allowAbsolutePaths")),
            sample=fractions_of(options["sample"]) if options.get("sample") else None,
            sample_by=_columns(options, "sampleBy"),
            where=options.get("where") or None,
            columns=_columns(options, "columns"),
            version=int(version) if version and _NUMBER.fullmatch(version) else version or None,
            refuses_stale=stale == "refuse" and not version,
        )


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
        version, time = options.get("startingVersion"), options.get("startingTimestamp")
        if version and time:
            msg = "startingVersion and startingTimestamp exclude each other"
            raise InvalidInputError(msg, argument="startingVersion")
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
    """Return whether an option is one that only streams have: Spark requests the schema before it says which it is."""
    names = {name.lower() for name in _STREAM_OPTIONS}
    return any(key.lower() in names for key in options)


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

"""Replay a log: the live files with their index tags, also of old layouts and of copies in files (format 11 and 14).

A file of a layout before 0.6 has one block, whose fields are flat tags. It gets the `blocks` tag that an upgrade would
write. Files whose rows are also in other files leave the live files.

`deltalake` lists the live files, but it compares paths as they are written. The protocol and Spark compare decoded
paths. A file that was added as ``a%2Bb.parquet`` and removed as ``a+b.parquet`` (the deletes of `deltalake` write so)
stays in its list; the replay here removes it. Tags come from the newest add of each path. A fault in tags can prevent
skipping files, but no row is lost.

A program that drops the tags from the log leaves the files as they are. Each has a copy of its tags, from which a
repair restores them. The copy holds what the rows of the file do not give: the revision, the cubes and the bands. The
number of the revision and the thresholds may differ from the log: a commit chooses them after the files are written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import orjson
import polars as pl
from pydantic import TypeAdapter

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.actions import AddFile, CommitInfo, Metadata, Protocol
from qbeast_core.log.columns import StoredColumns, stored_revision
from qbeast_core.log.deletion_vectors import FileKey, file_key, parse_vector, without_nulls
from qbeast_core.log.values import NEVER_MS, LiveFiles
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.blocks import (
    MAX_ROWS,
    Block,
    FilePath,
    Layout,
    dump_shape,
    pack_blocks,
    parse_blocks,
    parse_shape,
    read_text,
    unpack_blocks,
)
from qbeast_core.spec.revision import Revision

# Column -> tag key of the fields that become `blocks`. The tag `state` stays: it marks files of old layouts.
FLAT_KEYS: Final[Mapping[str, str]] = {
    "cube": "cube",
    "min_weight": "minWeight",
    "max_weight": "maxWeight",
    "element_count": "elementCount",
}

COPIED_STATES: Final = ("REPLICATED", "ANNOUNCED")


@dataclass(frozen=True, slots=True, eq=False)
class CopiedRows:
    """The copies of rows in a version. Other readers return them, this library does not."""

    # Files that hold nothing else, in the columns of the live files.
    files: pl.DataFrame = field(default_factory=pl.DataFrame)
    # Decoded paths of live files with copies beside other rows. Their tags do not show which rows are copies.
    mixed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files.height or self.mixed)


NO_COPIES: Final = CopiedRows()


def with_blocks(tags: pl.DataFrame) -> pl.DataFrame:
    """Return the tags of files with `blocks` instead of flat tags.

    >>> flat = {"cube": "A", "min_weight": -5, "max_weight": 7, "element_count": 2}
    >>> tags = pl.DataFrame([{"blocks": None, "state": "FLOODED", **flat}], schema_overrides={"blocks": pl.String})
    >>> with_blocks(tags).row(0)
    ('[{"cubeId":"A","minWeight":-5,"maxWeight":7,"elementCount":2,"replicated":false}]', 'FLOODED')
    """
    if tags["cube"].null_count() < tags.height:
        block = pl.struct(
            pl.col("cube").alias("cubeId"),
            pl.col("min_weight").fill_null(MIN_WEIGHT).alias("minWeight"),
            pl.col("max_weight").fill_null(MAX_WEIGHT).alias("maxWeight"),
            pl.col("element_count").fill_null(0).alias("elementCount"),
            pl.col("state").is_in(COPIED_STATES).fill_null(value=False).alias("replicated"),
        )
        is_flat = pl.col("blocks").is_null() & pl.col("cube").is_not_null()
        text = pl.format("[{}]", block.struct.json_encode())
        tags = tags.with_columns(blocks=pl.when(is_flat).then(text).otherwise("blocks"))
    return tags.drop(FLAT_KEYS)


def without_copies(files: pl.DataFrame) -> tuple[pl.DataFrame, CopiedRows]:
    """Return the live files without files of copies, and the copies.

    Tags that contradict the statistics of their file hide no row: the file is read as a whole.

    >>> block = '[{"cube":"","minWeight":0,"maxWeight":1,"replicated":%s,"elementCount":1}]'
    >>> files = pl.DataFrame({"path": ["a", "b"], "blocks": [block % "false", block % "true"], "num_records": [1, 1],
    ...     "miscounted": [False, False], "state": [None, None]})
    >>> live, copies = without_copies(files)
    >>> live["path"].to_list(), copies.files["path"].to_list()
    (['a'], ['b'])
    """
    # No other value of a block is `true`; a cube may contain these letters.
    marked = files["blocks"].cast(pl.String).str.contains("true", literal=True).arg_true().to_list()
    if not marked:
        return files, NO_COPIES
    gone, mixed = list[int](), list[str]()
    columns = ("path", "blocks", "num_records", "miscounted", "state")
    for number, file in zip(marked, files.select(columns)[marked].iter_rows(named=True), strict=True):
        blocks = _trusted_blocks(file)
        if all(block.replicated for block in blocks):
            gone += [number] if blocks else []
        elif any(block.replicated for block in blocks):
            mixed.append(FilePath.of_log(file["path"]).text)
    is_gone = pl.int_range(files.height, eager=True).is_in(gone)
    return files.filter(~is_gone), CopiedRows(files.filter(is_gone), tuple(mixed))


def _trusted_blocks(file: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a file; none if they cannot be read, or contradict its statistics."""
    try:
        blocks = parse_blocks(file["blocks"])
    except InvalidMetadataError:
        return []
    if file["state"] in COPIED_STATES:  # counts of such files need not be right: they are never read
        return blocks
    counted, rows = file["num_records"], sum(block.element_count for block in blocks)
    contradicts = file["miscounted"] or (counted is not None and counted != rows)
    return [] if contradicts or any(block.min_weight > block.max_weight for block in blocks) else blocks


@cache
def _flat_blocks() -> TypeAdapter[Block]:
    return TypeAdapter(Block)


def block_from_flat_tags(tags: Mapping[str, str]) -> Block:
    """Return the block of a file from its flat tags. Raise if they cannot be read.

    >>> block_from_flat_tags({"state": "FLOODED", "cube": "A", "revision": "1", "minWeight": "-5",
    ...                       "maxWeight": "7", "elementCount": "2"})
    Block(cube='A', min_weight=-5, max_weight=7, element_count=2, replicated=False)
    """
    fields = {**tags, "replicated": str(tags.get("state") in COPIED_STATES)}
    text = json.dumps(dict(tags))
    block: Block = read_text(lambda _: _flat_blocks().validate_strings(fields), text, what="a file's tags")
    return block


# Column -> tag key (format 7). The columns of `FLAT_KEYS` are translated to `blocks`.
TAG_KEYS: Final[Mapping[str, str]] = {
    "revision": "revision",
    "blocks": "blocks",
    "layout": "qbeast.layout",
    "rules": "qbeast.rules",
    "keys": "qbeast.keys",
    "state": "state",
}
_LOGGED_KEYS: Final[Mapping[str, str]] = {**TAG_KEYS, **FLAT_KEYS}

# Column -> field of an add.
FIELD_KEYS: Final[Mapping[str, str]] = {
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "clustering_provider": "clusteringProvider",
}

# Columns of a frame of tags; `deletion_vector` is the descriptor as JSON text, null where there is none.
TAG_COLUMNS: Final = ("path", *TAG_KEYS, "deletion_vector", *FIELD_KEYS)

# Field that all actions of a kind have, if it is not `path`.
_NAMED_BY: Final[Mapping[str, str]] = {
    "domainMetadata": "domain",
    "metaData": "schemaString",
    "protocol": "minReaderVersion",
}
_Kind: TypeAlias = Literal["add", "remove", "metaData", "protocol", "sidecar", "domainMetadata"]

_WEIGHT: Final = (-(2**31), 2**31 - 1)
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "revision": (0, 2**62),
    "min_weight": _WEIGHT,
    "max_weight": _WEIGHT,
    "element_count": (0, MAX_ROWS),
}
# Numbers in tags as integers. Built once, because each opening of a table needs them.
_CASTS: Final = {name: pl.col(name).cast(pl.Int64, strict=False) for name in _BOUNDS}
_NUMBERS: Final = [pl.when(number.is_between(*_BOUNDS[name])).then(number) for name, number in _CASTS.items()]

_POSSIBLE: Final = pl.col("num_records").is_between(0, MAX_ROWS)
_COUNTED: Final = {
    "num_records": pl.when(_POSSIBLE).then("num_records"),
    "has_deletion_vector": pl.col("deletion_vector").is_not_null(),
    "miscounted": (~_POSSIBLE).fill_null(value=False),
}
_IDS: Final = ("base_row_id", "default_row_commit_version")
_LOGGED: Final = ("path", *_LOGGED_KEYS, "deletion_vector", *FIELD_KEYS)
_READ: Final = pl.Schema({name: pl.Int64() if name in _IDS else pl.String() for name in _LOGGED})
# A character that only some writers escape in a path.
SPELLED_DIFFERENTLY: Final = "[^A-Za-z0-9_./-]"
# Keys that a checkpoint derives from other fields. The add of a commit does not have them.
_DERIVED: Final = ("stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogState:
    """The files of the log of one version."""

    uri: str
    version: int
    # Parts and sidecars of the checkpoint: frames with a column per action, or lines of JSON. Empty: there is none.
    checkpoint: tuple[pl.DataFrame | bytes, ...] = ()
    # The commits after the checkpoint, oldest first.
    commits: tuple[bytes, ...] = ()
    # The existing commits before the checkpoint, newest first; read lazily.
    earlier: Iterator[bytes] = field(default_factory=lambda: iter(()))
    # Writer and time of the version; None: unknown.
    commit_info: CommitInfo | None = None
    # Identifies the file of the commit. A new table at the same path has another file of this name.
    fingerprint: tuple[int, int, int] | None = None


def files_with_tags(
    listed: pl.DataFrame, log: LogState, *, known: pl.DataFrame | None = None
) -> pl.DataFrame:
    r"""Return the live files with their tags; null for missing and invalid tags.

    >>> adds = b'{"add":{"path":"a%2Bb"}}\n{"add":{"path":"c","tags":{"revision":"1"}}}'
    >>> log = LogState(uri="t", version=1, commits=(adds, b'{"remove":{"path":"a+b"}}'))
    >>> listed = pl.DataFrame({"path": ["a%2Bb", "c"], "num_records": [1, 2]})
    >>> files_with_tags(listed, log).select("path", "revision").rows()
    [('c', 1)]
    """
    with _naming_damage(log):
        tags = _tags(log)
        tags = tags if known is None else pl.concat([known.select(TAG_COLUMNS), tags])
        tags = tags.unique("path", keep="last")
        gone = _taken_back(listed["path"], log, known) if needs_removes(listed) else []
    live = listed.filter(~pl.col("path").is_in(gone)) if gone else listed
    joined = live.join(tags, on="path", how="left", maintain_order="left")
    return joined.with_columns(**_COUNTED)


def keys_in(commits: Iterable[bytes]) -> set[FileKey]:
    """Return the keys of all files that commits add or remove: decoded paths, and deletion vectors.

    >>> keys_in([b'{"add":{"path":"a%2Bb"}}', b'{"remove":{"path":"c"}}']) == {("a+b", ""), ("c", "")}
    True
    """
    return {
        _key(action)
        for body in commits
        for action in chain(actions_of(body, "add"), actions_of(body, "remove"))
    }


def needs_removes(listed: pl.DataFrame) -> bool:
    """Return whether other writers may write any `path` of these files differently.

    >>> [needs_removes(pl.DataFrame({"path": [path]})) for path in ("k/part-0.parquet", "a%2Bb.parquet")]
    [False, True]
    """
    return listed["path"].str.contains(SPELLED_DIFFERENTLY).any()


def contradictions(listed: Iterable[str], log: LogState) -> list[str]:
    r"""Return the files that are listed although the last commit that names them removes them, or the reverse.

    >>> body = b'{"add":{"path":"a"}}\n{"add":{"path":"b"}}\n{"remove":{"path":"c"}}'
    >>> contradictions(["a", "c", "d"], LogState(uri="t", version=1, commits=(body,)))
    ['b', 'c']
    """
    is_live: dict[str, bool] = {}
    with _naming_damage(log):
        for body in log.commits:
            added, removed = (
                {FilePath.of_log(action["path"]).text for action in actions_of(body, kind)}
                for kind in ("add", "remove")
            )
            is_live |= dict.fromkeys(added, True) | dict.fromkeys(removed, False)
            for path in added & removed:  # another deletion vector, or the engines disagree
                del is_live[path]
    names = {FilePath.of_log(path).text for path in listed} if is_live else set[str]()
    return sorted(path for path, live in is_live.items() if live != (path in names))


def whole_files(listed: Iterable[str], log: LogState) -> LiveFiles:
    r"""Return the whole add actions of live paths.

    >>> add = '{"add":{"path":"%s","size":1,"modificationTime":1,"partitionValues":{},"dataChange":true}}\n'
    >>> twice = '{"remove":{"path":"b","dataChange":false}}\n' + add % "b"
    >>> commits = ((add % "a" + add % "b").encode(), twice.encode())
    >>> files = whole_files(["a"], LogState(uri="t", version=1, commits=commits))
    >>> [add.path for add in files.listed], [add.path for add in files.unlisted]
    (['a'], ['b'])
    """
    newest: dict[str, dict[str, Any]] = {}
    disputed: dict[str, str] = {}
    with _naming_damage(log):
        for part in log.checkpoint:
            newest.update((add["path"], _as_committed(add)) for add in actions_of(part, "add"))
        for body in log.commits:
            adds, removes = list(actions_of(body, "add")), list(actions_of(body, "remove"))
            gone = {_key(remove) for remove in removes}
            for action in (*adds, *removes):
                disputed.pop(_key(action)[0], None)  # a later commit settles it
            disputed |= {_key(add)[0]: add["path"] for add in adds if _key(add) in gone}
            newest.update((add["path"], add) for add in adds)
        paths = list(listed)
        hidden = set(disputed.values()) - set(paths)
        return LiveFiles(
            listed=tuple(AddFile.model_validate(newest[path]) for path in paths if path in newest),
            unlisted=tuple(AddFile.model_validate(newest[path]) for path in sorted(hidden)),
        )


def newest_adds(paths: Collection[str], log: LogState) -> dict[str, AddFile]:
    """Return the newest adds of some live paths, in the form of a commit."""
    newest: dict[str, dict[str, Any]] = {}
    wanted = pl.col("add").struct.field("path").is_in(list(paths))
    with _naming_damage(log):
        for part in log.checkpoint:
            few = part.filter(wanted) if isinstance(part, pl.DataFrame) and "add" in part.columns else part
            newest |= {
                add["path"]: _as_committed(add) for add in actions_of(few, "add") if add["path"] in paths
            }
        for body in log.commits:
            newest |= {add["path"]: add for add in actions_of(body, "add") if add["path"] in paths}
        return {path: AddFile.model_validate(add) for path, add in newest.items()}


def domains_of(log: LogState, *, known: Mapping[str, str]) -> dict[str, str]:
    r"""Return the configuration of each metadata domain, without removed ones.

    >>> line = b'{"domainMetadata":{"domain":"a","configuration":"{}","removed":%s}}'
    >>> logs = [LogState(uri="t", version=0, commits=(line % text,)) for text in (b"false", b"true")]
    >>> [domains_of(log, known={}) for log in logs]
    [{'a': '{}'}, {}]
    """
    domains = dict(known)
    with _naming_damage(log):
        for action in chain.from_iterable(
            actions_of(part, "domainMetadata") for part in (*log.checkpoint, *log.commits)
        ):
            domains[action["domain"]] = action.get("configuration") or ""
            if action.get("removed"):
                del domains[action["domain"]]
    return domains


def newest_settings(log: LogState) -> tuple[Protocol | None, Metadata | None]:
    r"""Return the protocol and the metadata of a table. None: the log does not have it.

    >>> body = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n{"remove":{"path":"b"}}'
    >>> newest_settings(LogState(uri="t", version=0, commits=(body,)))
    (Protocol(min_reader_version=1, min_writer_version=2, reader_features=None, writer_features=None), None)
    """
    protocol = metadata = None
    with _naming_damage(log):
        for part in (*log.checkpoint, *log.commits):
            for action in actions_of(part, "protocol"):
                protocol = Protocol.model_validate(without_nulls(action))
            for action in actions_of(part, "metaData"):
                metadata = Metadata.model_validate(without_nulls(action))
    return protocol, metadata


def actions_of(part: pl.DataFrame | bytes, kind: _Kind) -> Iterator[dict[str, Any]]:
    r"""Yield the actions of a kind in a commit or a checkpoint, unchanged.

    >>> list(actions_of(b'{"add":{"path":"a"}}\n{"remove":{"path":"b"}}', "remove"))
    [{'path': 'b'}]
    """
    if isinstance(part, bytes):
        mark = f'"{kind}"'.encode()
        # Parsing JSON takes most of the time, so lines that cannot be such an action are not parsed.
        actions = (orjson.loads(line).get(kind) for line in part.splitlines() if mark in line)
        yield from (action for action in actions if action)
    elif kind in part.columns:
        yield from _rows(part, kind).iter_rows(named=True)


def _rows(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    key = _NAMED_BY.get(kind, "path")
    return frame.select(pl.col(kind).struct.unnest()).filter(pl.col(key).is_not_null())


def _key(action: Mapping[str, Any]) -> FileKey:
    return file_key(action["path"], action.get("deletionVector"))


@contextmanager
def _naming_damage(log: LogState) -> Generator[None]:
    try:
        yield
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        message = f"the log of {log.uri} up to version {log.version} is damaged: {error}."
        raise InvalidMetadataError(message) from error


# --- tags ---------------------------------------------------------------------------------------------------------


def _tags(log: LogState) -> pl.DataFrame:
    """Return the tags of all adds, those of a checkpoint before the newer ones; one row per add."""
    frames = [_tags_of_frame(part) for part in log.checkpoint if isinstance(part, pl.DataFrame)]
    bodies = [part for part in log.checkpoint if isinstance(part, bytes)]
    texts = pl.concat([*frames, _tags_of_lines([*bodies, *log.commits])])
    return with_blocks(texts.with_columns(_NUMBERS)).select(TAG_COLUMNS)


def _tags_of_lines(bodies: Iterable[bytes]) -> pl.DataFrame:
    columns: dict[str, list[Any]] = {name: [] for name in _LOGGED}
    keys = [(columns[name], key) for name, key in _LOGGED_KEYS.items()]
    fields = [(columns[name], key) for name, key in FIELD_KEYS.items()]
    for add in chain.from_iterable(actions_of(body, "add") for body in bodies):
        columns["path"].append(add["path"])
        tags: Mapping[str, Any] = add.get("tags") or {}
        for column, key in keys:
            column.append(tags.get(key))
        for column, key in fields:
            column.append(add.get(key))
        vector = add.get("deletionVector")
        columns["deletion_vector"].append(orjson.dumps(vector).decode() if vector else None)
    return pl.DataFrame(columns, schema=_READ, strict=False)


def _tags_of_frame(frame: pl.DataFrame) -> pl.DataFrame:
    if "add" not in frame.columns:
        return pl.DataFrame(schema=_READ)
    adds = _rows(frame, "add")
    no_text = pl.lit(None, pl.String)
    tagged = isinstance(adds.schema.get("tags"), pl.Map)
    texts = {name: pl.col("tags").map.get(key) if tagged else no_text for name, key in _LOGGED_KEYS.items()}
    vector = no_text
    if "deletionVector" in adds.columns:
        descriptor = pl.col("deletionVector")
        is_present = descriptor.struct.field("storageType").is_not_null()
        vector = pl.when(is_present).then(descriptor.struct.json_encode())
    fields = {
        name: (pl.col(key) if key in adds.columns else pl.lit(None)).cast(_READ[name])
        for name, key in FIELD_KEYS.items()
    }
    return adds.select("path", **texts, deletion_vector=vector, **fields)


# --- forms of paths -----------------------------------------------------------------------------------------------


def _taken_back(listed: pl.Series, log: LogState, known: pl.DataFrame | None) -> list[str]:
    """Return the listed paths whose files are removed, by a replay with decoded paths.

    A checkpoint may list a file as live under one form of its path and as removed under another. It has no order, so
    the commits before it decide. A remove that never expires belongs to a live file.
    """
    newest: dict[FileKey, str | None] = {}
    for path, vector in () if known is None else known.select("path", "deletion_vector").iter_rows():
        newest[file_key(path, parse_vector(vector))] = path
    removes: dict[FileKey, str] = {}
    for part in log.checkpoint:
        removes |= {
            _key(remove): remove["path"]
            for remove in actions_of(part, "remove")
            if (remove.get("deletionTimestamp") or 0) < NEVER_MS
        }
        newest |= {_key(add): add["path"] for add in actions_of(part, "add")}
    unsettled = {key for key, path in removes.items() if newest.get(key, path) != path}
    for body in log.commits:
        settled = _settled_by(body)
        newest |= settled
        unsettled -= settled.keys()
    while unsettled and (earlier := next(log.earlier, None)) is not None:
        settled = {key: path for key, path in _settled_by(earlier).items() if key in unsettled}
        newest |= settled
        unsettled -= settled.keys()
    live = set(newest.values())
    hidden = [path for path in listed if path not in live]
    if known is not None:  # all other paths were removed
        return hidden
    decoded = {path for path, _ in newest}
    # Other paths are as `deltalake` lists them.
    return [path for path in hidden if FilePath.of_log(path).text in decoded]


def _settled_by(body: bytes) -> dict[FileKey, str | None]:
    """Return the path of each file in a commit; None: the commit removes the file."""
    adds = {_key(add): str(add["path"]) for add in actions_of(body, "add")}
    return dict.fromkeys(map(_key, actions_of(body, "remove"))) | adds


# --- whole adds ---------------------------------------------------------------------------------------------------


def _as_committed(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an add of a checkpoint in the form of a commit."""
    add = {key: value for key, value in without_nulls(raw).items() if key not in _DERIVED}
    vector = without_nulls(add.pop("deletionVector", {}))
    if "storageType" in vector:
        add["deletionVector"] = vector
    if raw.get("stats") is None and raw.get("stats_parsed") is not None:
        add["stats"] = orjson.dumps(_plain(raw["stats_parsed"])).decode()
    return add


def _plain(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return statistics as values of JSON, without bounds that have no exact text."""
    values: dict[str, Any] = {}
    for key, value in parsed.items():
        if isinstance(value, dict):
            values[key] = _plain(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            values[key] = value.isoformat()
        elif isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value)):
            values[key] = value
    return values


# Tag of files that follow the exact rules for coordinates (format 4), and its value.
RULES_TAG: Final = "qbeast.rules"
RULES: Final = "1"

_REVISION, _BLOCKS, _LAYOUT = "revision", "blocks", "qbeast.layout"
_DIGEST: Final = "qbeast.revision"


@dataclass(frozen=True, slots=True)
class TagCopy:
    """The copy of a file's tags."""

    revision_digest: str
    # In the order of the tag, with the thresholds that were planned.
    blocks: tuple[Block, ...]
    # Without boxes of pages and length of the file's end.
    layout: Layout


def dump_copy(
    revision: Revision, blocks: Sequence[Block], layout: Layout, columns: StoredColumns
) -> dict[str, str]:
    """Return the key-value metadata of a file. `blocks` are in the order of the file.

    >>> from qbeast_core.log.columns import PLAIN
    >>> from qbeast_core.spec.blocks import Layout
    >>> from qbeast_core.spec.revision import staging_revision
    >>> revision = staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500).with_id(1)
    >>> layout = Layout(tail_bytes=41234, bands=((7, 7, -9),), box=((0, 1),), boxes=bytes(2))
    >>> dump_copy(revision, [Block("", -9, 2147483647, 7)], layout, PLAIN)["blocks"]
    '[["",-9,7]]'
    """
    return {
        _REVISION: str(revision.revision_id),
        _DIGEST: digest_of(revision, columns),
        _BLOCKS: pack_blocks(blocks),
        RULES_TAG: RULES,
        _LAYOUT: dump_shape(layout),
    }


def digest_of(revision: Revision, columns: StoredColumns) -> str:
    """Return the digest of a revision, which a rename of columns does not change."""
    return stored_revision(revision, columns).digest


def parse_copy(metadata: Mapping[bytes, bytes]) -> TagCopy | None:
    """Return the copy in the key-value metadata of a file; None if it has none, or one that cannot be read.

    >>> parse_copy({b"blocks": b"[]"}) is None
    True
    """
    try:
        texts = {key: metadata[key.encode()].decode() for key in (_DIGEST, _BLOCKS, _LAYOUT, RULES_TAG)}
        layout = parse_shape(texts[_LAYOUT])
        blocks = unpack_blocks(texts[_BLOCKS])
    except (KeyError, UnicodeDecodeError, InvalidMetadataError):
        return None
    if texts[RULES_TAG] != RULES or layout is None or not blocks:
        return None
    return TagCopy(texts[_DIGEST], blocks, layout)

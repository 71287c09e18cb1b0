"""Qbeast's keys in a Delta table's ``configuration``; all other keys are kept as they are (format 2).

A key that cannot be read costs its value, never the table: `TableConfig.faults` names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Self, TypeVar

from pydantic import Field, TypeAdapter

from qbeast_core.errors import InvalidColumnsError, InvalidMetadataError
from qbeast_core.spec.blocks import DEFERRED, BlocksDialect, invalid_metadata, read_text
from qbeast_core.spec.revision import Revision, parse_column_spec

LAST_REVISION_ID: Final = "qbeast.lastRevisionID"
REVISION_PREFIX: Final = "qbeast.revision."
REPLICATED_SET_PREFIX: Final = "qbeast.replicatedSet."
BLOCKS_DIALECT: Final = "qbeast.blocksDialect"
COLUMN_SPECS: Final = "qbeast.columnSpecs"
# Value of the key before of a table that is written without an index. Readers from before it, and the JVM, take it for
# a plain Delta table, because it has no revision.
NO_COLUMNS: Final = "[]"
HIGHEST_REVISION_ID: Final = "qbeast.highestRevisionID"
SAMPLE_COLUMN: Final = "qbeast.sampleColumn"
SAMPLE_BY: Final = "qbeast.sampleBy"
MIN_READER: Final = "qbeast.minReader"
IMPORTANCE: Final = "qbeast.importance"

# The version of readers and writers that this library is (format 2). A table may need a higher one.
READER_VERSION: Final = 5
# The version that tables with a sample column need.
SAMPLE_COLUMN_READER: Final = 2
# The version that tables need whose revisions have different columns.
OTHER_COLUMNS_READER: Final = 3
# The version that tables with column mapping or partitions need.
MAPPING_READER: Final = 4
# The version that tables with a sampling key need.
SAMPLE_BY_READER: Final = 5

# Ids grow by one, so no table comes this far: larger ones are damage, and new ids are not counted from them.
MAX_REVISION_ID: Final = 10**9

# A column of more importance would get nearly all splits.
MAX_IMPORTANCE: Final = 1000.0

T = TypeVar("T")

_TEXTS: Final = TypeAdapter(tuple[str, ...], config=DEFERRED)
_IMPORTANCE: Final = TypeAdapter(dict[str, Annotated[float, Field(gt=0, le=MAX_IMPORTANCE)]], config=DEFERRED)
_DIALECT: Final[TypeAdapter[BlocksDialect]] = TypeAdapter(BlocksDialect, config=DEFERRED)
_MAX_DIGITS: Final = 18  # more is not an id, and Python refuses to read very long ones


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """A table's ``configuration`` and the values of Qbeast's keys in it; made by `from_configuration`."""

    # The whole configuration as it was read, in order.
    entries: Mapping[str, str]
    # Id of the newest revision. If its key, or the revision that it names, cannot be read, the newest revision that
    # can, provided that all of them index the same columns or the table was reindexed. None: not a Qbeast table, or no
    # such revision.
    last_revision_id: int | None
    # Readable revisions by id, ascending.
    revisions: Mapping[int, Revision]
    # Value of `qbeast.blocksDialect`; the dialect of live tags has precedence.
    dialect: BlocksDialect | None
    # Column specs of a conversion, until the first real revision. Empty: see `is_left_unindexed`.
    column_specs: tuple[str, ...] | None
    # Sampling key: the columns whose hash is the weight of a row, in all revisions. Empty: the indexed columns.
    sample_by: tuple[str, ...]
    # How much narrower than others the pages of columns are, by names of columns in files; 1 if it is missing.
    importance: Mapping[str, float]
    # Per revision, the cubes with copied rows (layouts before 0.6.0); empty if it cannot be read.
    replicated_sets: Mapping[int, tuple[str, ...]]
    # Our keys that cannot be read or are wrong, and why; they are kept as they are.
    faults: Mapping[str, str]

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> Self:
        """Return the values of a ``configuration``; nothing raises.

        >>> TableConfig.from_configuration({"delta.appendOnly": "true"}).last_revision_id is None
        True
        >>> list(TableConfig.from_configuration({"qbeast.revision.1": "oops"}).faults)
        ['qbeast.revision.1', 'qbeast.lastRevisionID']
        """
        faults: dict[str, str] = {}
        sample_by = _read(_read_sample_by, SAMPLE_BY, configuration.get(SAMPLE_BY), faults) or ()
        revisions: dict[int, Revision] = {}
        for number, key, text in sorted(_numbered(configuration, REVISION_PREFIX)):
            revision = _read(_read_revision, key, text, faults)
            if revision is not None:
                revisions[number] = revision.with_sample_by(sample_by)
        last = _last_revision_id(configuration, revisions, faults)
        specs_of = partial(_read_specs, indexed=None if last is None else revisions[last].columns)
        _read(_read_highest, HIGHEST_REVISION_ID, configuration.get(HIGHEST_REVISION_ID), faults)
        return cls(
            entries=dict(configuration),
            last_revision_id=last,
            revisions=revisions,
            dialect=_read(_read_dialect, BLOCKS_DIALECT, configuration.get(BLOCKS_DIALECT), faults),
            column_specs=_read(specs_of, COLUMN_SPECS, configuration.get(COLUMN_SPECS), faults),
            sample_by=sample_by,
            importance=_stored_importance(configuration, faults),
            replicated_sets={
                number: _read(_read_texts, key, text, faults) or ()
                for number, key, text in _numbered(configuration, REPLICATED_SET_PREFIX)
            },
            faults=faults,
        )

    @property
    def is_indexed(self) -> bool:
        """Whether it is the configuration of a Qbeast table, readable or not."""
        return LAST_REVISION_ID in self.entries or bool(self.revision_ids)

    @property
    def is_left_unindexed(self) -> bool:
        """Whether it is the configuration of a table that was given no columns to index, `NO_COLUMNS`."""
        return self.column_specs == () and not self.is_indexed

    @property
    def newest_fault(self) -> str | None:
        """Why the newest revision is uncertain, so that nothing may be indexed in it; None: it is certain."""
        return self.faults.get(LAST_REVISION_ID) or self.faults.get(SAMPLE_BY)

    @property
    def revision_ids(self) -> tuple[int, ...]:
        """Ids of all revisions, ascending, whether they can be read or not."""
        return tuple(sorted(number for number, _, _ in _numbered(self.entries, REVISION_PREFIX)))

    def to_configuration(self) -> dict[str, str]:
        """Return the ``configuration``: a new dict, every key and text as it was read or set."""
        return dict(self.entries)

    @property
    def latest(self) -> Revision | None:
        """The newest revision; None: not a Qbeast table."""
        return None if self.last_revision_id is None else self.revisions[self.last_revision_id]

    @property
    def has_other_columns(self) -> bool:
        """Whether revisions of the table have different columns, after a reindex."""
        lists = {revision.columns for revision in self.revisions.values()}
        return may_have_other_columns(self.entries) and len(lists) > 1

    def free_revision_id(self, seen: int) -> int:
        """Return an id that the table neither has nor had, larger than `seen`, the largest that files name."""
        taken = set(self.revision_ids)
        free = max(self.highest_revision_id, seen) + 1
        while free in taken:  # one that no table comes to, and so is not counted from
            free += 1
        return free

    @property
    def highest_revision_id(self) -> int:
        """The largest id that the table has, or had before an older version was restored; 0 if there is none."""
        had = _read_id(self.entries.get(HIGHEST_REVISION_ID, "")) or 0
        return max((number for number in (had, *self.revision_ids) if number <= MAX_REVISION_ID), default=0)

    def with_revisions(self, revisions: Sequence[Revision]) -> Self:
        """Return the configuration with these added; the last of them, at least one, becomes the newest."""
        return self.with_entries(revision_entries(revisions))

    def with_entries(self, entries: Mapping[str, str]) -> Self:
        """Return the configuration with these keys set, new ones last."""
        return self.from_configuration({**self.entries, **entries})

    def with_column_specs(self, specs: Sequence[str]) -> Self:
        """Return the configuration with the column specs set; none of them removes the key."""
        if not specs:
            return self.without(COLUMN_SPECS)
        text = json.dumps(list(specs), separators=(",", ":"), ensure_ascii=False)
        return self.with_entries({COLUMN_SPECS: text})

    def with_sample_by(self, names: Sequence[str]) -> Self:
        """Return the configuration with a sampling key, by names of columns in files. Empty: without one."""
        if not names:
            return self.without(SAMPLE_BY)
        text = json.dumps(list(names), separators=(",", ":"), ensure_ascii=False)
        return self.with_entries({SAMPLE_BY: text, **min_reader_entry(self.entries, SAMPLE_BY_READER)})

    def with_importance(self, importance: Mapping[str, float]) -> Self:
        """Return the configuration with an importance of columns, by names in files. Empty: without one.

        >>> TableConfig.from_configuration({}).with_importance({"ts": 3.0, "x": 1.0}).entries
        {'qbeast.importance': '{"ts":3.0}'}
        """
        kept = {name: number for name, number in importance.items() if number != 1}
        if not kept:
            return self.without(IMPORTANCE)
        return self.with_entries({IMPORTANCE: json.dumps(kept, separators=(",", ":"), ensure_ascii=False)})

    def without(self, prefix: str) -> Self:
        """Return the configuration without the keys that begin with `prefix`."""
        kept = {key: text for key, text in self.entries.items() if not key.startswith(prefix)}
        return self.from_configuration(kept)

    def left_unindexed(self) -> Self:
        """Return the configuration of the table without its index, which it was not to have.

        >>> config = TableConfig.from_configuration({"qbeast.lastRevisionID": "0", "owner": "me"})
        >>> config.left_unindexed().to_configuration(), config.left_unindexed().is_left_unindexed
        ({'owner': 'me', 'qbeast.columnSpecs': '[]'}, True)
        """
        dropped = (
            *(REVISION_PREFIX, REPLICATED_SET_PREFIX, LAST_REVISION_ID, BLOCKS_DIALECT),
            *(SAMPLE_BY, IMPORTANCE),
        )
        kept = {key: text for key, text in self.entries.items() if not key.startswith(dropped)}
        highest = {HIGHEST_REVISION_ID: str(self.highest_revision_id)} if self.highest_revision_id else {}
        return self.from_configuration({**kept, **highest, COLUMN_SPECS: NO_COLUMNS})

    def without_faults(self) -> Self:
        """Return the configuration without keys that cannot be read, with the newest revision that can.

        Ids of revisions that are left out are remembered, so that they are not given again.

        >>> config = TableConfig.from_configuration({"qbeast.revision.7": "oops", "owner": "me"})
        >>> config.without_faults().to_configuration()
        {'owner': 'me', 'qbeast.highestRevisionID': '7'}
        """
        kept = {key: text for key, text in self.entries.items() if key not in self.faults}
        if LAST_REVISION_ID in self.faults and self.last_revision_id is not None:
            kept[LAST_REVISION_ID] = str(self.last_revision_id)
        left, highest = self.from_configuration(kept), self.highest_revision_id
        is_known = left.highest_revision_id == highest
        return left if is_known else left.with_entries({HIGHEST_REVISION_ID: str(highest)})


def revision_entries(revisions: Sequence[Revision]) -> dict[str, str]:
    """Return the keys of revisions; the last of them, at least one, is the newest."""
    added = {f"{REVISION_PREFIX}{revision.revision_id}": revision.to_json() for revision in revisions}
    return {**added, LAST_REVISION_ID: str(revisions[-1].revision_id)}


def min_reader_entry(configuration: Mapping[str, str], version: int) -> dict[str, str]:
    """Return the key that makes readers before `version` refuse the table.

    >>> min_reader_entry({"qbeast.minReader": "3"}, 2)
    {'qbeast.minReader': '3'}
    """
    return {MIN_READER: str(max(_min_reader(configuration), version))}


def may_have_other_columns(configuration: Mapping[str, str]) -> bool:
    """Return whether files of a table may be indexed by other columns than the newest revision."""
    return _min_reader(configuration) >= OTHER_COLUMNS_READER


def _min_reader(configuration: Mapping[str, str]) -> int:
    return _read_id(configuration.get(MIN_READER, "1")) or 1


def qbeast_spark_entries(columns: Sequence[str], *, cube_size: int) -> dict[str, str]:
    """Return the keys that qbeast-spark 0.8 writes beside Qbeast's own, lower-case twins included.

    >>> qbeast_spark_entries(["x", "y"], cube_size=500)["columnsToIndex"]
    'x,y'
    """
    indexed, size = ",".join(columns), str(cube_size)
    entries = {"columnsToIndex": indexed, "cubeSize": size, "tableFormat": "delta"}
    return entries | {"columnStats": "", "columnstoindex": indexed, "cubesize": size}


def _read(read: Callable[[str, str], T], key: str, text: str | None, faults: dict[str, str]) -> T | None:
    """Return the value of a key, or record why it cannot be read."""
    try:
        return None if text is None else read(key, text)
    except InvalidMetadataError as error:
        faults[key] = str(error)
        return None


def _read_revision(key: str, text: str) -> Revision:
    revision = Revision.from_json(text)
    if key != f"{REVISION_PREFIX}{revision.revision_id}":
        raise invalid_metadata(key, text, [f"it calls itself revision {revision.revision_id}"])
    return revision


def _last_revision_id(
    configuration: Mapping[str, str], revisions: Mapping[int, Revision], faults: dict[str, str]
) -> int | None:
    """Return the id of the newest revision; if it is unknown, of the newest one whose columns can be relied on."""
    text = configuration.get(LAST_REVISION_ID)
    number = None if text is None else _read_id(text)
    if number in revisions or (text is None and not _numbered(configuration, REVISION_PREFIX)):
        return number
    problem = f"the revisions that can be read are {list(revisions)}"
    missing = f"{LAST_REVISION_ID} is missing; {problem}."
    faults[LAST_REVISION_ID] = (
        missing if text is None else str(invalid_metadata(LAST_REVISION_ID, text, [problem]))
    )
    column_lists = {revision.columns for revision in revisions.values()}
    is_known = len(column_lists) == 1 or (bool(revisions) and may_have_other_columns(configuration))
    return max(revisions) if is_known else None


def _read_highest(key: str, text: str) -> int:
    number = _read_id(text)
    if number is None or number > MAX_REVISION_ID:
        raise invalid_metadata(key, text, ["it is not the id of a revision"])
    return number


def _read_dialect(key: str, text: str) -> BlocksDialect:
    return read_text(_DIALECT.validate_python, text, what=key)


def _read_specs(key: str, text: str, *, indexed: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the column specs; they must name the columns that the table is indexed by, if these are known."""
    specs = _read_texts(key, text)
    try:
        named = tuple(parse_column_spec(spec).name for spec in specs)
    except InvalidColumnsError as error:
        raise invalid_metadata(key, text, [str(error)]) from error
    if indexed is not None and named != indexed:
        raise invalid_metadata(key, text, [f"the table is indexed by {', '.join(indexed)}"])
    return specs


def _stored_importance(
    configuration: Mapping[str, str], faults: dict[str, str] | None = None
) -> Mapping[str, float]:
    """Return the importance of columns, by names in files. A fault is added to `faults`, and counts as none.

    >>> _stored_importance({"qbeast.importance": '{"ts":3.0}'})
    {'ts': 3.0}
    """
    found = {} if faults is None else faults
    return _read(_read_importance, IMPORTANCE, configuration.get(IMPORTANCE), found) or {}


def _read_importance(key: str, text: str) -> Mapping[str, float]:
    return read_text(_IMPORTANCE.validate_json, text, what=key)


def _read_sample_by(key: str, text: str) -> tuple[str, ...]:
    names = _read_texts(key, text)
    if not names or len(set(names)) < len(names):
        raise invalid_metadata(key, text, ["it must be a list of different columns, at least one"])
    return names


def _numbered(configuration: Mapping[str, str], prefix: str) -> list[tuple[int, str, str]]:
    """Return (id, key, text) of the keys ``<prefix><id>``; keys with another ending are not ours."""
    numbered: list[tuple[int, str, str]] = []
    for key, text in configuration.items():
        number = _read_id(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if number is not None and key == f"{prefix}{number}":
            numbered.append((number, key, text))
    return numbered


def _read_id(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if plain else None


def _read_texts(key: str, text: str) -> tuple[str, ...]:
    return read_text(partial(_TEXTS.validate_json, strict=True), text, what=key)

"""Qbeast's keys in a Delta table's ``configuration``; all other keys are kept as they are (format 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, get_args

from pydantic import TypeAdapter

from qbeast_core.spec._base import invalid_metadata, read_text
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import Revision

__all__ = [
    "BLOCKS_DIALECT",
    "COLUMN_SPECS",
    "HIGHEST_REVISION_ID",
    "LAST_REVISION_ID",
    "REPLICATED_SET_PREFIX",
    "REVISION_PREFIX",
    "TableConfig",
    "qbeast_spark_entries",
]

LAST_REVISION_ID: Final = "qbeast.lastRevisionID"
REVISION_PREFIX: Final = "qbeast.revision."
REPLICATED_SET_PREFIX: Final = "qbeast.replicatedSet."
BLOCKS_DIALECT: Final = "qbeast.blocksDialect"
COLUMN_SPECS: Final = "qbeast.columnSpecs"
HIGHEST_REVISION_ID: Final = "qbeast.highestRevisionID"

_TEXTS: Final = TypeAdapter(tuple[str, ...])
_MOST_DIGITS: Final = 18  # more is no id, and Python refuses to read very long ones


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """A table's ``configuration`` and what Qbeast's keys in it say; made by `from_configuration`.

    Attributes
    ----------
    entries : Mapping of str to str
        The whole configuration as it was read, in order; nothing is respelled or dropped.
    last_revision_id : int or None
        Id of the newest revision; None: not a Qbeast table.
    revisions : Mapping of int to Revision
        By id, ascending.
    dialect : {"documented", "qbeast-spark"} or None
        What ``qbeast.blocksDialect`` says; None: no such key. The spelling of live tags goes before it.
    column_specs : tuple of str or None
        Column specs asked for at conversion, until the first real revision.
    replicated_sets : Mapping of int to tuple of str
        Per revision, the cubes with copied rows; layouts before 0.6.0 only.
    """

    entries: Mapping[str, str]
    last_revision_id: int | None
    revisions: Mapping[int, Revision]
    dialect: BlocksDialect | None
    column_specs: tuple[str, ...] | None
    replicated_sets: Mapping[int, tuple[str, ...]]

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> Self:
        """Return what a ``configuration`` says.

        Raises
        ------
        InvalidMetadataError
            If a key of Qbeast's holds what the format does not allow; the message names the key.

        Examples
        --------
        >>> TableConfig.from_configuration({"delta.appendOnly": "true"}).last_revision_id is None
        True
        """
        revisions = _read_revisions(configuration)
        last = configuration.get(LAST_REVISION_ID)
        last_id = None if last is None else _read_id(last)
        if last is not None and (last_id is None or last_id not in revisions):
            raise invalid_metadata(LAST_REVISION_ID, last, [f"the revisions are {list(revisions)}"])
        specs = configuration.get(COLUMN_SPECS)
        return cls(
            entries=dict(configuration),
            last_revision_id=last_id,
            revisions=revisions,
            dialect=_read_dialect(configuration),
            column_specs=None if specs is None else _read_texts(COLUMN_SPECS, specs),
            replicated_sets={
                number: _read_texts(key, text)
                for number, key, text in _numbered(configuration, REPLICATED_SET_PREFIX)
            },
        )

    def to_configuration(self) -> dict[str, str]:
        """Return the ``configuration``: a new dict, every key and text as it was read or set."""
        return dict(self.entries)

    @property
    def latest(self) -> Revision | None:
        """The newest revision; None: not a Qbeast table."""
        return None if self.last_revision_id is None else self.revisions[self.last_revision_id]

    @property
    def next_revision_id(self) -> int:
        """One more than any id the table has or had; 1 where there is none, for 0 is the staging revision."""
        return self.highest_revision_id + 1

    @property
    def highest_revision_id(self) -> int:
        """The largest id that the table has, or had before an older version was restored; 0 if there is none."""
        had = _read_id(self.entries.get(HIGHEST_REVISION_ID, "")) or 0
        return max(had, *self.revisions, 0)

    def with_revisions(self, revisions: Sequence[Revision]) -> Self:
        """Return the configuration with these added; the last of them, at least one, becomes the newest."""
        added = {f"{REVISION_PREFIX}{one.revision_id}": one.to_json() for one in revisions}
        return self.with_entries({**added, LAST_REVISION_ID: str(revisions[-1].revision_id)})

    def with_entries(self, entries: Mapping[str, str]) -> Self:
        """Return the configuration with these keys set, new ones last."""
        return self.from_configuration({**self.entries, **entries})

    def with_column_specs(self, specs: Sequence[str]) -> Self:
        """Return the configuration with the column specs set; none of them removes the key."""
        if specs:
            return self.with_entries({COLUMN_SPECS: _dump_texts(specs)})
        return self.without(COLUMN_SPECS)

    def without(self, prefix: str) -> Self:
        """Return the configuration without the keys that begin with `prefix`."""
        kept = {key: text for key, text in self.entries.items() if not key.startswith(prefix)}
        return self.from_configuration(kept)


def qbeast_spark_entries(
    columns: Sequence[str], *, cube_size: int, column_stats: str | None = None
) -> dict[str, str]:
    """Return the keys that qbeast-spark 0.8 writes beside Qbeast's own, lower-case twins included.

    Parameters
    ----------
    columns : sequence of str
        Column specs as the JVM spells them, for example ``"price"`` or ``"brand:hashing"``.
    cube_size : int
        Rows per cube.
    column_stats : str or None
        The user's column statistics as JSON; None: none were given.

    Examples
    --------
    >>> qbeast_spark_entries(["x", "y"], cube_size=500)["columnsToIndex"]
    'x,y'
    """
    indexed, size = ",".join(columns), str(cube_size)
    entries = {"columnsToIndex": indexed, "cubeSize": size, "tableFormat": "delta"}
    entries |= {"columnStats": column_stats or "", "columnstoindex": indexed, "cubesize": size}
    return entries if column_stats is None else {**entries, "columnstats": column_stats}


def _read_revisions(configuration: Mapping[str, str]) -> dict[int, Revision]:
    revisions: dict[int, Revision] = {}
    for number, key, text in sorted(_numbered(configuration, REVISION_PREFIX)):
        revision = Revision.from_json(text)
        if revision.revision_id != number:
            raise invalid_metadata(key, text, [f"it calls itself revision {revision.revision_id}"])
        revisions[number] = revision
    return revisions


def _read_dialect(configuration: Mapping[str, str]) -> BlocksDialect | None:
    text = configuration.get(BLOCKS_DIALECT)
    if text is None:
        return None
    known: tuple[BlocksDialect, ...] = get_args(BlocksDialect)
    for dialect in known:
        if text == dialect:
            return dialect
    raise invalid_metadata(BLOCKS_DIALECT, text, [f"the dialects are {', '.join(known)}"])


def _numbered(configuration: Mapping[str, str], prefix: str) -> list[tuple[int, str, str]]:
    """Return (id, key, text) of the keys ``<prefix><id>``; keys with another ending are not ours."""
    found: list[tuple[int, str, str]] = []
    for key, text in configuration.items():
        number = _read_id(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if number is not None and key == f"{prefix}{number}":
            found.append((number, key, text))
    return found


def _read_id(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if plain else None


def _read_texts(key: str, text: str) -> tuple[str, ...]:
    return read_text(lambda one: _TEXTS.validate_json(one, strict=True), text, what=key)


def _dump_texts(texts: Sequence[str]) -> str:
    return json.dumps(list(texts), separators=(",", ":"), ensure_ascii=False)

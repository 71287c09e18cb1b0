"""Rows that deletion vectors hide from now on, instead of a rewrite of their files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.deletion_vector import dump_vectors, row_set
from qbeast_core.log.files.stats import with_wide_bounds
from qbeast_core.log.intent import MarkedFile
from qbeast_core.log.protocol import may_hide_rows
from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.data_files import delete_files
from qbeast_core.table.snapshot.snapshot import Snapshot, live_adds

# A file is rewritten if deletion vectors would hide more than this share of its rows.
_MAX_HIDDEN_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Rows of live files to hide, by index of the file."""

    # Without rows that are hidden already.
    hidden: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64])
    # Rows among them to write again, with other values.
    moved: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64])

    @property
    def files(self) -> list[int]:
        """Indexes of the files."""
        return list(self.hidden)

    def without(self, files: BoolArray) -> Marks:
        """Return the marks of other files."""
        hidden, moved = (
            {file: rows for file, rows in part.items() if not files[file]}
            for part in (self.hidden, self.moved)
        )
        return Marks(hidden, moved)


NO_MARKS: Final = Marks()


@dataclass(frozen=True, slots=True)
class WrittenVectors:
    """Files with new deletion vectors that are not committed yet."""

    marked: tuple[MarkedFile, ...] = ()
    # Files that hold the vectors.
    paths: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, int]:
        """Part of the ``operationMetrics``."""
        updated = sum(file.before.deletion_vector is not None for file in self.marked)
        counts = {"numDeletionVectorsAdded": len(self.marked) - updated, "numDeletionVectorsUpdated": updated}
        return counts if self.marked else {}


def hides_rows(snapshot: Snapshot) -> bool:
    """Return whether changes of a table may hide rows by deletion vectors."""
    # A JVM of qbeast-spark reads files without their vectors.
    return may_hide_rows(snapshot.protocol, snapshot.metadata) and dialect_of(snapshot) != "qbeast-spark"


def markable(snapshot: Snapshot, files: I64Array, rows: I64Array, live: I64Array) -> BoolArray:
    """Return in which files to hide rows: in a table with deletion vectors, in files that keep most of their rows.

    `rows` are the rows to hide of each file, `live` those that a read returns.
    """
    if not hides_rows(snapshot):
        return np.zeros(len(files), np.bool_)
    paths = snapshot.files["path"].gather(files)
    # Polars shows the hidden rows of files with encoded paths.
    plain = ~paths.str.contains("%", literal=True).to_numpy()
    counted = snapshot.files["num_records"].fill_null(0).cast(int).to_numpy()[files]
    stays: BoolArray = plain & (rows < live) & (counted - live + rows <= _MAX_HIDDEN_SHARE * counted)
    return stays


def write_vectors(snapshot: Snapshot, hidden: Mapping[int, BitMap64]) -> WrittenVectors:
    """Write the deletion vectors of files: the rows to hide, and the rows that are hidden already."""
    if not hidden:
        return WrittenVectors()
    before = snapshot.hidden_rows.of(hidden)
    sets = [rows | row_set(before[file]) if file in before else rows for file, rows in hidden.items()]
    path, data, descriptors = dump_vectors(sets, uuid.uuid4())
    adds = live_adds(snapshot, list(hidden))
    try:
        snapshot.store.put(path, data)
    except BaseException:  # also after an interrupt, or if only the reply of a store is lost
        delete_files(snapshot.store, [path])
        raise
    marked = [
        MarkedFile(add, _with_vector(add, descriptor))
        for add, descriptor in zip(adds, descriptors, strict=True)
    ]
    return WrittenVectors(tuple(marked), (path,))


def _with_vector(add: AddFile, descriptor: dict[str, Any]) -> AddFile:
    """Return a live file with another deletion vector. Its statistics become bounds of more rows than it shows."""
    stats = with_wide_bounds(add.stats or "{}")
    return add.model_copy(update={"data_change": True, "deletion_vector": descriptor, "stats": stats})

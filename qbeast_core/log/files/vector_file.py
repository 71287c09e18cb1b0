"""Sets of rows of a file, and the files of deletion vectors that list them."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.deletion_vector import MAGIC, to_z85
from qbeast_core.log.files.stats import with_wide_bounds
from qbeast_core.space.arrays import I64Array

# Name of a file of vectors, by the id in their descriptors.
_NAME: Final = "deletion_vector_{}.bin"
_FORMAT: Final = b"\x01"


def row_set(rows: I64Array) -> BitMap64:
    """Return a set of row indexes.

    >>> row_set(np.array([3, 7]))
    BitMap64([3, 7])
    """
    return BitMap64(rows.astype(np.uint64))


def rows_in(rows: BitMap64) -> I64Array:
    """Return the row indexes of a set, ascending."""
    return np.array(rows.to_array(), np.int64)


def dump_vectors(hidden: Sequence[BitMap64], file_id: uuid.UUID) -> tuple[str, bytes, list[dict[str, Any]]]:
    """Return the path and the bytes of a file of deletion vectors, and their descriptors for the log."""
    parts, offset, descriptors = [_FORMAT], len(_FORMAT), list[dict[str, Any]]()
    for rows in hidden:
        rows.run_optimize()
        body = struct.pack("<I", MAGIC) + rows.serialize()
        parts += [struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body))]
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": to_z85(file_id.bytes),
                "offset": offset,
                "sizeInBytes": len(body),
                "cardinality": len(rows),
            }
        )
        offset += len(body) + 8
    return _NAME.format(file_id), b"".join(parts), descriptors


def with_vector(add: AddFile, descriptor: dict[str, Any]) -> AddFile:
    """Return a live file with another deletion vector. Its statistics become bounds of more rows than it shows."""
    stats = with_wide_bounds(add.stats or "{}")
    return add.model_copy(update={"data_change": True, "deletion_vector": descriptor, "stats": stats})

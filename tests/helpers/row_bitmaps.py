"""Deletion vectors of any rows, encoded as in the Delta protocol."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pyroaring import BitMap64

from qbeast_core.space.values import I64Array
from tests.helpers.deletion_vectors import z85

MAGIC = struct.pack("<I", 1681511377)


def roaring(rows: Sequence[int] | I64Array, *, runs: bool = False) -> bytes:
    """Return the rows as an array of Roaring bitmaps, with arrays and bitmaps or with runs alone."""
    whole = np.array(rows, np.uint64)
    highs, starts = np.unique(whole >> np.uint64(32), return_index=True)
    bodies = [
        struct.pack("<I", high) + _bitmap(part, runs=runs)
        for high, part in zip(highs.tolist(), np.split(whole, starts[1:]), strict=True)
    ]
    return MAGIC + struct.pack("<Q", len(bodies)) + b"".join(bodies)


def _bitmap(rows: Any, *, runs: bool) -> bytes:
    keys, starts = np.unique(rows >> np.uint64(16) & np.uint64(0xFFFF), return_index=True)
    parts = np.split(rows & np.uint64(0xFFFF), starts[1:])
    header = np.stack([keys, [len(part) - 1 for part in parts]], axis=1).astype("<u2").tobytes()
    if runs:
        flags = np.packbits(np.ones(len(parts), np.uint8), bitorder="little").tobytes()
        cookie, bodies = struct.pack("<I", 12347 | len(parts) - 1 << 16) + flags, [*map(_runs, parts)]
    else:
        cookie, bodies = struct.pack("<II", 12346, len(parts)), [*map(_plain, parts)]
    has_offsets = not runs or len(parts) >= 4
    first = len(cookie) + len(header) + 4 * len(parts)
    offsets = np.cumsum([first, *map(len, bodies)])[:-1].astype("<u4").tobytes() if has_offsets else b""
    return cookie + header + offsets + b"".join(bodies)


def _plain(part: Any) -> bytes:
    if len(part) <= 4096:
        return bytes(part.astype("<u2").tobytes())
    bits = np.zeros(1 << 16, np.uint8)
    bits[part.astype(np.int64)] = 1
    return bytes(np.packbits(bits, bitorder="little").tobytes())


def _count(data: bytes) -> int:
    """Return the number of listed rows, by another implementation; 1 for damaged vectors."""
    cookie, containers = struct.unpack("<II", data[len(MAGIC) + 12 :][:8].ljust(8, b"\0"))
    if cookie == 12346 and containers > len(data):
        return 1  # pyroaring 1.0.0 reads past the end
    try:
        return len(BitMap64.deserialize(data[len(MAGIC) :]))
    except (ValueError, IndexError):
        return 1


def _runs(part: Any) -> bytes:
    blocks = np.split(part, np.flatnonzero(np.diff(part) != 1) + 1)
    pairs = [(int(block[0]), len(block) - 1) for block in blocks]
    return struct.pack("<H", len(pairs)) + np.array(pairs, "<u2").tobytes()


def descriptor(
    folder: Path, data: bytes, kind: Literal["i", "u", "p"] = "i", prefix: str = "", before: bytes = b""
) -> dict[str, Any]:
    """Return the descriptor of a vector, in the log or in a new file of the folder, after other bytes."""
    size = {"sizeInBytes": len(data), "cardinality": _count(data)}
    if kind == "i":
        return {"storageType": "i", "pathOrInlineDv": z85(data + bytes(-len(data) % 4)), **size}
    name = uuid.uuid4()
    file = folder / prefix / f"deletion_vector_{name}.bin"
    file.parent.mkdir(exist_ok=True)
    checksum = struct.pack(">I", zlib.crc32(data))
    file.write_bytes(b"\1" + before + struct.pack(">I", len(data)) + data + checksum)
    path = prefix + z85(name.bytes) if kind == "u" else file.as_uri()
    return {"storageType": kind, "pathOrInlineDv": path, "offset": 1 + len(before), **size}

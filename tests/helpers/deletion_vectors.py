"""A hand-made deletion vector of another writer."""

from __future__ import annotations

import json
import struct

import polars as pl

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
ROWS = pl.DataFrame({"id": range(4000), "x": [(i * 7919) % 4001 for i in range(4000)]})
GONE = [0, 1, 5, 700, 2047, 2048, 3999]


def z85(data: bytes) -> str:
    assert len(data) % 4 == 0
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        text += "".join(ALPHABET[number // 85**k % 85] for k in (4, 3, 2, 1, 0))
    return text


def bitmap(rows: list[int]) -> bytes:
    """Return a 64-bit roaring bitmap with one array container, as in the Delta protocol."""
    assert max(rows) < 1 << 16
    container = b"".join(struct.pack("<H", row) for row in sorted(rows))
    header = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1) + struct.pack("<I", 16)
    data = struct.pack("<I", 1681511377) + struct.pack("<Q", 1) + struct.pack("<I", 0) + header + container
    return data + b"\0" * (-len(data) % 4)


def delete(path, rows: list[int]) -> None:
    """Commit a deletion vector: the same file again, with the vector."""
    log = path / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    size = len(bitmap(rows))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85(bitmap(rows)),
        "sizeInBytes": size,
        "cardinality": len(rows),
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "size": add["size"]}
    stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
    lines = [
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
        {"protocol": protocol},
        {"remove": remove},
        {"add": {**add, "stats": stats, "deletionVector": vector}},
    ]
    (log / f"{1:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def left(table) -> pl.DataFrame:
    """Return the expected rows: the file's rows without the deleted ones."""
    (file,) = [f for f in table.iterdir() if f.suffix == ".parquet"]
    rows = pl.read_parquet(file, columns=["id", "x"]).with_row_index("place")
    return rows.filter(~pl.col("place").is_in(GONE)).drop("place").sort("id")

"""Deletion vectors: rows as deltalake reads them, and errors of our own for malformed ones."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.log.deletion_vectors import MalformedBitmap, parse_bitmap
from qbeast_core.space.values import I64Array
from tests.helpers.examples import examples
from tests.helpers.handmade_log import add, features, metadata, write_log
from tests.helpers.row_bitmaps import MAGIC, descriptor, roaring

HEIGHT = 200_000
LONG = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
FEATURES = ["typeWidening-preview", "vacuumProtocolCheck", "variantType", "v2Checkpoint"]


def table(
    path: Path,
    *vectors: dict[str, Any],
    more: tuple[str, ...] = (),
    height: int = 10,
    stats: str = '{"numRecords":10}',
) -> str:
    """Write a table of a file per vector."""
    names = ("deletionVectors", *more)
    path.mkdir(exist_ok=True)
    adds = []
    for number, vector in enumerate(vectors):
        name = f"{number}.parquet"
        pl.DataFrame({"id": range(height)}).write_parquet(path / name)
        size = (path / name).stat().st_size
        adds.append(add(name, size=size, stats=stats, deletionVector=vector))
    return write_log(path, [features(*names, reader=names), metadata(LONG), *adds])


def rows_left(path: str) -> list[int]:
    return qbeast.read_table(path)["id"].sort().to_list()


runs = st.tuples(st.integers(0, HEIGHT - 1), st.integers(1, 70_000), st.integers(1, 3))
row_sets = st.lists(runs, min_size=1, max_size=4).map(
    lambda parts: np.unique(
        np.concatenate([np.arange(at, min(at + n, HEIGHT), step) for at, n, step in parts])
    )
)


@given(rows=row_sets, in_runs=st.booleans(), kind=st.sampled_from(["i", "u"]))
@examples(2, sweep=100)
def test_vectors_hide_the_rows_that_deltalake_hides(
    tmp_path_factory: pytest.TempPathFactory, rows: I64Array, kind: Any, *, in_runs: bool
) -> None:
    path = tmp_path_factory.mktemp("t")
    vector = descriptor(path, roaring(rows, runs=in_runs), kind)
    root = write_log(
        path,
        [
            features("deletionVectors", reader=["deletionVectors"]),
            metadata(LONG),
            add("a", stats=f'{{"numRecords":{HEIGHT}}}', deletionVector=vector),
        ],
    )
    keep = pl.DataFrame(DeltaTable(root).deletion_vectors())["selection_vector"][0]
    found = qbeast.open_table(root).snapshot.hidden_rows.get(0)
    assert np.array_equal(found, np.flatnonzero(~keep.to_numpy()))
    assert np.array_equal(found, rows)


def test_file_of_several_vectors_serves_each_data_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir()
    first, second = roaring([1, 2]), roaring([7], runs=True)
    later = descriptor(
        path, second, "u", "ab", before=struct.pack(">I", len(first)) + first + struct.pack(">I", 0)
    )
    root = table(path, later, descriptor(path, roaring([0]), "i"))
    assert rows_left(root) == sorted([*range(7), 8, 9, *range(1, 10)])


@pytest.mark.parametrize(
    "feature", ["typeWidening", *(pytest.param(one, marks=pytest.mark.sweep) for one in FEATURES)]
)
def test_other_features_do_not_matter(tmp_path: Path, feature: str) -> None:
    root = table(tmp_path / "t", descriptor(tmp_path, roaring([3])), more=(feature,))
    assert qbeast.open_table(root).count() == 9
    qbeast.convert_table(root, columns=["id"])
    assert qbeast.open_table(root).optimize().committed
    assert qbeast.open_table(root).count() == 9


@pytest.mark.parametrize("stats", [None, "{}", '{"numRecords":2}'])
def test_missing_or_low_row_counts_are_read_from_the_footer(tmp_path: Path, stats: str) -> None:
    assert rows_left(table(tmp_path / "t", descriptor(tmp_path, roaring([3])), stats=stats)) == [
        0,
        1,
        2,
        *range(4, 10),
    ]


def test_vector_outside_of_the_table_needs_the_option(tmp_path: Path) -> None:
    root = table(tmp_path / "t", descriptor(tmp_path, roaring([3]), "p"))
    with pytest.raises(qbeast.UnsupportedTableError, match="allow_absolute_paths"):
        qbeast.read_table(root)
    assert qbeast.open_table(root, allow_absolute_paths=True).count() == 9


ALL_OF_IT = struct.pack("<HHH", 1, 0, 0xFFFF) * 256
FULL = b"".join(
    (
        MAGIC + struct.pack("<QI", 1, 0) + struct.pack("<I", 12347 | 255 << 16) + b"\xff" * 32,
        np.stack([np.arange(256), np.full(256, 0xFFFF)], 1).astype("<u2").tobytes(),
        bytes(4 << 8) + ALL_OF_IT,
    )
)
MALFORMED = {
    "row 10": roaring([10]),
    "row 2**31": roaring([1 << 31]),
    "row 2**45": roaring([1 << 45]),
    "row 2**63": roaring([1 << 63]),
    "2**24 rows": FULL,
    "no magic": b"\0" + roaring([1])[1:],
    "cut": roaring([1, 2])[:-1],
    "many bitmaps": MAGIC + struct.pack("<Q", 1 << 63) + roaring([1])[12:],
    "many containers": MAGIC + struct.pack("<QIII", 1, 0, 12346, 1 << 31),
    "not in order": roaring([1, 2])[:-4] + struct.pack("<HH", 2, 1),
    "too many runs": roaring([1], runs=True)[:-4] + struct.pack("<HH", 0, 0xFFFF),
    "a run past its container": roaring([65535], runs=True)[:-4] + struct.pack("<HH", 65535, 1),
    "empty": b"",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_vector_is_refused_within_little_memory(tmp_path: Path, name: str) -> None:
    stats = '{"numRecords":10}' if name.startswith("row") else '{"numRecords":1099511627776}'
    root = table(tmp_path / "t", descriptor(tmp_path, MALFORMED[name]), stats=stats)
    tracemalloc.start()
    with pytest.raises(qbeast.InvalidMetadataError, match=r"deletion vector of '0.parquet'") as caught:
        qbeast.read_table(root)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert len(str(caught.value)) < 1000
    faults = qbeast.open_table(root).check().faults
    assert ("deletion-vector", "0.parquet") in faults.select("code", "path").rows()


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 2},
        {"offset": -1},
        {"offset": 1 << 40},
        {"sizeInBytes": 3},
        {"sizeInBytes": (1 << 31) - 1},
        {"sizeInBytes": -1},
        {"storageType": "x"},
        {"pathOrInlineDv": "0" * 20},
        {"pathOrInlineDv": "~"},
    ],
)
def test_descriptor_of_other_bytes_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "t"
    path.mkdir()
    root = table(path, descriptor(path, roaring([3]), "u") | change)
    with pytest.raises((qbeast.InvalidMetadataError, qbeast.StorageError)):
        qbeast.read_table(root)


def test_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir()
    root = table(path, descriptor(path, roaring([3]), "u"))
    (file,) = path.glob("*.bin")
    stored = file.read_bytes()
    file.write_bytes(stored[:-6] + b"\5" + stored[-5:])
    with pytest.raises(qbeast.InvalidMetadataError, match="damaged"):
        qbeast.read_table(root)


@given(data=st.binary(max_size=60), cut=st.integers(0, 60))
@examples(20, sweep=2000)
def test_any_bytes_are_parsed_or_malformed(data: bytes, cut: int) -> None:
    sound = roaring([1, 5, 70_000], runs=True)
    for mixed in (MAGIC + data, sound[:cut] + data + sound[cut + len(data) :]):
        try:
            bitmap = parse_bitmap(mixed)
            assert bitmap.count < 1 << 24
            assert len(bitmap.rows()) == bitmap.count
        except MalformedBitmap:
            pass

"""What of CarbonData 0.x to 1.x cannot be read is refused by name; what other codecs than snappy hold is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from qbeast_carbondata.damage import UnsupportedForm
from qbeast_carbondata.files.data_file import open_dictionaries
from qbeast_carbondata.files.old_file import OldFile, RowFile
from qbeast_carbondata.files.open_file import open_data_file
from qbeast_carbondata.pages.old_rows import decode_rows
from qbeast_carbondata.stored_file import StoredFile
from qbeast_carbondata.structs import DataType
from qbeast_core.errors import DamagedFileError, UnsupportedTableError
from qbeast_core.io.thrift import ThriftStruct, read_struct
from tests.foreign.carbondata.collection import table_path
from tests.foreign.carbondata.memory_store import MemoryStore
from tests.foreign.carbondata.old_tables import file_rows
from tests.foreign.carbondata.page_encoder import FixedDictionaries, column


def data_file(name: str) -> tuple[MemoryStore, str]:
    store = MemoryStore.of(table_path(name))
    return store, next(path for path in store.list("") if path.endswith(".carbondata"))


def stream(change: Callable[[bytes], bytes] = bytes) -> tuple[MemoryStore, str]:
    store, path = data_file("stream161_finished")
    store.files[path] = change(store.files[path])
    return store, path


def opened(store: Any, path: str) -> RowFile:
    file = open_data_file(StoredFile(store, path, store.size(path)), "row_v1", open_dictionaries(store))
    assert isinstance(file, RowFile)
    return file


@pytest.mark.parametrize(
    ("name", "blocklets", "chunks"), [("cd111_v1_complex", 6, 2), ("cd111_v2_complex", 7, 2)]
)
def test_column_groups_raise(name: str, blocklets: int, chunks: int) -> None:
    store, path = data_file(name)
    data = store.files[path]
    start = int.from_bytes(data[-8:], "big")
    footer = read_struct(data, start)
    footer.fields[blocklets][0].fields[chunks].pop()
    with pytest.raises(UnsupportedForm, match=r"column groups of CarbonData 0\.x"):
        OldFile.open(StoredFile(store, path, len(data)), start, footer, open_dictionaries(store))


def test_deleting_rows_raise() -> None:
    # The mutation is field 2 of a blocklet's header, an enum whose 0 inserts.
    def change(data: bytes) -> bytes:
        at = data.index(b"@carbondata_sync", data.index(b"@carbondata_sync") + 1) + 20
        size = int.from_bytes(data[at - 4 : at], "big")
        header = data[at : at + size]
        assert header.count(b"\x15\x00\x1c") + header.count(b"\x15\x00\x2c") == 1
        return data[:at] + header.replace(b"\x15\x00", b"\x15\x02", 1) + data[at + size :]

    store, path = stream(change)
    with pytest.raises(UnsupportedTableError, match="deleted") as caught:
        opened(store, path)
    assert caught.value.path == path


def test_unsupported_stream_types_raise() -> None:
    nested = replace(column(DataType.STRING, dimension=True), children=())
    for item in (
        replace(nested, schema=replace(nested.schema, data_type=DataType.STRUCT)),
        column(DataType.FLOAT),
        column(DataType.BINARY),
    ):
        with pytest.raises(UnsupportedForm, match="streaming segment"):
            decode_rows(np.empty(0, np.uint8), 0, [item], [item], FixedDictionaries())


def test_columnar_file_is_not_a_stream() -> None:
    store, path = data_file("cd111_v3_nodict_numbers")
    with pytest.raises(DamagedFileError) as caught:
        opened(store, path)
    assert caught.value.path == path


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_stream_of_other_codec_has_same_rows(codec: str) -> None:
    store, path = stream()
    before = opened(store, path)
    whole = store.files[path]
    header = read_struct(whole)
    assert isinstance(header, ThriftStruct)
    head = whole[: header.end]
    assert head.endswith(b"\x06snappy\x00")
    parts = [head[: -len(b"\x06snappy\x00")] + bytes([len(codec)]) + codec.encode() + b"\x00"]
    at = header.end
    for extent in before.extents:
        rows = pa.decompress(
            whole[extent.start : extent.start + extent.size_bytes],
            decompressed_size=extent.row_bytes,
            codec="snappy",
        )
        # With zstd the writer's whole cache follows the rows.
        packed = pa.compress(rows.to_pybytes() + bytes(4 << 20), codec=codec, asbytes=True)
        parts += [whole[at : extent.start - 4], len(packed).to_bytes(4, "big"), packed]
        at = extent.start + extent.size_bytes
    store.files[path] = b"".join(parts)
    assert_frame_equal(file_rows(opened(store, path)), file_rows(before_of(whole, store, path)))


def before_of(whole: bytes, store: MemoryStore, path: str) -> RowFile:
    return opened(MemoryStore({**store.files, path: whole}), path)

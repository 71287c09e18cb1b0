"""Files of added segments: damage is told apart from a store that does not answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from qbeast_carbondata.damage import Damaged, UnsupportedForm
from qbeast_carbondata.files.foreign_file import ForeignFile
from qbeast_carbondata.stored_file import StoredFile
from qbeast_carbondata.structs import DataType
from qbeast_core.errors import DamagedFileError, StorageError, UnsupportedTableError
from qbeast_core.io.store import Range
from tests.foreign.carbondata.memory_store import MemoryStore
from tests.foreign.carbondata.page_encoder import column

COLUMN = column(DataType.LONG)
PATH = "a.parquet"


class LostStore(MemoryStore):
    """A store that can be lost."""

    is_lost = False

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        if self.is_lost:
            message = "the network is lost"
            raise StorageError(message, path=path)
        return super().get_ranges(path, ranges)


def stored(data: bytes) -> tuple[LostStore, StoredFile]:
    store = LostStore({PATH: data})
    return store, StoredFile(store, PATH, len(data))


def parquet() -> bytes:
    data = BytesIO()
    pq.write_table(pa.table({"c": range(1000)}), data)
    return data.getvalue()


def test_lost_store_is_not_damage() -> None:
    store, file = stored(parquet())
    opened = ForeignFile.open(file, "parquet", [COLUMN])
    store.is_lost = True
    with pytest.raises(StorageError, match="network"):
        opened.read(opened.blocklets[0], [COLUMN], [0])
    with pytest.raises(StorageError, match="network"):
        ForeignFile.open(file, "parquet", [COLUMN])


@pytest.mark.parametrize("outside", [(-1, 2), (2, -1), (95, 6), (101, 0)])
def test_bytes_outside_of_the_file_are_damage(outside: tuple[int, int]) -> None:
    data = bytes(range(100))
    _, file = stored(data)
    assert [bytes(part) for part in file.read([(0, 3), (95, 5)])] == [data[:3], data[95:]]
    with pytest.raises(Damaged, match="lie outside of its 100 bytes"):
        file.read([(0, 3), outside])


def test_other_bytes_raise() -> None:
    with pytest.raises(Damaged, match="not a parquet file"):
        ForeignFile.open(stored(b"PAR1" * 10)[1], "parquet", [COLUMN])
    store, file = stored(parquet())
    opened = ForeignFile.open(file, "parquet", [COLUMN])
    assert opened.read(opened.blocklets[0], [COLUMN], [0])[0].to_pylist() == list(range(1000))
    store.files[PATH] = bytes(len(store.files[PATH]))
    with pytest.raises(DamagedFileError, match="row group 0"):
        opened.read(opened.blocklets[0], [COLUMN], [0])


class OpenKeys(encryption.KmsClient):
    """Keeps keys as they are."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)


def encrypted(*, plain_footer: bool) -> bytes:
    factory = encryption.CryptoFactory(lambda _: OpenKeys())
    config = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"k": ["c"]}, plaintext_footer=plain_footer
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    data = BytesIO()
    rows = pa.table({"c": range(1000)})
    with pq.ParquetWriter(data, rows.schema, encryption_properties=properties) as writer:
        writer.write_table(rows)
    return data.getvalue()


def test_encrypted_parquet_raises() -> None:
    with pytest.raises(UnsupportedForm, match="it is encrypted"):
        ForeignFile.open(stored(encrypted(plain_footer=False))[1], "parquet", [COLUMN])
    opened = ForeignFile.open(stored(encrypted(plain_footer=True))[1], "parquet", [COLUMN])
    with pytest.raises(UnsupportedTableError, match="it is encrypted") as caught:
        opened.read(opened.blocklets[0], [COLUMN], [0])
    assert caught.value.path == PATH

"""Opens data files: the last bytes show the version, and so the module that reads them."""

from __future__ import annotations

from typing import Final

from qbeast_carbondata.damage import damaged
from qbeast_carbondata.encryption import SAMPLE_BYTES, unless_encrypted
from qbeast_carbondata.files.data_file import DataFile
from qbeast_carbondata.files.old_file import OldFile
from qbeast_carbondata.files.row_file import RowFile
from qbeast_carbondata.files.v3_file import V3File
from qbeast_carbondata.pages.dimensions import Dictionaries
from qbeast_carbondata.stored_file import StoredFile
from qbeast_core.io.thrift import ThriftError, ThriftStruct, read_struct

_TRAILER: Final = 8


def open_data_file(file: StoredFile, kind: str, dictionaries: Dictionaries) -> DataFile:
    """Open a data file of CarbonData."""
    with file.inside():
        if kind == "row_v1":
            return RowFile.open(file, dictionaries)
        start, footer = _footer(file)
        # Field 2 is a struct in version 3, the number of rows in older ones.
        version = V3File if isinstance(footer.fields.get(2), ThriftStruct) else OldFile
        return version.open(file, start, footer, dictionaries)


def _footer(file: StoredFile) -> tuple[int, ThriftStruct]:
    """Return where the footer begins, and the footer."""
    if file.size_bytes < _TRAILER:
        damaged(f"it has {file.size_bytes} bytes, too few for the position of its footer")
    end = file.size_bytes - _TRAILER
    start = int.from_bytes(file.read_one(end, _TRAILER), "big")
    if start >= end:
        length = min(file.size_bytes, SAMPLE_BYTES)
        with unless_encrypted(file.read_one(0, length), file.read_one(file.size_bytes - length, length)):
            damaged(f"its footer would begin at byte {start} of {file.size_bytes}")
    try:
        return start, read_struct(file.read_one(start, end - start))
    except ThriftError as error:
        damaged(f"byte {start} does not begin a footer: {error}")

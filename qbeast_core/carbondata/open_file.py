"""Opens data files: their last bytes tell which version they are of, and so which module reads them."""

from __future__ import annotations

from typing import Final

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.data_file import DataFile
from qbeast_core.carbondata.dictionaries import Dictionaries
from qbeast_core.carbondata.encryption import SAMPLE_BYTES, unless_encrypted
from qbeast_core.carbondata.inside import StoredFile
from qbeast_core.carbondata.old_file import OldFile
from qbeast_core.carbondata.v3_file import V3File
from qbeast_core.io.thrift import ThriftError, ThriftStruct, read_struct

_TRAILER: Final = 8


def open_data_file(file: StoredFile, kind: str, dictionaries: Dictionaries) -> DataFile:
    """Open a data file."""
    with file.inside():
        if kind == "row_v1":
            from qbeast_core.carbondata.row_file import RowFile  # noqa: PLC0415 - for streaming segments alone

            return RowFile.open(file, dictionaries)
        start, footer = _footer(file)
        # Version 3 keeps its rows in field 1 and has a struct in 2; older ones have a version and the rows there.
        version = V3File if isinstance(footer.fields.get(2), ThriftStruct) else OldFile
        return version.open(file, start, footer, dictionaries)


def _footer(file: StoredFile) -> tuple[int, ThriftStruct]:
    """Return where the footer begins, and the footer."""
    if file.size_bytes < _TRAILER:
        damaged(f"it has {file.size_bytes} bytes, too few for the place of its footer")
    end = file.size_bytes - _TRAILER
    start = int.from_bytes(file.read_one(end, _TRAILER), "big")
    if start >= end:
        with unless_encrypted(*_samples(file)):
            damaged(f"its footer would begin at byte {start} of {file.size_bytes}")
    try:
        return start, read_struct(file.read_one(start, end - start))
    except ThriftError as error:
        damaged(f"the footer at byte {start} is none: {error}")


def _samples(file: StoredFile) -> tuple[bytes, bytes]:
    length = min(file.size_bytes, SAMPLE_BYTES)
    return file.read_one(0, length), file.read_one(file.size_bytes - length, length)

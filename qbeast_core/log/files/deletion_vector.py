"""Deletion vectors as a log describes them: the identity of files, and the files that an action names."""

from __future__ import annotations

import uuid
from base64 import b85decode
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import orjson

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.spec.file_path import FilePath

# The identity of a file in Delta: the decoded path, and the deletion vector (empty: none).
FileKey: TypeAlias = tuple[str, str]

_IDENTITY: Final = ("storageType", "pathOrInlineDv", "offset")
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85: Final = str.maketrans(_Z85, _B85)
_UUID_CHARACTERS: Final = 20
_Z85_GROUP: Final = 5
_Z85_SHOWN: Final = 20


def file_key(path: str, vector: Mapping[str, Any] | None) -> FileKey:
    """Return the identity of the file of an add or a remove.

    >>> file_key("a%2Bb", None) == file_key("a+b", {"storageType": None})
    True
    """
    parts = [str(vector[name]) for name in _IDENTITY if vector.get(name) is not None] if vector else []
    return FilePath.of_log(path).text, " ".join(parts)


def parse_vector(text: str | None) -> dict[str, Any] | None:
    """Return a descriptor out of its JSON text, without nulls; None: no vector.

    >>> parse_vector('{"storageType":"i","offset":null}')
    {'storageType': 'i'}
    """
    return None if text is None else without_nulls(orjson.loads(text))


def without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are there: checkpoints hold nulls where commits hold nothing."""
    return {key: value for key, value in raw.items() if value is not None}


def vector_path(vector: Mapping[str, Any]) -> FilePath | None:
    """Return the file that holds a deletion vector; None: the log itself does.

    >>> vector_path({"storageType": "p", "pathOrInlineDv": "s3://b/k/1%20.bin"})
    FilePath(text='s3://b/k/1 .bin')
    """
    kind, text = vector.get("storageType"), str(vector.get("pathOrInlineDv"))
    if kind == "p":
        return FilePath.of_log(text)
    if kind != "u":
        return None
    folder, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    return FilePath(f"{folder}{'/' if folder else ''}deletion_vector_{_uuid(encoded)}.bin")


def file_paths(path: str, vector: Mapping[str, Any] | None) -> Iterator[FilePath]:
    """Yield the files of an add or a remove: the data file, and the file of its deletion vector.

    >>> [file.text for file in file_paths("k/a%20b", {"storageType": "p", "pathOrInlineDv": "s3://b/1.bin"})]
    ['k/a b', 's3://b/1.bin']
    """
    yield FilePath.of_log(path)
    vector_file = vector_path(vector or {})
    if vector_file is not None:
        yield vector_file


def from_z85(text: str) -> bytes:
    """Decode Z85, in which logs write binary texts. Raise `ValueError` for other texts.

    >>> from_z85("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    if len(text) % _Z85_GROUP or not set(text) <= set(_Z85):
        msg = f"{text[:_Z85_SHOWN]!r} is not Z85"
        raise ValueError(msg)
    return b85decode(text.translate(_FROM_Z85))


def _uuid(text: str) -> uuid.UUID:
    """Decode the 20 characters of Z85 of the id of a deletion vector's file."""
    try:
        return uuid.UUID(bytes=from_z85(text))
    except ValueError as error:  # also: not 16 bytes, or five characters encode more than four
        message = f"a deletion vector of the Delta log has the invalid id {text!r}"
        raise InvalidMetadataError(message) from error

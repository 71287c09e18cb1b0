"""Detect settings by which other writers commit to S3 without conditional puts, and raise for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from qbeast_core.errors import UnsupportedTableError

# Settings that make `deltalake` commit to S3 without conditional puts, in lower case.
LOCKING_SETTINGS: Final = ("aws_s3_locking_provider", "aws_s3_allow_unsafe_rename", "allow_unsafe_rename")

_SCHEMES: Final = ("s3://", "s3a://")
_OFF: Final = ("", "0", "false", "no", "none")


def other_locking(uri: str, storage_options: Mapping[str, str] | None = None) -> str | None:
    """Return the setting that makes other writers commit without conditional puts, or None.

    Such a writer and ours could both win the same version, and one commit would be lost.

    >>> other_locking("s3://bucket/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    'AWS_S3_ALLOW_UNSAFE_RENAME'
    >>> other_locking("s3://bucket/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "0"})
    >>> other_locking("/data/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    """
    if not uri.lower().startswith(_SCHEMES):
        return None
    settings = {**os.environ, **(storage_options or {})}
    values = {name.lower(): text for name, text in settings.items()}
    on = {name for name in LOCKING_SETTINGS if values.get(name, "").lower() not in _OFF}
    return next((name for name in settings if name.lower() in on), None)


def refuse_unsafe_locking(uri: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Raise if deltalake would write to S3 without conditional puts; call it before writing files.

    >>> refuse_unsafe_locking("/data/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    """
    setting = other_locking(uri, storage_options)
    if setting is not None:
        message = (
            f"{uri} cannot be written while {setting} is set: other writers then use no conditional puts "
            "and may overwrite our commit, or we theirs; unset it everywhere."
        )
        raise UnsupportedTableError(message, path=uri, feature=setting)

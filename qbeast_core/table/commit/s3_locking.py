"""Refuse stores whose other writers do not exclude each other as ours do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from qbeast_core.errors import UnsupportedTableError

__all__ = ["refuse_unsafe_locking"]

_SCHEMES: Final = ("s3://", "s3a://")
_LOCKING: Final = "AWS_S3_LOCKING_PROVIDER"
_RENAME: Final = "AWS_S3_ALLOW_UNSAFE_RENAME"
_OFF: Final = ("", "0", "false", "no", "none")


def refuse_unsafe_locking(
    uri: str, storage_options: Mapping[str, str] | None = None, *, environ: Mapping[str, str] = os.environ
) -> None:
    """Raise where deltalake would write to S3 without conditional puts; call it before files are written.

    Such a writer and ours could both win the same version, and one commit would be lost.

    Parameters
    ----------
    uri : str
        The table; only S3 has such settings.
    storage_options : Mapping, optional
        As `deltalake` takes them.
    environ : Mapping
        Environment variables, read as well.

    Raises
    ------
    UnsupportedTableError
        ``AWS_S3_LOCKING_PROVIDER`` or ``AWS_S3_ALLOW_UNSAFE_RENAME`` is set.

    Examples
    --------
    >>> refuse_unsafe_locking("/data/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    """
    if not uri.lower().startswith(_SCHEMES):
        return
    given = {key.upper(): text for key, text in {**environ, **(storage_options or {})}.items()}
    for key in (_LOCKING, _RENAME, _RENAME.removeprefix("AWS_S3_")):
        if given.get(key, "").lower() not in _OFF:
            message = (
                f"{uri} cannot be written while {key} is set: other writers then use no conditional puts "
                "and may overwrite our commit, or we theirs. Nothing was written; unset it everywhere."
            )
            raise UnsupportedTableError(message, path=uri, feature=key)

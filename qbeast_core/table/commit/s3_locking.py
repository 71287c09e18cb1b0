"""Refuse stores whose other writers do not exclude each other as ours do."""

from __future__ import annotations

import os
from collections.abc import Mapping

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.s3_locking import other_locking

__all__ = ["refuse_unsafe_locking"]


def refuse_unsafe_locking(
    uri: str, storage_options: Mapping[str, str] | None = None, *, environ: Mapping[str, str] = os.environ
) -> None:
    """Raise where deltalake would write to S3 without conditional puts; call it before files are written.

    Parameters
    ----------
    uri, storage_options, environ
        As for `qbeast_core.io.s3_locking.other_locking`.

    Raises
    ------
    UnsupportedTableError
        ``AWS_S3_LOCKING_PROVIDER`` or ``AWS_S3_ALLOW_UNSAFE_RENAME`` is set.

    Examples
    --------
    >>> refuse_unsafe_locking("/data/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    """
    setting = other_locking(uri, storage_options, environ=environ)
    if setting is not None:
        message = (
            f"{uri} cannot be written while {setting} is set: other writers then use no conditional puts "
            "and may overwrite our commit, or we theirs. Nothing was written; unset it everywhere."
        )
        raise UnsupportedTableError(message, path=uri, feature=setting)

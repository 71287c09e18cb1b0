"""Open the store of a table by its path or address."""

from __future__ import annotations

import os
from collections.abc import Mapping

from qbeast_core.io.stores.local import LocalStore
from qbeast_core.io.stores.location import is_address, resolve_location
from qbeast_core.io.stores.store import Store


def open_store(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    allow_absolute_paths: bool = False,
) -> Store:
    """Open the store below a table's root.

    >>> open_store("/tables/orders").uri
    '/tables/orders'
    """
    whole = resolve_location(uri)
    if not is_address(whole):
        return LocalStore(whole, allow_absolute_paths=allow_absolute_paths)
    from qbeast_core.io.stores.remote import RemoteStore  # noqa: PLC0415 - loads obstore, only for object stores

    return RemoteStore(whole, storage_options or {}, allow_absolute_paths=allow_absolute_paths)

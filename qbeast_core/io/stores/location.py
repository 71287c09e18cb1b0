"""The location of a table: resolved and checked once, where a call begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from qbeast_core.io.stores.local import LocalStore
from qbeast_core.io.stores.resolve import GLUE, is_address, resolve_location
from qbeast_core.io.stores.store import Store, checked_options


@dataclass(frozen=True)  # no slots: the store is cached
class Location:
    """A folder or an address in its canonical form, and how its files are opened. Picklable, with the options."""

    uri: str
    # Options of the object store.
    storage_options: Mapping[str, str] = field(repr=False)
    # Whether the log may name files by absolute paths.
    trusts_absolute: bool = False
    # The options as they were passed, if the credentials of a catalog replace some; not pickled.
    passed_storage_options: Mapping[str, str] | None = field(default=None, repr=False, compare=False)

    @staticmethod
    def of(
        path: str | os.PathLike[str] | Location,
        storage_options: Mapping[str, str] | None = None,
        *,
        allow_absolute_paths: bool = False,
    ) -> Location:
        """Resolve the path or address of a table, or its name in a catalog, and check the options.

        A location is returned as it is. A name becomes an address here, so nothing else handles names.

        >>> Location.of("file:///tables/my%20orders").uri
        '/tables/my orders'
        """
        if isinstance(path, Location):
            return path
        checked = MappingProxyType(checked_options(storage_options))
        uri = resolve_location(path)
        if not uri.startswith(GLUE):
            return Location(uri, checked, allow_absolute_paths)
        from qbeast_core.io.stores.glue import find_table  # noqa: PLC0415 - only for names

        address, options = find_table(uri, checked)
        return Location(address, MappingProxyType(dict(options)), allow_absolute_paths, checked)

    @cached_property
    def store(self) -> Store:
        """The files below the root."""
        if not is_address(self.uri):
            return LocalStore(self.uri, allow_absolute_paths=self.trusts_absolute)
        from qbeast_core.io.stores.remote import RemoteStore  # noqa: PLC0415 - loads obstore, only for object stores

        return RemoteStore(self.uri, self.storage_options, allow_absolute_paths=self.trusts_absolute)

    @property
    def options_of_others(self) -> Mapping[str, str]:
        """Options to open other tables with: the credentials of a catalog are for one table."""
        return self.storage_options if self.passed_storage_options is None else self.passed_storage_options

    @property
    def key(self) -> tuple[str, bool, tuple[tuple[str, str], ...]]:
        """The same for equal locations, for caches."""
        return self.uri, self.trusts_absolute, tuple(sorted(self.storage_options.items()))

    def __reduce__(self) -> tuple[type[Location], tuple[str, dict[str, str], bool]]:
        """Pickle without the store: another process opens its own."""
        return Location, (self.uri, dict(self.storage_options), self.trusts_absolute)


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
    return Location.of(uri, storage_options, allow_absolute_paths=allow_absolute_paths).store

"""The location of a table: its store and options, from a path, an address, or a name in a catalog."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.address import GLUE, UNITY, is_address, refuse_unsafe_locking, resolve_location
from qbeast_core.io.catalog.lent import Found, LentOptions, without_catalog
from qbeast_core.io.store import LocalStore, Store, checked_options
from qbeast_core.support.process import require


@dataclass(frozen=True, slots=True)
class Named:
    """Where a name in a catalog leads."""

    name: str
    # The options as they were passed.
    storage_options: Mapping[str, str] = field(repr=False)
    # Why the table cannot be changed. None: it can.
    read_only: str | None = None


@dataclass(frozen=True)  # no slots: the store is cached
class Location:
    """A folder or an address in its canonical form, and how its files are opened. Picklable, with the options."""

    uri: str
    # Options of the object store.
    storage_options: Mapping[str, str] = field(repr=False)
    # Whether the log may name files by absolute paths.
    trusts_absolute: bool = False
    # The name that was given instead of the address; not pickled.
    named: Named | None = field(default=None, repr=False, compare=False)

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
        checked = checked_options(storage_options)
        uri = resolve_location(path)
        if not uri.startswith((GLUE, UNITY)):
            return Location(uri, without_catalog(checked), allow_absolute_paths)
        found = _find(uri, checked)
        named = Named(uri, checked, found.read_only)
        return Location(found.uri, found.storage_options, allow_absolute_paths, named)

    @cached_property
    def store(self) -> Store:
        """The files below the root."""
        if not is_address(self.uri):
            return LocalStore(self.uri, allow_absolute_paths=self.trusts_absolute)
        from qbeast_core.io.remote import RemoteStore  # noqa: PLC0415 - loads obstore, only for object stores

        return RemoteStore(self.uri, self.storage_options, allow_absolute_paths=self.trusts_absolute)

    @property
    def options_of_others(self) -> Mapping[str, str]:
        """Options to open other tables with: the credentials of a catalog are for one table."""
        return self.storage_options if self.named is None else self.named.storage_options

    @property
    def name(self) -> str:
        """What opens the table with `options_of_others`: the address, or its name in a catalog."""
        return self.uri if self.named is None else self.named.name

    @property
    def is_lent(self) -> bool:
        """Whether a catalog lends the credentials. Other libraries cannot request them again."""
        return isinstance(self.storage_options, LentOptions)

    def refuse_changes(self) -> None:
        """Raise if the table cannot be changed with these options; call it before any work."""
        refuse_unsafe_locking(self.uri, self.storage_options)
        if self.named is not None and self.named.read_only is not None:
            msg = f"{self.named.name} cannot be changed: {self.named.read_only}"
            raise UnsupportedTableError(msg, path=self.named.name, feature="read-only credentials")

    @property
    def key(self) -> tuple[object, ...]:
        """The same for equal locations, for caches."""
        return self.uri, self.name, self.trusts_absolute, tuple(sorted(self.storage_options.items()))

    def __reduce__(self) -> tuple[type[Location], tuple[str, Mapping[str, str], bool]]:
        """Pickle without the store: another process opens its own."""
        return Location, (self.uri, self.storage_options, self.trusts_absolute)


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


def _find(name: str, storage_options: Mapping[str, str]) -> Found:
    # Loaded for names only: an HTTP client, and boto3.
    if name.startswith(UNITY):
        from qbeast_core.io.catalog import unity  # noqa: PLC0415

        return unity.find_table(name, storage_options)
    require("boto3", "a name of AWS Glue")
    from qbeast_core.io.catalog import glue  # noqa: PLC0415

    return glue.find_table(name, storage_options)

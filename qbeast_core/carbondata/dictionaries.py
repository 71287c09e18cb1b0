"""Members of global dictionaries, as data files ask for them."""

from __future__ import annotations

from typing import Any, Protocol

from qbeast_core.carbondata.columns import Column
from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.store import Store

__all__ = ["Dictionaries", "open_dictionaries"]


class Dictionaries(Protocol):
    """The global dictionaries of a table; several threads may ask at once."""

    def members(self, column: Column) -> Any:
        """Return the members of a column's dictionary, in the column's Arrow type.

        Surrogate ``s`` of a page is member ``s`` of the array: the first is a null nobody refers to, and the member
        that stands for null is null.

        Parameters
        ----------
        column : Column
            Of a data file; `Column.has_global_dictionary`.

        Raises
        ------
        UnsupportedTableError
            If the dictionary is missing, or lies elsewhere.
        DamagedFileError
            If it is no dictionary.
        """
        ...

    def direct_timestamp(self) -> tuple[int, int]:
        """Return granularity and cut-off in ms, which timestamps as surrogates count by: 1000 and 0 by default."""
        ...


def open_dictionaries(store: Store) -> Dictionaries:
    """Return the global dictionaries of a table, each read when it is asked for.

    Parameters
    ----------
    store : Store
        Below the table's root.
    """
    return _Refused(store.uri)


class _Refused:
    def __init__(self, uri: str) -> None:
        self._uri = uri

    def members(self, column: Column) -> Any:
        message = (
            f"column {column.schema.name!r} of {self._uri!r} has a global dictionary, which cannot be read."
        )
        raise UnsupportedTableError(message, path=self._uri, feature="global dictionary")

    def direct_timestamp(self) -> tuple[int, int]:
        return 1000, 0

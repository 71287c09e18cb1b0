"""Members of global dictionaries, as data files ask for them: ``.dict`` and ``.dictmeta`` of CarbonData up to 1.6."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, Protocol

import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.encryption import unless_encrypted
from qbeast_core.carbondata.inside import inside
from qbeast_core.carbondata.pages.members import read_dictionary
from qbeast_core.carbondata.pages.number_texts import values_of_texts
from qbeast_core.carbondata.pages.texts import NULL_TOKEN
from qbeast_core.carbondata.structs.dictionary import read_dictionary_meta
from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.io.store import Store

_GRANULARITY: Final = "carbon.timegranularity"
_CUTOFF: Final = "carbon.cutOffTimestamp"
_GRANULARITIES_MS: Final = {"SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


class Dictionaries(Protocol):
    """The global dictionaries of a table; several threads may ask at once."""

    def members(self, column: Column) -> Any:
        """Return the members of a column's dictionary, in the column's Arrow type.

        Surrogate ``s`` of a page is member ``s`` of the array: the first is a null nobody refers to, and the member
        that stands for null is null.
        """
        ...

    def direct_timestamp(self) -> tuple[int, int]:
        """Return granularity and cut-off in ms, which timestamps as surrogates count by: 1000 and 0 by default."""
        ...


def open_dictionaries(store: Store, settings: Mapping[str, str] | None = None) -> TableDictionaries:
    """Return the global dictionaries of a table, each read when it is asked for."""
    given = {_GRANULARITY: "SECOND", _CUTOFF: "", **(settings or {})}
    unknown = sorted(given.keys() - {_GRANULARITY, _CUTOFF})
    granularity_ms = _GRANULARITIES_MS.get(given[_GRANULARITY].upper())
    if unknown or granularity_ms is None:
        msg = (
            f"writer_settings may hold {_GRANULARITY} (one of {', '.join(_GRANULARITIES_MS)}) and {_CUTOFF}, "
            f"got {dict(settings or {})}; nothing was read"
        )
        raise InvalidInputError(msg, argument="writer_settings")
    return TableDictionaries(store, granularity_ms, _cutoff_ms(given[_CUTOFF]))


def _cutoff_ms(text: str) -> int:
    """Return a time as ``carbon.properties`` have it, in ms since 1970 UTC; 0 of none."""
    if not text:
        return 0
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        msg = (
            f"writer_settings: {_CUTOFF} is to be like '2000-01-01 00:00:00', got {text!r}; nothing was read"
        )
        raise InvalidInputError(msg, argument="writer_settings") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True, eq=False)
class TableDictionaries:
    """The `Dictionaries` in the folder ``Metadata`` of a table."""

    store: Store
    granularity_ms: int = 1000
    cutoff_ms: int = 0
    _known: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any], repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the dictionaries lie; they are read again."""
        return type(self), (self.store, self.granularity_ms, self.cutoff_ms)

    def members(self, column: Column) -> Any:
        """See `Dictionaries`."""
        key = (column.schema.column_id, str(column.arrow_type))
        with self._lock:  # threads that ask for the same one wait for one read
            if key not in self._known:
                self._known[key] = self._read(column)
            return self._known[key]

    def direct_timestamp(self) -> tuple[int, int]:
        """See `Dictionaries`."""
        return self.granularity_ms, self.cutoff_ms

    def path(self, column: Column) -> str:
        """Return where a column's dictionary is to lie, below the table's root."""
        return f"Metadata/{column.schema.column_id}.dict"

    def _read(self, column: Column) -> Any:
        path = self.path(column)
        data = self._file(path)
        if data is None:
            message = (
                f"column {column.schema.name!r} of {self.store.uri!r} has a global dictionary, and {path!r} is not "
                "there: nothing tells its values. Restore the file, or read other columns."
            )
            feature = f"missing dictionary of column {column.schema.name!r}"
            raise UnsupportedTableError(message, path=path, feature=feature)
        ends = self._ends(f"{path}meta")
        with inside(self.store.uri, path), unless_encrypted(data):
            count, size = ends or (-1, len(data))
            if size > len(data):
                damaged(f"its meta counts {size} bytes, and it has {len(data)}")
            slices = read_dictionary(data[:size])  # what a load left that did not end is behind
            if 0 <= count != len(slices):
                damaged(f"it has {len(slices)} members, its meta counts {count}")
            nulls = slices.equal_to(NULL_TOKEN)
            values = values_of_texts(slices, column.kind, column.arrow_type, nulls)
        return pa.concat_arrays([pa.nulls(1, column.arrow_type), values])

    def _ends(self, path: str) -> tuple[int, int] | None:
        """Return the last surrogate that counts, and the byte its chunk ends at; None if nothing tells."""
        data = self._file(path)
        if data is None:
            return None
        with inside(self.store.uri, path), unless_encrypted(data):
            loads = read_dictionary_meta(data)
        return (loads[-1].last, loads[-1].end) if loads else (0, 0)

    def _file(self, path: str) -> bytes | None:
        try:
            return self.store.get(path)
        except FileNotFoundError:
            return None

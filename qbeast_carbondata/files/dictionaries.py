"""Global dictionaries of a table: the files ``.dict`` and ``.dictmeta`` of CarbonData up to 1.6."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, TypeVar

import pyarrow as pa

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import damaged
from qbeast_carbondata.pages.dimensions import values_of_texts
from qbeast_carbondata.pages.old.members import read_dictionary
from qbeast_carbondata.pages.texts import NULL_TOKEN
from qbeast_carbondata.stored_file import read_file
from qbeast_carbondata.structs.index_file import read_dictionary_meta
from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.io.store import Store

_GRANULARITY: Final = "carbon.timegranularity"
_CUTOFF: Final = "carbon.cutOffTimestamp"
_GRANULARITIES_MS: Final = {"SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_T = TypeVar("_T")


def open_dictionaries(store: Store, settings: Mapping[str, str] | None = None) -> TableDictionaries:
    """Return the global dictionaries of a table, each read when it is needed."""
    chosen = {_GRANULARITY: "SECOND", _CUTOFF: "", **(settings or {})}
    granularity_ms = _GRANULARITIES_MS.get(chosen[_GRANULARITY].upper())
    if chosen.keys() - {_GRANULARITY, _CUTOFF} or granularity_ms is None:
        msg = (
            f"writer_settings may hold {_GRANULARITY} (one of {', '.join(_GRANULARITIES_MS)}) and {_CUTOFF}, "
            f"got {dict(settings or {})}"
        )
        raise InvalidInputError(msg, argument="writer_settings")
    return TableDictionaries(store, granularity_ms, _cutoff_ms(chosen[_CUTOFF]))


def _cutoff_ms(text: str) -> int:
    """Return a time of ``carbon.properties`` in ms since 1970 UTC; 0 for an empty text."""
    try:
        cutoff = datetime.fromisoformat(text or "1970-01-01")
    except ValueError:
        msg = f"writer_settings: {_CUTOFF} must be like '2000-01-01 00:00:00', got {text!r}"
        raise InvalidInputError(msg, argument="writer_settings") from None
    return round((cutoff if cutoff.tzinfo else cutoff.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True, eq=False)
class TableDictionaries:
    """The `Dictionaries` in the folder ``Metadata`` of a table; pickles without the members."""

    store: Store
    granularity_ms: int = 1000
    cutoff_ms: int = 0
    _members: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any], repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.granularity_ms, self.cutoff_ms)

    def members(self, column: Column) -> Any:
        """See `Dictionaries`."""
        key = (column.schema.column_id, str(column.arrow_type))
        with self._lock:  # threads that need the same dictionary wait for one read
            if key not in self._members:
                self._members[key] = self._read(column)
            return self._members[key]

    def direct_timestamp(self) -> tuple[int, int]:
        """See `Dictionaries`."""
        return self.granularity_ms, self.cutoff_ms

    def _read(self, column: Column) -> Any:
        path = f"Metadata/{column.schema.column_id}.dict"
        loads = self._file(f"{path}meta", read_dictionary_meta)

        def read(data: bytes) -> Any:
            size = len(data) if loads is None else loads[-1].end
            if size > len(data):
                damaged(f"its meta counts {size} bytes, and it has {len(data)}")
            slices = read_dictionary(data[:size])  # the rest belongs to a load that did not end
            if loads is not None and len(slices) != loads[-1].last:
                damaged(f"it has {len(slices)} members, its meta counts {loads[-1].last}")
            return values_of_texts(slices, column, slices.equal_to(NULL_TOKEN))

        values = self._file(path, read)
        if values is None:
            message = (
                f"column {column.schema.name!r} of {self.store.uri!r} has a global dictionary, and {path!r} does not "
                "exist: no other file has its values. Restore the file, or read other columns."
            )
            feature = f"missing dictionary of column {column.schema.name!r}"
            raise UnsupportedTableError(message, path=path, feature=feature)
        return pa.concat_arrays([pa.nulls(1, column.arrow_type), values])

    def _file(self, path: str, read: Callable[[bytes], _T]) -> _T | None:
        try:
            return read_file(self.store, path, read)
        except FileNotFoundError:
            return None

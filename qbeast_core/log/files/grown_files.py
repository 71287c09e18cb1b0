"""The live files of a version that our own append made: the files of the version before, and the new ones.

Nothing is read for it: a reader of the log would find the same in the commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.replay import FIELD_KEYS, SPELLED_DIFFERENTLY, TAG_KEYS
from qbeast_core.spec.block import MAX_ROWS

_STATISTICS: Final = {"min": "minValues", "max": "maxValues", "null_count": "nullCount"}
_OWN_TAGS: Final = frozenset({"revision", "blocks", "layout", "rules", "keys"})
_PARSERS: Final[Mapping[Any, Callable[[Any], object]]] = {
    pl.Date: date.fromisoformat,
    pl.Datetime: datetime.fromisoformat,
    pl.Decimal: Decimal,
    pl.String: str,
}
_FAULTS: Final = (ValueError, TypeError, ArithmeticError, AttributeError, KeyError, pl.exceptions.PolarsError)
# Frames that are laid one behind the other before their rows are copied together.
_MAX_CHUNKS: Final = 32

_SMALL_BYTES: Final = 1 << 20


def with_adds(files: pl.DataFrame, adds: Sequence[AddFile]) -> pl.DataFrame | None:
    """Return live files and those that a commit adds, which come last; None: only the log has them.

    >>> row = {"path": "a", "size_bytes": 5, "modification_time": 0, "num_records": 1, "null_count": {"x": 0},
    ...     "min": {"x": 1}, "max": {"x": 1}, "deletion_vector": None, "has_deletion_vector": False,
    ...     "miscounted": False, **dict.fromkeys(TAG_KEYS), **dict.fromkeys(FIELD_KEYS)}
    >>> files = pl.DataFrame([row], schema_overrides={"revision": pl.Int64})
    >>> stats = '{"numRecords":2,"minValues":{"x":3},"maxValues":{"x":4},"nullCount":{"x":0}}'
    >>> add = AddFile(path="b", size=7, modification_time=9, stats=stats, tags={"revision": "1"})
    >>> with_adds(files, [add]).select("path", "num_records", "max", "revision").rows()
    [('a', 1, {'x': 1}, None), ('b', 2, {'x': 4}, 1)]
    >>> with_adds(files, [add.model_copy(update={"path": "a"})]) is None
    True
    """
    schema = files.schema
    try:
        rows = [_row(add, schema) for add in adds]
        if any(row.keys() != schema.keys() for row in rows):
            return None  # files have columns that are not derived here
        new = pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=schema)
        is_listed = files["path"].is_in(new["path"].implode()).any()  # added again, with new tags for example
        return None if is_listed else _joined(files, new)
    except _FAULTS:
        return None


def _joined(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return rows and a few more at the end; a large frame is not copied each time for them."""
    grown = old.vstack(new)
    is_small = grown.estimated_size() < _SMALL_BYTES
    return grown.rechunk() if is_small or grown.n_chunks() > _MAX_CHUNKS else grown


def _row(add: AddFile, schema: pl.Schema) -> dict[str, Any]:
    stats: dict[str, Any] = json.loads(add.stats or "", parse_float=Decimal)
    tags, count = add.tags or {}, stats["numRecords"]
    texts = {name: tags.get(key) for name, key in TAG_KEYS.items()}
    foreign = any(text is not None and name not in _OWN_TAGS for name, text in texts.items())
    foreign = foreign or re.search(SPELLED_DIFFERENTLY, add.path) is not None
    if foreign or add.deletion_vector is not None or not 0 <= count <= MAX_ROWS:
        raise ValueError(add.path)
    typed = {name: _value(stats.get(key), schema[name]) for name, key in _STATISTICS.items()}
    return {
        "path": add.path,
        "size_bytes": add.size,
        "modification_time": add.modification_time,
        "num_records": count,
        **typed,
        **texts,
        "revision": None if texts["revision"] is None else int(texts["revision"]),
        **{name: getattr(add, name) for name in FIELD_KEYS},
        "deletion_vector": None,
        "has_deletion_vector": False,
        "miscounted": False,
    }


def _value(value: Any, dtype: Any) -> Any:
    """Return a value of statistics in its column's type; a missing one is null."""
    if value is None:
        return None
    if isinstance(dtype, pl.Struct):
        fields: Mapping[str, Any] = value
        return {name: _value(fields.get(name), inner) for name, inner in dtype.to_schema().items()}
    if dtype.is_float():
        return float(value)
    return int(value) if dtype.is_integer() else _PARSERS[dtype.base_type()](value)

"""Rows of a table as rows of its files, and back: names, ids, special types, and values of partition columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from qbeast_core.log.columns import COLUMN_ID, NESTED_IDS, StoredColumns, physical_name
from qbeast_core.log.schema import VOID
from qbeast_core.log.values import typed_values

if TYPE_CHECKING:  # workers that write files do not read any, and the other way round
    from qbeast_core.io.encode import EncodedFile
    from qbeast_core.io.footer import PageCuts
    from qbeast_core.space.values import I32Array
    from qbeast_core.table.data.file_scan import FileScan


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class RowCodec:
    """The rows of files as rows of a table."""

    columns: StoredColumns
    # Names of the columns in the table, and types of at least these.
    names: Sequence[str]
    schema: pl.Schema

    @cached_property
    def stored_schema(self) -> pl.Schema:
        """Columns to read from files, with their types there."""
        columns = {} if self.columns.mode == "none" else self.columns.columns
        found = ((columns.get(name), name) for name in self._from_files)
        return pl.Schema(
            (name, self.schema[name]) if column is None else (column.stored_name, column.stored_type)
            for column, name in found
        )

    @cached_property
    def constant_names(self) -> list[str]:
        """Partition columns, whose values are in the log."""
        of_files = set(self._from_files)
        return [name for name in self.names if name not in of_files]

    def rows(self, stored: pl.DataFrame, scans: Sequence[FileScan], counts: Sequence[int]) -> pl.DataFrame:
        """Return rows of the table. The files and their numbers of rows are in the order of rows.

        The numbers are needed only if there are partition columns.
        """
        if self.columns.is_plain:
            return stored
        renamed = [self._renamed(series, name) for series, name in zip(stored, self._from_files, strict=True)]
        frame = pl.DataFrame(renamed) if renamed else pl.DataFrame(height=stored.height)
        if self.constant_names:
            numbers = np.repeat(np.arange(len(scans)), counts)
            frame = frame.hstack(self._constants(scans)[pl.Series(numbers)])
        return frame.select(self.names)

    def columns_of(self, values: Sequence[pl.Expr]) -> list[pl.Expr]:
        """Return the columns of the table that files have as expressions, from the columns of `stored_schema`."""
        if self.columns.is_plain:
            return list(values)
        return [self._named(value, name) for value, name in zip(values, self._from_files, strict=True)]

    def constants_of(self, scans: Sequence[FileScan], number: pl.Expr) -> list[pl.Expr]:
        """Return the partition columns as expressions, given the number of the file of a row."""
        return [pl.lit(column).gather(number).alias(column.name) for column in self._constants(scans)]

    @cached_property
    def _from_files(self) -> list[str]:
        return self.columns.read_from_files(self.names)

    def _renamed(self, values: pl.Series, name: str) -> pl.Series:
        column = self.columns.columns.get(name)
        named = values.alias(name)
        same = column is None or column.stored_type == column.dtype
        return named if same else _with_field_names(named, self.schema[name])

    def _named(self, values: pl.Expr, name: str) -> pl.Expr:
        column = self.columns.columns.get(name)
        if column is None or column.stored_type == column.dtype:
            return values.alias(name)
        rename = partial(_with_field_names, dtype=column.dtype)
        return values.map_batches(rename, return_dtype=column.dtype, is_elementwise=True).alias(name)

    def _constants(self, scans: Sequence[FileScan]) -> pl.DataFrame:
        """Return the values of the partition columns, one row per file."""
        columns: list[pl.Series] = []
        for name in self.constant_names:
            at = self.columns.partitions.index(name)
            texts = pl.Series(name, [scan.partition[at] for scan in scans], dtype=pl.String)
            columns.append(typed_values(texts, self.columns.columns[name].dtype))
        return pl.DataFrame(columns)


def encode_rows(
    rows: pl.DataFrame,
    columns: StoredColumns,
    *,
    weights: I32Array | None,
    cuts: PageCuts,
    statistics: Sequence[str] = (),
    dictionary: Sequence[str] = (),
    levels: Mapping[str, int] | None = None,
    codec: str = "zstd",
    values: Mapping[str, pl.Series] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> EncodedFile:
    """Return a data file of rows without columns that files do not have. Columns have their names in the table."""
    from qbeast_core.io.encode import encode_data_file  # noqa: PLC0415 - for writes alone

    name = columns.stored_name
    return encode_data_file(
        rows.rename(name) if columns.is_mapped else rows,
        weights=weights,
        cuts=cuts,
        statistics=[*map(name, statistics)],
        dictionary=[*map(name, dictionary)],
        codec=codec,
        levels={name(column): level for column, level in (levels or {}).items()},
        values={name(column): distinct for column, distinct in (values or {}).items()},
        special_types=columns.stored_special_types,
        stored=partial(_as_stored, columns=columns) if columns.is_mapped else None,
        metadata=metadata,
    )


def _with_field_names(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values of structs with the names of fields of another type, which is the same otherwise.

    >>> _with_field_names(pl.Series([{"a": 1}, None]), pl.Struct({"b": pl.Int64})).to_list()
    [{'b': 1}, None]
    """
    array = values.to_arrow(compat_level=pl.CompatLevel.newest())
    return pl.Series(values.name, _retyped(array, _arrow_type(array.type, dtype)), dtype=dtype)


def _retyped(array: Any, arrow_type: Any) -> Any:
    """Return an Arrow array with other names and metadata of fields; nothing is copied."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    return pa.array(_Retyped(array, arrow_type))


@dataclass(frozen=True, slots=True)
class _Retyped:
    """An array of the Arrow C interface with another schema."""

    array: Any
    arrow_type: Any

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self.arrow_type.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def _arrow_type(found: Any, dtype: Any) -> Any:
    """Return an Arrow type with the names of fields of a type."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    match dtype:
        case pl.Struct():
            fields = zip(found.fields, dtype.fields, strict=True)
            return pa.struct([pa.field(new.name, _arrow_type(old.type, new.dtype)) for old, new in fields])
        case pl.List():
            return _list_like(found, pa.field("item", _arrow_type(found.value_type, dtype.inner)))
        case pl.Map():
            return pa.map_(_arrow_type(found.key_type, dtype.key), _arrow_type(found.item_type, dtype.value))
        case _:
            return found


def _list_like(found: Any, item: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.large_list(item) if pa.types.is_large_list(found) else pa.list_(item)


def _as_stored(table: Any, columns: StoredColumns) -> Any:
    """Return an Arrow table of columns by their names in files, with the names and ids of all fields.

    Columns that the table does not have stay as they are.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    for at, name in enumerate(table.column_names):
        column = columns.columns.get(columns.name(name))
        if column is None or columns.mode == "none":
            continue
        found = table.column(at)
        ids = (column.field.get("metadata") or {}).get(NESTED_IDS) or {}
        field = _stored_field(pa.field(name, found.type), column.field, ids, (column.stored_name,))
        chunks = (
            [_retyped(chunk, field.type) for chunk in found.chunks]
            if field.type != found.type
            else found.chunks
        )
        table = table.set_column(at, field, pa.chunked_array(chunks, type=field.type))
    return table


def _stored_field(found: Any, field: Mapping[str, Any], ids: Mapping[str, int], path: tuple[str, ...]) -> Any:
    stored = _stored_arrow(found.type, field["type"], ids, path)
    number = (field.get("metadata") or {}).get(COLUMN_ID)
    return _with_id(found.with_type(stored).with_name(physical_name(field)), number)


def _stored_arrow(found: Any, dtype: Any, ids: Mapping[str, int], path: tuple[str, ...]) -> Any:
    """Return an Arrow type with the names and ids of fields in files. Ids of elements are for Iceberg."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if not isinstance(dtype, Mapping) or dtype.get("type") not in ("struct", "array", "map"):
        return found

    def part(name: str, found: Any) -> Any:
        below = (*path, name)
        arrow_type = _stored_arrow(
            found, dtype["elementType" if name == "element" else f"{name}Type"], ids, below
        )
        return _with_id(pa.field(name, arrow_type, nullable=name != "key"), ids.get(".".join(below)))

    if dtype["type"] == "struct":
        fields = [field for field in dtype["fields"] if field["type"] != VOID]  # files do not have these
        pairs = zip(found.fields, fields, strict=True)
        return pa.struct(
            [_stored_field(old, new, _ids_of(new, ids), _path_of(new, path)) for old, new in pairs]
        )
    if dtype["type"] == "array":
        return _list_like(found, part("element", found.value_type))
    return pa.map_(part("key", found.key_type), part("value", found.item_type))


def _ids_of(field: Mapping[str, Any], above: Mapping[str, int]) -> Mapping[str, int]:
    return (field.get("metadata") or {}).get(NESTED_IDS) or above


def _path_of(field: Mapping[str, Any], above: tuple[str, ...]) -> tuple[str, ...]:
    own = (field.get("metadata") or {}).get(NESTED_IDS)
    return (physical_name(field),) if own else (*above, physical_name(field))


def _with_id(field: Any, number: int | None) -> Any:
    return field if number is None else field.with_metadata({"PARQUET:field_id": str(number)})


def names_by_id(schema: Any) -> dict[int, str]:
    """Return the names of the fields of an Arrow schema of a Parquet file, by their ids."""
    names: dict[int, str] = {}
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            names[int(number)] = field.name
        waiting += [field.type.field(at) for at in range(field.type.num_fields)]
    return names

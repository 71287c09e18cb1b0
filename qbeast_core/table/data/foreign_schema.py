"""What other writers may do to the columns of a table, and what can still be done with it then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import orjson
import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, UnsupportedTableError
from qbeast_core.log.actions import Protocol
from qbeast_core.log.columns import StoredColumns
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.spec.revision import Revision
from qbeast_core.tree.grid import can_be_hashed, data_type_of


def lost_columns(indexed: Sequence[str], schema: pl.Schema) -> dict[str, str]:
    """Return the indexed columns whose values have no weight any more, and why.

    >>> lost_columns(["a", "b", "c"], pl.Schema({"a": pl.Int64, "b": pl.Boolean}))
    {'b': 'has type Boolean, which cannot be indexed', 'c': 'is gone'}
    """
    lost: dict[str, str] = {}
    for name in indexed:
        if name not in schema:
            lost[name] = "is gone"
            continue
        try:
            data_type_of(name, schema[name])
        except InvalidColumnsError:
            lost[name] = f"has type {schema[name]}, which cannot be indexed"
    return lost


def lost_key_columns(revision: Revision, schema: pl.Schema, columns: StoredColumns) -> dict[str, str]:
    """Return the columns of the index and of the sampling key whose values do not give the weights, and why."""
    lost = lost_columns(revision.columns, schema)
    for name in revision.sample_by:
        if name not in schema:
            lost[name] = "is gone"
        elif not can_be_hashed(schema[name]):
            lost[name] = f"has type {schema[name]}, which cannot be hashed"
        elif name in columns.reweighted:
            lost[name] = "has a wider type, whose values have another hash than in older files"
    return lost


def refuse_lost_columns(uri: str, revision: Revision, schema: pl.Schema, columns: StoredColumns) -> None:
    """Refuse what needs the weights of rows where columns of the index or of the sampling key are lost."""
    indexed = revision.columns
    lost = lost_key_columns(revision, schema, columns)
    if not lost:
        return
    if not set(lost) & set(indexed):
        _refuse_lost_key(uri, revision, lost)
    kept = [repr(spec) for name, spec in zip(indexed, revision.column_specs, strict=True) if name not in lost]
    why = ", ".join(f"{name!r} {reason}" for name, reason in lost.items())
    message = (
        f"{uri!r} is indexed by {list(indexed)}, and another writer changed its columns: {why}. A "
        "sample is chosen by the values of these columns, and rows are placed by them; reads without a sample go on. "
        f"Index it anew: qbeast.write_table(qbeast.read_table({uri!r}), {uri!r}, "
        f"columns=[{', '.join([*kept, '...'])}], mode='overwrite', schema_mode='overwrite')."
    )
    raise InvalidColumnsError(message, columns=list(lost))


def _refuse_lost_key(uri: str, revision: Revision, lost: Mapping[str, str]) -> NoReturn:
    """Raise where columns of the sampling key alone are lost."""
    why = ", ".join(f"{name!r} {reason}" for name, reason in lost.items())
    message = (
        f"{uri!r} has the sampling key {list(revision.sample_by)}, and another writer changed its columns: {why}. "
        f"A sample is chosen by the values of these columns; reads without a sample go on. Copy "
        f"the rows to a new table: qbeast.write_table(qbeast.scan_table({uri!r}), new, "
        f"columns={list(revision.columns)}, sample_by=[...])."
    )
    raise InvalidColumnsError(message, columns=list(lost))


def refuse_mapping(uri: str, columns: StoredColumns) -> None:
    """Refuse the dialect qbeast-spark where files name columns in their own way: the JVM would miss them."""
    if columns.is_mapped:
        msg = (
            f"{uri!r} maps columns (the table feature columnMapping), which qbeast-spark does not support. "
            "Use the dialect 'documented', or copy the rows to a new table with dialect=\"qbeast-spark\"."
        )
        raise UnsupportedTableError(msg, path=uri, feature="columnMapping")


def refuse_vectors(uri: str, protocol: Protocol) -> None:
    """Refuse the dialect qbeast-spark where files may have deletion vectors: the JVM would return hidden rows."""
    if "deletionVectors" in (protocol.reader_features or ()):
        msg = (
            f"{uri!r} may have deletion vectors (the table feature deletionVectors). qbeast-spark reads files without "
            "them, and its optimize refuses the table. Use the dialect 'documented', or copy the rows to a new table "
            'with dialect="qbeast-spark".'
        )
        raise UnsupportedTableError(msg, path=uri, feature="deletionVectors")


def visible_columns(schema: pl.Schema) -> pl.Schema:
    """Return the columns that reads show: not one that took the name of the column hidden in our files.

    Our files would give weights for its values. Some readers ignore case, so a name in any case counts.

    >>> list(visible_columns(pl.Schema({"a": pl.Int64, "_Qbeast_Weight": pl.String})))
    ['a']
    """
    return pl.Schema({name: dtype for name, dtype in schema.items() if name.lower() != WEIGHT_COLUMN})


def taken_name(schema_json: str) -> str | None:
    """Return the column that took the name of the hidden one; None: there is none."""
    names: list[str] = [field["name"] for field in orjson.loads(schema_json)["fields"]]
    return next((name for name in names if name.lower() == WEIGHT_COLUMN), None)


def refuse_taken_name(uri: str, schema_json: str) -> None:
    """Refuse to write rows where another writer added a column of the hidden one's name: its values would be lost."""
    name = taken_name(schema_json)
    if name is None:
        return
    message = (
        f"another writer added a column {name!r} to {uri!r}: {WEIGHT_COLUMN} is the name of a column of qbeast's own, "
        "so no read shows it. Rename it or drop it with the program that added it, or replace the "
        'table with mode="overwrite", schema_mode="overwrite".'
    )
    raise InvalidInputError(message)

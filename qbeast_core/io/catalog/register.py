"""New entries in Unity Catalog, for tables that are written to an address."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from qbeast_core.errors import InvalidInputError, TableNotFoundError
from qbeast_core.io.address import UNITY, is_address, parts_of_unity_name, resolve_location
from qbeast_core.io.catalog.lent import Lent, LentOptions, has_credentials, without_catalog
from qbeast_core.io.catalog.unity import Credentials, address_in, entry_of, lent_by
from qbeast_core.io.catalog.unity_client import AnswerModel, Failure, UnityServer, quoted_path

_PATH_CREDENTIALS: Final = "/temporary-path-credentials"
_CREATING: Final = (
    "USE CATALOG, USE SCHEMA and CREATE TABLE, and CREATE EXTERNAL TABLE on the external location"
)
_LENDING: Final = (
    "EXTERNAL USE LOCATION on the external location. Or pass credentials of the store in `storage_options`"
)
# Names of types in entries, and in SQL, by their names in Delta.
_NAMES: Final = {"integer": "INT"}
_TEXTS: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


class _Schema(AnswerModel):
    full_name: str | None = None


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry for a table, to be created when the table is written."""

    name: str
    uri: str
    server: UnityServer
    # Options to write the table with.
    storage_options: Mapping[str, str] = field(repr=False)
    # Whether the catalog has the entry already.
    exists: bool

    @staticmethod
    def of(name: object, uri: str, storage_options: Mapping[str, str]) -> NewEntry:
        """Look a name up before the table is written; raise if it cannot be the name of this table."""
        text = name if isinstance(name, str) else ""
        if not text.lower().startswith(UNITY):
            msg = f"`register` must be a name in Unity Catalog, such as 'uc://shop.raw.sales', not {name!r}"
            raise InvalidInputError(msg, argument="register", value=name)
        text = resolve_location(text)
        if " " in text:
            msg = f"{text!r} cannot be registered: Unity Catalog has no names with spaces"
            raise InvalidInputError(msg, argument="register", value=name)
        server = UnityServer.of(text, storage_options)
        if not is_address(uri) and not server.allows_local_paths:
            msg = f"{uri!r} cannot be registered as {text!r}: a table of Unity Catalog is in an object store"
            raise InvalidInputError(msg, argument="path", value=uri)
        others = without_catalog(storage_options)
        try:
            entry = entry_of(server, text)
        except TableNotFoundError:
            _refuse_missing_schema(server, text)
            lent = (
                None if has_credentials(others) or not is_address(uri) else _lent(server, text, uri, others)
            )
            return NewEntry(text, uri, server, lent or others, exists=False)
        place = address_in(text, entry, allow_local=server.allows_local_paths)
        if place != uri:
            msg = f"{text!r} is registered at {place!r}, not at {uri!r}. Choose another name, or write to the name"
            raise InvalidInputError(msg, argument="register", value=name)
        lent = None if has_credentials(others) else lent_by(server, text, entry, others)[0]
        return NewEntry(text, uri, server, lent or others, exists=True)

    def create(self, schema_string: str, partition_columns: Sequence[str], comment: str | None) -> None:
        """Create the entry, unless it exists."""
        if self.exists:
            return
        catalog, schema, table = parts_of_unity_name(self.name)
        quoted = ".".join(f"`{part.replace('`', '``')}`" for part in (catalog, schema, table))
        place = self.uri if is_address(self.uri) else f"file://{self.uri}"
        failure = Failure(
            self.name,
            f"the table at {self.uri} was written, but Unity Catalog did not register it as {self.name!r}",
            _CREATING,
            instead=f" Or run: CREATE TABLE {quoted} USING delta LOCATION '{place}'",
        )
        body = {
            "name": table,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": _columns_of(schema_string, partition_columns),
            "storage_location": place,
            **({} if comment is None else {"comment": comment}),
        }
        self.server.create("/tables", body, failure)


def _columns_of(schema_string: str, partition_columns: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the columns of a Delta schema as an entry lists them.

    >>> fields = '{"fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    >>> _columns_of(fields)[0]["type_text"], _columns_of(fields)[0]["type_name"]
    ('bigint', 'LONG')
    """
    fields: list[dict[str, Any]] = json.loads(schema_string)["fields"]
    return [_column(position, one, partition_columns) for position, one in enumerate(fields)]


def _column(position: int, one: Mapping[str, Any], partition_columns: Sequence[str]) -> dict[str, Any]:
    dtype, name = one["type"], one["name"]
    kind = dtype["type"] if isinstance(dtype, dict) else dtype
    column = {
        "name": name,
        "type_text": _text_of(dtype),
        "type_json": json.dumps(one, ensure_ascii=False, separators=(",", ":")),
        "type_name": _NAMES.get(kind, kind.partition("(")[0].upper()),
        "position": position,
        "nullable": one["nullable"],
    }
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        column |= {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])}
    if "comment" in one["metadata"]:
        column["comment"] = one["metadata"]["comment"]
    if name in partition_columns:
        column["partition_index"] = list(partition_columns).index(name)
    return column


def _text_of(dtype: Any) -> str:
    """Return a type in SQL."""
    if isinstance(dtype, str):
        return _TEXTS.get(dtype, dtype)
    if dtype["type"] == "array":
        return f"array<{_text_of(dtype['elementType'])}>"
    if dtype["type"] == "map":
        return f"map<{_text_of(dtype['keyType'])},{_text_of(dtype['valueType'])}>"
    fields = (f"{_quoted(one['name'])}:{_text_of(one['type'])}" for one in dtype["fields"])
    return f"struct<{','.join(fields)}>"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def _refuse_missing_schema(server: UnityServer, name: str) -> None:
    """Raise before the table is written if its schema does not exist."""
    catalog, schema, _ = parts_of_unity_name(name)
    failure = Failure(
        name,
        f"Unity Catalog did not return the schema of {name!r}",
        "USE CATALOG and USE SCHEMA",
        missing=f"the schema of {name!r} does not exist in Unity Catalog ({server.endpoint})",
        cure="Create it first: CREATE SCHEMA",
    )
    server.get(f"/schemas/{quoted_path(f'{catalog}.{schema}')}", _Schema, failure)


def _lent(server: UnityServer, name: str, uri: str, others: Mapping[str, str]) -> LentOptions | None:
    """Return options with credentials for the address of a new table. None: the catalog lends none."""
    failure = Failure(name, f"Unity Catalog did not lend credentials for {uri!r}", _LENDING)
    body = {"url": uri, "operation": "PATH_CREATE_TABLE"}

    def lend() -> Lent | None:
        return server.post(_PATH_CREDENTIALS, body, Credentials, failure).lent()

    return LentOptions.of(name, lend, others, lend())

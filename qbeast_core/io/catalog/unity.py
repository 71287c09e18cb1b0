"""Tables of Unity Catalog: the address in an entry, and credentials that the catalog lends for it.

Entries come from outside. Only entries of Delta tables are followed, and only to object stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn, TypeAlias

from pydantic import Field

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.io.address import is_address, parts_of_unity_name, resolve_location
from qbeast_core.io.catalog.lent import Found, Lent, LentOptions, has_credentials, without_catalog
from qbeast_core.io.catalog.unity_client import AnswerModel, Failure, UnityServer, quoted_path
from qbeast_core.support.text import excerpt

_TABLE_CREDENTIALS: Final = "/temporary-table-credentials"
_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "abfs", "abfss", "az", "azure", "adl"})
_MAX_CHARACTERS: Final = 4_096  # of a location
# Properties of tables whose commits a catalog decides.
_OF_CATALOG: Final = ("delta.feature.catalogmanaged", "delta.feature.catalogowned")
_CLONE: Final = "a shallow clone, whose files are in another table"
_KINDS: Final = {
    "VIEW": "a view",
    "MATERIALIZED_VIEW": "a materialized view",
    "METRIC_VIEW": "a metric view",
    "STREAMING_TABLE": "a streaming table",
    "FOREIGN": "a table of another catalog",
    "EXTERNAL_SHALLOW_CLONE": _CLONE,
    "MANAGED_SHALLOW_CLONE": _CLONE,
}
_MANAGED: Final = "the catalog manages it. Copy its rows to a table of your own to change them."
_NO_CHANGES: Final = "the catalog lends credentials for reads only. Request the grant MODIFY on it."
_READING: Final = "USE CATALOG, USE SCHEMA and SELECT for it"
# Refusals of a catalog that has no credentials for a store: the open server without its configuration.
_CANNOT: Final = (400, 404, 501)
_LENDING: Final = (
    "EXTERNAL USE SCHEMA on its schema and SELECT on it, and external data access of the metastore"
)

# Secrets by their names, which no representation shows.
_Secret: TypeAlias = Annotated[str, Field(max_length=1 << 14, pattern=r"^[\x20-\x7e]*$")]
_Secrets: TypeAlias = Annotated[Mapping[str, _Secret | None] | None, Field(repr=False)]
# Parts of an answer with credentials, and the options of stores for their values.
_OPTIONS: Final = {
    "aws_temp_credentials": {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    },
    "azure_user_delegation_sas": {"sas_token": "azure_storage_sas_token"},
    "azure_aad": {"aad_token": "azure_storage_token"},
    "gcp_oauth_token": {"oauth_token": "google_bearer_token"},
}


class _Column(AnswerModel):
    mask: Any = None


class Entry(AnswerModel):
    """What the catalog has of a table."""

    table_id: str | None = None
    table_type: str | None = None
    data_source_format: str | None = None
    storage_location: str | None = None
    view_definition: str | None = None
    row_filter: Any = None
    columns: tuple[_Column, ...] | None = None
    properties: Mapping[str, Any] | None = None


class Credentials(AnswerModel):
    """Credentials that the catalog lends."""

    aws_temp_credentials: _Secrets = None
    azure_user_delegation_sas: _Secrets = None
    azure_aad: _Secrets = None
    gcp_oauth_token: _Secrets = None
    # Milliseconds since 1970.
    expiration_time: Annotated[int, Field(ge=0, le=10**14)] | None = None

    def lent(self) -> Lent | None:
        """Return them as options of a store. None: there are none."""
        for part, names in _OPTIONS.items():
            secrets: Mapping[str, str | None] = getattr(self, part) or {}
            options = {option: value for name, option in names.items() if (value := secrets.get(name))}
            if options:
                return Lent(options, self.expiration_time)
        return None


def find_table(name: str, storage_options: Mapping[str, str]) -> Found:
    """Return where a table in the catalog is, with credentials that the catalog lends for it."""
    server, others = UnityServer.of(name, storage_options), without_catalog(storage_options)
    entry = entry_of(server, name)
    address = address_in(name, entry, allow_local=server.allows_local_paths)
    if not is_address(address):
        return Found(address, others, _MANAGED if entry.table_type == "MANAGED" else None)
    lent, read_only = lent_by(server, name, entry, others)
    return Found(address, others if lent is None else lent, read_only)


def entry_of(server: UnityServer, name: str) -> Entry:
    """Return the entry of a Delta table; raise if it has none, or qbeast must not open it."""
    full_name = ".".join(parts_of_unity_name(name))
    failure = Failure(
        name,
        f"Unity Catalog did not return the table {name!r}",
        _READING,
        missing=f"the table {name!r} does not exist in Unity Catalog ({server.endpoint})",
        cure=f"To create it: write_table(rows, 's3://bucket/folder', columns=[...], register={name!r})",
    )
    entry = server.get(f"/tables/{quoted_path(full_name)}", Entry, failure)
    _refuse_others(name, entry)
    return entry


def lent_by(
    server: UnityServer, name: str, entry: Entry, others: Mapping[str, str]
) -> tuple[LentOptions | None, str | None]:
    """Return options with credentials that the catalog lends for a table, and why it cannot be changed.

    None: the catalog lends none, so the table is opened with the caller's own.
    """
    cannot = _CANNOT if has_credentials(others) else ()
    if not entry.table_id:
        _refuse(name, "without an id", "Open the table by its path.")
    failure = Failure(name, f"Unity Catalog did not lend credentials for {name!r}", _LENDING)
    body = {"table_id": entry.table_id, "operation": "READ_WRITE"}
    read_only = _MANAGED if entry.table_type == "MANAGED" else None
    first: Credentials | int = 403
    if read_only is None:
        first = server.post_or_status(_TABLE_CREDENTIALS, body, Credentials, failure, (403, *cannot))
    if first == 403:
        body, read_only = {**body, "operation": "READ"}, read_only or _NO_CHANGES
        first = server.post_or_status(_TABLE_CREDENTIALS, body, Credentials, failure, cannot)
    if isinstance(first, int):
        return None, read_only

    def lend() -> Lent | None:
        return server.post(_TABLE_CREDENTIALS, body, Credentials, failure).lent()

    return LentOptions.of(name, lend, others, first.lent()), read_only


def address_in(name: str, entry: Entry, *, allow_local: bool) -> str:
    """Return the location in an entry as an address that the library opens."""
    location = entry.storage_location or ""
    if not location:
        _refuse(name, "without a location", "Open the table by its path.")
    scheme = location.partition(":")[0].lower()
    if len(location) > _MAX_CHARACTERS or not (scheme in _SCHEMES or (allow_local and scheme == "file")):
        cure = "Entries are followed to S3, Azure and Google only. If you trust this one, open the table by its path."
        _refuse(name, f"at {excerpt(location)!r}", cure)
    try:
        return resolve_location(location)
    except InvalidInputError as error:
        msg = f"the entry of {name!r} in Unity Catalog has a location that cannot be used: {error}"
        raise UnsupportedTableError(msg, path=name, feature="location", argument="path") from error


def _refuse_others(name: str, entry: Entry) -> None:
    """Raise unless the entry is of a Delta table all of whose rows and columns may be read."""
    kind = entry.table_type or "EXTERNAL"
    if kind in _KINDS or entry.view_definition:
        _refuse(name, _KINDS.get(kind, "a view"), "Open the tables that it reads, by their names.")
    if kind not in ("EXTERNAL", "MANAGED"):
        _refuse(name, f"of the type {excerpt(kind)!r}", "Open the table by its path if it is a Delta table.")
    if entry.data_source_format != "DELTA":
        _refuse(name, f"of the format {excerpt(entry.data_source_format)!r}", "qbeast reads Delta tables.")
    masked = any(column.mask is not None for column in entry.columns or ())
    if entry.row_filter is not None or masked:
        what = "with masks of columns" if masked else "with a filter of rows"
        _refuse(name, what, "Only engines that the catalog trusts can apply it. Read a copy without it.")
    if any(key.lower().startswith(_OF_CATALOG) for key in entry.properties or ()):
        _refuse(name, "managed by the catalog (catalogManaged)", "Its commits belong to the catalog.")


def _refuse(name: str, kind: str, cure: str) -> NoReturn:
    msg = f"{name!r} is {kind} in Unity Catalog. {cure}"
    raise UnsupportedTableError(msg, path=name, feature=kind, argument="path")

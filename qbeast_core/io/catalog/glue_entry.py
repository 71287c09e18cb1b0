"""Entries of AWS Glue: the address of a Delta table in S3, or why it is not followed.

Entries come from outside. Only entries of Delta tables are followed, and only to addresses in S3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.io.address import GLUE, resolve_location
from qbeast_core.support.text import excerpt

_DELTA: Final = frozenset({"delta", "qbeast"})
# Other formats whose entries may also have a mark of Delta, such as a Delta table that is also read as Iceberg.
_OTHERS: Final = {"iceberg": "an Iceberg table", "hudi": "a Hudi table"}
# Parameters that name the format: of Athena, Spark and crawlers.
_FORMATS: Final = ("table_type", "spark.sql.sources.provider", "classification")
# Spark ends the location of a table by this; the real one is a parameter.
_PLACEHOLDER: Final = "-__PLACEHOLDER__"
_MANIFESTS: Final = "SymlinkTextInputFormat"
_VIEW: Final = "VIRTUAL_VIEW"
_MAX_CHARACTERS: Final = 2_056  # of a location, in Glue
_S3: Final = re.compile(r"(s3|s3a|s3n)://", re.IGNORECASE)


def address_of(name: str, entry: Mapping[str, Any]) -> str:
    """Return the address in an entry; raise unless it is an external Delta table in S3.

    >>> place = {"Location": "s3://bucket/orders/"}
    >>> entry = {"Parameters": {"table_type": "DELTA"}, "TableType": "EXTERNAL_TABLE", "StorageDescriptor": place}
    >>> address_of("glue://shop.orders", entry)
    's3://bucket/orders'
    """
    _refuse_what_is_no_table(name, entry)
    storage: Mapping[str, Any] = entry.get("StorageDescriptor") or {}
    _refuse_other_formats(name, entry, storage)
    if entry.get("TableType") == "MANAGED_TABLE":
        cure = "Its engine owns the files and may delete them. Open the table by its path if that is what you want."
        _refuse(name, "a managed table", cure)
    return _resolved(name, _location(name, storage))


def _refuse_what_is_no_table(name: str, entry: Mapping[str, Any]) -> None:
    target = entry.get("TargetTable")
    if target:
        owner, database, table = (target.get(key) for key in ("CatalogId", "DatabaseName", "Name"))
        real = f"{GLUE}{owner and f'{owner}/'}{database}.{table}"
        _refuse(name, "a resource link", f"Open the table that it names: {excerpt(real)!r}.")
    if entry.get("FederatedTable"):
        _refuse(name, "a table of another catalog", "Open it by its path.")
    if entry.get("TableType") == _VIEW or entry.get("ViewDefinition"):
        _refuse(name, "a view", "Open the tables that it reads.")
    kind = entry.get("TableType") or "EXTERNAL_TABLE"  # not all writers of entries name the type
    if kind not in ("EXTERNAL_TABLE", "MANAGED_TABLE"):
        _refuse(name, f"of the type {excerpt(kind)!r}", "Open the table by its path if it is a Delta table.")


def _refuse_other_formats(name: str, entry: Mapping[str, Any], storage: Mapping[str, Any]) -> None:
    """Raise unless the entry is of a Delta table."""
    parameters: Mapping[str, str] = entry.get("Parameters") or {}
    formats = [parameters[key].lower() for key in _FORMATS if key in parameters]
    reader = str(storage.get("InputFormat") or "")
    for other, kind in _OTHERS.items():
        if other in formats or f".{other}." in reader.lower():
            _refuse(name, kind, "qbeast reads Delta tables.")
    if reader.endswith(_MANIFESTS):
        cure = "They list the files of one version. Open the Delta table by its path."
        _refuse(name, "a list of manifests", cure)
    if not _DELTA & set(formats):
        kind = f"of the format {excerpt(formats[0])!r}" if formats else "of an unknown format"
        cure = "If it is a Delta table, open it by its path, or set the parameter table_type of the entry to DELTA."
        _refuse(name, kind, cure)


def _location(name: str, storage: Mapping[str, Any]) -> str:
    """Return the location in an entry: of Spark's entries a parameter, of others the location."""
    location = str(storage.get("Location") or "")
    serde: Mapping[str, Any] = storage.get("SerdeInfo") or {}
    path = str((serde.get("Parameters") or {}).get("path") or "")
    if location.rstrip("/").endswith(_PLACEHOLDER):
        location = ""
    if path and location and _bare(path) != _bare(location):
        cure = f"Engines disagree which one is read: {excerpt(path)!r} or {excerpt(location)!r}. Correct the entry."
        _refuse(name, "at two places", cure)
    if not (path or location):
        _refuse(name, "without a location", "Open the table by its path, or correct the entry.")
    return location or path


def _bare(address: str) -> str:
    """Return an address without its scheme and slashes at its end, to compare it."""
    return _S3.sub("", address, count=1).rstrip("/")


def _resolved(name: str, location: str) -> str:
    """Return a location as an address that the library opens."""
    match = _S3.match(location)
    if match is None or len(location) > _MAX_CHARACTERS:
        cure = "Entries are followed to S3 only. If you trust this one, open the table by its path."
        _refuse(name, f"at {excerpt(location)!r}", cure)
    scheme = match[1].lower()
    try:
        return resolve_location(f"{'s3' if scheme == 's3n' else scheme}://{location[match.end() :]}")
    except InvalidInputError as error:
        msg = f"the entry of {name!r} in AWS Glue has a location that cannot be used: {error}"
        raise UnsupportedTableError(msg, path=name, feature="location", argument="path") from error


def _refuse(name: str, kind: str, cure: str) -> NoReturn:
    msg = f"{name!r} is {kind} in AWS Glue. {cure}"
    raise UnsupportedTableError(msg, path=name, feature=kind, argument="path")

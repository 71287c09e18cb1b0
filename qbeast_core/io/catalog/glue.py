"""Requests to AWS Glue and Lake Formation, through boto3."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

import boto3.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from qbeast_core.errors import InvalidInputError, QbeastError, StorageError, TableNotFoundError, shown_cause
from qbeast_core.io.address import parts_of_name
from qbeast_core.io.catalog.glue_entry import address_of
from qbeast_core.io.catalog.lent import Found, Lent, LentOptions
from qbeast_core.support.text import excerpt, first_line

# Arguments of boto3, and the names that options of stores have for them, in lower case.
_CREDENTIALS: Final = {
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "session_token", "aws_token", "token"),
}
_REGION: Final = ("aws_region", "region", "aws_default_region", "default_region")
_ENDPOINT: Final = ("aws_endpoint_url", "endpoint_url", "aws_endpoint", "endpoint")

# For all changes of a table; where they are denied, for reads.
_CHANGES: Final[Sequence[str]] = ("SELECT", "INSERT", "DELETE", "DESCRIBE", "ALTER")
_READS: Final[Sequence[str]] = ("SELECT",)

_READ_ONLY: Final = (
    "Lake Formation grants SELECT on it alone. Request INSERT, DELETE, DESCRIBE and ALTER as well."
)

_GLUE: Final = "AWS Glue did not return the table"
_LAKE: Final = "Lake Formation did not return credentials for the table"
_PERMISSIONS: Final = {_GLUE: "glue:GetTable", _LAKE: "lakeformation:GetDataAccess and for the whole table"}
_CURES: Final = (
    (r"Region", "Set the region in `storage_options` or the environment (AWS_REGION)."),
    (
        r"Credential|Token|AccessDenied|UnrecognizedClient|Signature|Profile|SSO|PermissionTypeMismatch",
        "Check the credentials in `storage_options` or the environment, and their permission for {permission}.",
    ),
    (r"Throttl|TooMany|LimitExceeded|InternalService|Unavailable|OperationTimeout", "Try again later."),
)
_OTHER_CURE: Final = (
    "Check the endpoint (AWS_ENDPOINT_URL_GLUE, or that in `storage_options`) and the network."
)


def find_table(name: str, storage_options: Mapping[str, str]) -> Found:
    """Return where a table in the catalog is; with credentials of Lake Formation if it is registered there."""
    client = GlueClient(name, storage_options)
    entry = client.entry()
    address = address_of(name, entry)
    if not entry.get("IsRegisteredWithLakeFormation"):
        return Found(address, storage_options)
    catalog_id, permissions, read_only = str(entry.get("CatalogId")), _CHANGES, None
    first = client.lend(catalog_id, permissions)
    if first is None:
        permissions, read_only = _READS, _READ_ONLY
        first = client.lend(catalog_id, permissions)
    lent = LentOptions.of(name, partial(client.lend, catalog_id, permissions), storage_options, first)
    return Found(address, storage_options if lent is None else lent, read_only)


class GlueClient:
    """Requests for one table, with the options of its store."""

    def __init__(self, name: str, storage_options: Mapping[str, str]) -> None:
        self._name = name
        self._options = {key.lower(): value for key, value in storage_options.items()}

    def entry(self) -> Mapping[str, Any]:
        """Return the entry of the table."""
        catalog, database, table = parts_of_name(self._name)
        owner = {} if catalog is None else {"CatalogId": catalog}
        with _errors(_GLUE, self._name):
            reply: Any = self._client("glue").get_table(DatabaseName=database, Name=table, **owner)
        return reply.get("Table") or {}

    def lend(self, catalog_id: str, permissions: Sequence[str]) -> Lent | None:
        """Return the temporary credentials that Lake Formation has for the table. None: permissions are denied."""
        with _errors(_LAKE, self._name):
            try:
                reply = self._credentials(catalog_id, permissions)
            except ClientError as error:
                if permissions == _CHANGES and _code(error) == "AccessDeniedException":
                    return None
                raise
        parts = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        if not all(reply.get(part) for part in parts):
            msg = f"{_LAKE} {self._name!r}. Open the table by its path, with credentials of your own."
            raise StorageError(msg, path=self._name)
        expires = reply.get("Expiration")
        expires_ms = int(expires.timestamp() * 1000) if isinstance(expires, datetime) else None
        return Lent({key: reply[part] for key, part in zip(_CREDENTIALS, parts, strict=True)}, expires_ms)

    def _credentials(self, catalog_id: str, permissions: Sequence[str]) -> Any:
        _, database, table = parts_of_name(self._name)
        client = self._client("lakeformation")
        region = client.meta.region_name
        arn = f"arn:{client.meta.partition}:glue:{region}:{catalog_id}:table/{database}/{table}"
        # No `SupportedPermissionTypes`: nothing here filters the rows and columns of a table for Lake Formation.
        return client.get_temporary_glue_table_credentials(TableArn=arn, Permissions=permissions)

    def _client(self, service: str) -> Any:
        core = get_session()
        core.register_component("data_loader", _loader())
        session = boto3.session.Session(
            **self._credentials_of_user(),
            region_name=self._option(_REGION) or os.environ.get("AWS_REGION"),  # boto3 does not read this one
            botocore_session=core,
        )
        has_own = f"AWS_ENDPOINT_URL_{service.upper()}" in os.environ  # boto3 reads it
        endpoint = None if has_own else self._option(_ENDPOINT)
        retries = self._options.get("max_retries", "")
        config = Config(retries={"total_max_attempts": int(retries) + 1} if retries.isdecimal() else None)
        return session.client(service, endpoint_url=endpoint, config=config)

    def _credentials_of_user(self) -> dict[str, str]:
        """Return the credentials in the options; boto3 finds others, and fails oddly if a half is missing."""
        values = {key: self._option(names) for key, names in _CREDENTIALS.items()}
        credentials = {key: value for key, value in values.items() if value}
        if credentials and not {"aws_access_key_id", "aws_secret_access_key"} <= credentials.keys():
            msg = (
                "`storage_options` has a part of the credentials for AWS Glue: aws_access_key_id and "
                "aws_secret_access_key go together. Add the other part, or leave both to the environment."
            )
            raise InvalidInputError(msg, argument="storage_options")
        return credentials

    def _option(self, names: tuple[str, ...]) -> str | None:
        return next((self._options[name] for name in names if name in self._options), None)


@cache
def _loader() -> Any:
    """Return what reads the descriptions of services, which take long to read."""
    return get_session().get_component("data_loader")


@contextmanager
def _errors(problem: str, name: str) -> Generator[None]:
    try:
        yield
    except QbeastError:
        raise
    except (BotoCoreError, ClientError, ValueError) as error:  # ValueError: an invalid endpoint
        raise _translated(problem, name, error) from shown_cause(error)


def _translated(problem: str, name: str, error: BotoCoreError | ClientError | ValueError) -> QbeastError:
    code = _code(error)
    text = (
        error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else str(error)
    )
    cause = f"{excerpt(first_line(text)).rstrip('.')} ({code})".strip()
    if code == "EntityNotFoundException":
        msg = (
            f"the table {name!r} does not exist in AWS Glue: {cause}. Check the name, the region and the catalog. "
            "Write a new table to its path, and register it then (docs/object-stores.md)."
        )
        return TableNotFoundError(msg, path=name)
    cure = next((cure for pattern, cure in _CURES if re.search(pattern, code)), _OTHER_CURE)
    cure = cure.format(permission=_PERMISSIONS[problem])
    argument = "storage_options" if "`" in cure else None
    return StorageError(f"{problem} {name!r}: {cause}. {cure}", path=name, argument=argument)


def _code(error: BaseException) -> str:
    """Return the code of a service's error, or the kind of an error before it."""
    code = error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None
    return str(code or type(error).__name__)

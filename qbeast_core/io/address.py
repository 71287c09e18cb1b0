"""The canonical address of a table, and settings of object stores that other writers need."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.spec.blocks import FilePath

# Schemes of addresses of tables.
SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "file", "memory")

# Begin names of catalogs: AWS Glue, and Unity Catalog.
GLUE: Final = "glue://"
UNITY: Final = "uc://"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")
_FILE: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?:[^/].*)?)", re.IGNORECASE | re.DOTALL)
# Control characters, and halves of characters, which cannot be encoded.
_UNUSABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
# obstore and deltalake cut an address off at the first two; deltalake panics at the others; Polars accepts all.
_CUT: Final = "#?"
_BROKEN: Final = "\\[]^|"
_GLUE_NAME: Final = re.compile(
    rf"{GLUE}(?:(?P<catalog>[0-9]{{12}})/)?(?P<database>[\w-]{{1,255}})\.(?P<table>[\w-]{{1,255}})"
)
# A part of a name in Unity Catalog, with backticks around it as in SQL or without.
_UNITY_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`./]+)")
_UNITY_CHARACTERS: Final = 255


def is_address(text: str) -> bool:
    """Return whether a text is an address (``s3://...``), not a local path.

    >>> is_address("s3://bucket/orders"), is_address("/tables/orders")
    (True, False)
    """
    match = _SCHEME.match(text)
    return match is not None and match[2] is not None


def resolve_location(location: str | os.PathLike[str]) -> str:
    """Return the canonical form of a table's path or address.

    A local path becomes absolute in the current working directory, symbolic links are followed, ``~`` is the
    home folder, and ``file://`` is removed. An address loses a slash at its end. A name of a catalog stays a name.

    >>> resolve_location("file:///tables/my%20orders"), resolve_location("S3://bucket/orders/")
    ('/tables/my orders', 's3://bucket/orders')
    """
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    if not isinstance(cast("object", text), str):  # callers without a type checker may pass anything
        kind = f"a {type(text).__qualname__}"
        raise _invalid_path(kind, *_other_argument(text))
    if not text:
        raise _invalid_path(repr(text), "it is empty", "give a folder or an address; '.' is this folder")
    if _UNUSABLE.search(text):
        raise _invalid_path(
            repr(text), "it has control characters or half characters", "choose a name without them"
        )
    scheme = _SCHEME.match(text)
    if scheme is None or scheme[1].lower() == "file":
        return _resolve_folder(text if scheme is None else _without_scheme(text))
    if scheme[2] is None:
        cure = f"write {scheme[0]}//... for an address (as a text: path objects lose a slash), ./{text} for a folder"
        raise _invalid_path(repr(text), "it may be an address or the name of a folder", cure)
    kind, rest = scheme[1].lower(), text[scheme.end() :]
    if f"{kind}://" == UNITY:
        return _name_of_parts(*parts_of_unity_name(f"{UNITY}{rest}"))
    if f"{kind}://" == GLUE:
        parts_of_name(name := f"{GLUE}{rest}".lower())  # Glue stores names in lower case
        return name
    return _resolve_address(kind, rest)


def parts_of_name(name: str) -> tuple[str | None, str, str]:
    """Return the catalog id (None: of the account), the database and the table of a name of AWS Glue.

    >>> parts_of_name("glue://123456789012/shop.orders"), parts_of_name("glue://shop.orders")
    (('123456789012', 'shop', 'orders'), (None, 'shop', 'orders'))
    """
    match = _GLUE_NAME.fullmatch(name)
    if match is None:
        cause = "it is not a name of AWS Glue's catalog"
        cure = (
            f"write {GLUE}database.table or {GLUE}123456789012/database.table: names have up to 255 letters, digits, "
            "_ and -, a catalog id has 12 digits"
        )
        raise _invalid_path(repr(name), cause, cure)
    return match["catalog"], match["database"], match["table"]


def parts_of_unity_name(name: str) -> tuple[str, str, str]:
    """Return the catalog, the schema and the table of a name in Unity Catalog.

    >>> parts_of_unity_name("uc://shop.raw.sales"), parts_of_unity_name("uc://shop.`new raw`.`a``b`")
    (('shop', 'raw', 'sales'), ('shop', 'new raw', 'a`b'))
    """
    rest = name.removeprefix(UNITY)
    pattern = rf"(?:{_UNITY_PART.pattern})"
    if not re.fullmatch(rf"{pattern}\.{pattern}\.{pattern}", rest):
        cure = f"write {UNITY}catalog.schema.table, with backticks around a part that needs them"
        raise _invalid_path(repr(name), "it is not a name in Unity Catalog", cure)
    parts = [quoted.replace("``", "`") or bare for quoted, bare in _UNITY_PART.findall(rest)]
    wrong = [part for part in parts if set("./") & set(part) or len(part) > _UNITY_CHARACTERS]
    if wrong:
        cause = f"Unity Catalog has no names with a dot, a slash or more than {_UNITY_CHARACTERS} characters"
        raise _invalid_path(repr(name), cause, "give the name that the catalog shows")
    return parts[0], parts[1], parts[2]


def locate_file(root: str, path: str, *, allow_absolute: bool) -> str:
    """Return the location of a file in a table's log; raise if it must not be opened.

    Files below the root are allowed. `allow_absolute` also allows absolute paths for a local table, and addresses
    in the same bucket for a table in an object store. Nothing else is: the writer of a table must not make its
    readers fetch other files with their credentials.

    >>> locate_file("/tables/orders", "a b.parquet", allow_absolute=False)
    '/tables/orders/a b.parquet'
    >>> locate_file("s3://bucket/clone", "s3://bucket/orders/1.parquet", allow_absolute=True)
    's3://bucket/orders/1.parquet'
    """
    kind = FilePath(path).kind
    if kind == "inside":
        return f"{root.rstrip('/')}/{path}"
    is_near = kind == "address" and _bucket(path) == _bucket(root)
    can_allow = is_near if is_address(root) else kind == "absolute"
    if can_allow and allow_absolute:
        return path
    article, feature = ("an", "absolute path") if can_allow else ("a", "path that leads out of the table")
    cure = "qbeast never follows it. Copy the file into the table's folder with the tool that wrote it."
    if can_allow:
        cure = (
            "If you trust the writer of the table (a shallow clone has such paths), open it with "
            "allow_absolute_paths=True."
        )
    message = f"the log of {root!r} names a file by {article} {feature}: {path!r}. It was not opened. {cure}"
    option = "allow_absolute_paths" if can_allow else None
    raise UnsupportedTableError(message, path=root, feature=feature, argument=option)


def refuse_link_out(root: str, path: str) -> None:
    """Raise if a file of a local table, or a folder above it, is a symbolic link out of the table."""
    named = f"{root.rstrip('/')}/{path}"
    real = os.path.realpath(named)
    if real == named or Path(real).is_relative_to(os.path.realpath(root)):
        return
    feature = "symbolic link that leads out of the table"
    message = (
        f"{path!r} of {root!r} lies behind a {feature}, at {real!r}. It was not opened. If you trust the writer of the "
        "link, open the table with allow_absolute_paths=True."
    )
    raise UnsupportedTableError(message, path=root, feature=feature, argument="allow_absolute_paths")


def _name_of_parts(catalog: str, schema: str, table: str) -> str:
    """Return a name in Unity Catalog, with backticks only where they are needed.

    >>> _name_of_parts("shop", "new raw", "a`b")
    'uc://shop.new raw.`a``b`'
    """
    parts = (catalog, schema, table)
    return UNITY + ".".join(f"`{part.replace('`', '``')}`" if "`" in part else part for part in parts)


def _resolve_folder(text: str) -> str:
    shown = repr(text)
    if text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 -- Path treats "./~" as the home folder
        if text.startswith("~"):
            cure = f"write ./{text} for a folder of that name"
            raise _invalid_path(shown, "it begins with ~, and there is no such user", cure)
    if "\0" in text:  # decoded from a URL; the system accepts no such path
        raise _invalid_path(shown, "it has control characters", "choose a name without them")
    try:
        # As the system resolves "..", also behind links.
        whole = os.path.realpath(text).replace(os.sep, "/")
    except OSError as error:
        cause = f"it cannot be resolved ({error.strerror})"
        raise _invalid_path(shown, cause, "give an absolute path") from error
    if _is_too_long(whole):
        raise _invalid_path(shown, "it is too long for the file system", "choose a shorter name")
    shown = repr(whole)
    if "\\" in whole:
        raise _invalid_path(shown, "deltalake reads a backslash as a slash", "choose a folder without one")
    if _ESCAPE.search(whole):
        cause = "it has a % and two hexadecimal digits, which deltalake reads as an encoded character"
        raise _invalid_path(shown, cause, "choose a folder without them")
    if _UNUSABLE.search(whole):
        raise _invalid_path(shown, "it has control characters or is not Unicode", "choose another folder")
    return whole


def _is_too_long(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError as error:  # another cause is reported where the table is opened
        return error.errno == errno.ENAMETOOLONG
    return False


def _without_scheme(text: str) -> str:
    match = _FILE.fullmatch(text)
    if match is None:
        raise _invalid_path(repr(text), "it names a host or a relative path", "write file:///folder")
    if any(mark in match[1] for mark in _CUT):
        raise _invalid_path(repr(text), "a # or ? ends the path in a URL", "give the path without file://")
    return unquote(match[1])


def _resolve_address(scheme: str, rest: str) -> str:
    rest = rest.removesuffix("/")
    host, _, path = rest.partition("/")
    shown = repr(f"{scheme}://{re.split(r'[?#]', rest)[0].rpartition('@')[2]}")  # the rest may be a secret
    if ":" in host.rpartition("@")[0]:
        raise _invalid_path(shown, "it has a password", "give credentials in `storage_options`")
    if not host and scheme != "memory":
        raise _invalid_path(shown, "it names no bucket", f"write {scheme}://bucket/folder")
    if any(mark in rest for mark in _CUT):
        cause = "it has a # or ?, where some libraries cut it off and others do not"
        cure = "choose another name, and give the options after a ? in `storage_options`"
        raise _invalid_path(shown, cause, cure)
    if any(mark in rest for mark in _BROKEN) or _ESCAPE.search(rest):
        cause = f"it has one of {_BROKEN} or a % and two hexadecimal digits, which libraries read differently"
        raise _invalid_path(shown, cause, "choose another name")
    if path and {"", ".", ".."} & set(path.split("/")):
        raise _invalid_path(shown, "it has an empty part, . or ..", "remove that part")
    return f"{scheme}://{rest}"


def _other_argument(value: object) -> tuple[str, str]:
    """Return why a value is not a path, and the fix."""
    if hasattr(value, "__arrow_c_stream__") and hasattr(value, "uri"):
        return "it is open already", "call its own methods, such as table.read(), or give table.uri"
    if hasattr(value, "__arrow_c_stream__") or type(value).__name__ in ("DataFrame", "LazyFrame"):
        return "it holds rows, which come before the path", "write write_table(rows, path)"
    if type(value).__name__ == "SparkSession":
        return "it is a session, which comes first", "write read_table(spark, path)"
    return "it is not a text", "give a folder or an address"


def _bucket(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return f"{scheme.lower()}://{rest.partition('/')[0]}"


def _invalid_path(shown: str, cause: str, cure: str) -> InvalidInputError:
    message = f"{shown} cannot be the path of a table: {cause}; {cure}."
    return InvalidInputError(message, argument="path")


# Settings that make `deltalake` commit to S3 without conditional puts, in lower case.
LOCKING_SETTINGS: Final = ("aws_s3_locking_provider", "aws_s3_allow_unsafe_rename", "allow_unsafe_rename")

_SCHEMES: Final = ("s3://", "s3a://")
_OFF: Final = ("", "0", "false", "no", "none")


def other_locking(uri: str, storage_options: Mapping[str, str] | None = None) -> str | None:
    """Return the setting that makes other writers commit without conditional puts, or None.

    Such a writer and ours could both win the same version, and one commit would be lost.

    >>> other_locking("s3://bucket/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    'AWS_S3_ALLOW_UNSAFE_RENAME'
    >>> other_locking("s3://bucket/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "0"})
    >>> other_locking("/data/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    """
    if not uri.lower().startswith(_SCHEMES):
        return None
    settings = {**os.environ, **(storage_options or {})}
    values = {name.lower(): text for name, text in settings.items()}
    on = {name for name in LOCKING_SETTINGS if values.get(name, "").lower() not in _OFF}
    return next((name for name in settings if name.lower() in on), None)


def refuse_unsafe_locking(uri: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Raise if deltalake would write to S3 without conditional puts; call it before writing files.

    >>> refuse_unsafe_locking("/data/sales", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    """
    setting = other_locking(uri, storage_options)
    if setting is not None:
        message = (
            f"{uri} cannot be written while {setting} is set: other writers then use no conditional puts "
            "and may overwrite our commit, or we theirs; unset it everywhere."
        )
        raise UnsupportedTableError(message, path=uri, feature=setting)

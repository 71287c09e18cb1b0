"""The location of a table in one absolute form, which all readers and writers use."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.spec.file_path import FilePath

# How addresses of tables begin.
SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "file", "memory")

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")
_FILE: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?:[^/].*)?)", re.IGNORECASE | re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
# obstore and deltalake cut an address off at the first two, deltalake panics at the others; Polars takes all.
_CUT: Final = "#?"
_BROKEN: Final = "\\[]^|"


def is_address(text: str) -> bool:
    """Tell an address (``s3://...``) from a local path.

    >>> is_address("s3://bucket/orders"), is_address("/tables/orders")
    (True, False)
    """
    found = _SCHEME.match(text)
    return found is not None and found[2] is not None


def resolve_location(given: str | os.PathLike[str]) -> str:
    """Return the one form of a table's path or address; applied again it changes nothing.

    A local path becomes absolute in this moment's working directory, symbolic links are followed, ``~`` is the
    home folder, and ``file://`` is taken off. An address loses a slash at its end.

    >>> resolve_location("file:///tables/my%20orders"), resolve_location("S3://bucket/orders/")
    ('/tables/my orders', 's3://bucket/orders')
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(cast("object", text), str):  # callers without a type checker pass anything
        kind = f"a {type(text).__qualname__}"
        raise _refused(kind, *_other_argument(text))
    if not text:
        raise _refused(repr(text), "it is empty", "give a folder or an address; '.' is this folder")
    if _CONTROL.search(text) or not _is_unicode(text):
        raise _refused(repr(text), "it holds control characters or half characters", "choose a name without")
    scheme = _SCHEME.match(text)
    if scheme is None or scheme[1].lower() == "file":
        return _resolve_folder(text if scheme is None else _without_scheme(text))
    if scheme[2] is None:
        cure = f"write {scheme[0]}//... for an address (as a text: path objects lose a slash), ./{text} for a folder"
        raise _refused(repr(text), "it may be an address or the name of a folder", cure)
    return _resolve_address(scheme[1].lower(), text[scheme.end() :])


def locate_file(root: str, path: str, *, allow_absolute: bool) -> str:
    """Return where a file that a table's log names lies, unless it must not be opened.

    Files below the root may; with `allow_absolute` also absolute paths of the local disk for a local table, and
    addresses in the same bucket for one in an object store. Nothing else ever: credentials and rights of whoever
    reads the table must not fetch what its writer names.

    >>> locate_file("/tables/orders", "a b.parquet", allow_absolute=False)
    '/tables/orders/a b.parquet'
    >>> locate_file("s3://bucket/clone", "s3://bucket/orders/1.parquet", allow_absolute=True)
    's3://bucket/orders/1.parquet'
    """
    kind = FilePath(path).kind
    if kind == "inside":
        return f"{root.rstrip('/')}/{path}"
    own = kind == "absolute" if not is_address(root) else kind == "address" and _bucket(path) == _bucket(root)
    if own and allow_absolute:
        return path
    article, told = ("an", "absolute path") if own else ("a", "path that leads out of the table")
    cure = "qbeast never follows it. Copy the file into the table's folder with the tool that wrote it."
    if own:
        cure = (
            "If you trust the writer of the table (a shallow clone has such paths), open it with "
            "allow_absolute_paths=True."
        )
    message = f"the log of {root!r} names a file by {article} {told}: {path!r}. It was not opened. {cure}"
    option = "allow_absolute_paths" if own else None
    raise UnsupportedTableError(message, path=root, feature=told, argument=option)


def refuse_link_out(root: str, path: str) -> None:
    """Refuse a file of a local table that a symbolic link, its own or a folder's, leads out of the table."""
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


def _resolve_folder(text: str) -> str:
    shown = repr(text)
    if text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 -- a Path would take "./~" for the home folder
        if text.startswith("~"):
            cure = f"write ./{text} for a folder of that name"
            raise _refused(shown, "it begins with ~, and there is no such user", cure)
    try:
        whole = os.path.realpath(text)  # as the system reads "..", also behind links
    except OSError as error:
        raise _refused(shown, f"it cannot be resolved ({error.strerror})", "give an absolute path") from error
    if "\\" in whole:
        raise _refused(repr(whole), "deltalake takes a backslash for a slash", "choose a folder without")
    if _ESCAPE.search(whole):
        cause = "it holds a % and two hexadecimal digits, which deltalake takes for an encoded character"
        raise _refused(repr(whole), cause, "choose a folder without")
    if _CONTROL.search(whole) or not _is_unicode(whole):
        raise _refused(repr(whole), "it holds control characters or no Unicode", "choose a folder without")
    return whole


def _without_scheme(text: str) -> str:
    found = _FILE.fullmatch(text)
    if found is None:
        raise _refused(repr(text), "it names a host or a relative path", "write file:///folder")
    if any(mark in found[1] for mark in _CUT):
        raise _refused(repr(text), "a # or ? ends the path in a URL", "give the path without file://")
    return unquote(found[1])


def _resolve_address(scheme: str, rest: str) -> str:
    rest = rest.removesuffix("/")
    host, _, path = rest.partition("/")
    shown = repr(f"{scheme}://{re.split(r'[?#]', rest)[0].rpartition('@')[2]}")  # the rest may be a secret
    if ":" in host.rpartition("@")[0]:
        raise _refused(shown, "it holds a password", "give credentials in `storage_options`")
    if not host and scheme != "memory":
        raise _refused(shown, "it names no bucket", f"write {scheme}://bucket/folder")
    if any(mark in rest for mark in _CUT):
        cause = "it holds a # or ?, where some libraries cut it off and others do not"
        raise _refused(shown, cause, "choose a name without, and give what follows a ? in `storage_options`")
    if any(mark in rest for mark in _BROKEN) or _ESCAPE.search(rest):
        cause = (
            f"it holds one of {_BROKEN} or a % and two hexadecimal digits, which libraries read differently"
        )
        raise _refused(shown, cause, "choose a name without")
    if path and {"", ".", ".."} & set(path.split("/")):
        raise _refused(shown, "it holds an empty part, . or ..", "write it without")
    return f"{scheme}://{rest}"


def _other_argument(given: object) -> tuple[str, str]:
    """Return what something else than a text is, and where it goes."""
    if hasattr(given, "__arrow_c_stream__") and hasattr(given, "uri"):
        return "it is open already", "call its own methods, such as table.scan(), or give table.uri"
    if hasattr(given, "__arrow_c_stream__") or type(given).__name__ in ("DataFrame", "LazyFrame"):
        return "it holds rows, which come before the path", "write write_table(rows, path)"
    if type(given).__name__ == "SparkSession":
        return "it is a session, which comes first", "write read_table(spark, path)"
    return "it is not a text", "give a folder or an address"


def _bucket(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return f"{scheme.lower()}://{rest.partition('/')[0]}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(shown: str, cause: str, cure: str) -> InvalidInputError:
    message = f"{shown} cannot be the path of a table: {cause}. Nothing was read or written; {cure}."
    return InvalidInputError(message, argument="path")

"""Paths of files in a Delta log: decoded, compared, encoded and judged in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, unquote

# Where a path leads: below the table's root, to an absolute path of the local disk, to an address of an
# object store; or `astray`: up (`..`), to another host, or to what readers would not agree about.
PathKind: TypeAlias = Literal["inside", "absolute", "address", "astray"]

# What Hadoop's `Path` (the constructors of java.net.URI) encodes: a few ASCII characters, and controls and spaces of
# any script. All else stays, letters of any script too. Spark's VACUUM compares the text of a path in the log with
# this encoding of the file's name, and deletes the file if they differ.
_ENCODED: Final = re.compile(
    r'[\x00-\x20"#%<>?[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
)
_LOCAL: Final = re.compile(r"file:(?://(?:localhost)?)?(?=/[^/])", re.IGNORECASE)
# A colon alone does not make an address: names with times have one, `run-2024-05-01T00:00:00.parquet`.
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_STORE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/?#@:]+(?:@[^/?#@:]+)?/")
# Never in the name of a file; invalid UTF-8 decodes to the others.
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff\ufffd]")


@dataclass(frozen=True, slots=True, order=True)
class FilePath:
    """A data file, or the file of deletion vectors, as a log names it.

    Two encodings of one path (``a%2Bb`` and ``a+b``) are equal: a log may hold both.

    >>> FilePath.of_log("a%2Bb.parquet") == FilePath.of_log("a+b.parquet")
    True
    >>> [FilePath.of_log(raw).kind for raw in ("T00:00.parquet", "/x", "file:///x", "s3://b/x", "%2e%2e/x")]
    ['inside', 'absolute', 'absolute', 'address', 'astray']
    """

    # Decoded: relative to the table's root, absolute, or an address.
    text: str

    @staticmethod
    def of_log(raw: str) -> FilePath:
        """Read a path as in the log: a URI, percent-encoded.

        >>> FilePath.of_log("k/a%20b.parquet").text, FilePath.of_log("file:///x/100%25.parquet").text
        ('k/a b.parquet', '/x/100%.parquet')
        """
        prefix = _LOCAL.match(raw)
        return FilePath(unquote(raw[prefix.end() :] if prefix else raw))

    @property
    def encoded(self) -> str:
        """The path as we write it into a log, encoded as Spark encodes it.

        >>> FilePath("höhe (1) 50%.parquet").encoded, FilePath("T00:00.parquet").encoded
        ('höhe%20(1)%2050%25.parquet', 'T00%3A00.parquet')
        """
        first, slash, rest = _ENCODED.sub(lambda match: quote(match[0]), self.text).partition("/")
        return first.replace(":", "%3A") + slash + rest if self.kind == "inside" else first + slash + rest

    @property
    def name(self) -> str:
        """The last part."""
        return self.text.rpartition("/")[2]

    @property
    def kind(self) -> PathKind:
        """Where it leads.

        >>> [FilePath(text).kind for text in ("a/../b", "a//b", "./a", "s3://b/../a", "http://h:80/a", "")]
        ['astray', 'astray', 'astray', 'astray', 'astray', 'astray']
        """
        if _UNUSABLE.search(self.text):
            return "astray"
        if _ADDRESS.match(self.text):
            store = _STORE.match(self.text)
            whole = store is not None and not self.text.lower().startswith(("file:", "http:", "https:"))
            return "address" if store and whole and _is_plain(self.text[store.end() :]) else "astray"
        if self.text.startswith("/"):
            return "absolute" if _is_plain(self.text[1:]) else "astray"
        return "inside" if _is_plain(self.text) else "astray"


def _is_plain(path: str) -> bool:
    """Return whether every part of a path is a name."""
    return not {"", ".", ".."} & set(path.split("/"))

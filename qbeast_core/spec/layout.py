"""The ``qbeast.layout`` tag: how a file of ours is cut into row groups and pages (format 7).

A file is a sequence of *bands*. A band is a row group with rows of successive blocks, cut into pages of its own number
of rows. Of each of its blocks it holds a number of whole pages. The last band that names a block also holds the rest of
the block: after the whole pages of the band come the rests of its blocks, in the order of blocks, and share pages. Each
block is named, and its rows rise in weight from band to band.

Version 1 of the tag describes files of one band without whole pages: page k holds the rows from ``k * rows`` on, and
the blocks follow each other in the order of the rows.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter

from qbeast_core.spec._base import invalid_metadata, read_text, refuse_repeated_keys
from qbeast_core.spec.block import MAX_ROWS

# Physical column of data files, outside the table's schema: the high 16 bits of the row's weight. No column
# of a table may be called so, in any case (format 7).
WEIGHT_COLUMN: Final = "_qbeast_weight"

# Whole pages of a block in a band; the other rows of the block follow in later bands.
MAX_BLOCK_PAGES: Final = (1 << 16) - 1

_WHAT: Final = "a page layout tag"
_MAX_TAIL_BYTES: Final = 1 << 30  # a reader holds it in memory
_OBJECT: Final = TypeAdapter(dict[str, Any])


def _unpacked(text: Any, *, code: str) -> tuple[int, ...]:
    try:
        packed = b64decode(text, validate=True)
        return struct.unpack(f"<{len(packed) // 2}{code}", packed)
    except (TypeError, ValueError, struct.error) as error:
        message = f"not base64 of 16-bit integers: {error}"
        raise ValueError(message) from error


def _packed(numbers: tuple[int, ...], *, code: str) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}{code}", *numbers)).decode("ascii")


_PageRows: TypeAlias = Annotated[int, Field(ge=1, le=MAX_ROWS)]
_BlockCount: TypeAlias = Annotated[int, Field(ge=0, le=MAX_ROWS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pages:
    # The file's end, with page directory and footer.
    tail_bytes: Annotated[int, Field(ge=8, le=_MAX_TAIL_BYTES, validation_alias="tail")]
    # Per page, the high 16 bits (arithmetic shift) of its first row's weight.
    weights: Annotated[
        tuple[int, ...], BeforeValidator(partial(_unpacked, code="h")), Field(validation_alias="w")
    ]
    # Whether the file's last column is `_qbeast_weight`; not in tables that a JVM writes too.
    has_hidden_weights: Annotated[bool, Field(validation_alias="hidden")] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLayout(_Pages):
    """A file of one row group, with its blocks in the order of the rows."""

    # The last page may hold fewer.
    page_rows: Annotated[_PageRows, Field(validation_alias="rows")]
    v: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BandLayout(_Pages):
    """A file of bands."""

    # Of each band: rows per page, number of its first block in the file, number of its blocks.
    bands: tuple[tuple[_PageRows, _BlockCount, _BlockCount], ...]
    # Number of whole pages of each block of each band.
    whole_pages: Annotated[
        tuple[int, ...], BeforeValidator(partial(_unpacked, code="H")), Field(validation_alias="n")
    ]
    v: Literal[2] = 2


Layout: TypeAlias = PageLayout | BandLayout

# Part of the tags of files without hidden weights.
WITHOUT_HIDDEN_WEIGHTS: Final = '"hidden":false'

# What the copy of the tag in a file leaves out: the file itself gives it. Any valid values take its place.
_OF_FILE: Final[dict[str, Any]] = {"tail": 8, "w": ""}

_LAYOUTS: Final[dict[int, TypeAdapter[Any]]] = {1: TypeAdapter(PageLayout), 2: TypeAdapter(BandLayout)}


def parse_layout(text: str) -> Layout | None:
    """Return the layout of a file; None if the tag is of an unknown version, and so to be ignored.

    >>> parse_layout('{"v":1,"rows":2048,"tail":41234,"w":"AIAAAA=="}')
    PageLayout(tail_bytes=41234, weights=(-32768, 0), has_hidden_weights=True, page_rows=2048, v=1)
    >>> parse_layout('{"v":2,"tail":41234,"bands":[[256,0,2]],"n":"AQACAA==","w":"AIAAAA=="}').whole_pages
    (1, 2)
    >>> parse_layout('{"v":3,"pages":[]}') is None
    True
    """
    version = read_text(_OBJECT.validate_json, text, what=_WHAT).get("v")
    refuse_repeated_keys(text, what=_WHAT)
    if not isinstance(version, int) or isinstance(version, bool):
        raise invalid_metadata(_WHAT, text, ["v must be an integer"])
    if version not in _LAYOUTS:
        return None
    layout: Layout = read_text(partial(_LAYOUTS[version].validate_json, strict=True), text, what=_WHAT)
    return layout


def dump_layout(layout: Layout) -> str:
    """Return the tag: compact JSON, lists of 16-bit integers as base64, little-endian.

    ``"hidden":false`` marks a file without hidden weights.

    >>> dump_layout(PageLayout(page_rows=2048, tail_bytes=41234, weights=(-32768, 0)))
    '{"v":1,"rows":2048,"tail":41234,"w":"AIAAAA=="}'
    """
    stored: dict[str, Any] = {"v": layout.v}
    if isinstance(layout, PageLayout):
        stored |= {"rows": layout.page_rows, "tail": layout.tail_bytes}
    else:
        stored |= {
            "tail": layout.tail_bytes,
            "bands": layout.bands,
            "n": _packed(layout.whole_pages, code="H"),
        }
    stored["w"] = _packed(layout.weights, code="h")
    if not layout.has_hidden_weights:
        stored["hidden"] = False  # as in `WITHOUT_HIDDEN_WEIGHTS`
    return json.dumps(stored, separators=(",", ":"), allow_nan=False)


def dump_shape(layout: Layout) -> str:
    """Return the tag without the length of the file's end and the weights of pages, which the file itself gives.

    >>> dump_shape(PageLayout(page_rows=2048, tail_bytes=41234, weights=(-32768, 0)))
    '{"v":1,"rows":2048}'
    """
    stored = json.loads(dump_layout(layout))
    return json.dumps({key: stored[key] for key in stored if key not in _OF_FILE}, separators=(",", ":"))


def parse_shape(text: str) -> Layout | None:
    """Return the layout that `dump_shape` wrote, without weights; None if it is of an unknown version.

    >>> parse_shape('{"v":1,"rows":2048}')
    PageLayout(tail_bytes=8, weights=(), has_hidden_weights=True, page_rows=2048, v=1)
    """
    stored = read_text(_OBJECT.validate_json, text, what=_WHAT)
    return parse_layout(json.dumps(stored | _OF_FILE))

"""The ``qbeast.layout`` tag: how a file of ours is cut into pages (format 7).

A file's blocks are in the order of its rows, so page k holds rows ``[k * page_rows, (k + 1) * page_rows)``
and the blocks these rows belong to.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, TypeAdapter

from qbeast_core.spec._base import invalid_metadata, read_text, refuse_repeated_keys
from qbeast_core.spec.block import MAX_ROWS

# The one version known here; a file with another is read without its layout.
LAYOUT_VERSION: Final = 1

# Physical column of data files, outside the table's schema: the high 16 bits of the row's weight. No column
# of a table may be called so, in any case (format 7).
WEIGHT_COLUMN: Final = "_qbeast_weight"

_WHAT: Final = "a page layout tag"
_MAX_TAIL_BYTES: Final = 1 << 30  # a reader holds it in memory
_OBJECT: Final = TypeAdapter(dict[str, Any])


def _unpacked(text: Any) -> tuple[int, ...]:
    try:
        packed = b64decode(text, validate=True)
        return struct.unpack(f"<{len(packed) // 2}h", packed)
    except (TypeError, ValueError, struct.error) as error:
        message = f"not base64 of 16-bit integers: {error}"
        raise ValueError(message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLayout:
    """How a file is cut into pages, and how its weights rise."""

    # The last page may hold fewer.
    page_rows: Annotated[int, Field(ge=1, le=MAX_ROWS, validation_alias="rows")]
    # The file's end, with page indexes and footer.
    tail_bytes: Annotated[int, Field(ge=8, le=_MAX_TAIL_BYTES, validation_alias="tail")]
    # Per page, the high 16 bits (arithmetic shift) of its first row's weight.
    weights: Annotated[tuple[int, ...], BeforeValidator(_unpacked), Field(validation_alias="w")]
    # Whether the file's last column is `_qbeast_weight`; not in tables that a JVM writes too.
    has_hidden_weights: Annotated[bool, Field(validation_alias="hidden")] = True
    v: Literal[1] = LAYOUT_VERSION


_LAYOUT: Final = TypeAdapter(PageLayout)


def parse_layout(text: str) -> PageLayout | None:
    """Return the layout of a file; None if the tag is of an unknown version, and so to be ignored.

    >>> parse_layout('{"v":1,"rows":2048,"tail":41234,"w":"AIAAAA=="}')
    PageLayout(page_rows=2048, tail_bytes=41234, weights=(-32768, 0), has_hidden_weights=True, v=1)
    >>> parse_layout('{"v":2,"pages":[]}') is None
    True
    """
    version = read_text(_OBJECT.validate_json, text, what=_WHAT).get("v")
    refuse_repeated_keys(text, what=_WHAT)
    if not isinstance(version, int) or isinstance(version, bool):
        raise invalid_metadata(_WHAT, text, ["v must be an integer"])
    if version != LAYOUT_VERSION:
        return None
    return read_text(partial(_LAYOUT.validate_json, strict=True), text, what=_WHAT)


def dump_layout(layout: PageLayout) -> str:
    """Return the tag: compact JSON, weights as base64 of little-endian int16.

    ``"hidden":false`` marks a file without hidden weights.

    >>> dump_layout(PageLayout(page_rows=2048, tail_bytes=41234, weights=(-32768, 0)))
    '{"v":1,"rows":2048,"tail":41234,"w":"AIAAAA=="}'
    """
    packed = struct.pack(f"<{len(layout.weights)}h", *layout.weights)
    stored: dict[str, int | str | bool] = {
        "v": layout.v,
        "rows": layout.page_rows,
        "tail": layout.tail_bytes,
        "w": b64encode(packed).decode("ascii"),
    }
    if not layout.has_hidden_weights:
        stored["hidden"] = False
    return json.dumps(stored, separators=(",", ":"), allow_nan=False)

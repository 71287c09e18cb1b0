"""The ``qbeast.layout`` tag: how a file of ours is cut into row groups and pages (format 7).

A file is a sequence of *bands*. A band is a row group with the rows of one range of weights, cut into pages of equal
rows. A page holds the rows of a box in the space of the file's revision. Bands and pages do not depend on cubes.

Cells of boxes are stored in 256 steps along each dimension, from the first cell of the file on, so a bound of a page
takes one byte. Steps are equal, or equal within each of 16 groups.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from qbeast_core.spec._base import DEFERRED, invalid_metadata, read_text, refuse_repeated_keys
from qbeast_core.spec.block import MAX_ROWS

# Physical column of data files, outside the table's schema: the high 16 bits of the smallest weight of the band. No
# column of a table may be called so, in any case (format 7).
WEIGHT_COLUMN: Final = "_qbeast_weight"

# Number of values that a bound of a box can have along one dimension, and number of groups of equal steps.
BOX_STEPS: Final = 256
STEP_GROUPS: Final = 16

# Maximum bounds of the pages of a file, a byte each. Usual files have some thousand pages.
MAX_BOUNDS: Final = 1 << 22

_LAYOUT_TAG: Final = "a page layout tag"
_DAMAGED: Final = "not a text of bounds"
_WRONG_STEPS: Final = "not a first cell and the widths of steps"
_MAX_TAIL_BYTES: Final = 1 << 30  # a reader holds it in memory
_CELLS: Final = 1 << 32
_OBJECT: Final = TypeAdapter(dict[str, Any], config=DEFERRED)

_Rows: TypeAlias = Annotated[int, Field(ge=1, le=MAX_ROWS)]
_BandWeight: TypeAlias = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
_Cell: TypeAlias = Annotated[int, Field(ge=0, lt=_CELLS)]


def group_widths(widths: Sequence[int]) -> list[int]:
    """Return the width of the steps of each group; raise ValueError if the number of widths is wrong.

    >>> group_widths([7]) == group_widths([7] * 16) == [7] * 16
    True
    """
    if len(widths) not in (1, STEP_GROUPS):
        raise ValueError(_WRONG_STEPS)
    return [*widths] * (STEP_GROUPS // len(widths))


def _steps(numbers: tuple[int, ...]) -> tuple[int, ...]:
    widths = group_widths(numbers[1:])
    if not 1 <= min(widths) <= max(widths) <= _CELLS // BOX_STEPS * (len(numbers) - 1):
        raise ValueError(_WRONG_STEPS)
    return numbers


_Steps: TypeAlias = Annotated[tuple[_Cell, ...], AfterValidator(_steps)]


def pack_boxes(boxes: bytes) -> str:
    r"""Return the bounds of pages as text.

    >>> unpack_boxes(pack_boxes(bytes([0, 9, 255])))
    b'\x00\t\xff'
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b64encode(packer.compress(boxes) + packer.flush()).decode("ascii")


def unpack_boxes(text: Any, max_bytes: int = MAX_BOUNDS) -> bytes:
    """Return the bounds of pages; raise ValueError if they are damaged, or more than `max_bytes`."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        boxes = unpacker.decompress(b64decode(text, validate=True), max_bytes)
    except (TypeError, zlib.error) as error:
        raise ValueError(_DAMAGED) from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError(_DAMAGED)
    return boxes


_Boxes: TypeAlias = Annotated[bytes, BeforeValidator(unpack_boxes), Field(validation_alias="p")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The bands and pages of a file."""

    # The file's end, with page directory and footer.
    tail_bytes: Annotated[int, Field(ge=8, le=_MAX_TAIL_BYTES, validation_alias="tail")]
    # Of each band: rows, rows per page (the last page may hold fewer), and smallest weight.
    bands: Annotated[tuple[tuple[_Rows, _Rows, _BandWeight], ...], Field(min_length=1)]
    # Of each dimension: the first cell of all boxes, and the cells of a step, for all steps or for each group.
    box: tuple[_Steps, ...]
    # For each dimension the first step of each page, then the last step of each page: a byte each.
    boxes: _Boxes
    # Whether the file's last column is `_qbeast_weight`; not in tables that a JVM writes too.
    has_hidden_weights: Annotated[bool, Field(validation_alias="hidden")] = True
    v: Literal[3] = 3

    def fits(self, rows: int, dimensions: int) -> bool:
        """Return whether the bands have the rows of a file, and each page a box."""
        pages = sum(-(-rows // page_rows) for rows, page_rows, _ in self.bands)
        boxes = len(self.box) == dimensions and len(self.boxes) == 2 * dimensions * pages
        return boxes and sum(band[0] for band in self.bands) == rows


# Part of the tags of files without hidden weights.
WITHOUT_HIDDEN_WEIGHTS: Final = '"hidden":false'

# What the copy of the tag in a file leaves out: the file itself gives it. Any valid values take its place.
_OF_FILE: Final[dict[str, Any]] = {"tail": 8, "box": [], "p": pack_boxes(b"")}

LAYOUT_VERSION: Final = 3
_LAYOUT: Final = TypeAdapter(Layout)


def parse_layout(text: str) -> Layout | None:
    """Return the layout of a file; None if the tag is of an unknown version, and so to be ignored.

    >>> parse_layout('{"v":3,"tail":41234,"bands":[[5,4,-9]],"box":[[0,16777216]],"p":"Y2Bg+M8AAA=="}').bands
    ((5, 4, -9),)
    >>> parse_layout('{"v":1,"rows":2048,"tail":41234,"w":"AIAAAA=="}') is None
    True
    """
    version = read_text(_OBJECT.validate_json, text, what=_LAYOUT_TAG).get("v")
    refuse_repeated_keys(text, what=_LAYOUT_TAG)
    if not isinstance(version, int) or isinstance(version, bool):
        raise invalid_metadata(_LAYOUT_TAG, text, ["v must be an integer"])
    return (
        read_text(partial(_LAYOUT.validate_json, strict=True), text, what=_LAYOUT_TAG)
        if version == LAYOUT_VERSION
        else None
    )


def dump_layout(layout: Layout) -> str:
    """Return the tag: compact JSON. ``"hidden":false`` marks a file without hidden weights.

    >>> dump_layout(Layout(tail_bytes=41234, bands=((5, 4, -9),), box=((0, 16777216),), boxes=bytes([0, 8, 7, 255])))
    '{"v":3,"tail":41234,"bands":[[5,4,-9]],"box":[[0,16777216]],"p":"Y+Bg/w8A"}'
    """
    stored: dict[str, Any] = {
        "v": layout.v,
        "tail": layout.tail_bytes,
        "bands": layout.bands,
        "box": layout.box,
        "p": pack_boxes(layout.boxes),
    }
    if not layout.has_hidden_weights:
        stored["hidden"] = False  # as in `WITHOUT_HIDDEN_WEIGHTS`
    return json.dumps(stored, separators=(",", ":"), allow_nan=False)


def dump_shape(layout: Layout) -> str:
    """Return the tag without the length of the file's end and the boxes of pages, which the file itself gives.

    >>> dump_shape(Layout(tail_bytes=41234, bands=((5, 4, -9),), box=((0, 16777216),), boxes=bytes(4)))
    '{"v":3,"bands":[[5,4,-9]]}'
    """
    stored = json.loads(dump_layout(layout))
    return json.dumps({key: stored[key] for key in stored if key not in _OF_FILE}, separators=(",", ":"))


def parse_shape(text: str) -> Layout | None:
    """Return the layout that `dump_shape` wrote, without boxes; None if it is of an unknown version.

    >>> parse_shape('{"v":3,"bands":[[5,4,-9]]}').boxes
    b''
    """
    stored = read_text(_OBJECT.validate_json, text, what=_LAYOUT_TAG)
    return parse_layout(json.dumps(stored | _OF_FILE))

"""Blocks: the rows of one cube inside one file, in both dialects of the ``blocks`` tag (format 7 and 11)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field, TypeAdapter

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.spec._base import DEFERRED, invalid_metadata, read_text, refuse_repeated_keys

# More rows than any file holds: sums of such numbers over all files of a table stay within 64 bits.
MAX_ROWS: Final = 2**40

# Keys and order of blocks: as in the published documents, or as the JVM reads and writes them.
BlocksDialect: TypeAlias = Literal["documented", "qbeast-spark"]

_Weight: TypeAlias = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


# A dataclass, not a model: pydantic fills it four times faster, and a table has a great many.
@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one cube inside one file."""

    # Text form of the cube (format 5); the root is the empty string.
    cube: Annotated[str, Field(validation_alias=AliasChoices("cube", "cubeId"))]
    min_weight: Annotated[_Weight, Field(validation_alias="minWeight")]
    # The cube's threshold when it was written; 2147483647 for a leaf.
    max_weight: Annotated[_Weight, Field(validation_alias="maxWeight")]
    # Rows.
    element_count: Annotated[int, Field(ge=0, le=MAX_ROWS, validation_alias="elementCount")]
    # The rows are also in descendants: such a block is never read.
    replicated: bool = False


_BLOCKS: Final = TypeAdapter(list[Block], config=DEFERRED)
_Packed: TypeAlias = (
    tuple[str, _Weight, Annotated[int, Field(ge=1, le=MAX_ROWS)]]
    | tuple[str, _Weight, Annotated[int, Field(ge=1, le=MAX_ROWS)], _Weight]
)
_PACKED: Final = TypeAdapter(list[_Packed], config=DEFERRED)
_LEAF: Final = 2**31 - 1
_BLOCKS_TAG: Final = "a blocks tag"
_TRAILING_COMMA: Final = re.compile(r"\}\s*,(\s*\]\s*)\Z")


def parse_blocks(text: str) -> list[Block]:
    """Return the blocks of a file, in order.

    Both dialects are read, unknown keys are ignored, a missing ``replicated`` is false, and the list may end
    with a comma, as it does in the published example.

    >>> parse_blocks('[{"cubeId":"w","minWeight":-5,"maxWeight":7,"elementCount":2},]')
    [Block(cube='w', min_weight=-5, max_weight=7, element_count=2, replicated=False)]
    """
    return read_text(_parse, text, what=_BLOCKS_TAG)


def dump_blocks(blocks: Sequence[Block], *, dialect: BlocksDialect) -> str:
    """Return the ``blocks`` tag: compact JSON, keys named and ordered by the dialect.

    >>> dump_blocks([Block("w", -5, 7, 2)], dialect="documented")
    '[{"cube":"w","minWeight":-5,"maxWeight":7,"replicated":false,"elementCount":2}]'
    >>> dump_blocks([Block("w", -5, 7, 2)], dialect="qbeast-spark")
    '[{"cubeId":"w","minWeight":-5,"maxWeight":7,"elementCount":2,"replicated":false}]'
    """
    stored = [_stored(block, dialect) for block in blocks]
    return json.dumps(stored, separators=(",", ":"), ensure_ascii=False)


def pack_blocks(blocks: Sequence[Block]) -> str:
    """Return the blocks of a file of this library as short JSON: cube, smallest weight, rows, threshold unless a leaf.

    >>> pack_blocks([Block("", -9, 7, 2), Block("w", 8, 2147483647, 1)])
    '[["",-9,2,7],["w",8,1]]'
    """
    rows = [
        [b.cube, b.min_weight, b.element_count, *([] if b.max_weight == _LEAF else [b.max_weight])]
        for b in blocks
    ]
    return json.dumps(rows, separators=(",", ":"))


def unpack_blocks(text: str) -> tuple[Block, ...]:
    """Return the blocks that `pack_blocks` wrote.

    >>> unpack_blocks('[["w",8,1]]')
    (Block(cube='w', min_weight=8, max_weight=2147483647, element_count=1, replicated=False),)
    """
    rows = read_text(lambda packed: _PACKED.validate_json(packed, strict=True), text, what="a copy of blocks")
    return tuple(Block(cube, low, (*high, _LEAF)[0], count) for cube, low, count, *high in rows)


def respell_blocks(text: str, dialect: BlocksDialect) -> str:
    """Return a ``blocks`` tag in another dialect; one that cannot be read stays as it is, as no reader relies on it."""
    try:
        return dump_blocks(parse_blocks(text), dialect=dialect)
    except InvalidMetadataError:
        return text


def blocks_dialect(text: str) -> BlocksDialect | None:
    """Return the dialect of a ``blocks`` tag; None if it names no cube.

    >>> blocks_dialect('[{"cubeId":"","minWeight":-5}]')
    'qbeast-spark'
    """
    # Cubes are written in an alphabet without quotes, so a quoted key cannot be part of one.
    if '"cubeId"' in text:
        return "qbeast-spark"
    return "documented" if '"cube"' in text else None


def _parse(text: str) -> list[Block]:
    plain = _TRAILING_COMMA.sub(r"}\1", text)
    blocks = _BLOCKS.validate_json(plain, strict=True)
    refuse_repeated_keys(plain, what=_BLOCKS_TAG)
    # Most tags have one of the keys: they are not parsed again.
    both = '"cube"' in plain and '"cubeId"' in plain
    if both and any("cube" in block and "cubeId" in block for block in json.loads(plain)):
        raise invalid_metadata(_BLOCKS_TAG, text, ["a block names its cube in both dialects"])
    return blocks


def _stored(block: Block, dialect: BlocksDialect) -> dict[str, Any]:
    weights = {"minWeight": block.min_weight, "maxWeight": block.max_weight}
    count, copied = {"elementCount": block.element_count}, {"replicated": block.replicated}
    if dialect == "documented":
        return {"cube": block.cube, **weights, **copied, **count}
    return {"cubeId": block.cube, **weights, **count, **copied}

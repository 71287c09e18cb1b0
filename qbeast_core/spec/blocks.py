"""Entries of the log for a file: its path, its blocks in both dialects, and its layout of pages (format 7 and 11).

A file is a sequence of *bands*. A band is a row group with the rows of one range of weights, cut into pages of equal
rows. A page holds the rows of a box in the space of the file's revision. Bands and pages do not depend on cubes.

Cells of boxes are stored in 256 steps along each dimension, from the first cell of the file on, so a bound of a page
takes one byte. Steps are equal, or equal within each of 16 groups.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.support.text import shortened

T = TypeVar("T")

# A JSON number, finite, of any size; `0` stays an int and `0.0` a float.
Number: TypeAlias = int | float

_HEAD: Final = 100
_MAX_PROBLEMS: Final = 5


# Build the validator at the first use: most processes use few of them.
DEFERRED: Final = ConfigDict(defer_build=True)


class SpecModel(BaseModel):
    """An immutable value: snake_case in Python, camelCase on disk.

    Unknown keys are kept and written back after the known ones, so that what a newer writer adds survives.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        defer_build=True,  # see `DEFERRED`
        extra="allow",
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return what `repr` shows: of a long list how many values there are, the first and the last."""
        # The name that the JVM has for a class is the same for all values of one of ours.
        return ((name, shortened(value)) for name, value in super().__repr_args__() if name != "class_name")


class NamedModel(SpecModel):
    """A value with a ``className`` in the log: the JVM's package and the name of the class."""

    # Names that are read, if they differ from the rule. The first one is written.
    class_names: ClassVar[tuple[str, ...]] = ()
    class_name: str = ""

    def __init_subclass__(cls) -> None:
        """Make the class name a constant. Pydantic collects fields afterwards; unions need it as a discriminator."""
        literal: Any = Literal
        names = cls.class_names or (f"io.qbeast.core.transform.{cls.__name__}",)
        cls.__annotations__["class_name"] = literal[names]
        cls.class_name = names[0]


def invalid_metadata(what: str, text: str, problems: Iterable[str]) -> InvalidMetadataError:
    """Return the error for stored text that breaks the format: all problems and the head of the text."""
    all_problems = list(problems)
    listed = "; ".join(all_problems[:_MAX_PROBLEMS])
    more = f"; and {len(all_problems) - _MAX_PROBLEMS} more" if len(all_problems) > _MAX_PROBLEMS else ""
    head = text[:_HEAD] + ("..." if len(text) > _HEAD else "")
    return InvalidMetadataError(
        f"{what} does not follow the Qbeast format: {listed}{more}. It begins with {head!r}; "
        "if another program wrote it, a newer qbeast may be able to read it."
    )


def _refuse_repeated_keys(text: str, *, what: str) -> None:
    """Raise `InvalidMetadataError` where JSON text names a key twice: readers differ on which one counts."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise invalid_metadata(what, text, ["a key is repeated"])
        return values

    json.loads(text, object_pairs_hook=once, parse_int=str)  # Python refuses to read very long integers


def read_text(read: Callable[[str], T], text: str, *, what: str) -> T:
    """Return ``read(text)``; what pydantic refuses becomes an `InvalidMetadataError` about `what`."""
    try:
        return read(text)
    except ValidationError as error:
        # Without input and context: the head of the text is quoted once, and values may be long.
        details = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [f"{'.'.join(map(str, detail['loc'])) or 'text'}: {detail['msg']}" for detail in details]
        raise invalid_metadata(what, text, problems) from error


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
    _refuse_repeated_keys(plain, what=_BLOCKS_TAG)
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

    # How many bytes before the file's end its page directory begins.
    tail_bytes: Annotated[int, Field(ge=8, le=_MAX_TAIL_BYTES, validation_alias="tail")]
    # Of each band: rows, rows per page (the last page may hold fewer), and smallest weight.
    bands: Annotated[tuple[tuple[_Rows, _Rows, _BandWeight], ...], Field(min_length=1)]
    # Of each dimension: the first cell of all boxes, and the cells of a step, for all steps or for each group.
    box: tuple[_Steps, ...]
    # For each dimension the first step of each page, then the last step of each page: a byte each.
    boxes: _Boxes
    # Length of the page directory. 0: the file has an older one, and is read as a whole.
    directory_bytes: Annotated[int, Field(ge=0, le=_MAX_TAIL_BYTES, validation_alias="directory")] = 0
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
_OF_FILE: Final[dict[str, Any]] = {"tail": 8, "directory": 0, "box": [], "p": pack_boxes(b"")}

LAYOUT_VERSION: Final = 3


@cache
def _layouts() -> TypeAdapter[Layout]:  # the type of a dataclass cannot be deferred
    return TypeAdapter(Layout)


def parse_layout(text: str) -> Layout | None:
    """Return the layout of a file; None if the tag is of an unknown version, and so to be ignored.

    >>> text = '{"v":3,"tail":41234,"directory":9999,"bands":[[5,4,-9]],"box":[[0,16777216]],"p":"Y2Bg+M8AAA=="}'
    >>> parse_layout(text).bands
    ((5, 4, -9),)
    >>> parse_layout('{"v":1,"rows":2048,"tail":41234,"w":"AIAAAA=="}') is None
    True
    """
    version = read_text(_OBJECT.validate_json, text, what=_LAYOUT_TAG).get("v")
    _refuse_repeated_keys(text, what=_LAYOUT_TAG)
    if not isinstance(version, int) or isinstance(version, bool):
        raise invalid_metadata(_LAYOUT_TAG, text, ["v must be an integer"])
    return (
        read_text(partial(_layouts().validate_json, strict=True), text, what=_LAYOUT_TAG)
        if version == LAYOUT_VERSION
        else None
    )


def dump_layout(layout: Layout) -> str:
    """Return the tag: compact JSON. ``"hidden":false`` marks a file without hidden weights.

    >>> bands, box, boxes = ((5, 4, -9),), ((0, 16777216),), bytes([0, 8, 7, 255])
    >>> dump_layout(Layout(tail_bytes=41234, directory_bytes=9999, bands=bands, box=box, boxes=boxes))
    '{"v":3,"tail":41234,"directory":9999,"bands":[[5,4,-9]],"box":[[0,16777216]],"p":"Y+Bg/w8A"}'
    """
    stored: dict[str, Any] = {
        "v": layout.v,
        "tail": layout.tail_bytes,
        "directory": layout.directory_bytes,
        "bands": layout.bands,
        "box": layout.box,
        "p": pack_boxes(layout.boxes),
    }
    if not layout.has_hidden_weights:
        stored["hidden"] = False  # as in `WITHOUT_HIDDEN_WEIGHTS`
    return json.dumps(stored, separators=(",", ":"), allow_nan=False)


def dump_shape(layout: Layout) -> str:
    """Return the tag without the place of the page directory and the boxes of pages, which the file itself gives.

    >>> bands, box = ((5, 4, -9),), ((0, 16777216),)
    >>> dump_shape(Layout(tail_bytes=41234, directory_bytes=9999, bands=bands, box=box, boxes=bytes(4)))
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

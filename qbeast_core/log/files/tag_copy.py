"""The copy of a file's index tags in the key-value metadata of the file (format 14).

A program that drops the tags from the log leaves the files as they are, so that a repair can restore the tags. The copy
holds what the rows of the file do not give: the revision, the cubes and the bands. The number of the revision and the
thresholds may differ from the log: a commit chooses them after the files are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.columns.stored import StoredColumns, stored_revision
from qbeast_core.spec.blocks import Block, Layout, dump_shape, pack_blocks, parse_shape, unpack_blocks
from qbeast_core.spec.revision import Revision

# Tag of files that follow the exact rules for coordinates (format 4), and its value.
RULES_TAG: Final = "qbeast.rules"
RULES: Final = "1"

_REVISION, _BLOCKS, _LAYOUT = "revision", "blocks", "qbeast.layout"
_DIGEST: Final = "qbeast.revision"


class FileIndex(NamedTuple):
    """The index of a file that is about to be written."""

    # Its number may change at the commit.
    revision: Revision
    # In the order of the file. Their thresholds may change too.
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class TagCopy:
    """The copy of a file's tags."""

    revision_digest: str
    # In the order of the tag, with the thresholds that were planned.
    blocks: tuple[Block, ...]
    # Without boxes of pages and length of the file's end.
    layout: Layout


def dump_copy(index: FileIndex, layout: Layout, columns: StoredColumns) -> dict[str, str]:
    """Return the key-value metadata of a file.

    >>> from qbeast_core.log.columns.stored import PLAIN
    >>> from qbeast_core.spec.blocks import Layout
    >>> from qbeast_core.spec.revision import staging_revision
    >>> revision = staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500).with_id(1)
    >>> layout = Layout(tail_bytes=41234, bands=((7, 7, -9),), box=((0, 1),), boxes=bytes(2))
    >>> dump_copy(FileIndex(revision, [Block("", -9, 2147483647, 7)]), layout, PLAIN)["blocks"]
    '[["",-9,7]]'
    """
    return {
        _REVISION: str(index.revision.revision_id),
        _DIGEST: digest_of(index.revision, columns),
        _BLOCKS: pack_blocks(index.blocks),
        RULES_TAG: RULES,
        _LAYOUT: dump_shape(layout),
    }


def digest_of(revision: Revision, columns: StoredColumns) -> str:
    """Return the digest of a revision, which a rename of columns does not change."""
    return stored_revision(revision, columns).digest


def parse_copy(metadata: Mapping[bytes, bytes]) -> TagCopy | None:
    """Return the copy in the key-value metadata of a file; None if it has none, or one that cannot be read.

    >>> parse_copy({b"blocks": b"[]"}) is None
    True
    """
    try:
        texts = {key: metadata[key.encode()].decode() for key in (_DIGEST, _BLOCKS, _LAYOUT, RULES_TAG)}
        layout = parse_shape(texts[_LAYOUT])
        blocks = unpack_blocks(texts[_BLOCKS])
    except (KeyError, UnicodeDecodeError, InvalidMetadataError):
        return None
    if texts[RULES_TAG] != RULES or layout is None or not blocks:
        return None
    return TagCopy(texts[_DIGEST], blocks, layout)

"""Whether new blocks keep the order of weights along a branch, on the blocks that live now (format 8.3)."""

from __future__ import annotations

from collections.abc import Iterable

from qbeast_core.spec.block import Block

__all__ = ["misplaced_cube"]


def misplaced_cube(added: Iterable[Block], live: Iterable[Block], *, dimensions: int) -> str | None:
    """Return a cube whose added block reaches below a live threshold of an ancestor; None: there is none.

    Readers that stop descending at such a threshold would miss rows of the block.

    Parameters
    ----------
    added : iterable of Block
        Blocks to publish.
    live : iterable of Block
        All blocks of the same revision that are live without them. Replicated ones do not count.
    dimensions : int
        Number of indexed columns, 1 or more.

    Examples
    --------
    >>> misplaced_cube([Block("w", -5, 7, 2)], [Block("", -9, -6, 2)], dimensions=2)
    >>> misplaced_cube([Block("w", -5, 7, 2)], [Block("", -9, -5, 2)], dimensions=2)
    'w'
    """
    ours = [block for block in added if not block.replicated]
    smallest: dict[str, int] = {}
    for block in (*(block for block in live if not block.replicated), *ours):
        smallest[block.cube] = min(block.max_weight, smallest.get(block.cube, block.max_weight))
    level = -(-dimensions // 6)  # characters that one level of a cube takes
    for block in ours:
        ancestors = (block.cube[:end] for end in range(0, len(block.cube), level))
        if any(smallest.get(ancestor, block.min_weight - 1) >= block.min_weight for ancestor in ancestors):
            return block.cube
    return None

"""Whether new blocks keep the order of weights along a branch, on the blocks that live now (format 8.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from qbeast_core.spec.block import Block

__all__ = ["misplaced_cube", "misplaced_parts"]


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
    smallest = _smallest((*live, *ours))
    return next(_misplaced(ours, smallest, dimensions), None)


def misplaced_parts(
    parts: Sequence[Sequence[Block]], live: Iterable[Block], *, dimensions: int
) -> frozenset[int]:
    """Return the parts to leave out so that the others keep the order of weights, together with what lives.

    Each part was planned on the live blocks without knowing the others. A cube that none of its rows stopped
    in has no threshold of its own there, and another part's may be too large for it.

    Parameters
    ----------
    parts : sequence of sequence of Block
        Blocks to publish at once, by the tasks that planned them.
    live : iterable of Block
        All blocks of the same revision that are live without them.
    dimensions : int
        Number of indexed columns, 1 or more.

    Returns
    -------
    frozenset of int
        Places in `parts`; empty nearly always.

    Examples
    --------
    >>> deep, shallow = [Block("w", -5, 7, 2)], [Block("", -9, 8, 2)]
    >>> misplaced_parts([deep, shallow], [], dimensions=2), misplaced_parts([deep], [], dimensions=2)
    (frozenset({0}), frozenset())
    """
    known = [block for block in live if not block.replicated]
    left = dict(enumerate(parts))
    while True:
        smallest = _smallest((*known, *(block for part in left.values() for block in part)))
        bad = [
            at for at, part in left.items() if next(_misplaced(part, smallest, dimensions), None) is not None
        ]
        if not bad:
            return frozenset(at for at in range(len(parts)) if at not in left)
        for at in bad:  # what relied on their thresholds shows in the next round
            del left[at]


def _smallest(blocks: Iterable[Block]) -> dict[str, int]:
    """Return the smallest threshold of each cube."""
    smallest: dict[str, int] = {}
    for block in blocks:
        if not block.replicated:
            smallest[block.cube] = min(block.max_weight, smallest.get(block.cube, block.max_weight))
    return smallest


def _misplaced(blocks: Iterable[Block], smallest: Mapping[str, int], dimensions: int) -> Iterator[str]:
    """Yield the cubes of blocks that reach below the threshold of an ancestor."""
    level = -(-dimensions // 6)  # characters that one level of a cube takes
    for block in blocks:
        ancestors = (block.cube[:end] for end in range(0, len(block.cube), level))
        if any(smallest.get(ancestor, block.min_weight - 1) >= block.min_weight for ancestor in ancestors):
            yield block.cube

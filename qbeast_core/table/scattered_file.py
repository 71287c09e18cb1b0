"""What the one who commits must know of a file that someone else wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.spec.block import Block
from qbeast_core.tree.outline import Outline

__all__ = ["ScatteredFile", "count_cubes", "with_blocks"]


@dataclass(frozen=True, slots=True, eq=False)
class ScatteredFile:
    """A data file, and its blocks by numbers of an outline.

    Parameters
    ----------
    add : AddFile
        Without blocks.
    nodes : ndarray of int32, shape (blocks,)
        Node of each block, in the order of the file.
    children : ndarray of int64, shape (blocks,)
        0 for the node's own block, else 1 + the code of its nameless child.
    min_weights : ndarray of int32, shape (blocks,)
        Smallest weight in each block.
    counts : ndarray of int64, shape (blocks,)
        Rows of each block.
    weight_sum : int
        Sum of the weights of all rows.
    """

    add: AddFile
    nodes: I32Array
    children: I64Array
    min_weights: I32Array
    counts: I64Array
    weight_sum: int

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return int(self.counts.sum())

    def dump(self) -> bytes:
        """Return the file's facts as bytes."""
        add = self.add
        return orjson.dumps(
            {
                "add": [add.path, add.size, add.modification_time, add.stats, add.tags],
                "nodes": self.nodes,
                "children": self.children,
                "minWeights": self.min_weights,
                "counts": self.counts,
                "weightSum": self.weight_sum,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    @staticmethod
    def load(data: bytes) -> ScatteredFile:
        """Return what was dumped."""
        facts = orjson.loads(data)
        path, size, modified, stats, tags = facts["add"]
        return ScatteredFile(
            add=AddFile(path=path, size=size, modification_time=modified, stats=stats, tags=tags),
            nodes=np.array(facts["nodes"], np.int32),
            children=np.array(facts["children"], np.int64),
            min_weights=np.array(facts["minWeights"], np.int32),
            counts=np.array(facts["counts"], np.int64),
            weight_sum=facts["weightSum"],
        )


def with_blocks(files: Sequence[ScatteredFile], outline: Outline) -> list[AddFile]:
    """Return the files with their blocks: cubes by name, thresholds as they are now that all rows are known.

    Parameters
    ----------
    files : sequence of ScatteredFile
        All files of a write.
    outline : Outline
        By which their rows were placed.
    """
    if not files:
        return []
    nodes = np.concatenate([file.nodes for file in files])
    children = np.concatenate([file.children for file in files])
    used = np.zeros(len(outline.thresholds), np.bool_)
    below = used.copy()
    used[nodes[children == 0]] = True
    below[nodes[children > 0]] = True
    highest = outline.max_weights(used, below)[nodes]
    highest[children > 0] = MAX_WEIGHT
    texts = encode_cubes(_cubes(outline, nodes, children))
    blocks = [
        Block(cube=cube, min_weight=low, max_weight=high, element_count=count)
        for cube, low, high, count in zip(
            texts,
            np.concatenate([file.min_weights for file in files]).tolist(),
            highest.tolist(),
            np.concatenate([file.counts for file in files]).tolist(),
            strict=True,
        )
    ]
    ends = np.cumsum([len(file.nodes) for file in files]).tolist()
    return [
        file.add.model_copy(update={"blocks": tuple(blocks[end - len(file.nodes) : end])})
        for file, end in zip(files, ends, strict=True)
    ]


def count_cubes(files: Sequence[ScatteredFile]) -> int:
    """Return how many cubes took rows.

    Examples
    --------
    >>> count_cubes([])
    0
    """
    if not files:
        return 0
    nodes = np.concatenate([file.nodes.astype(np.int64) for file in files])
    children = np.concatenate([file.children for file in files])
    return len(np.unique(np.stack([nodes, children]), axis=1).T)


def _cubes(outline: Outline, nodes: I32Array, children: I64Array) -> Cubes:
    depths, cells = outline.cubes.depth[nodes], outline.cubes.cells[nodes]
    nameless = np.flatnonzero(children)
    shifts = np.arange(outline.dimensions - 1, -1, -1)
    bits = ((children[nameless, None] - 1) >> shifts) & 1
    cells[nameless] = (cells[nameless] << np.uint64(1)) | bits.astype(np.uint64)
    depths[nameless] += np.uint8(1)
    return Cubes(depths, cells)

"""Small batches of points with weights, the blocks that a tree makes of them, and what format 8.3 asks of those."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from qbeast_core.space.cubes import Cubes
from qbeast_core.tree.build import assign_rows, existing_tree
from qbeast_core.tree.files import PackedFiles, file_starts, packed_at
from qbeast_core.tree.grid import grid

MIN, MAX = -(2**31), 2**31 - 1
coordinates = st.floats(0.0, 1.0) | st.sampled_from([0.0, 0.5, 1.0, np.nextafter(1.0, 0.0), 0.25, 0.1])
weights_of = st.integers(MIN, MAX) | st.sampled_from([MIN, MAX, 0, -1])


@st.composite
def batches(draw, dimensions=None, max_rows=60):
    d = dimensions or draw(st.integers(1, 4))
    n = draw(st.integers(0, max_rows))
    points = draw(st.lists(st.tuples(*[coordinates] * d), min_size=n, max_size=n))
    weights = draw(st.lists(weights_of, min_size=n, max_size=n))
    return d, points, weights


def assign(d, points, weights, cube_size, existing=None, *, smallest=0):
    table = np.array(points, np.float64).reshape(-1, d)
    cells = [grid(table[:, j]) for j in range(d)]
    return assign_rows(
        cells,
        np.array(weights, np.int32),
        cube_size=cube_size,
        existing=existing,
        smallest_block_rows=smallest,
    )


def pack_files(counts, *, file_rows, first_cubes=0) -> PackedFiles:
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    return packed_at(file_starts(ends, file_rows=file_rows, first_cubes=first_cubes), ends)


def live_blocks(found, weights):
    """(depth, cells, min, max, count) per cube that took rows."""
    blocks = []
    for i in range(len(found.counts)):
        own = np.array(weights)[found.row_cube == i]
        cells = tuple(found.cubes.cells[i].tolist())
        blocks.append((int(found.cubes.depth[i]), cells, int(own.min()), int(found.thresholds[i]), len(own)))
    return blocks


def tree_of(blocks, d):
    depth = np.array([b[0] for b in blocks], np.uint8)
    cells = np.array([b[1] for b in blocks], np.uint64).reshape(-1, d)
    return existing_tree(
        Cubes(depth, cells),
        min_weights=np.array([b[2] for b in blocks], np.int32),
        max_weights=np.array([b[3] for b in blocks], np.int32),
        element_counts=np.array([b[4] for b in blocks], np.int64),
    )


def misplaced(blocks):
    """Format 8.3: blocks that do not lie above the smallest live threshold of each ancestor."""
    smallest: dict[tuple[int, tuple[int, ...]], int] = {}
    for depth, cells, _, high, _ in blocks:
        key = (depth, cells)
        smallest[key] = min(smallest.get(key, MAX), high)
    return {
        (number, k)
        for number, (depth, cells, low, _, _) in enumerate(blocks)
        for k in range(depth)
        if low <= smallest.get((k, tuple(c >> (depth - k) for c in cells)), MIN - 1)
    }

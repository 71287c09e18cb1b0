"""Cubes of the tree: one door to their cells, boxes, text form and order (format 5)."""

from __future__ import annotations

from qbeast_core.space.cube_grid import MAX_DEPTH, Cubes, cube_boxes, is_ancestor, points_to_cells
from qbeast_core.space.cube_text import by_depth_order, decode_cubes, depth_first_order, encode_cubes

__all__ = [
    "MAX_DEPTH",
    "Cubes",
    "by_depth_order",
    "cube_boxes",
    "decode_cubes",
    "depth_first_order",
    "encode_cubes",
    "is_ancestor",
    "points_to_cells",
]

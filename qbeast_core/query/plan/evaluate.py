"""Evaluate a filter from masks of its atoms: which files, blocks or pages may match."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qbeast_core.query.filters.nodes import And, Atom, Node, Nothing, Or, Unknown
from qbeast_core.space.arrays import BoolArray


def evaluate(node: Node, size: int, of_atom: Callable[[Atom], BoolArray]) -> BoolArray:
    """Return the mask of what may match a filter, from the mask of each atom."""
    if isinstance(node, Unknown):
        return np.ones(size, np.bool_)
    if isinstance(node, Nothing):
        return np.zeros(size, np.bool_)
    if isinstance(node, (And, Or)):
        decided = isinstance(node, Or)
        result = np.full(size, not decided, np.bool_)
        for child in node.children:
            mask = evaluate(child, size, of_atom)
            result = result | mask if decided else result & mask
            if (result == decided).all():
                break  # the others change nothing
        return result
    return of_atom(node)

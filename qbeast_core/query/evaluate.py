"""What may match a filter, put together from what may match its atoms: of files, blocks or pages of any table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qbeast_core.query.nodes import And, Atom, Node, Nothing, Or, Unknown
from qbeast_core.space.arrays import BoolArray

__all__ = ["evaluate"]


def evaluate(node: Node, size: int, of_atom: Callable[[Atom], BoolArray]) -> BoolArray:
    """Tell what may match a filter, by what of it may match each atom.

    Parameters
    ----------
    node : Node
        The filter.
    size : int
        How many files, blocks or pages are asked about.
    of_atom : callable
        Gives an array of that size for an atom.
    """
    if isinstance(node, Unknown):
        return np.ones(size, np.bool_)
    if isinstance(node, Nothing):
        return np.zeros(size, np.bool_)
    if isinstance(node, And):
        every: BoolArray = np.logical_and.reduce([evaluate(child, size, of_atom) for child in node.children])
        return every
    if isinstance(node, Or):
        some: BoolArray = np.logical_or.reduce([evaluate(child, size, of_atom) for child in node.children])
        return some
    return of_atom(node)

"""Where along one dimension of a space the matches of a filter can lie, as one interval."""

from __future__ import annotations

from qbeast_core.query.intervals import coordinate_intervals
from qbeast_core.query.nodes import And, IsNotNull, IsNull, Node, Nothing, Or, Unknown
from qbeast_core.spec.transformation import Transformation

__all__ = ["reach"]


def reach(node: Node, column: str, transformation: Transformation) -> tuple[float, float]:
    """Return the least and the greatest coordinate that a match can have along a column.

    Parameters
    ----------
    node : Node
        The filter.
    column : str
        The column.
    transformation : Transformation
        How it is indexed, by our rules.

    Returns
    -------
    tuple of float
        Both in [0, 1]; the first one greater if nothing can match.

    Examples
    --------
    >>> import polars as pl
    >>> from qbeast_core.query.predicate import parse_predicate
    >>> from qbeast_core.spec.transformation import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> node = parse_predicate(pl.col("x").is_between(2, 4), pl.Schema({"x": pl.Int64}))
    >>> reach(node, "x", linear)
    (0.25, 0.5)
    """
    match node:
        case Unknown():
            return 0.0, 1.0
        case Nothing():
            return 1.0, 0.0
        case And():
            ends = [reach(child, column, transformation) for child in node.children]
            return max(low for low, _ in ends), min(high for _, high in ends)
        case Or():
            ends = [reach(child, column, transformation) for child in node.children]
            found = [(low, high) for low, high in ends if low <= high]
            return min((low for low, _ in found), default=1.0), max((high for _, high in found), default=0.0)
        case _:
            asked = node.column if isinstance(node, IsNull | IsNotNull) else node.operand.column
            if asked != column:
                return 0.0, 1.0
            intervals = coordinate_intervals(node, transformation, foreign=False)
            return (
                (0.0, 1.0) if intervals is None else (float(intervals.lower[0]), float(intervals.upper[-1]))
            )

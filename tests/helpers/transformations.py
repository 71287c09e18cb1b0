"""An example of every transformation, and the expected results of the modules that use transformations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import polars as pl

from qbeast_core.plan.bounds import coordinate_intervals, point_bounds
from qbeast_core.plan.decode_tags import fits_schema
from qbeast_core.plan.nodes import Atom, Compare, IsNull, Op, Operand
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.spec import revision as t
from qbeast_core.spec.revision import ColumnKind, ColumnSpec, Revision
from qbeast_core.table.inspect.drawings import axis_ticks
from qbeast_core.tree.fit import ColumnBounds, Growth, IndexWish, first_revision, next_revision, rows_outside
from qbeast_core.tree.grid import to_index_column
from qbeast_core.tree.summary import summarise
from tests.space.murmur_reference import scala_bytes

__all__ = ["CLASSES", "EXAMPLES", "IN_MEMORY", "Example", "revision_of"]

CLASSES = get_args(get_args(t.Transformation)[0])
"""Every stored transformation."""

NEW = "a new value"
"""A new value supersedes the transformation."""
MANY = "most rows outside"
"""The transformation is superseded if most rows are outside."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A transformation of the column ``x``, and its expected results."""

    transformation: t.Transformation
    transformer: t.Transformer
    values: pl.Series
    """Ascending values inside the space, and a null at the end."""
    other: int | str
    """A value outside of the space."""
    places: list[float]
    """The coordinates of the values."""
    kind: ColumnKind | None
    """The kind to request for these values; None if it is read, but never written."""
    superseded: str | None
    """The reason to supersede it: `NEW`, `MANY` or None."""
    is_outside: bool
    """Whether a row with the other value is outside."""
    pruned: tuple[str, ...]
    """The filters (a comparison, or ``"null"``) that select intervals."""
    labels: list[str]
    """Labels at the ends of the axis."""
    is_hashed: bool = False
    """Whether pictures label it as hashed."""
    known_since: Literal["0.7", "0.8"] = "0.7"
    """The release of qbeast-spark that can read it."""
    is_space: bool = True
    """Whether rows can be indexed in it."""


def _numbers(*values: int | None) -> pl.Series:
    return pl.Series("x", values, pl.Int64)


def _texts(*values: str | None) -> pl.Series:
    return pl.Series("x", values, pl.String)


def _hashed(text: str) -> float:
    return (scala_bytes(text.encode()) & 0x7FFFFFFF) / 0x7FFFFFFF


_LINEAR = t.LinearTransformer(column_name="x", data_type="LongDataType")
_ORDERED: tuple[Op, ...] = ("<", "==", ">=")
_EVERYWHERE = [0.0, 0.0, 0.0]

EXAMPLES: dict[type, Example] = {
    t.LinearTransformation: Example(
        transformation=t.linear_transformation("LongDataType", min_number=0, max_number=8, null_value=0),
        transformer=_LINEAR,
        values=_numbers(0, 4, 8, None),
        other=9,
        places=[0.0, 0.5, 1.0, 0.0],
        kind="linear",
        superseded=NEW,
        is_outside=True,
        pruned=(*_ORDERED, "null"),
        labels=["0", "8"],
    ),
    t.IdentityTransformation: Example(
        transformation=t.identity_transformation("LongDataType", value=7),
        transformer=_LINEAR,
        values=_numbers(7, 7, None),
        other=9,
        places=_EVERYWHERE,
        kind="linear",
        superseded=NEW,
        is_outside=True,
        pruned=(*_ORDERED, "null"),
        labels=["0", "1"],
        known_since="0.8",
    ),
    t.HashTransformation: Example(
        transformation=t.HashTransformation(null_value=-1),
        transformer=t.HashTransformer(column_name="x", data_type="LongDataType"),
        values=_numbers(0, 4, None),
        other=9,
        places=[_hashed("0"), _hashed("4"), _hashed("-1")],
        kind="hashing",
        superseded=None,
        is_outside=False,
        pruned=("==", "null"),
        labels=["0", "1"],
        is_hashed=True,
    ),
    t.CDFNumericQuantilesTransformation: Example(
        transformation=t.CDFNumericQuantilesTransformation(
            quantiles=(0.0, 4.0, 8.0), data_type="LongDataType"
        ),
        transformer=t.CDFNumericQuantilesTransformer(column_name="x", data_type="LongDataType"),
        values=_numbers(0, 4, 8, None),
        other=9,
        places=[0.0, 0.5, 1.0, 0.0],
        kind="quantiles",
        superseded=MANY,
        is_outside=False,
        pruned=(*_ORDERED, "null"),
        labels=["0", "8"],
        known_since="0.8",
    ),
    t.CDFStringQuantilesTransformation: Example(
        transformation=t.CDFStringQuantilesTransformation(quantiles=("a", "b", "c")),
        transformer=t.CDFStringQuantilesTransformer(column_name="x"),
        values=_texts("a", "b", "c", None),
        other="d",
        places=[0.0, 0.5, 1.0, 0.0],
        kind="quantiles",
        superseded=MANY,
        is_outside=False,
        pruned=(*_ORDERED, "null"),
        labels=["a", "c"],
        known_since="0.8",
    ),
    t.EmptyTransformation: Example(
        transformation=t.EmptyTransformation(),
        transformer=t.EmptyTransformer(column_name="x"),
        values=_numbers(0, 4, None),
        other=9,
        places=_EVERYWHERE,
        kind=None,
        superseded=None,
        is_outside=False,
        pruned=("null",),
        labels=["0", "1"],
        is_space=False,
    ),
    t.StringHistogramTransformation: Example(
        transformation=t.StringHistogramTransformation(histogram=("a", "b", "null")),
        transformer=t.StringHistogramTransformer(column_name="x", data_type="StringDataType"),
        values=_texts("a", "b", None),
        other="z",
        places=[0.0, 0.5, 1.0],
        kind=None,
        superseded=None,
        is_outside=False,
        pruned=(*_ORDERED, "null"),
        labels=["a", "null"],
    ),
    t.IdentityToZeroTransformation: Example(
        transformation=t.IdentityToZeroTransformation(identity_value=7),
        transformer=_LINEAR,
        values=_numbers(7, 7, None),
        other=9,
        places=_EVERYWHERE,
        kind=None,
        superseded=NEW,
        is_outside=True,
        pruned=("null",),
        labels=["0", "1"],
    ),
    t.NullToZeroTransformation: Example(
        transformation=t.NullToZeroTransformation(),
        transformer=_LINEAR,
        values=_numbers(None, None),
        other=9,
        places=[0.0, 0.0],
        kind=None,
        superseded=NEW,
        is_outside=True,
        pruned=("null",),
        labels=["0", "1"],
    ),
}


def revision_of(example: Example) -> Revision:
    """Return revision 1 of a table whose one indexed column has this transformation."""
    return Revision(
        revision_id=1,
        timestamp_ms=1,
        table_id="t",
        desired_cube_size=100,
        column_transformers=(example.transformer,),
        transformations=(example.transformation,),
    )


def _serialised(example: Example) -> None:
    revision = revision_of(example)
    again = Revision.from_json(revision.to_json())
    assert again == revision
    assert type(again.transformations[0]) is type(example.transformation)


def _placed(example: Example) -> None:
    places = to_coordinates(example.transformation, to_index_column(example.values))
    np.testing.assert_allclose(places, example.places, rtol=1e-15)


def _enclosed(example: Example) -> None:
    for foreign in (False, True):
        lower, upper = point_bounds(example.transformation, example.values, foreign=foreign)
        places = to_coordinates(example.transformation, to_index_column(example.values))
        assert ((lower <= places) & (places <= upper)).all()


def _fitted(example: Example) -> None:
    quantiles = getattr(example.transformation, "quantiles", None)
    wish = IndexWish(
        (ColumnSpec("x", example.kind or "auto"),),
        100,
        "documented",
        {"x": ColumnBounds(quantiles=quantiles)},
    )
    rows = example.values.to_frame()
    (fitted,) = first_revision(wish, summarise(rows, ["x"]), table_id="t", timestamp_ms=1).transformations
    if example.kind is None:
        assert type(fitted) is not type(example.transformation), "it is read, but never written"
    else:
        assert fitted == example.transformation


def _superseded(example: Example) -> None:
    now, wish = revision_of(example), IndexWish((ColumnSpec("x"),), 100, "documented")
    few = pl.concat([example.values, pl.Series("x", [example.other], example.values.dtype)]).to_frame()
    many = pl.DataFrame({"x": pl.Series([example.other] * 10, dtype=example.values.dtype)})
    for rows, by in ((example.values.to_frame(), None), (few, NEW), (many, MANY)):
        growth = Growth(rows=0, outside_rows={}, ranges={}, cubes=1)
        then = next_revision(now, wish, summarise(rows, ["x"]), growth=growth, timestamp_ms=2)
        expected = by is not None and example.superseded in ((NEW,) if by is NEW else (NEW, MANY))
        assert (then is not now) == expected, f"superseded by {by}"


def _outside(example: Example) -> None:
    rows = pl.concat([example.values, pl.Series("x", [example.other], example.values.dtype)]).to_frame()
    outside = rows_outside(rows, revision_of(example)).tolist()
    assert outside == [False] * len(example.values) + [example.is_outside]


def _evolved(example: Example) -> None:
    _superseded(example)
    _outside(example)


def _pruned(example: Example) -> None:
    operand, literal = Operand("x", example.values.dtype), example.values.drop_nulls()[:1]
    if literal.is_empty():
        literal = pl.Series("x", [example.other], example.values.dtype)
    atoms: dict[str, Atom] = {op: Compare(operand, op, literal) for op in _ORDERED} | {"null": IsNull("x")}
    places = to_coordinates(example.transformation, to_index_column(example.values))
    values = example.values
    matching = {"<": values < literal[0], "==": values == literal[0], ">=": values >= literal[0]}
    for op, atom in atoms.items():
        intervals = coordinate_intervals(atom, example.transformation, foreign=False)
        assert (intervals is not None) == (op in example.pruned), f"the places of {op}"
        if intervals is None:
            continue
        for row in places[matching.get(op, values.is_null()).fill_null(value=False).to_numpy()]:
            assert ((intervals.lower <= row) & (row <= intervals.upper)).any(), (
                f"a row that matches {op} is lost"
            )


def _located(example: Example) -> None:
    _pruned(example)
    _enclosed(example)


def _compatible(example: Example) -> None:
    assert fits_schema(revision_of(example), pl.Schema({"x": example.values.dtype})) == example.is_space


def _labelled(example: Example) -> None:
    data_type = str(example.transformer.data_type or "")
    ticks = axis_ticks(example.transformation, data_type)
    assert [ticks[0], ticks[-1]] == [(0.0, example.labels[0]), (1.0, example.labels[1])]


IN_MEMORY: dict[str, Callable[[Example], object]] = {
    "qbeast_core.spec.revision": _serialised,
    "qbeast_core.space.coordinates": _placed,
    "qbeast_core.tree.fit": lambda example: (_fitted(example), _evolved(example)),
    "qbeast_core.plan.bounds": _located,
    "qbeast_core.plan.decode_tags": _compatible,
    "qbeast_core.table.inspect.drawings": _labelled,
}
"""The check of each module, which raises an AssertionError for unexpected results."""

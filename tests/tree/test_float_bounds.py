"""A range that a JVM wrote in few digits covers the float32 it was made from."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from qbeast_core.spec.revision import (
    ColumnSpec,
    IdentityToZeroTransformation,
    IdentityTransformation,
    LinearTransformation,
    LinearTransformer,
    Revision,
)
from qbeast_core.tree.fit import Growth, IndexWish, identity_or_unit, next_revision, value_limits
from qbeast_core.tree.summary import summarise

FLOAT = "FloatDataType"
LARGEST = value_limits(FLOAT)[1]


def evolved(space, values):
    revision = Revision(
        revision_id=1,
        timestamp_ms=0,
        table_id="t",
        desired_cube_size=10,
        column_transformers=(LinearTransformer(column_name="f", data_type=FLOAT),),
        transformations=(space,),
    )
    frame = pl.DataFrame({"f": values}, schema={"f": pl.Float32})
    wish = IndexWish(specs=(ColumnSpec("f"),), cube_size=None, dialect="qbeast-spark")
    actual = next_revision(revision, wish, summarise(frame, ["f"]), growth=Growth(), timestamp_ms=1)
    return None if actual is revision else actual.transformations[0]


def linear(low, high):
    return LinearTransformation(min_number=low, max_number=high, null_value=low, ordered_data_type=FLOAT)


def test_same_floats_need_no_new_revision():
    assert evolved(linear(-2.961262, 12.337821), [-2.961262, 12.337821, None]) is None
    assert evolved(IdentityTransformation(identity_value=0.1, ordered_data_type=FLOAT), [0.1, 0.1]) is None
    assert evolved(IdentityToZeroTransformation(identity_value=0.1), [0.1]) is None


def test_next_float_needs_new_revision():
    wider = evolved(
        linear(-2.961262, 12.337821), [float(np.nextafter(np.float32(12.337821), np.float32(13)))]
    )
    assert wider.max_number > 12.337822
    assert wider.min_number == pytest.approx(-2.961262)


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        ("IntegerDataType", 2**31 - 1),
        ("LongDataType", 2**63 - 1),
        ("LongDataType", -(2**63)),
        ("FloatDataType", 1e10),
        ("FloatDataType", LARGEST),
        ("DoubleDataType", 1e300),
        ("DoubleDataType", value_limits("DoubleDataType")[1]),
        ("DecimalDataType", 3.0),
    ],
)
def test_constant_range_has_distinct_typed_ends(data_type, value):
    space = identity_or_unit(data_type, value, "qbeast-spark")
    ends = (space.min_number, space.max_number)
    assert value in ends
    least, most = value_limits(data_type)
    assert least <= ends[0] < ends[1] <= most
    if data_type == FLOAT:
        assert np.float32(ends[0]) < np.float32(ends[1])

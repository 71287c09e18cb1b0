from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.coordinates import coordinates_of_numbers, null_coordinate, to_coordinates
from qbeast_core.space.values import NumberColumn
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    EmptyTransformation,
    HashTransformation,
    IdentityToZeroTransformation,
    IdentityTransformation,
    LinearTransformation,
    NullToZeroTransformation,
    StringHistogramTransformation,
)
from tests.space.carriers import numbers, strings
from tests.space.coordinate_reference import linear
from tests.space.murmur_reference import scala_bytes

NAN, INF = float("nan"), float("inf")
LARGEST = 1.7976931348623157e308


def linear_of(low, high, null=0, kind="DoubleDataType"):
    return LinearTransformation(min_number=low, max_number=high, null_value=null, ordered_data_type=kind)


def hashed(text: str) -> float:
    return (scala_bytes(text.encode()) & 0x7FFFFFFF) / 0x7FFFFFFF


NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
RANGES = st.lists(NUMBER, min_size=2, max_size=2, unique=True).map(sorted)
LINEARS = RANGES.map(lambda ends: linear_of(*ends))
CDFS = st.lists(NUMBER.map(float), min_size=2, max_size=9).map(
    lambda found: CDFNumericQuantilesTransformation(quantiles=tuple(sorted(found)), data_type="LongDataType")
)
ORDERED = LINEARS | CDFS


@given(st.floats(-1e300, 1e300), st.floats(1e-300, 1e300), st.lists(st.floats(-1e300, 1e300) | st.just(NAN)))
def test_linear_matches_scalar_rules(low, width, values):
    transformation = linear_of(low, max(low + width, float(np.nextafter(low, INF))))
    low, high = transformation.min_number, transformation.max_number
    if high - low < 1e-300:
        return
    expected = [linear(value, low, high) for value in values]
    assert to_coordinates(transformation, numbers("float64", values)).tolist() == expected


@given(ORDERED, st.lists(st.floats(allow_nan=False)))
def test_double_coordinates_are_monotone_with_nan_last(transformation, values):
    column = numbers("float64", [-INF, *sorted(values), INF, NAN])
    got = to_coordinates(transformation, column)
    assert (np.diff(got) >= 0).all()
    assert got[0] == 0.0
    assert got[-2:].tolist() == [1.0, 1.0]
    assert got.tolist() == coordinates_of_numbers(transformation, column.values).tolist()


LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 9, 2**53 + 9)


@given(
    ORDERED, st.lists(LONGS, min_size=1), st.lists(st.floats(allow_nan=False) | LONGS.map(float), min_size=1)
)
def test_longs_keep_order_among_literals(transformation, values, literals):
    of_column = to_coordinates(transformation, numbers("int64", values))
    of_literals = coordinates_of_numbers(transformation, np.array(literals))
    everything = [*zip(values, of_column, strict=True), *zip(literals, of_literals, strict=True)]
    everything.sort(key=lambda pair: pair[0])  # Python compares an int and a float exactly
    coordinates = [coordinate for _, coordinate in everything]
    ties = {}
    for value, coordinate in everything:
        assert ties.setdefault(value, coordinate) == coordinate
    assert coordinates == sorted(coordinates)


UNSCALED = st.integers(-(10**37), 10**37)


@given(
    ORDERED, st.lists(UNSCALED, min_size=1), st.lists(st.floats(-1e30, 1e30), min_size=1), st.integers(0, 38)
)
def test_decimals_keep_their_order_against_literals(transformation, unscaled, literals, scale):
    of_column = to_coordinates(transformation, numbers("decimal", unscaled, precision=38, scale=scale))
    of_literals = coordinates_of_numbers(transformation, np.array(literals))
    exact = [Fraction(value, 10**scale) for value in unscaled] + [Fraction(value) for value in literals]
    order = sorted(range(len(exact)), key=exact.__getitem__)
    coordinates = np.concatenate([of_column, of_literals])[order]
    assert (np.diff(coordinates) >= 0).all()


@given(ORDERED, st.lists(st.integers(-(2**63), 2**63 - 1)).map(sorted))
def test_timestamps_keep_their_order(transformation, values):
    assert (np.diff(to_coordinates(transformation, numbers("timestamp", values))) >= 0).all()


@given(st.lists(st.text(max_size=12), min_size=2), st.lists(st.text(max_size=12)))
def test_strings_keep_the_order_of_their_bytes(quantiles, values):
    column = strings(sorted(value.encode() for value in values))
    for transformation in (
        CDFStringQuantilesTransformation(quantiles=tuple(quantiles)),
        StringHistogramTransformation(histogram=tuple(quantiles)),
    ):
        got = to_coordinates(transformation, column)
        assert (np.diff(got) >= 0).all()
        assert ((got >= 0) & (got <= 1)).all()


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-LARGEST, LARGEST),
        (0.0, 5e-324),
        (2**53, 2**53 + 1),
        (-1e308, 1e308),
        (0.0, LARGEST),
        (10**400, 10**401),
    ],
)
def test_extreme_ranges_stay_finite_and_monotone(low, high):
    transformation = linear_of(low, high)
    got = coordinates_of_numbers(transformation, np.array([-INF, -LARGEST, 0.0, 1.0, LARGEST, INF, NAN]))
    assert np.isfinite(got).all()
    assert (np.diff(got) >= 0).all()
    assert got[0] == 0.0
    assert got[-2:].tolist() == [1.0, 1.0]


def test_widest_range_is_halved():
    got = coordinates_of_numbers(linear_of(-LARGEST, LARGEST), np.array([-LARGEST, 0.0, LARGEST]))
    assert got == pytest.approx([0.0, 0.5, 1.0])


def test_zeros_of_either_sign_share_a_coordinate():
    zeros = numbers("float64", [0.0, -0.0])
    for transformation in (linear_of(-1.0, 1.0), linear_of(0.0, 1.0), HashTransformation(null_value=1)):
        assert len(set(to_coordinates(transformation, zeros).tolist())) == 1


def test_every_kind_of_number_has_a_coordinate():
    transformation = linear_of(0, 10)
    for kind in ("int8", "int16", "int32", "int64", "float32", "float64"):
        assert to_coordinates(transformation, numbers(kind, [0, 5, 10, 11, -1])).tolist() == [0, 0.5, 1, 1, 0]
    decimals = numbers("decimal", [0, 500, 1000], precision=9, scale=2)
    assert to_coordinates(transformation, decimals).tolist() == [0.0, 0.5, 1.0]
    days = linear_of(0, 86_400_000, kind="DateDataType")
    assert to_coordinates(days, numbers("date", [0, 1])).tolist() == [0.0, 1.0]
    assert to_coordinates(days, numbers("timestamp", [43_200_000_999])).tolist() == [0.5]


@pytest.mark.parametrize(
    ("transformation", "expected"),
    [
        (linear_of(0, 10, null=5), 0.5),
        (IdentityTransformation(identity_value=3, ordered_data_type="LongDataType"), 0.0),
        (HashTransformation(null_value=-737119), hashed("-737119")),
        (HashTransformation(null_value="x y110"), hashed("x y110")),
        (CDFNumericQuantilesTransformation(quantiles=(1.0, 2.0), data_type="LongDataType"), 0.0),
        (CDFStringQuantilesTransformation(quantiles=("a", "b")), 0.0),
        (EmptyTransformation(), 0.0),
        (StringHistogramTransformation(histogram=("a", "n", "null", "z", "zz")), 0.5),
        (IdentityToZeroTransformation(identity_value=3), 0.0),
        (NullToZeroTransformation(), 0.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nulls_have_the_coordinate_of_null(transformation, expected):
    assert null_coordinate(transformation) == expected
    is_text = isinstance(transformation, CDFStringQuantilesTransformation | StringHistogramTransformation)
    column = strings([None, "b", None]) if is_text else numbers("int64", [None, 7, None])
    got = to_coordinates(transformation, column)
    assert got[[0, 2]].tolist() == [expected, expected]


def test_constant_transformations_put_every_value_at_zero():
    column = numbers("float64", [-INF, 0.0, INF])
    nan = numbers("float64", [NAN])
    identity = IdentityTransformation(identity_value=3, ordered_data_type="DoubleDataType")
    assert to_coordinates(identity, column).tolist() == [0.0] * 3
    assert to_coordinates(identity, nan).tolist() == [1.0]
    for older in (
        EmptyTransformation(),
        IdentityToZeroTransformation(identity_value=3),
        NullToZeroTransformation(),
    ):
        assert to_coordinates(older, column).tolist() == [0.0] * 3
        assert to_coordinates(older, nan).tolist() == [0.0]
        assert to_coordinates(older, strings(["a"])).tolist() == [0.0]


def test_hashes_equal_hash_of_text():
    transformation = HashTransformation(null_value=1)
    texts = ["", "a", "abcd", "日本"]
    assert to_coordinates(transformation, strings(texts)).tolist() == [hashed(text) for text in texts]
    assert to_coordinates(transformation, numbers("int32", [-737119])).tolist() == [hashed("-737119")]
    doubles = numbers("float64", [1.0, 1e10, NAN, -0.0])
    expected = [hashed(text) for text in ("1.0", "1.0E10", "NaN", "0.0")]
    assert to_coordinates(transformation, doubles).tolist() == expected
    assert to_coordinates(transformation, numbers("decimal", [150], precision=9, scale=2)).tolist() == [
        hashed("1.50")
    ]


def test_signalling_nan_is_nan_without_warning():
    double = NumberColumn("float64", np.array([0x7FF0000000000001], np.uint64).view(np.float64))
    single = NumberColumn("float32", np.array([0x7F800001], np.uint32).view(np.float32))
    knots = CDFNumericQuantilesTransformation(quantiles=(1.0, 2.0), data_type="DoubleDataType")
    for column in (double, single):
        assert to_coordinates(linear_of(0, 1), column).tolist() == [1.0]
        assert to_coordinates(knots, column).tolist() == [1.0]
        assert to_coordinates(HashTransformation(null_value=1), column).tolist() == [hashed("NaN")]


def test_results_do_not_depend_on_blocks():
    values = np.random.default_rng(5).normal(size=150_000)
    nulls = values > 1
    got = to_coordinates(linear_of(-5.0, 5.0, null=5.0), NumberColumn("float64", values, nulls))
    expected = np.where(nulls, 1.0, np.clip((values + 5.0) * (1 / 10.0), 0, 1))
    assert (got == expected).all()


def test_column_of_another_type_raises():
    knots = CDFNumericQuantilesTransformation(quantiles=(1.0, 2.0), data_type="LongDataType")
    words = CDFStringQuantilesTransformation(quantiles=("a", "b"))
    for transformation, column in (
        (linear_of(0, 1), strings(["a"])),
        (knots, strings(["a"])),
        (words, numbers("int64", [1])),
        (HashTransformation(null_value=1), numbers("date", [1])),
    ):
        with pytest.raises(InvalidInputError):
            to_coordinates(transformation, column)
    for transformation in (words, HashTransformation(null_value=1)):
        with pytest.raises(InvalidInputError, match="plain numbers"):
            coordinates_of_numbers(transformation, np.zeros(1))


def test_float_bounds_round_to_float32():
    # The JVM writes 12.337821 and means, like every value of the column, 12.337821006774902.
    space = LinearTransformation(
        min_number=-2.961262, max_number=12.337821, null_value=12.337821, ordered_data_type="FloatDataType"
    )
    values = np.array([-2.961262, 12.337821], np.float32)
    middle = (values[0].astype(float) + values[1].astype(float)) / 2
    assert coordinates_of_numbers(space, np.array([*values.astype(float), middle])).tolist() == [
        0.0,
        1.0,
        0.5,
    ]
    assert null_coordinate(space) == 1.0

"""Revisions and transformations: what is written, what is kept and what is refused."""

from __future__ import annotations

import json
import math
import pickle
from typing import get_args

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, InvalidMetadataError
from qbeast_core.spec.revision import (
    INTEGER_DATA_TYPES,
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    EmptyTransformation,
    HashTransformation,
    LinearTransformation,
    LinearTransformer,
    NullToZeroTransformation,
    OrderedDataType,
    Revision,
    identity_transformation,
    linear_transformation,
    staging_revision,
    transformer_for,
)
from qbeast_core.tree.grid import data_type_of

PACKAGE = "io.qbeast.core.transform."

finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(st.characters(exclude_categories=["Cs"]))


def linear(low: float, high: float = 1, **more: object) -> dict[str, object]:
    numbers = {"minNumber": low, "maxNumber": high, "nullValue": low, "orderedDataType": "LongDataType"}
    return {"className": PACKAGE + "LinearTransformation", **numbers, **more}


def stored(*transformations: dict[str, object], **changes: object) -> str:
    transformers = [
        {"className": PACKAGE + "LinearTransformer", "columnName": f"c{i}", "dataType": "LongDataType"}
        for i in range(max(1, len(transformations)))
    ]
    revision = {"revisionID": 1, "timestamp": 1795243500114, "tableID": "/t", "desiredCubeSize": 10}
    revision |= {"columnTransformers": transformers, "transformations": list(transformations)}
    return json.dumps(revision | changes, separators=(",", ":"))


@st.composite
def revisions(draw: st.DrawFn) -> Revision:
    """Revisions a writer of ours may make."""
    pairs = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        data_type = draw(st.sampled_from([*get_args(OrderedDataType), "StringDataType"]))
        if data_type == "StringDataType":
            made = draw(
                st.builds(HashTransformation, null_value=st.integers(-(2**31), 2**31 - 1))
                | st.builds(
                    CDFStringQuantilesTransformation,
                    quantiles=st.lists(names, min_size=2, max_size=5).map(lambda texts: tuple(sorted(texts))),
                )
            )
            kind = "hashing" if isinstance(made, HashTransformation) else "quantiles"
        elif draw(st.booleans()):
            kind = "linear"
            numbers = st.integers() if data_type in INTEGER_DATA_TYPES else finite
            low, high = sorted(draw(st.tuples(numbers, numbers).filter(lambda two: two[0] != two[1])))
            made = linear_transformation(data_type, min_number=low, max_number=high, null_value=low)
        else:
            kind = "quantiles"
            quantiles = tuple(sorted(draw(st.lists(finite, min_size=2, max_size=5))))
            made = CDFNumericQuantilesTransformation(quantiles=quantiles, data_type=data_type)
        pairs.append((transformer_for(name, kind=kind, data_type=data_type), made))
    return Revision(
        revision_id=draw(st.integers(0)),
        timestamp_ms=draw(st.integers()),
        table_id=draw(names),
        desired_cube_size=draw(st.integers(1)),
        column_transformers=tuple(transformer for transformer, _ in pairs),
        transformations=tuple(made for _, made in pairs),
    )


@given(revisions())
def test_new_revision_round_trips(revision):
    text = revision.to_json()
    assert Revision.from_json(text) == revision
    assert Revision.from_json(text).to_json() == text
    assert pickle.loads(pickle.dumps(revision)) == revision  # noqa: S301 -- our own bytes


@given(revisions())
def test_new_revision_is_compact_ordered_json(revision):
    written = json.loads(revision.to_json(), parse_constant=pytest.fail)
    assert list(written) == [
        "revisionID",
        "timestamp",
        "tableID",
        "desiredCubeSize",
        "columnTransformers",
        "transformations",
    ]
    assert not any(character in revision.to_json() for character in "\n\t")
    for transformation in written["transformations"]:
        if transformation.get("orderedDataType") in INTEGER_DATA_TYPES:
            assert isinstance(transformation["minNumber"], int)
            assert isinstance(transformation["maxNumber"], int)


def test_new_revision_has_this_json():
    revision = Revision(
        revision_id=2,
        timestamp_ms=1795243500114,
        table_id="/t",
        desired_cube_size=500,
        column_transformers=(transformer_for("x", kind="linear", data_type="DoubleDataType"),),
        transformations=(
            linear_transformation("DoubleDataType", min_number=0, max_number=0.1, null_value=1e-9),
        ),
    )
    assert revision.to_json() == (
        '{"revisionID":2,"timestamp":1795243500114,"tableID":"/t","desiredCubeSize":500,'
        '"columnTransformers":[{"className":"io.qbeast.core.transform.LinearTransformer",'
        '"columnName":"x","dataType":"DoubleDataType"}],'
        '"transformations":[{"className":"io.qbeast.core.transform.LinearTransformation",'
        '"minNumber":0.0,"maxNumber":0.1,"nullValue":1e-9,"orderedDataType":"DoubleDataType"}]}'
    )


@pytest.mark.parametrize("spelling", ["1.0E10", "1.795E12", "10000000000.00", "1" + 30 * "0", "1E+300"])
def test_foreign_json_is_kept_byte_for_byte(spelling):
    text = stored(linear(-1, 123456789)).replace("123456789", spelling)
    revision = Revision.from_json(text)
    assert revision.to_json() == text
    assert float(revision.transformations[0].max_number) == float(spelling)
    assert Revision.from_json(revision.with_id(5).to_json()).transformations == revision.transformations


def test_keys_of_newer_writers_are_kept():
    text = stored(linear(0, 1, note={"a": [1, None]}), later="x", revisionID=3)
    revision = Revision.from_json(" " + text)
    assert revision.to_json() == " " + text
    changed = json.loads(revision.with_id(4).to_json())
    assert changed == json.loads(text) | {"revisionID": 4}


def test_changed_copy_drops_its_source_text():
    revision = Revision.from_json(" " + stored())
    assert revision.model_copy() == revision
    assert json.loads(revision.model_copy(update={"table_id": "/u"}).to_json())["tableID"] == "/u"
    assert revision.with_id(8).to_json().startswith('{"revisionID":8,')


def test_revisions_with_equal_json_are_equal():
    plain = Revision.from_json(stored(linear(0, 1)))
    assert plain == Revision.from_json(stored(linear(0, 1)))
    assert plain != Revision.from_json(stored(linear(0.0, 1.0)) + " ")


def test_empty_table_has_no_transformations():
    revision = Revision.from_json(stored(revisionID=0))
    assert revision.transformations == ()
    assert revision.columns == ("c0",)


def test_staging_revision_has_columns_without_space():
    revision = staging_revision(["a", "b"], timestamp_ms=7, table_id="/t", cube_size=5)
    assert (revision.revision_id, revision.timestamp_ms, revision.desired_cube_size) == (0, 7, 5)
    assert revision.columns == ("a", "b")
    assert revision.transformations == (EmptyTransformation(), EmptyTransformation())
    assert '"dataType"' not in revision.to_json()


def test_both_null_to_zero_names_are_kept():
    for name in ("NullToZeroTransformation", "NullToZeroTransformation$"):
        text = stored({"className": PACKAGE + name})
        revision = Revision.from_json(text)
        assert isinstance(revision.transformations[0], NullToZeroTransformation)
        assert revision.with_id(1).to_json() == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "EOF"),
        ("[]", "object"),
        ("\ud800", "unicode"),
        ("null", "object"),
        ("[" * 100_000, "recursion"),
        (stored(linear(0, 1))[:-1], "EOF"),
        (stored(revisionID="1"), "revisionID"),
        (stored(revisionID=-1), "revisionID"),
        (stored(desiredCubeSize=0), "desiredCubeSize"),
        (stored(timestamp=1.5), "timestamp"),
        (stored(tableID=None), "tableID"),
        (stored(columnTransformers=[]), "columnTransformers"),
        (stored(linear(0, 1), columnTransformers=2 * json.loads(stored())["columnTransformers"]), "as many"),
        (stored(linear(1, 1)), "minNumber must be below maxNumber, got 1 and 1"),
        (stored(linear(2, 1)), "minNumber must be below"),
        (stored(linear(0, math.nan)), "maxNumber"),
        (stored(linear(0, math.inf)), "maxNumber"),
        (stored(linear(0, 1)).replace('"maxNumber":1', '"maxNumber":1e400'), "maxNumber"),
        (stored(linear(0, maxNumber=True)), "maxNumber"),
        (stored(linear(0, 1, orderedDataType="StringDataType")), "orderedDataType"),
        (stored({"className": PACKAGE + "SomethingNew"}), "SomethingNew"),
        (stored({}), "className"),
        (stored({"className": PACKAGE + "HashTransformation"}), "nullValue"),
        (
            stored({"className": PACKAGE + "CDFStringQuantilesTransformation", "quantiles": ["a"]}),
            "quantiles",
        ),
    ],
)
def test_malformed_revision_raises_with_reason(text, problem):
    with pytest.raises(InvalidMetadataError) as caught:
        Revision.from_json(text)
    message = str(caught.value)
    assert message.startswith("a revision does not follow the Qbeast format: ")
    assert problem.lower() in message.lower()
    assert repr(text[:50])[:-1] in message


def test_column_indexed_twice_raises():
    twice = [json.loads(stored())["columnTransformers"][0]] * 2
    with pytest.raises(InvalidMetadataError, match="a column is indexed twice: c0, c0"):
        Revision.from_json(stored(columnTransformers=twice))


def test_decreasing_quantiles_raise_but_repeats_pass():
    CDFNumericQuantilesTransformation(quantiles=(1.0, 1.0, 2.0), data_type="LongDataType")
    with pytest.raises(ValueError, match=r"must not decrease, got 1\.0 after 2\.0"):
        CDFNumericQuantilesTransformation(quantiles=(2.0, 1.0), data_type="LongDataType")


@given(st.text(st.characters()))
def test_any_text_parses_or_raises(text):
    with pytest.raises(InvalidMetadataError):
        Revision.from_json(text)


def test_numbers_follow_the_column_type():
    for data_type in get_args(OrderedDataType):
        made = linear_transformation(
            data_type, min_number=np.float64(1), max_number=np.int64(2**62), null_value=2
        )
        expected = int if data_type in INTEGER_DATA_TYPES else float
        assert {type(made.min_number), type(made.max_number), type(made.null_value)} == {expected}
        assert isinstance(
            LinearTransformation.model_validate_json(made.model_dump_json()).min_number, expected
        )
        assert type(identity_transformation(data_type, value=3).identity_value) is expected
        assert identity_transformation(data_type, value=None).identity_value is None


def test_huge_numbers_are_allowed():
    big = 10**400
    assert (
        linear_transformation("LongDataType", min_number=-big, max_number=big, null_value=0).max_number == big
    )
    most = 1.7976931348623157e308
    assert linear_transformation("DoubleDataType", min_number=-most, max_number=most, null_value=0.0)


@pytest.mark.parametrize(
    ("data_type", "low", "high"),
    [
        ("LongDataType", 0.5, 2),
        ("LongDataType", 0, math.inf),
        ("DateDataType", math.nan, 1),
        ("DoubleDataType", 0, math.nan),
        ("DoubleDataType", -math.inf, 0),
        ("DoubleDataType", 0, 10**400),
        ("DoubleDataType", 1, 1),
        ("IntegerDataType", 2, 1),
    ],
)
def test_unusable_bounds_raise(data_type, low, high):
    with pytest.raises(InvalidInputError):
        linear_transformation(data_type, min_number=low, max_number=high, null_value=0)


@pytest.mark.parametrize(
    ("kind", "data_type", "expected"),
    [
        ("linear", "DateDataType", "LinearTransformer"),
        ("hashing", "StringDataType", "HashTransformer"),
        ("hashing", "DecimalDataType", "HashTransformer"),
        ("quantiles", "StringDataType", "CDFStringQuantilesTransformer"),
        ("quantiles", "FloatDataType", "CDFNumericQuantilesTransformer"),
        ("histogram", "StringDataType", "CDFStringQuantilesTransformer"),
        ("linear", "StringDataType", None),
        ("hashing", "DateDataType", None),
        ("hashing", "TimestampDataType", None),
        ("histogram", "LongDataType", None),
    ],
)
def test_kind_and_type_make_transformer_or_raise(kind, data_type, expected):
    if expected is None:
        shown = data_type.removesuffix("DataType").lower(), kind.replace("hashing", "hash")
        with pytest.raises(
            InvalidColumnsError, match="'c' of type {} cannot be indexed by {}".format(*shown)
        ):
            transformer_for("c", kind=kind, data_type=data_type)
        return
    made = transformer_for("c", kind=kind, data_type=data_type)
    assert type(made).__name__ == expected
    assert made.class_name == PACKAGE + expected
    assert (made.column_name, made.data_type) == ("c", data_type)
    assert made.kind == ("quantiles" if kind == "histogram" else kind)


def test_models_are_immutable():
    with pytest.raises(ValueError, match="frozen"):
        LinearTransformer(column_name="x", data_type="LongDataType").column_name = "y"


def test_types_are_mapped_or_raise():
    assert {data_type_of("c", item) for item in (pl.Int8(), pl.Int16(), pl.Int32())} == {"IntegerDataType"}
    assert data_type_of("c", pl.Datetime("us")) == "TimestampDataType"
    assert data_type_of("c", pl.Decimal(38, 18)) == "DecimalDataType"
    for refused in (pl.Boolean(), pl.Binary(), pl.Struct({"x": pl.Int64}), pl.Null()):
        with pytest.raises(InvalidColumnsError, match="column 'c' has type") as caught:
            data_type_of("c", refused)
        assert caught.value.columns == ("c",)
        assert "string" in str(caught.value)


@pytest.mark.parametrize(
    "transformation",
    [
        CDFStringQuantilesTransformation(quantiles=tuple(f"{i:04}" * 500 for i in range(1000))),
        CDFNumericQuantilesTransformation(quantiles=tuple(map(float, range(1000))), data_type="LongDataType"),
    ],
    ids=lambda transformation: type(transformation).__name__,
)
def test_quantiles_are_shortened_only_in_repr(transformation):
    report = repr(transformation)
    assert len(report) < 300
    assert "<1,000 values from " in report
    assert len(json.loads(transformation.model_dump_json())["quantiles"]) == 1000
    few = CDFNumericQuantilesTransformation(quantiles=(1.0, 2.5), data_type="LongDataType")
    assert "quantiles=(1.0, 2.5)" in repr(few)

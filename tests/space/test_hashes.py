from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from decimal import Context, Decimal
from pathlib import Path

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.coordinates import bytes_hash
from qbeast_core.space.hashes import spark_hash
from qbeast_core.space.values import NumberColumn, StringColumn
from tests.space.carriers import numbers, strings
from tests.space.murmur_reference import scala_bytes, spark_bytes, spark_int, spark_long, spark_wide_decimal

GOLDEN = json.loads((Path(__file__).parent / "data" / "spark_hash_vectors.json").read_text())["rows"]
KINDS = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64", "date": "date"}


def golden_column(spark_type: str, values: list) -> NumberColumn | StringColumn:
    if spark_type == "string":
        return strings([None if v is None else v.encode("utf-8", "surrogatepass") for v in values])
    if spark_type == "binary":
        return strings([None if v is None else bytes.fromhex(v) for v in values])
    if spark_type == "boolean":
        return numbers("int8", [None if v is None else int(v) for v in values])
    if spark_type in {"float", "double"}:
        return golden_floats(spark_type, values)
    if spark_type.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", spark_type))
        unscaled = [None if v is None else int(Decimal(v).scaleb(scale, context=EXACT)) for v in values]
        return numbers("decimal", unscaled, precision=precision, scale=scale)
    return numbers(KINDS.get(spark_type, "timestamp"), values)


EXACT = Context(prec=60)


def golden_floats(spark_type: str, values: list) -> NumberColumn:
    nulls = np.array([v is None for v in values])
    bits = [int(v or "0", 16) for v in values]
    if spark_type == "float":
        return NumberColumn("float32", np.array(bits, np.uint32).view(np.float32), nulls)
    return NumberColumn("float64", np.array(bits, np.uint64).view(np.float64), nulls)


def by_types() -> dict[tuple[str, ...], list]:
    groups = defaultdict(list)
    for row in GOLDEN:
        groups[tuple(row["types"])].append(row)
    return groups


@pytest.mark.parametrize("types", by_types(), ids=",".join)
def test_hash_equals_spark(types):
    rows = by_types()[types]
    columns = [golden_column(t, [row["values"][i] for row in rows]) for i, t in enumerate(types)]
    assert spark_hash(columns).tolist() == [row["hash"] for row in rows]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_byte_hash_matches_scalar_rules(values):
    column = strings(values)
    assert spark_hash([column]).tolist() == [spark_bytes(value) for value in values]
    assert bytes_hash(column.data, column.offsets).tolist() == [scala_bytes(value) for value in values]


@given(
    st.lists(st.binary(max_size=15).map(lambda b: b * 4), min_size=1, max_size=20), st.integers(0, 2**32 - 1)
)
def test_whole_words_hash_as_standard_murmur(values, seed):
    assert spark_hash([strings(values)], seed=seed).tolist() == [mmh3.hash(v, seed) for v in values]


@given(st.lists(st.integers(-(10**38), 10**38) | st.integers(-(2**66), 2**66), max_size=20))
def test_wide_decimals_hash_their_shortest_bytes(values):
    column = numbers("decimal", values, precision=38)
    assert spark_hash([column]).tolist() == [spark_wide_decimal(value) for value in values]


@pytest.mark.parametrize("bits", range(128))
def test_wide_decimals_hash_at_powers_of_two(bits):
    edge = 1 << bits
    values = [v for v in (edge - 1, edge, edge + 1, -edge, -edge - 1, 1 - edge) if -(2**127) <= v < 2**127]
    column = numbers("decimal", values, precision=38)
    assert spark_hash([column]).tolist() == [spark_wide_decimal(value) for value in values]


@given(
    st.lists(
        st.tuples(st.none() | st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=9)), max_size=20
    )
)
def test_columns_chain_and_nulls_keep_hash(rows):
    expected = []
    for number, text in rows:
        state = 42 if number is None else spark_int(number)
        expected.append(state if text is None else spark_bytes(text.encode(), state))
    columns = [numbers("int32", [row[0] for row in rows]), strings([row[1] for row in rows])]
    assert spark_hash(columns).tolist() == expected


def test_long_and_short_strings_hash_together():
    rng = np.random.default_rng(1)
    lengths = [0, 3, 100_001, 1023, 1024, 1025, 1028, 5000, *rng.integers(0, 2000, 60).tolist()]
    values = [rng.bytes(length) for length in lengths]
    column = strings(values)
    assert spark_hash([column]).tolist() == [spark_bytes(value) for value in values]
    assert bytes_hash(column.data, column.offsets).tolist() == [scala_bytes(value) for value in values]


def test_results_do_not_depend_on_blocks():
    rng = np.random.default_rng(2)
    values = rng.integers(-(2**63), 2**63 - 1, 150_000)
    texts = strings([str(v)[: int(v) % 15] for v in values.tolist()])
    whole = spark_hash([NumberColumn("int64", values), texts])
    part = slice(65_000, 66_000)
    rows = spark_hash([NumberColumn("int64", values[part]), texts.slice(65_000, 66_000)])
    assert (whole[part] == rows).all()
    assert spark_hash([NumberColumn("int64", values[:3])]).tolist() == [
        spark_long(int(v)) for v in values[:3]
    ]
    hashed = bytes_hash(texts.data, texts.offsets)
    assert (hashed[part] == bytes_hash(texts.data, texts.offsets[65_000:66_001])).all()


def test_strided_columns_hash_like_copies():
    pairs = np.arange(40, dtype=np.int64).reshape(-1, 2)
    decimals = np.arange(80, dtype=np.int64).reshape(-1, 4)[:, 1:3]
    data = np.frombuffer(b"abcdefghijklmnop" * 2, np.uint8)[::2]
    for column, copy in (
        (NumberColumn("int64", pairs[:, 1]), NumberColumn("int64", pairs[:, 1].copy())),
        (NumberColumn("decimal", decimals, None, 38), NumberColumn("decimal", decimals.copy(), None, 38)),
        (StringColumn(data, np.array([0, 5, 16])), StringColumn(data.copy(), np.array([0, 5, 16]))),
    ):
        assert (spark_hash([column]) == spark_hash([copy])).all()


def test_no_columns_leave_the_seed():
    assert spark_hash([], rows=3).tolist() == [42, 42, 42]
    assert spark_hash([]).tolist() == []


def test_every_nan_and_both_zeros_hash_alike():
    bits = np.array([0x7FF0000000000001, 0xFFF8000000000123, 0x7FF8000000000000], np.uint64)
    floats = struct.unpack("3f", struct.pack("3I", 0x7F800001, 0xFFC00123, 0x7FC00000))
    assert len(set(spark_hash([NumberColumn("float64", bits.view(np.float64))]).tolist())) == 1
    assert len(set(spark_hash([numbers("float32", floats)]).tolist())) == 1
    assert len(set(spark_hash([numbers("float64", [0.0, -0.0])]).tolist())) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", -1579025880),
        ("a", -185275570),
        ("abcd", -1200447635),
        ("x y110", 1001586173),
        ("-737119", -1225754825),
        ("日本", 385798561),
    ],
)
def test_scala_hash_equals_the_jvm(text, expected):
    column = strings([text])
    assert bytes_hash(column.data, column.offsets).tolist() == [expected]

"""The compact protocol, against values written by hand from its specification."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.io import thrift


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_integer_survives(value: int) -> None:
    data = thrift.field(1, thrift.I64) + thrift.write_zigzag(value) + b"\x00"
    assert thrift.read_struct(data).fields == {1: value}


def test_all_types_are_read() -> None:
    data = (
        b"\x11\x12"  # fields 1 true and 2 false
        b"\x13\xff"  # 3: i8 -1
        b"\x05\x28\x02"  # field 20 in the long form: i32 1
        b"\x17" + struct.pack("<d", 2.5) + b"\x18\x02hi"  # 21 double, 22 binary
        b"\x19\x21\x01\x02"  # 23: list of true and false
        b"\x1b\x01\x85\x01k\x04"  # 24: map {b"k": 2}
        b"\x1b\x00"  # 25: empty map
        b"\x1c\x15\x02\x00"  # 26: struct {1: 1}
        b"\x00"
    )
    read = thrift.read_struct(b"??" + data + b"more", 2)
    inner = read.fields.pop(26)
    assert read.fields == {
        1: True, 2: False, 3: -1, 20: 1, 21: 2.5, 22: b"hi", 23: [True, False], 24: {b"k": 2}, 25: {},
    }  # fmt: skip
    assert inner.fields == {1: 1}
    assert (read.start, read.end) == (2, 2 + len(data))


@pytest.mark.parametrize("size", [0, 14, 15, 300])
def test_lists_of_any_length_survive(size: int) -> None:
    items = [thrift.write_zigzag(-n) for n in range(size)]
    data = thrift.field(1, thrift.LIST) + thrift.write_list(thrift.I32, items) + b"\x00"
    assert thrift.read_struct(data).fields == {1: [-n for n in range(size)]}


@given(st.binary(max_size=200))
def test_garbage_raises_thrift_error(data: bytes) -> None:
    with contextlib.suppress(thrift.ThriftError):
        thrift.read_struct(data)


@pytest.mark.parametrize("data", [b"\x1c" * 500, b"\x19\xfc\xff\xff\xff\xff\x0f", b"\x15" + b"\xff" * 11])
def test_depth_length_and_width_are_bounded(data: bytes) -> None:
    with pytest.raises(thrift.ThriftError):
        thrift.read_struct(data)


@pytest.mark.parametrize("kind", [thrift.LIST, thrift.SET, thrift.MAP, thrift.STRUCT])
def test_map_keys_are_plain_values(kind: int) -> None:
    data = thrift.field(1, thrift.MAP) + bytes([1, kind << 4 | thrift.I32]) + bytes(8)
    with pytest.raises(thrift.ThriftError, match="keys of a map"):
        thrift.read_struct(data)

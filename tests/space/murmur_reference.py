"""The two hashes of the format, one value at a time in Python integers."""

from __future__ import annotations

MASK = 0xFFFFFFFF


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & MASK


def mix(state: int, word: int) -> int:
    word = rotate((word & MASK) * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    return (rotate(state ^ word, 13) * 5 + 0xE6546B64) & MASK


def finish(state: int, length: int) -> int:
    state ^= length
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    return state ^ state >> 16


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def spark_bytes(data: bytes, seed: int = 42) -> int:
    state, whole = seed & MASK, len(data) // 4 * 4
    for at in range(0, whole, 4):
        state = mix(state, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        state = mix(state, byte - 256 if byte > 127 else byte)
    return signed(finish(state, len(data)))


def spark_int(value: int, seed: int = 42) -> int:
    return signed(finish(mix(seed & MASK, value), 4))


def spark_long(value: int, seed: int = 42) -> int:
    return signed(finish(mix(mix(seed & MASK, value), value >> 32), 8))


def spark_wide_decimal(unscaled: int, seed: int = 42) -> int:
    bits = unscaled.bit_length() if unscaled >= 0 else (~unscaled).bit_length()
    return spark_bytes(unscaled.to_bytes(bits // 8 + 1, "big", signed=True), seed)


def scala_bytes(data: bytes) -> int:
    state = 0x3C074A61
    for byte in data:
        state = mix(state, byte - 256 if byte > 127 else byte)
    return signed(finish(state, len(data)))

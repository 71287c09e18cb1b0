"""How often index keys repeat in a file: a sketch of a few hundred bytes, and its tag (format 7).

A file with few keys lists them. Other files have 512 or 1,024 counters: each key adds its rows to one counter or
subtracts them, as its weight decides. The counters of two files add up to the counters of both, and the squares of
all counters estimate ``sum(m_k ** 2)`` over keys with error ``sqrt(2 / counters)`` (the sketch of Alon, Matias and
Szegedy, with the buckets of Charikar, Chen and Farach-Colton), for heavy keys and for rare keys.
"""

from __future__ import annotations

import math
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.values import BoolArray, I32Array, I64Array, U8Array, U32Array, U64Array
from qbeast_core.support.sizing import sizing

# Maximum number of listed keys; they need as many bytes as the counters of a small file.
MAX_LISTED: Final = 32

# Counters of a file with at least a thousand rows: the error is about 4 %.
MAX_COUNTERS: Final = 1024

_MIN_COUNTERS: Final = 512
_MAX_SMALL_ROWS: Final = 1 << 10


@dataclass(frozen=True, slots=True, eq=False)
class KeySketch:
    """Counts of repeated keys in some rows."""

    rows: int
    # `sum(m_k ** 2)`, where m_k is the number of rows with key k.
    squares: int
    # The weights of all keys, ascending, if they are listed; else empty.
    weights: I32Array
    # The rows of each listed key; else the counters, whose number is a power of two.
    numbers: I64Array

    @property
    def is_listed(self) -> bool:
        """Whether all keys are listed; also true without rows."""
        return len(self.weights) == len(self.numbers)

    @staticmethod
    def of(weights: I32Array) -> KeySketch:
        """Count the keys of rows, given their weights so that equal ones are contiguous.

        >>> sketch = KeySketch.of(np.array([1, 1, 5, 7], dtype=np.int32))
        >>> sketch.rows, sketch.squares, sketch.weights.tolist(), sketch.numbers.tolist()
        (4, 6, [1, 5, 7], [2, 1, 1])
        """
        differs = weights[1:] != weights[:-1]
        key_count = int(np.count_nonzero(differs)) + 1
        if key_count <= MAX_LISTED:
            keys, counts = np.unique(weights, return_counts=True)
            return KeySketch(len(weights), int(np.dot(counts, counts)), keys, counts.astype(np.int64))
        width = _MIN_COUNTERS if len(weights) < _MAX_SMALL_ROWS else MAX_COUNTERS
        if key_count == len(weights):
            return KeySketch(len(weights), len(weights), weights[:0], to_counters(weights, None, width))
        begins = np.concatenate([[0], np.flatnonzero(differs) + 1])
        counts = np.diff(begins, append=len(weights))
        counters = to_counters(weights[begins], counts, width)
        return KeySketch(len(weights), int(np.dot(counts, counts)), weights[:0], counters)

    def without(self, weights: I32Array, counts: I64Array) -> KeySketch:
        """Return the sketch of the rows without those of some keys.

        >>> sketch = KeySketch.of(np.array([1, 1, 5, 7], dtype=np.int32))
        >>> left = sketch.without(np.array([1], dtype=np.int32), np.array([2]))
        >>> left.rows, left.squares, left.weights.tolist(), left.numbers.tolist()
        (2, 2, [5, 7], [1, 1])
        """
        rows, squares = self.rows - int(counts.sum()), self.squares - int(np.dot(counts, counts))
        if self.is_listed:
            left = ~np.isin(self.weights, weights)
            return KeySketch(rows, squares, self.weights[left], self.numbers[left])
        counters = self.numbers - to_counters(weights, counts, len(self.numbers))
        return KeySketch(rows, squares, self.weights, counters)


def to_counters(weights: I32Array, counts: I64Array | None, width: int) -> I64Array:
    """Return the counters of keys; each key counts once if `counts` is None."""
    both = np.zeros(2 * width, np.int64)
    step = max(sizing().chunk_rows >> 1, 1)
    for first in range(0, len(weights), step):  # in chunks, so the arrays fit the caches
        bits = mixed(weights[first : first + step].view(np.uint32))
        # The upper half collects the rows to subtract.
        slots = ((bits & np.uint32(width - 1)) | ((bits >> np.uint32(31)) * np.uint32(width))).astype(
            np.int64
        )
        if counts is None:
            both += np.bincount(slots, minlength=2 * width)
        else:
            np.add.at(both, slots, counts[first : first + step])
    return both[:width] - both[width:]


def fold(counters: I64Array, width: int) -> I64Array:
    """Reduce counters to a smaller number for the same keys.

    >>> keys = np.arange(99, dtype=np.int32)
    >>> bool((fold(to_counters(keys, None, 1024), 512) == to_counters(keys, None, 512)).all())
    True
    """
    folded: I64Array = counters.reshape(-1, width).sum(axis=0)
    return folded


def mixed(numbers: U32Array) -> U32Array:
    """Mix the bits of numbers. Weights are not uniform within a file or page, which hold ranges of weights.

    >>> mixed(np.array([0, 1, 2], dtype=np.uint32)).tolist()
    [0, 1753845952, 3507691905]
    """
    bits = numbers.copy()
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x7FEB352D)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x846CA68B)
    bits ^= bits >> np.uint32(16)
    return bits


_DIGITS: Final = 6  # hides rounding errors of sums


class KeyTotal:
    """A sum of sketches; its size does not grow with their number, except for lists of keys.

    >>> total = KeyTotal()
    >>> total.add(KeySketch.of(np.array([1, 1, 5], dtype=np.int32)))
    >>> total.add(KeySketch.of(np.array([5, 6], dtype=np.int32)))
    >>> total.rows, total.squares
    (5, 9.0)
    """

    def __init__(self) -> None:
        self.rows = 0
        """Number of rows."""
        self._lists: list[tuple[I32Array, I64Array]] = []
        # Sum of the counters of files with the same number of counters.
        self._counters: dict[int, I64Array] = {}
        self._squares, self._roots, self._within = 0.0, 0.0, 0.0

    def add(self, sketch: KeySketch) -> None:
        """Count the rows of one more file."""
        self.rows += sketch.rows
        if sketch.is_listed:
            self._lists.append((sketch.weights, sketch.numbers))
            return
        self._squares += float(sketch.squares)
        self._roots += math.sqrt(sketch.squares)
        self._within += _square(sketch.numbers)
        width = len(sketch.numbers)
        self._counters[width] = self._counters.get(width, 0) + sketch.numbers

    def copy(self) -> KeyTotal:
        """Return an independent copy."""
        other = KeyTotal()
        other.rows = self.rows
        other._squares, other._roots, other._within = self._squares, self._roots, self._within
        other._lists, other._counters = list(self._lists), dict(self._counters)  # arrays are never changed
        return other

    @property
    def squares(self) -> float:
        """``sum(m_k ** 2)`` over keys: exact within a file and among listed keys, else estimated."""
        weights, counts = self._listed()
        listed = float((counts.astype(np.float64) ** 2).sum())
        squares = self._squares + listed
        # Upper bound: all files repeat the same keys in proportion (Cauchy and Schwarz).
        max_squares = (self._roots + math.sqrt(listed)) ** 2
        return min(squares * (1.0 + self._shared(weights, counts)), max(max_squares, squares))

    def design_effect(self, *, unknown_rows: int = 0) -> float:
        """Return the design effect of sampling these rows, at least 1.0; 1.0 without rows."""
        rows = self.rows + unknown_rows
        return max(round((self.squares + unknown_rows) / rows, _DIGITS), 1.0) if rows else 1.0

    def joined(self, squares: float | None = None) -> KeySketch:
        """Return all rows as one sketch."""
        weights, counts = self._listed()
        if not self._counters:
            return KeySketch(self.rows, int(np.dot(counts, counts)), weights, counts)
        counters = to_counters(weights, counts, max(self._counters))
        for width in sorted(self._counters, reverse=True):
            counters = fold(counters, width) + self._counters[width]
        total = self.squares if squares is None else squares
        return KeySketch(self.rows, round(total), weights[:0], counters)

    def _listed(self) -> tuple[I32Array, I64Array]:
        if not self._lists:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        weights = np.concatenate([weights for weights, _ in self._lists])
        keys, places = np.unique(weights, return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, places, np.concatenate([numbers for _, numbers in self._lists]))
        self._lists = [(keys, counts)]
        return keys, counts

    def _shared(self, weights: I32Array, counts: I64Array) -> float:
        """Estimate the contribution of keys in several files, as a fraction of the squares within files.

        Products of counters estimate both. Their ratio is more precise than the products; it is exact for files with
        the same keys.
        """
        if not self._counters:
            return 0.0
        finer = to_counters(weights, counts, max(self._counters))
        within, shared = _square(finer) + self._within, -self._within
        for width in sorted(self._counters, reverse=True):
            finer = fold(finer, width)
            shared -= _square(finer)
            finer = finer + self._counters[width]
            shared += _square(finer)
        return max(shared / within, 0.0) if within else 0.0


def _square(numbers: I64Array) -> float:
    exact = numbers.astype(np.float64)
    return float(np.einsum("i,i->", exact, exact))  # `dot` would occupy a core for some 30 ms afterwards


# Above this design effect, samples are noticeably less precise than their number of rows suggests.
CLUSTERED: Final = 2.0


def design_effect(weights: I32Array, *, share: float = 1.0) -> float:
    """Return the design effect of sampling by weight: ``sum(m_k ** 2) / n`` over index keys.

    Rows with equal keys have equal weights and enter a sample together, so the variance of a sampled count
    is this many times the variance of sampling row by row; 1.0 is the minimum.

    >>> design_effect(np.array([1, 1, 2, 3], dtype=np.int32))
    1.5
    """
    if not len(weights):
        return 1.0
    ordered = np.sort(weights)
    squares, start = 0.0, 0
    # In chunks, because sizes of runs need twice the memory of weights.
    for first in range(1, len(ordered), sizing().chunk_rows):
        last = min(first + sizing().chunk_rows, len(ordered))
        starts = np.flatnonzero(ordered[first:last] != ordered[first - 1 : last - 1]) + first
        sizes = np.diff(starts, prepend=start).astype(np.float64) if len(starts) else np.zeros(0)
        squares += float(np.einsum("i,i->", sizes, sizes))  # threads of `dot` spin while they wait
        start = int(starts[-1]) if len(starts) else start
    sample_effect = (squares + float(len(ordered) - start) ** 2) / len(ordered)
    # Two rows with one key are both sampled with probability share ** 2.
    return 1.0 + (sample_effect - 1.0) / share


# A key is heavy if it has at least two rows, and one in this many rows that no heavier key has.
HEAVY_SHARE: Final = 256

_MIN_ROWS: Final = 2

# Maximum number of stretches of a heavy key. Usually it has one; other keys with the same weight split it.
_MAX_RUNS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """The heavy keys of a file."""

    # Weights of the keys, ascending.
    weights: I32Array
    rows: I64Array
    # First row of each key in the file, if its rows are contiguous and in an order that is independent of their
    # values; else -1.
    firsts: I64Array

    def __len__(self) -> int:
        return len(self.weights)

    def select(self, marked: BoolArray) -> HeavyKeys:
        """Return some of the keys."""
        return HeavyKeys(self.weights[marked], self.rows[marked], self.firsts[marked])

    @staticmethod
    def none() -> HeavyKeys:
        """Return an instance without keys."""
        return HeavyKeys(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @staticmethod
    def of(weights: I32Array, *, together: bool) -> HeavyKeys:
        """Find the heavy keys of a file. `together`: return where their rows are, if they are contiguous.

        >>> heavy = HeavyKeys.of(np.array([1, 1, 5, 7, 7, 5, 7], dtype=np.int32), together=True)
        >>> heavy.weights.tolist(), heavy.rows.tolist(), heavy.firsts.tolist()
        ([1, 5, 7], [2, 2, 3], [0, -1, -1])
        """
        begins, counts = _runs(weights)
        if int(counts.max(initial=0)) * _MAX_RUNS * HEAVY_SHARE < len(weights):
            return HeavyKeys.none()
        keys, first, run = np.unique(weights[begins], return_index=True, return_inverse=True)
        rows = np.bincount(run, counts, len(keys)).astype(np.int64)
        heavy = np.sort(heaviest(rows, len(weights)))
        contiguous = (counts[first] == rows) & together
        return HeavyKeys(keys[heavy], rows[heavy], np.where(contiguous, begins[first], -1)[heavy])

    def shuffled(self, rows: int) -> I64Array | None:
        """Return an order of the file's rows that shuffles each contiguous heavy key by a hash of the positions.

        A stretch of these rows is then a simple random sample, independent of their values. None without such keys.
        """
        order = np.arange(rows, dtype=np.int64)
        stretches = np.flatnonzero(self.firsts >= 0).tolist()
        for key in stretches:
            begin, count = int(self.firsts[key]), int(self.rows[key])
            positions: U32Array = np.arange(count, dtype=np.uint32)
            positions += np.uint32((int(self.weights[key]) * 31 + rows) & 0xFFFFFFFF)
            order[begin : begin + count] = begin + np.argsort(mixed(positions), kind="stable")
        return order if stretches else None


def heaviest(counts: I64Array, rows: int) -> I64Array:
    """Return the positions of heavy keys, heaviest first, at most `HEAVY_SHARE`.

    >>> heaviest(np.array([1, 300, 2, 700]), 1_500).tolist()
    [3, 1, 2]
    """
    order = np.argsort(-counts, kind="stable")[:HEAVY_SHARE]
    ordered = counts[order]
    others = rows - np.cumsum(ordered) + ordered
    light = (ordered * HEAVY_SHARE < others) | (ordered < _MIN_ROWS)
    return order[: int(np.argmax(light)) if light.any() else len(order)]


def _runs(weights: I32Array) -> tuple[I64Array, I64Array]:
    """Return the first row and the number of rows of each stretch with one weight."""
    is_start = np.ones(len(weights), np.bool_)
    np.not_equal(weights[1:], weights[:-1], out=is_start[1:])
    begins = np.flatnonzero(is_start)
    return begins, np.diff(begins, append=len(weights))


# Name of the tag.
KEYS_TAG: Final = "qbeast.keys"

# Prefix of tags without a list of heavy keys.
OLD_VERSION: Final = "1:"

_VERSION: Final = "2:"
_VERSIONS: Final = (OLD_VERSION, _VERSION)
_MAX_CHARACTERS: Final = 1 << 14
_MAX_BYTES: Final = 1 << 14
_MIN_STORED_COUNTERS: Final = 64
_MAX_NUMBER_BYTES: Final = 8
_CRC_BYTES: Final = 4
_DAMAGED: Final = "damaged tag"
_WEIGHT_BYTES: Final = 4
_MAX_ROWS: Final = 1 << 48
_MAX_VARINT_BITS: Final = 14 * 7  # of a number in groups of seven bits; the squares are the largest number
_COUNTERS_OF_BYTE: Final = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(256)], np.int64)


def keys_of_file(weights: I32Array, *, is_scattered: bool) -> tuple[KeySketch, HeavyKeys]:
    """Count the keys of a file, given the weights in the order of the file.

    The rows of a heavy key are contiguous. With a sampling key they are scattered; then no position is returned.

    >>> weights = np.array([1, 5, 1], dtype=np.int32)
    >>> sketch, heavy = keys_of_file(weights, is_scattered=True)
    >>> sketch.squares, heavy.weights.tolist(), heavy.firsts.tolist()
    (5, [1], [-1])
    """
    ordered = np.sort(weights)
    return KeySketch.of(ordered), HeavyKeys.of(
        ordered if is_scattered else weights, together=not is_scattered
    )


def dump_keys(sketch: KeySketch, heavy: HeavyKeys | None = None) -> str:
    """Return the tag of a file.

    >>> weights = np.array([1, 1, 5], dtype=np.int32)
    >>> dump_keys(KeySketch.of(weights))
    '2:e40uu2NmZWVkZQADJkYA'
    >>> dump_keys(KeySketch.of(weights), HeavyKeys.of(weights, together=True))
    '2:e40uu2NmZWVkZQADJkYA:e1V2tWNkZGBgYGIEAA=='
    """
    listed = sketch.is_listed
    count = len(sketch.numbers)
    # Counters as 0, -1, 1, -2 ... -> 0, 1, 2, 3 ..., so small counters have no high bytes.
    numbers = sketch.numbers if listed else (sketch.numbers << 1) ^ (sketch.numbers >> 63)
    planes = [_planes(sketch.weights.view(np.uint32).astype(np.uint64), _WEIGHT_BYTES)] if listed else []
    planes.append(_planes(numbers.astype(np.uint64)))
    head = [_to_varint(number) for number in (sketch.rows, sketch.squares, count << 1 | int(listed))]
    text = _VERSION + _compressed([*head, *planes])
    if heavy is None or not len(heavy):
        return text
    parts = [_planes(heavy.weights.view(np.uint32).astype(np.uint64), _WEIGHT_BYTES)]
    parts += [_to_varint(number) for number in (*heavy.rows.tolist(), *(heavy.firsts + 1).tolist())]
    return f"{text}:{_compressed([_to_varint(len(heavy)), *parts])}"


def parse_keys(text: str | None) -> KeySketch | None:
    """Parse a tag; None if it is missing, damaged, or of another version.

    A tag has at most 16 KiB, compressed or not, and includes a checksum.

    >>> sketch = parse_keys("1:e40uu2NmZWVkZQADJkYA")
    >>> sketch.rows, sketch.squares, sketch.weights.tolist(), sketch.numbers.tolist()
    (3, 5, [1, 5], [2, 1])
    >>> parse_keys("3:eNpj") is None
    True
    """
    if text is None or not text.startswith(_VERSIONS) or len(text) > _MAX_CHARACTERS:
        return None
    try:
        return _read(_decompressed(text.split(":")[1]))
    except (ValueError, zlib.error):
        return None


def parse_heavy(text: str | None, rows: int) -> HeavyKeys | None:
    """Return the heavy keys of a tag; None if it has no list, or an invalid one.

    >>> heavy = parse_heavy("2:e40uu2NmZWVkZQADJkYA:e1V2tWNkZGBgYGIEAA==", 3)
    >>> heavy.weights.tolist(), heavy.rows.tolist(), heavy.firsts.tolist()
    ([1], [2], [0])
    >>> parse_heavy("1:e40uu2NmZWVkZQADJkYA", 3) is None
    True
    """
    if text is None or not text.startswith(_VERSION) or len(text) > _MAX_CHARACTERS:
        return None
    pieces = text.split(":")
    if len(pieces) == 2:  # without heavy keys
        return HeavyKeys.none()
    try:
        return _read_heavy(_decompressed(pieces[2]), rows)
    except (ValueError, zlib.error):
        return None


def _compressed(parts: list[bytes]) -> str:
    # Run lengths and Huffman codes only: encoding of random repeats costs more than it saves.
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_RLE)
    data = b"".join(parts)
    # The checksum of the zlib format misses changes of small numbers.
    packed = zlib.crc32(data).to_bytes(_CRC_BYTES, "little") + packer.compress(data) + packer.flush()
    return b64encode(packed).decode("ascii")


def _decompressed(text: str) -> bytes:
    """Return the bytes; raise ValueError or zlib.error if they are damaged."""
    packed = b64decode(text.encode("ascii"), validate=True)
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    data = unpacker.decompress(packed[_CRC_BYTES:], _MAX_BYTES)
    is_valid = zlib.crc32(data).to_bytes(_CRC_BYTES, "little") == packed[:_CRC_BYTES]
    if not is_valid or not unpacker.eof or unpacker.unused_data:
        raise ValueError(_DAMAGED)
    return data


def _read_heavy(data: bytes, rows: int) -> HeavyKeys | None:
    """Parse the list of heavy keys; None if it does not fit the number of rows."""
    (count,), data = _from_varints(data, 1)
    if not 0 < count <= HEAVY_SHARE:
        return None
    weights, data = _weights(data, count)
    numbers, data = _from_varints(data, 2 * count)
    if data or max(numbers) > rows:
        return None
    heavy = np.array(numbers, np.int64).reshape(2, count)
    ends = np.where(heavy[1] > 0, heavy[1] - 1 + heavy[0], 0)
    order = np.argsort(heavy[1], kind="stable")
    apart = (np.where(heavy[1] > 0, heavy[1] - 1, 0)[order][1:] >= ends[order][:-1]).all()
    sound = (np.diff(weights.astype(np.int64)) > 0).all() and (heavy[0] > 0).all() and apart
    fits = int(heavy[0].sum()) <= rows and int(ends.max()) <= rows
    return HeavyKeys(weights, heavy[0], heavy[1] - 1) if sound and fits else None


def _read(data: bytes) -> KeySketch | None:
    """Parse a sketch; None if it is inconsistent."""
    (rows, squares, coded), data = _from_varints(data, 3)
    count, listed = coded >> 1, bool(coded & 1)
    is_power = count & (count - 1) == 0
    is_valid = count <= MAX_LISTED if listed else _MIN_STORED_COUNTERS <= count <= MAX_COUNTERS and is_power
    if not is_valid or rows >= _MAX_ROWS or not rows <= squares <= rows * rows:
        return None
    weights, data = _weights(data, count if listed else 0)
    if len(data) % max(count, 1) or len(data) > count * _MAX_NUMBER_BYTES:
        return None
    numbers = _from_planes(data, count).view(np.int64) if listed else _counters(data, count)
    is_valid = _agrees(rows, squares, numbers, listed=listed)
    return KeySketch(rows, squares, weights, numbers) if is_valid else None


def _agrees(rows: int, squares: int, numbers: I64Array, *, listed: bool) -> bool:
    # Unsigned, because the minimum signed number has no absolute value. Sums of sizes up to `rows` do not overflow.
    sizes = np.abs(numbers).view(np.uint64)
    if int(sizes.max(initial=0)) > rows:
        return False
    if listed:
        return int(numbers.sum()) == rows and sum(count * count for count in numbers.tolist()) == squares
    return int(sizes.sum()) <= rows


def _counters(data: bytes, count: int) -> I64Array:
    if len(data) == count:  # the usual case, and fast: each append reads the counters of all files
        return _COUNTERS_OF_BYTE[np.frombuffer(data, np.uint8)]
    numbers = _from_planes(data, count)
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)


def _planes(numbers: U64Array, width: int | None = None) -> bytes:
    """Return numbers as planes of bytes, lowest byte first; the largest number decides how many planes."""
    if width is None:
        width = -(-int(numbers.max(initial=0)).bit_length() // 8)
    return np.ascontiguousarray(numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T).tobytes()


def _weights(data: bytes, count: int) -> tuple[I32Array, bytes]:
    """Return the weights at the start of `data`, and the rest."""
    size = _WEIGHT_BYTES * count
    if len(data) < size:
        raise ValueError(_DAMAGED)
    return _from_planes(data[:size], count).astype(np.uint32).view(np.int32), data[size:]


def _from_planes(data: bytes, count: int) -> U64Array:
    planes = np.zeros((count, _MAX_NUMBER_BYTES), np.uint8)
    if count:
        stored: U8Array = np.frombuffer(data, np.uint8)[: len(data) // count * count].reshape(-1, count)
        planes[:, : len(stored)] = stored.T
    return planes.view("<u8").reshape(-1)


def _to_varint(number: int) -> bytes:
    """Encode a number in groups of seven bits, lowest first; all groups except the last have the high bit set."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _from_varints(data: bytes, count: int) -> tuple[list[int], bytes]:
    """Return the `count` numbers at the start of `data`, and the rest; raise ValueError if there are fewer."""
    numbers: list[int] = []
    number = shift = 0
    for place, group in enumerate(data):
        number |= (group & 0x7F) << shift
        shift += 7
        if group < 0x80:
            numbers.append(number)
            number = shift = 0
        if len(numbers) == count:
            return numbers, data[place + 1 :]
        if shift >= _MAX_VARINT_BITS:
            break
    raise ValueError(_DAMAGED)

"""Values to coordinates in [0, 1], and coordinates to the 256 steps of stored bounds (format 4 and 7).

Steps are equal where values are spread evenly. Elsewhere there are 16 groups of 16 equal steps, and each group has
about as many bounds as any other.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Final, NoReturn

import numpy as np

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.hashes import finalize, fold_words, number_text
from qbeast_core.space.values import (
    BoolArray,
    F64Array,
    I32Array,
    I64Array,
    IndexColumn,
    NumberColumn,
    StringColumn,
    U8Array,
    U64Array,
    distinct,
    number_values,
)
from qbeast_core.spec.blocks import BOX_STEPS, STEP_GROUPS
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    HashTransformation,
    IdentityTransformation,
    LinearTransformation,
    StringHistogramTransformation,
    TextTransformation,
    Transformation,
    typed_number,
)
from qbeast_core.support.sizing import sizing

_LARGEST_HASH = 0x7FFFFFFF

_BUCKETS = 1 << 13

# A string is searched as 64-bit words: seven bytes, then how many bytes it has left, 8 for more than
# seven. No padding is ambiguous then, and strings compare as their words do.
_BYTES = 7
_MORE = _BYTES + 1
_KEEP = np.array([(1 << 64) - (1 << 8 * (8 - kept)) for kept in range(_MORE)], np.uint64)

_SEED = 0x3C074A61


def to_coordinates(transformation: Transformation, column: IndexColumn) -> F64Array:
    """Return the coordinate of every row along one indexed column.

    >>> from qbeast_core.spec.revision import linear_transformation
    >>> price = linear_transformation("DoubleDataType", min_number=0, max_number=10, null_value=5)
    >>> column = NumberColumn("float64", np.array([2.5, np.nan, 0.0]), np.array([False, False, True]))
    >>> to_coordinates(price, column).tolist()
    [0.25, 1.0, 0.5]
    """
    out = np.empty(len(column))
    step = sizing().chunk_rows
    for start in range(0, len(column), step):
        stop = min(start + step, len(column))
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            out[start:stop] = _coordinates(transformation, column.slice(start, stop))
    if column.nulls is not None:
        out[column.nulls] = null_coordinate(transformation)
    return out


def coordinates_of_numbers(
    transformation: Transformation, values: F64Array, *, first: bool = False
) -> F64Array:
    """Return the coordinates of numbers, such as the literals of a predicate.

    >>> quantiles = CDFNumericQuantilesTransformation(quantiles=(0.0, 3.0, 3.0), data_type="DoubleDataType")
    >>> [coordinates_of_numbers(quantiles, np.array([3.0]), first=first).tolist() for first in (True, False)]
    [[0.5], [1.0]]
    """
    if isinstance(transformation, LinearTransformation):
        return _linear(transformation, values)
    if isinstance(transformation, CDFNumericQuantilesTransformation):
        return number_ranks(transformation.quantiles, values, first=first)
    if isinstance(transformation, IdentityTransformation):
        return np.isnan(values).astype(np.float64)
    if isinstance(transformation, HashTransformation | TextTransformation):
        _refuse(transformation, "plain numbers")
    return np.zeros(len(values))


def null_coordinate(transformation: Transformation) -> float:
    """Return the coordinate of null.

    >>> null_coordinate(HashTransformation(null_value=-737119)) == (-1225754825 & 0x7FFFFFFF) / 0x7FFFFFFF
    True
    """
    if isinstance(transformation, LinearTransformation):
        null = _typed(transformation, transformation.null_value)
        return float(_linear(transformation, np.array([null]))[0])
    if isinstance(transformation, HashTransformation):
        return float(_hashed(_text(str(transformation.null_value)))[0])
    if isinstance(transformation, StringHistogramTransformation):
        return float(string_ranks(transformation.histogram, _text("null"))[0])
    return 0.0


def string_quantile_bounds(
    transformation: TextTransformation, values: StringColumn
) -> tuple[F64Array, F64Array]:
    """Return the least and the greatest coordinate that a writer may have given to each string.

    They differ where a string equals a quantile that repeats: `to_coordinates` takes the last of them,
    other writers any. Nulls have their own coordinate in both.
    """
    knots = transformation.knots
    lower, upper = string_ranks(knots, values, first=True), string_ranks(knots, values)
    if values.nulls is not None:
        lower[values.nulls] = upper[values.nulls] = null_coordinate(transformation)
    return lower, upper


def _coordinates(transformation: Transformation, column: IndexColumn) -> F64Array:
    if isinstance(transformation, HashTransformation):
        return _hashed(column)
    if isinstance(transformation, TextTransformation):
        if isinstance(column, NumberColumn):
            _refuse(transformation, f"a {column.kind} column")
        return string_ranks(transformation.knots, column)
    if isinstance(column, NumberColumn):
        return coordinates_of_numbers(transformation, number_values(column))
    if isinstance(transformation, LinearTransformation | CDFNumericQuantilesTransformation):
        _refuse(transformation, "a string column")
    return np.zeros(len(column))


def _linear(transformation: LinearTransformation, values: F64Array) -> F64Array:
    low, high = (_typed(transformation, end) for end in transformation.knots)
    half = 1.0 if math.isfinite(high - low) else 0.5
    low, high = low * half, high * half
    # Bounds that are one float64, or less than the smallest normal apart, are taken as that far apart.
    width = max(high - low, math.ulp(low), float(np.finfo(np.float64).tiny))
    with np.errstate(over="ignore"):  # beyond the range by more than any float64: the end of it
        coordinates: F64Array = values * half if half != 1.0 else values
        coordinates = coordinates - low
        coordinates *= 1.0 / width
    np.fmin(coordinates, 1.0, out=coordinates)  # takes NaN to 1.0
    return np.maximum(coordinates, 0.0, out=coordinates)


def _hashed(column: IndexColumn) -> F64Array:
    if isinstance(column, StringColumn):
        hashes = bytes_hash(column.data, column.offsets)
    else:
        hashes = _span_hash(*number_text(column))
    return (hashes & np.int32(_LARGEST_HASH)) / _LARGEST_HASH


def _text(text: str) -> StringColumn:
    data = np.frombuffer(text.encode(), np.uint8)
    return StringColumn(data, np.array([0, len(data)], np.int64))


def _typed(transformation: LinearTransformation, number: float) -> float:
    """Return a JSON number as it is computed with; integers beyond float64 count as its largest."""
    largest = float(np.finfo(np.float64).max)
    return float(typed_number(min(max(number, -largest), largest), transformation.ordered_data_type))


def _refuse(transformation: Transformation, what: str) -> NoReturn:
    name = type(transformation).__name__
    message = f"A {name} gives no coordinates to {what}: column and revision do not belong together"
    raise InvalidInputError(message, argument="transformation")


def number_ranks(quantiles: Sequence[float], values: F64Array, *, first: bool = False) -> F64Array:
    """Return the rank of each value among the quantiles, as a share.

    >>> number_ranks([0.0, 10.0, 20.0], np.array([-1.0, 0.0, 5.0, 20.0, np.nan])).tolist()
    [0.0, 0.0, 0.25, 1.0, 1.0]
    """
    knots = np.array(quantiles, np.float64)
    scale = 1.0 if knots[-1] / 2 - knots[0] / 2 < np.finfo(np.float64).max / 2 else 0.5  # no gap overflows
    gaps = np.diff(knots * scale)
    # Entry i serves values from knot i - 1 on; those below all knots are held at the first one.
    origin = np.concatenate([knots[:1], knots]) * scale
    width = np.concatenate([[1.0], gaps, [1.0]])
    width[width == 0] = 1.0  # between equal knots lies no value
    rank = np.concatenate([[0.0], np.arange(len(knots), dtype=np.float64)])
    find = partial(np.searchsorted, knots) if first else _Finder(knots)
    entry = find(values)
    if first:  # a value equal to the knot starts there
        entry += knots[np.minimum(entry, len(knots) - 1)] == values
    out: F64Array = values * scale
    np.fmin(out, origin[-1], out=out)  # takes NaN to the last knot
    np.maximum(out, origin[0], out=out)
    out -= origin[entry]
    out /= width[entry]
    out += rank[entry]
    out /= len(knots) - 1
    return out


class _Finder:
    """`searchsorted` for many values: a guess by equal buckets, checked, and searched where it is wrong.

    A search takes ten steps that mispredict; the guess takes none and is right unless several knots share
    a bucket.
    """

    def __init__(self, knots: F64Array) -> None:
        self.knots = knots
        self.padded = np.concatenate([[-np.inf], knots, [np.inf]])
        span = float(knots[-1] / 2 - knots[0] / 2) * 2
        self.per_unit = _BUCKETS / span if 0 < span < np.inf else 0.0
        edges = knots[0] + np.arange(_BUCKETS + 1) / (self.per_unit or 1.0)
        self.first = np.searchsorted(knots, edges, "right")

    def __call__(self, values: F64Array) -> I64Array:
        if not 0 < self.per_unit < np.inf or len(values) < _BUCKETS:
            return np.searchsorted(self.knots, values, "right")
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities end in some bucket
            place = (values - self.knots[0]) * self.per_unit
            np.fmax(np.fmin(place, _BUCKETS, out=place), 0.0, out=place)
        guess = self.first[place.astype(np.int64)]
        guess += self.padded[guess + 1] <= values
        np.minimum(guess, len(self.knots), out=guess)
        right = (self.padded[guess] <= values) & (values < self.padded[guess + 1])
        wrong = np.flatnonzero(~right)
        guess[wrong] = np.searchsorted(self.knots, values[wrong], "right")
        entries: I64Array = guess
        return entries


def string_ranks(quantiles: Sequence[str], column: StringColumn, *, first: bool = False) -> F64Array:
    """Return the rank of each string among the quantiles, as a share.

    >>> text = StringColumn(np.frombuffer(b"abbccc", np.uint8), np.array([0, 0, 1, 2, 6]))
    >>> string_ranks(["a", "b", "c"], text).tolist()
    [0.0, 0.0, 0.5, 0.5]
    """
    levels, first_rank, last_rank = _search_table(tuple(quantiles))
    ranks = np.empty(len(column))
    for start in range(0, len(column), sizing().chunk_rows):  # the search needs 100 bytes per string
        block = slice(start, min(start + sizing().chunk_rows, len(column)))
        below, exact = _search(levels, column.slice(block.start, block.stop))
        ranks[block] = last_rank[below]
        if first:
            ranks[block][exact] = first_rank[below[exact]]
    return ranks


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The distinct quantiles that agree in their first k words, in groups that word k separates."""

    # Words of all groups, sorted, each once.
    words: U64Array

    # One entry a group and word, sorted; each group begins with one for what sorts below its words.
    keys: I64Array

    # How many distinct quantiles are not above a string whose search ends at this entry.
    below: I64Array

    # The group of the next level in which a string with the entry's word is sought, -1 for none.
    child: I64Array

    one_group: bool

    def find(self, words: U64Array, groups: I64Array) -> tuple[I64Array, BoolArray]:
        """Return the last entry not above each word in its group, and whether it is that word's own."""
        # One sorted array serves all groups: the key of a word is its group's first number plus twice its place,
        # odd for a word of the level and even for the gap behind it.
        places = np.searchsorted(self.words, words, side="right")
        match: BoolArray = self.words[places - 1] == words  # place 0 looks at the last word: larger
        if self.one_group:
            return places, match
        keys = groups * _stride(self.words) + 2 * places - match
        entries = np.searchsorted(self.keys, keys, side="right") - 1
        return entries, match & (self.keys[entries] == keys)


def _stride(words: U64Array) -> int:
    return 2 * len(words) + 1


def _search(levels: Sequence[_Level], column: StringColumn) -> tuple[I64Array, BoolArray]:
    begin, end = column.offsets[0], column.offsets[-1]
    data = np.concatenate([column.data[begin:end], np.zeros(8, np.uint8)])
    window: U64Array = np.ndarray((data.size - 7,), ">u8", data, strides=(1,))
    starts, left = column.offsets[:-1] - begin, np.diff(column.offsets)
    below, exact = np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    rows, groups = np.arange(len(column)), np.zeros(len(column), np.int64)
    for level in levels:
        entries, match = level.find(_words(window, starts, left), groups)
        below[rows] = level.below[entries]
        groups = level.child[entries]
        exact[rows] = match & (groups < 0)
        deeper = np.flatnonzero(match & (groups >= 0))
        rows, groups = rows[deeper], groups[deeper]
        starts, left = starts[deeper] + _BYTES, left[deeper] - _BYTES
    return below, exact


def _words(window: U64Array, starts: I64Array, left: I64Array) -> U64Array:
    words = window[starts].astype(np.uint64)  # from big-endian
    words &= _KEEP[np.minimum(left, _BYTES)]
    words |= np.minimum(left, _MORE).astype(np.uint64)
    return words


@lru_cache(maxsize=64)
def _search_table(quantiles: tuple[str, ...]) -> tuple[tuple[_Level, ...], F64Array, F64Array]:
    """Return the levels, and the first and last rank by the number of distinct quantiles not above a string."""
    ordered = sorted(text.encode("utf-8", "surrogatepass") for text in quantiles)
    distinct = sorted(set(ordered))
    ends = np.array([0, *(bisect_right(ordered, text) for text in distinct)])
    # Below every quantile: the rank of the first one.
    first = np.concatenate([[0], ends[:-1]])
    last = np.maximum(ends - 1, 0)
    return tuple(_levels(distinct)), first / (len(ordered) - 1), last / (len(ordered) - 1)


def _levels(distinct: list[bytes]) -> Iterator[_Level]:
    depth, groups = 0, [range(len(distinct))]
    while groups:
        words = {row: _word(distinct[row], depth) for group in groups for row in group}
        distinct_words = np.array(sorted(set(words.values())), np.uint64)
        place = {word: 2 * at + 1 for at, word in enumerate(distinct_words.tolist())}
        keys, below, child = [], [], []
        deeper: list[range] = []
        for number, group in enumerate(groups):
            keys.append(number * _stride(distinct_words))
            below.append(group.start)
            child.append(-1)
            for word, run in groupby(group, words.__getitem__):
                rows = list(run)
                keys.append(number * _stride(distinct_words) + place[word])
                below.append(rows[-1] + 1)
                goes_on = word & 0xFF == _MORE
                child.append(len(deeper) if goes_on else -1)
                if goes_on:
                    deeper.append(range(rows[0], rows[-1] + 1))
        yield _Level(distinct_words, np.array(keys), np.array(below), np.array(child), len(groups) == 1)
        depth, groups = depth + 1, deeper


def _word(text: bytes, depth: int) -> int:
    start = depth * _BYTES
    word = text[start : start + _BYTES].ljust(_BYTES, b"\0")
    return int.from_bytes(word, "big") << 8 | min(len(text) - start, _MORE)


def bytes_hash(data: U8Array, offsets: I64Array) -> I32Array:
    """Hash spans of bytes as the JVM's hash transformation does.

    Every byte, sign-extended, is mixed as one 32-bit word. This is not murmur3_x86_32.

    >>> bytes_hash(np.frombuffer(b"aabcd", np.uint8), np.array([0, 0, 1, 5])).tolist()
    [-1579025880, -185275570, -1200447635]
    """
    return _span_hash(data, offsets[:-1], np.diff(offsets))


def _span_hash(data: U8Array, starts: I64Array, lengths: I64Array) -> I32Array:
    """Hash as `bytes_hash` does, row i being ``data[starts[i]:starts[i] + lengths[i]]``.

    The starts must not descend.
    """
    state = np.full(len(starts), _SEED, np.uint32)
    if len(starts):
        words = data[starts[0] : starts[-1] + lengths[-1]].view(np.int8).astype(np.int32).view(np.uint32)
        fold_words(state, words, starts - starts[0], lengths, 1)
        finalize(state, lengths.astype(np.uint32))
    return state.view(np.int32)


_OF_GROUP: Final = BOX_STEPS // STEP_GROUPS
_GROUP_BITS: Final = _OF_GROUP.bit_length() - 1
# Groups take about 100 bytes of a tag. They must open less than equal steps by this factor.
_GAIN: Final = 1.1


def fitted_steps(lower: I64Array, upper: I64Array) -> tuple[int, ...]:
    """Return the first cell and the widths of steps for pages with these first and last cells.

    >>> fitted_steps(np.array([5, 261]), np.array([260, 516]))
    (5, 2)
    """
    bounds = distinct(np.concatenate([lower, upper + 1]))
    first = int(bounds[0])
    equal = (first, -(-(int(bounds[-1]) - first) // BOX_STEPS))
    ends = bounds[np.linspace(0, len(bounds) - 1, STEP_GROUPS + 1).round().astype(np.int64)]
    widths = np.diff(-(-(ends - first) // _OF_GROUP))
    grouped = (first, *np.maximum(widths, 1).tolist())
    by_equal, by_grouped = (_extents(lower, upper, step_edges(some)) for some in (equal, grouped))
    return grouped if by_equal > _GAIN * by_grouped else equal


def step_edges(numbers: Sequence[int]) -> I64Array:
    """Return the first cell of each step and the end of the last one, given the first cell and the widths of steps.

    >>> step_edges([5, 2])[[0, 1, 256]].tolist()
    [5, 7, 517]
    """
    widths = np.repeat(numbers[1:], BOX_STEPS // (len(numbers) - 1))
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)]) + numbers[0]


def steps_of(edges: I64Array, cells: I64Array) -> U8Array:
    """Return the step of each cell."""
    return (np.searchsorted(edges, cells, side="right") - 1).astype(np.uint8)


def widen(edges: I64Array, lower: I64Array, upper: I64Array) -> tuple[I64Array, I64Array]:
    """Return the first cell and the end of pages whose bounds are stored in steps."""
    return edges[steps_of(edges, lower)], edges[1:][steps_of(edges, upper)]


def _extents(lower: I64Array, upper: I64Array, edges: I64Array) -> float:
    """Return the sum of the rows that pages extend over as stored, if rows are spread evenly in each page."""
    bounds, density = np.concatenate([lower, upper + 1]), 1.0 / (upper + 1 - lower)
    order = np.argsort(bounds)
    bounds, density = bounds[order], np.cumsum(np.concatenate([density, -density])[order])
    rows = np.concatenate([np.zeros(1), np.cumsum(density[:-1] * np.diff(bounds))])
    first, end = (np.interp(cells, bounds, rows) for cells in widen(edges, lower, upper))
    return float((end - first).sum())


def cells_of_steps(
    numbers: I64Array, files: I64Array, first_steps: U8Array, last_steps: U8Array
) -> tuple[I64Array, I64Array]:
    """Return the first cell and the end of pages of many files, given their steps.

    `numbers` has the first cell and the width of each group of steps, shape (files, 17). Each page has a number of a
    file.
    """
    widths = numbers[:, 1:]
    starts = (numbers[:, :1] + (np.cumsum(widths, axis=1) - widths) * _OF_GROUP).ravel()
    widths, group = widths.ravel(), files * STEP_GROUPS
    first, last = group + (first_steps >> _GROUP_BITS), group + (last_steps >> _GROUP_BITS)
    lower = starts[first] + (first_steps & (_OF_GROUP - 1)) * widths[first]
    return lower, starts[last] + ((last_steps & (_OF_GROUP - 1)) + 1) * widths[last]

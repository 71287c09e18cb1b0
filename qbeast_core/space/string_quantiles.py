"""The rank of a string among stored quantiles, compared as UTF-8 bytes (format 4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I64Array, U64Array
from qbeast_core.space.columns import StringColumn
from qbeast_core.support.sizing import sizing

# A string is searched as 64-bit words: seven bytes, then how many bytes it has left, 8 for more than
# seven. No padding is ambiguous then, and strings compare as their words do.
_BYTES = 7
_MORE = _BYTES + 1
_KEEP = np.array([(1 << 64) - (1 << 8 * (8 - kept)) for kept in range(_MORE)], np.uint64)


def string_ranks(quantiles: Sequence[str], column: StringColumn, *, first: bool = False) -> F64Array:
    """Return the rank of each string among the quantiles, as a share.

    >>> text = StringColumn(np.frombuffer(b"abbccc", np.uint8), np.array([0, 0, 1, 2, 6]))
    >>> string_ranks(["a", "b", "c"], text).tolist()
    [0.0, 0.0, 0.5, 0.5]
    """
    table = _table(tuple(quantiles))
    ranks = np.empty(len(column))
    for start in range(0, len(column), sizing().chunk_rows):  # the search needs 100 bytes per string
        block = slice(start, min(start + sizing().chunk_rows, len(column)))
        below, exact = _search(table.levels, column.slice(block.start, block.stop))
        ranks[block] = table.last_rank[below]
        if first:
            ranks[block][exact] = table.first_rank[below[exact]]
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


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    levels: tuple[_Level, ...]
    # Indexed, as is `last_rank`, by the number of distinct quantiles not above the string.
    first_rank: F64Array

    last_rank: F64Array


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
def _table(quantiles: tuple[str, ...]) -> _Table:
    ordered = sorted(text.encode("utf-8", "surrogatepass") for text in quantiles)
    distinct = sorted(set(ordered))
    ends = np.array([0, *(bisect_right(ordered, text) for text in distinct)])
    # Below every quantile: the rank of the first one.
    first = np.concatenate([[0], ends[:-1]])
    last = np.maximum(ends - 1, 0)
    return _Table(tuple(_levels(distinct)), first / (len(ordered) - 1), last / (len(ordered) - 1))


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

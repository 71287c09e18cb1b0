"""Deal the pages of a read to rounds, each of which has rows from everywhere in the table.

A band is a random part of its file, and its pages are neighbours in space. So a read is cut into pieces, runs of pages
of one band, and each round gets one of every few neighbouring pieces: a stratified sample. A round fits in memory,
where its rows are shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.query.plan.select import Selection
from qbeast_core.space.values import BoolArray, I64Array


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Parts of a read, neighbours in space one after the other: runs of pages, or files whose pages are not known."""

    # Number of the file of each piece, shape (pieces,).
    file: I64Array
    # First page and end, as positions in the pages to read of the file. Equal: the whole file.
    first: I64Array
    end: I64Array
    # Rows in the pages, also those that a read leaves out. -1: unknown.
    rows: I64Array

    def __len__(self) -> int:
        return len(self.file)


def cut(selection: Selection, *, piece_rows: int, whole_bands: bool) -> Pieces:
    """Cut a read into pieces of about `piece_rows` rows; `whole_bands`: into bands, which are adjacent in a file."""
    table, pages = selection.table.pages, selection.page_numbers
    band = table.bands_of(pages)
    rows = table.rows(pages)
    firsts = np.flatnonzero(np.diff(band, prepend=-1))
    in_band = np.add.reduceat(rows, firsts) if len(firsts) else rows
    counts = np.diff(firsts, append=len(pages))
    parts = np.ones_like(in_band) if whole_bands else np.maximum(in_band // piece_rows, 1)
    before = np.cumsum(rows) - rows
    share = (before - np.repeat(before[firsts], counts)) / np.repeat(in_band, counts)
    part = (share * np.repeat(parts, counts)).astype(np.int64)
    starts = np.flatnonzero((np.diff(band, prepend=-1) != 0) | (np.diff(part, prepend=0) != 0))
    file = np.searchsorted(table.first_page, pages[starts], side="right") - 1
    offsets = selection.page_offsets[file]
    # Files without pages are pieces by themselves, at their places among the others.
    alone = np.flatnonzero(selection.opened & (selection.pages_total == 0))
    zeros = np.zeros_like(alone)
    columns = (
        np.concatenate([file, alone]),
        np.concatenate([starts - offsets, zeros]),
        np.concatenate([np.append(starts[1:], len(pages)) - offsets, zeros]),
        np.concatenate(
            [np.add.reduceat(rows, starts) if len(starts) else rows, _rows_of_files(selection, alone)]
        ),
    )
    # Each band of a file covers its space in about the same order, so equal shares of bands are neighbours.
    order = np.lexsort((np.concatenate([share[starts], zeros]), columns[0]))
    return Pieces(*(column[order] for column in columns))


def deal(pieces: int, rounds: int, random: np.random.Generator) -> I64Array:
    """Return the round of each piece: of `rounds` neighbours each gets another one.

    >>> deal(7, 3, np.random.default_rng(5)).tolist()
    [0, 0, 2, 1, 2, 1, 0]
    """
    blocks = -(-pieces // rounds) + 1
    dealt = random.permuted(np.tile(np.arange(rounds), (blocks, 1)), axis=1).ravel()
    first = int(random.integers(rounds))  # another division into neighbours in each epoch
    return dealt[first : first + pieces]


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The pieces of one reader, round by round. Readers have the same number of rows, and none in common."""

    # Round and piece, ascending by round.
    round: I64Array
    piece: I64Array
    # First row and end in the piece, of the rows that the read returns. -1: the whole piece.
    first: I64Array
    end: I64Array


def share_of(dealt: I64Array, rows: I64Array, *, rank: int, world_size: int, rounds: int) -> Share:
    """Return the share of one of `world_size` readers; `rows` are the rows of each piece that the read returns.

    Reader r has the rounds from `r * rounds` on. At the borders between readers pieces are divided.
    """
    order = np.argsort(dealt, kind="stable")
    ends = np.cumsum(rows[order])
    starts = ends - rows[order]
    each = int(ends[-1]) // world_size if len(ends) else 0
    first, end = rank * each, (rank + 1) * each
    mine = (ends > first) & (starts < end)
    piece = order[mine]
    is_cut = ((starts < first) | (ends > end))[mine]
    return Share(
        round=np.clip(dealt[piece] - rank * rounds, 0, rounds - 1),
        piece=piece,
        first=_if(is_cut, np.maximum(first - starts[mine], 0)),
        end=_if(is_cut, np.minimum(end - starts[mine], rows[piece])),
    )


def _if(is_cut: BoolArray, places: I64Array) -> I64Array:
    return np.where(is_cut, places, -1)


def _rows_of_files(selection: Selection, numbers: I64Array) -> I64Array:
    known = selection.table.files["num_records"].cast(int).fill_null(-1).to_numpy()
    rows: I64Array = known[numbers]
    return rows

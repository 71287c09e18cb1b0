"""The boxes of pages in the space of a revision."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.space.values import F64Array, I64Array


@dataclass(frozen=True, slots=True, eq=False)
class PageBoxes:
    """The boxes of all pages of some files, whose files have the same dimensions."""

    # Numbers of the pages and their files, ascending, shape (n,).
    pages: I64Array
    file: I64Array
    # Boxes `[lower, upper)`, one array of shape (n,) per dimension. The end 1.0 belongs to a box, so it is infinite.
    lower: tuple[F64Array, ...]
    upper: tuple[F64Array, ...]

"""The blocks of live files with the cube each names, and the files whose index cannot be used, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.query.fitting import fits_schema
from qbeast_core.query.tags import decode_tags, misnamed_cubes
from qbeast_core.space.arrays import I64Array
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.spec.revision import Revision

# Why a file that names an index is read as though it had none.
Unusable: TypeAlias = Literal["unreadable", "incomplete", "unknown revision", "other types", "no cube"]

_BITS_PER_CHARACTER: Final = 6
_NO_REVISION: Final = -1
_ORDER: Final = (
    *("file", "revision", "cube", "depth", "min_weight", "max_weight"),
    *("rows", "replicated", "legacy", "ours"),
)
_UNPLACED: Final = pl.Schema({"file": pl.Int64, "reason": pl.String})


@dataclass(frozen=True, slots=True, eq=False)
class LiveBlocks:
    """What the tags of a snapshot's files say, in the order of files and of each tag."""

    # `file` (number of the file), `revision`, `cube`, `depth`, `min_weight`, `max_weight` (as the tag has
    # it), `rows`, `replicated` (copies), `legacy` (a layout before 0.6.0) and `ours`.
    blocks: pl.DataFrame
    # `file` and `reason` (`Unusable`) of files that name an index which cannot be used.
    unplaced: pl.DataFrame


def live_blocks(
    files: pl.DataFrame,
    revisions: Mapping[int, Revision],
    schema: pl.Schema,
    tags: tuple[pl.DataFrame, list[int]] | None = None,
) -> LiveBlocks:
    """Return what the index tags of a snapshot's files say, as far as it can be used.

    >>> from qbeast_core.spec.revision import Revision
    >>> files = pl.DataFrame({"revision": [1, None], "rules": ["1", None], "layout": [None, None],
    ...     "blocks": ['[{"cube":"","minWeight":-9,"maxWeight":9,"elementCount":3}]', "oops"],
    ...     "state": [None, None], "cube": [None, None], "min_weight": [None, None],
    ...     "max_weight": [None, None], "element_count": [None, None]})
    >>> found = live_blocks(files, {}, pl.Schema())
    >>> found.blocks.height, found.unplaced.rows()
    (0, [(0, 'unknown revision'), (1, 'unreadable')])
    """
    found, unread = decode_tags(files) if tags is None else tags
    fitting = {n: r for n, r in revisions.items() if fits_schema(r, schema)}
    said = files.select(
        pl.col("revision").cast(pl.Int64).fill_null(_NO_REVISION),
        pl.col("rules").cast(pl.String).eq("1").fill_null(value=False).alias("ours"),
        (pl.col("blocks").is_not_null() | pl.col("cube").is_not_null()).alias("tagged"),
        pl.col("layout").is_not_null().alias("paged"),
    )
    file = found["file"].to_numpy()
    unplaced = _reasons(said, unread, file, revisions, list(fitting))
    revision = said["revision"].to_numpy()[file]
    per_level = np.ones(len(file), np.int64)
    for number, one in fitting.items():
        per_level[revision == number] = characters_per_level(one)
    blocks = found.with_columns(
        pl.Series("revision", revision, dtype=pl.Int64),
        pl.Series("ours", said["ours"].to_numpy()[file], dtype=pl.Boolean),
        pl.col("max_weight").fill_null(
            MAX_WEIGHT
        ),  # readers must not use that of an old layout; here it is shown
        depth=pl.col("cube").str.len_bytes().cast(pl.Int64) // pl.Series(per_level),
    )
    placed = _without(blocks.select(_ORDER), unplaced)
    misnamed = _misnamed(placed, fitting)
    if misnamed.height:
        placed, unplaced = _without(placed, misnamed), pl.concat([unplaced, misnamed]).sort("file")
    return LiveBlocks(placed, unplaced)


def characters_per_level(revision: Revision) -> int:
    """Return how many characters of a cube's text name one level of it (format 5)."""
    return -(-len(revision.columns) // _BITS_PER_CHARACTER)


def _reasons(
    said: pl.DataFrame,
    unread: Sequence[int],
    file: I64Array,
    revisions: Mapping[int, Revision],
    fitting: Sequence[int],
) -> pl.DataFrame:
    """Give the files whose index cannot be used, as far as their cubes need not be looked at."""
    numbers, ours, tagged, paged = (one.to_numpy() for one in said)
    named = tagged | paged | ours | (numbers != _NO_REVISION)
    filled, illegible = np.zeros(said.height, np.bool_), np.zeros(said.height, np.bool_)
    filled[file], illegible[list(unread)] = True, True
    wrong = {
        "unreadable": illegible,
        "incomplete": ~tagged | ~filled | (numbers == _NO_REVISION),
        "unknown revision": ~np.isin(numbers, list(revisions)),
        "other types": ~np.isin(numbers, list(fitting)),
    }
    found = np.flatnonzero(named & np.logical_or.reduce(list(wrong.values())))
    reasons = np.select([one[found] for one in wrong.values()], list(wrong), "")
    return pl.DataFrame({"file": found, "reason": reasons.tolist()}, schema=_UNPLACED)


def _misnamed(blocks: pl.DataFrame, revisions: Mapping[int, Revision]) -> pl.DataFrame:
    """Give the files that name a cube which is none."""
    bad = [pl.DataFrame(schema=_UNPLACED)]
    for number, revision in revisions.items():
        mine = blocks if len(revisions) == 1 else blocks.filter(pl.col("revision") == number)
        wrong = misnamed_cubes(mine["cube"], dimensions=len(revision.columns))
        if len(wrong):
            faulty = mine.filter(pl.col("cube").is_in(wrong.implode()))["file"].unique()
            bad.append(faulty.to_frame().with_columns(reason=pl.lit("no cube")))
    return pl.concat(bad)


def _without(blocks: pl.DataFrame, unplaced: pl.DataFrame) -> pl.DataFrame:
    return blocks.filter(~pl.col("file").is_in(unplaced["file"].implode())) if unplaced.height else blocks

"""From the tags of a snapshot's files to the table of their blocks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.blocks import BlockTable, RevisionSpace
from qbeast_core.query.fitting import fits_schema
from qbeast_core.query.tags import BLOCK_SCHEMA, contradicted_files, decode_blocks, flat_blocks
from qbeast_core.space.arrays import I64Array
from qbeast_core.space.cubes import cube_boxes, decode_cubes
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.revision import Revision

__all__ = ["build_block_table"]


def build_block_table(
    files: pl.DataFrame, revisions: Mapping[int, Revision], schema: pl.Schema
) -> BlockTable:
    """Decode the index tags of a snapshot's files.

    Parameters
    ----------
    files : polars.DataFrame
        Columns as a snapshot has them: `path`, `num_records`, `revision`, `blocks`, `layout`, `rules`,
        `state`, `cube`, `min_weight`, `element_count`, and `miscounted` and structs `min`, `max`, `null_count`
        if any.
    revisions : mapping of int to Revision
        The table's revisions.
    schema : polars.Schema
        The table's columns. Revisions indexed with other types do not count.

    Returns
    -------
    BlockTable
        Paths of unreadable tags are in its `corrupt`; nothing raises.

    Examples
    --------
    >>> files = pl.DataFrame({"path": ["a"], "num_records": [3], "revision": [1], "rules": [None],
    ...     "blocks": ['[{"cube":"","minWeight":-9,"maxWeight":9,"elementCount":3}]'], "layout": [None],
    ...     "state": [None], "cube": [None], "min_weight": [None], "element_count": [None]})
    >>> table = build_block_table(files, {}, pl.Schema({"x": pl.Int64}))
    >>> len(table), table.min_weight.tolist(), table.spaces
    (1, [-2147483648], ())
    """
    blocks, corrupt = _collect_blocks(files)
    file = blocks.get_column("file").to_numpy()
    ours = files.get_column("rules").cast(pl.String).eq("1").fill_null(value=False).to_numpy()
    revision = files.get_column("revision").cast(pl.Int64).fill_null(-1).to_numpy()[file]
    indexed = blocks.get_column("cube").is_not_null().to_numpy()
    placed = np.zeros(len(blocks), np.bool_)
    spaces: list[RevisionSpace] = []
    for number, one in revisions.items():
        for foreign in (False, True) if fits_schema(one, schema) else ():
            members = np.flatnonzero(indexed & (revision == number) & (ours[file] != foreign))
            if len(members):
                space, faulty = _space(members, blocks, one, foreign=foreign)
                spaces.append(space)
                placed[space.blocks] = True
                corrupt |= faulty
    num_records = _trusted_counts(files, corrupt)
    # Files without statistics come from a compaction of before 0.6.0: rows above the threshold are in them.
    bounded = placed & (num_records[file] >= 0)
    return BlockTable(
        files=files,
        file=file,
        min_weight=np.where(placed, blocks.get_column("min_weight").to_numpy(), MIN_WEIGHT),
        max_weight=np.where(bounded, blocks.get_column("max_weight").to_numpy(), MAX_WEIGHT),
        rows=blocks.get_column("rows").to_numpy(),
        replicated=blocks.get_column("replicated").to_numpy(),
        spaces=tuple(spaces),
        num_records=num_records,
        ours=ours,
        corrupt=tuple(files.get_column("path").gather(sorted(corrupt)).to_list()),
    )


def _collect_blocks(files: pl.DataFrame) -> tuple[pl.DataFrame, set[int]]:
    """Gather blocks of all layouts, and one without a cube for each file that has none."""
    numbered = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.col("num_records").cast(pl.Int64),
        pl.col("blocks", "cube", "state").cast(pl.String),
        "min_weight",
        "element_count",
    )
    tagged, unread = decode_blocks(numbered.filter(pl.col("blocks").is_not_null()).select("file", "blocks"))
    named = numbered.filter(pl.col("blocks").is_not_null() | pl.col("cube").is_not_null()).get_column("file")
    flat = flat_blocks(numbered.filter(pl.col("blocks").is_null() & pl.col("cube").is_not_null()))
    found = pl.concat(
        [tagged.with_columns(legacy=pl.lit(value=False)), flat.with_columns(legacy=pl.lit(value=True))]
    )
    empty = named.filter(~named.is_in(found.get_column("file").implode()))
    corrupt = {*unread, *empty.to_list(), *contradicted_files(files, found).to_list()}
    found = found.drop("legacy")
    if corrupt:
        found = found.filter(~pl.col("file").is_in(list(corrupt)))
    bare = numbered.filter(~pl.col("file").is_in(found.get_column("file").unique().to_list())).select(
        "file",
        pl.lit(None, pl.String).alias("cube"),
        pl.lit(MIN_WEIGHT, pl.Int64).alias("min_weight"),
        pl.lit(MAX_WEIGHT, pl.Int64).alias("max_weight"),
        pl.col("num_records").fill_null(0).alias("rows"),
        pl.lit(value=False).alias("replicated"),
    )
    return pl.concat([found, bare]).cast(BLOCK_SCHEMA).sort("file", maintain_order=True), corrupt


def _trusted_counts(files: pl.DataFrame, corrupt: set[int]) -> I64Array:
    """Give the rows of each file; -1 where they are not told, or told by what cannot be true.

    A file of no rows is as cheap to open as it is to believe.
    """
    told = files.get_column("num_records").cast(pl.Int64).fill_null(-1).to_numpy().copy()
    told[told < 1] = -1
    told[list(corrupt)] = -1
    return told


def _readable(members: I64Array, blocks: pl.DataFrame, dimensions: int) -> tuple[I64Array, set[int]]:
    """Drop the blocks of files that name a cube which is none; give also these files."""
    mine = blocks[members].select("file", "cube")
    bad: list[str] = []
    for text in mine.get_column("cube").unique().to_list():
        try:
            decode_cubes([text], dimensions=dimensions)
        except InvalidMetadataError:
            bad.append(text)
    faulty = mine.filter(pl.col("cube").is_in(bad)).get_column("file").unique()
    return members[~mine.get_column("file").is_in(faulty.implode()).to_numpy()], set(faulty.to_list())


def _space(
    members: I64Array, blocks: pl.DataFrame, revision: Revision, *, foreign: bool
) -> tuple[RevisionSpace, set[int]]:
    """Place blocks in their space; give also the files that cannot be."""
    dimensions = len(revision.columns)
    faulty: set[int] = set()
    texts = blocks.get_column("cube")
    try:
        cubes = decode_cubes(texts.gather(members).to_list(), dimensions=dimensions)
    except InvalidMetadataError:
        members, faulty = _readable(members, blocks, dimensions)
        cubes = decode_cubes(texts.gather(members).to_list(), dimensions=dimensions)
    lower, upper = cube_boxes(cubes)
    upper[upper >= 1.0] = np.inf
    space = RevisionSpace(
        revision=revision,
        blocks=members,
        foreign=foreign,
        lower=tuple(np.ascontiguousarray(lower.T)),
        upper=tuple(np.ascontiguousarray(upper.T)),
    )
    return space, faulty

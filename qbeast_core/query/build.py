"""From the tags of a snapshot's files to the table of their blocks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.blocks import BlockTable, RevisionSpace
from qbeast_core.query.evaluate import evaluate
from qbeast_core.query.fitting import fits_schema
from qbeast_core.query.nodes import Node
from qbeast_core.query.statistics import Statistics
from qbeast_core.query.tags import BLOCK_SCHEMA, contradicted_files, decode_tags, misnamed_cubes
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.space.cubes import cube_boxes, decode_cubes
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.revision import Revision
from qbeast_core.tree.columns import text_column


def build_block_table(
    files: pl.DataFrame,
    revisions: Mapping[int, Revision],
    schema: pl.Schema,
    tags: tuple[pl.DataFrame, list[int]] | None = None,
) -> BlockTable:
    """Place the blocks of a snapshot's files.

    >>> files = pl.DataFrame({"path": ["a"], "num_records": [3], "revision": [1], "rules": [None],
    ...     "blocks": ['[{"cube":"","minWeight":-9,"maxWeight":9,"elementCount":3}]'], "layout": [None],
    ...     "state": [None], "cube": [None], "min_weight": [None], "max_weight": [None], "element_count": [None]})
    >>> table = build_block_table(files, {}, pl.Schema({"x": pl.Int64}))
    >>> len(table), table.min_weight.tolist(), table.spaces
    (1, [-2147483648], ())
    """
    blocks, corrupt = _usable_blocks(files, *(decode_tags(files) if tags is None else tags))
    file = blocks.get_column("file").to_numpy()
    ours = _ours(files)
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


def files_that_may_match(files: pl.DataFrame, node: Node) -> BoolArray:
    """Tell which files can hold a row that a filter keeps, by their statistics alone: no tag is decoded.

    >>> files = pl.DataFrame({"path": ["a", "b"], "num_records": [3, 3], "rules": ["1", "1"],
    ...     "min": [{"x": 1}, {"x": 5}], "max": [{"x": 4}, {"x": 9}], "null_count": [{"x": 0}, {"x": 0}]})
    >>> from qbeast_core.query.predicate import parse_predicate
    >>> files_that_may_match(files, parse_predicate(pl.col("x") > 4, pl.Schema({"x": pl.Int64}))).tolist()
    [False, True]
    """
    nothing_known = pl.repeat(value=False, n=files.height, eager=True)
    foreign = pl.Series("foreign", ~_ours(files))
    statistics = Statistics(files, foreign, _trusted_counts(files, set()), nothing_known)
    return evaluate(node, files.height, statistics.may_match)


def _ours(files: pl.DataFrame) -> BoolArray:
    """Tell which files follow the exact rules."""
    return files.get_column("rules").cast(pl.String).eq("1").fill_null(value=False).to_numpy()


def _usable_blocks(
    files: pl.DataFrame, found: pl.DataFrame, unread: list[int]
) -> tuple[pl.DataFrame, set[int]]:
    """Leave out blocks that cannot be true; give one without a cube to each file that has none."""
    named = files.select(
        (pl.col("blocks").is_not_null() | pl.col("cube").is_not_null()).arg_true()
    ).to_series()
    empty = named.filter(~named.is_in(found["file"].implode()))
    corrupt = {*unread, *empty.to_list(), *contradicted_files(files, found).to_list()}
    # Thresholds of old layouts say nothing of rows.
    bound = pl.when("legacy").then(MAX_WEIGHT).otherwise("max_weight").alias("max_weight")
    found = found.filter(~pl.col("file").is_in(list(corrupt))).with_columns(bound).drop("legacy")
    bare = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.lit(None, pl.String).alias("cube"),
        pl.lit(MIN_WEIGHT, pl.Int64).alias("min_weight"),
        pl.lit(MAX_WEIGHT, pl.Int64).alias("max_weight"),
        pl.col("num_records").cast(pl.Int64).fill_null(0).alias("rows"),
        pl.lit(value=False).alias("replicated"),
    ).filter(~pl.col("file").is_in(found["file"].unique().implode()))
    return pl.concat([found, bare]).cast(BLOCK_SCHEMA).sort("file", maintain_order=True), corrupt


def _trusted_counts(files: pl.DataFrame, corrupt: set[int]) -> I64Array:
    """Give the rows of each file; -1 where it is not known, or known from what cannot be true.

    A file of no rows is as cheap to open as it is to believe.
    """
    counts = files.get_column("num_records").cast(pl.Int64).fill_null(-1).to_numpy().copy()
    counts[counts < 1] = -1
    counts[list(corrupt)] = -1
    return counts


def _space(
    members: I64Array, blocks: pl.DataFrame, revision: Revision, *, foreign: bool
) -> tuple[RevisionSpace, set[int]]:
    """Place blocks in their space; give also the files that cannot be."""
    dimensions = len(revision.columns)
    faulty = pl.Series("file", [], dtype=pl.Int64)
    mine = blocks.select("file", "cube")
    mine = mine if len(members) == len(blocks) else mine[pl.Series(members)]
    try:
        cubes = decode_cubes(text_column(mine["cube"]), dimensions=dimensions)
    except InvalidMetadataError:
        wrong = misnamed_cubes(mine["cube"], dimensions=dimensions)
        faulty = mine.filter(pl.col("cube").is_in(wrong.implode()))["file"].unique()
        stays = ~mine["file"].is_in(faulty.implode())
        members, mine = members[stays.to_numpy()], mine.filter(stays)
        cubes = decode_cubes(text_column(mine["cube"]), dimensions=dimensions)
    lower, upper = cube_boxes(cubes)
    upper[upper >= 1.0] = np.inf
    space = RevisionSpace(
        revision=revision,
        blocks=members,
        foreign=foreign,
        lower=tuple(np.ascontiguousarray(lower.T)),
        upper=tuple(np.ascontiguousarray(upper.T)),
    )
    return space, set(faulty.to_list())

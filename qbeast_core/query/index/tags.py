"""Decode the block tags of many files at once; only invalid tags are parsed one by one."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.block import MAX_ROWS, parse_blocks

# One row per block; `file` numbers the files of a snapshot from 0.
BLOCK_SCHEMA = pl.Schema(
    {
        "file": pl.Int64,
        "cube": pl.String,
        "min_weight": pl.Int64,
        "max_weight": pl.Int64,
        "rows": pl.Int64,
        "replicated": pl.Boolean,
    }
)

_JSON = pl.List(
    pl.Struct(
        {
            "cube": pl.String,
            "cubeId": pl.String,
            "minWeight": pl.Int64,
            "maxWeight": pl.Int64,
            "elementCount": pl.Int64,
            "replicated": pl.Boolean,
        }
    )
)
_SLICE_FILES = 2_500  # slices are decoded in parallel
_COPIES = ("REPLICATED", "ANNOUNCED")
_MIN_KEYS = 4  # keys of a block; `replicated` is optional


def decode_tags(files: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Decode the index tags of a snapshot's files, whatever their layout, without a check against statistics.

    Return the blocks, of `BLOCK_SCHEMA` and `legacy` (the tag has the layout before 0.6.0), and the files whose tag
    cannot be read.
    """
    numbered = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.col("blocks", "cube", "state").cast(pl.String),
        pl.col("min_weight", "max_weight", "element_count").cast(pl.Int64),
    )
    tagged, corrupt = _decode_blocks(numbered.select("file", "blocks").drop_nulls())
    tagged = tagged.with_columns(legacy=pl.lit(value=False))
    if numbered["cube"].null_count() == numbered.height:
        return tagged, corrupt
    flat = _flat_tags(numbered.filter(pl.col("blocks").is_null() & pl.col("cube").is_not_null()))
    return pl.concat([tagged, flat]).sort("file", maintain_order=True), corrupt


def _flat_tags(files: pl.DataFrame) -> pl.DataFrame:
    """Return the tags of the layout before 0.6.0 as blocks, one per file."""
    return files.select(
        "file",
        "cube",
        pl.col("min_weight").fill_null(MIN_WEIGHT),
        "max_weight",
        pl.col("element_count").fill_null(0).alias("rows"),
        pl.col("state").is_in(_COPIES).fill_null(value=False).alias("replicated"),
        pl.lit(value=True).alias("legacy"),
    )


def _decode_blocks(texts: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Decode `blocks` tags.

    >>> texts = pl.DataFrame({"file": [0, 1], "blocks": [
    ...     '[{"cubeId":"w","minWeight":-5,"maxWeight":7,"elementCount":2},]', "oops"]})
    >>> blocks, corrupt = _decode_blocks(texts)
    >>> blocks.rows(), corrupt
    ([(0, 'w', -5, 7, 2, False)], [1])
    """
    rows, unread = _decode_slices(texts)
    unread += _with_other_keys(texts, rows)
    rows = rows.with_columns(pl.col("replicated").fill_null(value=False))
    sound = pl.all_horizontal(
        pl.col("cube").is_not_null(),
        pl.col("min_weight", "max_weight").is_between(MIN_WEIGHT, MAX_WEIGHT).fill_null(value=False),
        pl.col("rows").is_between(0, MAX_ROWS).fill_null(value=False),
    )
    faulty = rows.filter(~sound).get_column("file").unique().to_list()
    if not faulty and not unread:
        return rows, []
    retries = texts.filter(pl.col("file").is_in([*faulty, *unread]))
    parsed, corrupt = _decode_singly(retries)
    good = rows.filter(~pl.col("file").is_in(retries.get_column("file").implode()))
    return pl.concat([good, parsed]).sort("file", maintain_order=True), corrupt


def contradicted_files(files: pl.DataFrame, blocks: pl.DataFrame) -> pl.Series:
    """Return the numbers of files whose blocks contradict their statistics; both are ignored.

    >>> files = pl.DataFrame({"num_records": [2, 2, None]})
    >>> blocks = pl.DataFrame({"file": [0, 1, 2], "min_weight": [1, 1, 9], "max_weight": [5, 5, 5],
    ...     "rows": [2, 3, 4], "replicated": [False] * 3, "legacy": [False] * 3})
    >>> contradicted_files(files, blocks).to_list()
    [1, 2]
    """
    counts = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.col("num_records").cast(pl.Int64),
        _miscounted(files),
    )
    tagged = blocks.group_by("file").agg(
        pl.col("rows").sum(),
        ((pl.col("min_weight") > pl.col("max_weight")) & ~pl.col("legacy")).any().alias("turned"),
        (pl.col("legacy") & pl.col("replicated")).all().alias("copies"),
    )
    wrong = (pl.col("rows") != pl.col("num_records")) | pl.col("miscounted") | pl.col("turned")
    both = tagged.join(counts, on="file", how="inner")
    return both.filter(wrong.fill_null(value=False) & ~pl.col("copies")).get_column("file").sort()


def misnamed_cubes(texts: pl.Series, *, dimensions: int) -> pl.Series:
    """Return the distinct texts that are not cubes.

    >>> misnamed_cubes(pl.Series(["", "w", "#", "#"]), dimensions=2).to_list()
    ['#']
    """
    return pl.Series([text for text in texts.unique() if not _is_cube(text, dimensions)], dtype=pl.String)


def _is_cube(text: str, dimensions: int) -> bool:
    try:
        decode_cubes([text], dimensions=dimensions)
    except InvalidMetadataError:
        return False
    return True


def _miscounted(files: pl.DataFrame) -> pl.Expr:
    return pl.col("miscounted") if "miscounted" in files.columns else pl.lit(value=False).alias("miscounted")


def _decode_slices(texts: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Decode slices in parallel, one row per block, and return the files of slices with invalid JSON."""
    empty = pl.DataFrame(schema=BLOCK_SCHEMA)
    plans = [_as_rows(part.lazy()) for part in texts.iter_slices(_SLICE_FILES)]
    try:
        return pl.concat([empty, *pl.collect_all(plans)]), []
    except pl.exceptions.PolarsError:
        pass  # a text may be empty, invalid, or two JSON values: find the slice
    decoded: list[pl.DataFrame] = []
    unread: list[int] = []
    for part, plan in zip(texts.iter_slices(_SLICE_FILES), plans, strict=True):
        try:
            decoded.append(plan.collect())
        except pl.exceptions.PolarsError:
            unread.extend(part.get_column("file").to_list())
    return pl.concat([empty, *decoded]), unread


def _as_rows(texts: pl.LazyFrame) -> pl.LazyFrame:
    return (
        texts.with_columns(pl.col("blocks").str.json_decode(_JSON))
        .filter(pl.col("blocks").list.len() > 0)
        .explode("blocks", empty_as_null=False)
        .unnest("blocks")
        .select(
            "file",
            pl.coalesce("cube", "cubeId"),
            pl.col("minWeight").alias("min_weight"),
            pl.col("maxWeight").alias("max_weight"),
            pl.col("elementCount").alias("rows"),
            "replicated",
        )
    )


def _with_other_keys(texts: pl.DataFrame, rows: pl.DataFrame) -> list[int]:
    """Return the files with unknown or repeated keys, which are parsed one by one.

    Values of a block never hold a colon, so the number of colons is the number of keys.
    """
    files = texts["file"].to_numpy()
    place = np.searchsorted(files, rows["file"].to_numpy())
    keys = np.bincount(place, _MIN_KEYS + rows["replicated"].is_not_null().to_numpy(), len(files))
    colons = texts["blocks"].str.count_matches(":", literal=True).to_numpy()
    return [int(file) for file in files[(keys > 0) & (keys != colons)]]


def _decode_singly(texts: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    rows: list[tuple[int, str, int, int, int, bool]] = []
    corrupt: list[int] = []
    for file, text in texts.rows():
        try:
            blocks = parse_blocks(text)
        except InvalidMetadataError:
            corrupt.append(file)
            continue
        rows += [(file, b.cube, b.min_weight, b.max_weight, b.element_count, b.replicated) for b in blocks]
    return pl.DataFrame(rows, schema=BLOCK_SCHEMA, orient="row"), corrupt

"""Where the rows of every live file are indexed, and what becomes of the order of weights when files go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.live_blocks import live_blocks
from qbeast_core.query.tags import contradicted_files, decode_blocks, flat_blocks
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array
from qbeast_core.space.columns import NumberColumn
from qbeast_core.space.coordinates import number_values
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.spec.block import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import CDFStringQuantilesTransformation
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.columns import to_index_column
from qbeast_core.tree.evolve import Growth, QuantilesTransformation, Range
from qbeast_core.tree.existing import ExistingTree, existing_tree
from qbeast_core.tree.fit import KNOT_CHARACTERS
from qbeast_core.tree.order import broken_order, open_where_broken

__all__ = [
    "NEW_FILE",
    "STAGED",
    "Disorder",
    "IndexState",
    "block_frame",
    "blocks_frame",
    "growth_of",
    "live_tree",
]


STAGED: Final = -1
"""Instead of a revision: the file has no index that can be used."""

NEW_FILE: Final = -1
"""Instead of a file's number: the block is in a file that is not live yet."""

_BLOCKS: Final = pl.Schema(
    {"file": pl.Int64, "cube": pl.String, "min_weight": pl.Int64, "max_weight": pl.Int64, "rows": pl.Int64}
)

_BITS_PER_CHARACTER = 6


@dataclass(frozen=True, slots=True, eq=False)
class Disorder:
    """What breaks the order of weights (format 8.3) when files go and blocks come.

    Attributes
    ----------
    files : ndarray of int64
        Live files to take out as well, ascending.
    is_stuck : bool
        Whether somewhere only new blocks are to blame: taking files out cannot mend that.
    """

    files: I64Array
    is_stuck: bool

    @property
    def is_none(self) -> bool:
        """Whether all is well."""
        return not self.is_stuck and not len(self.files)


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class IndexState:
    """A snapshot's files by revision; pure once the snapshot is there.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    """

    snapshot: Snapshot

    @cached_property
    def blocks(self) -> pl.DataFrame:
        """Blocks that can be true, as `qbeast_core.query.live_blocks` gives them."""
        snapshot = self.snapshot
        found = live_blocks(snapshot.files, snapshot.config.revisions, snapshot.schema).blocks
        return found.filter(~pl.col("file").is_in(contradicted_files(snapshot.files, found).implode()))

    @cached_property
    def revision_of(self) -> I64Array:
        """Revision that each live file is indexed in, or `STAGED`; shape (files,)."""
        found = np.full(self.snapshot.files.height, STAGED, np.int64)
        found[self.blocks["file"].to_numpy()] = self.blocks["revision"].to_numpy()
        return found

    @property
    def has_copies(self) -> bool:
        """Whether live blocks repeat rows of others (format 11)."""
        return bool(self.blocks["replicated"].any())

    def tree(
        self, revision: Revision, gone: BoolArray, new: pl.DataFrame, *, keeps_places: bool = False
    ) -> ExistingTree:
        """Return the tree that rows are put back into.

        Parameters
        ----------
        revision : Revision
            Of the table.
        gone : ndarray of bool, shape (files,)
            Files that are taken out.
        new : polars.DataFrame
            Blocks already put back, see `blocks_frame`.
        keeps_places : bool
            Whether rows are put back by the thresholds that their cubes had, so that those that did not change
            find the cubes they came from; else by those of a fresh tree.
        """
        mine = self.blocks.filter(pl.col("revision") == revision.revision_id).select(_BLOCKS.names())
        taken = gone[mine["file"].to_numpy()]
        both = pl.concat([mine if keeps_places else mine.filter(~pl.Series(taken, dtype=pl.Boolean)), new])
        tree = existing_tree(
            _cubes(both, revision),
            **_bounds(both),
            element_counts=both["rows"].to_numpy(),
            gone=np.append(taken, np.zeros(new.height, np.bool_)) if keeps_places else None,
        )
        return open_where_broken(tree)

    def disorder(self, gone: BoolArray, new: Mapping[int, pl.DataFrame]) -> Disorder:
        """Return what breaks the order of weights, cubes aside that did before (tables of the JVM have some).

        Where a cube is at fault, the cheaper side is to go: its own files, or those of its descendants.

        Parameters
        ----------
        gone : ndarray of bool, shape (files,)
            Files that are taken out.
        new : mapping of int to polars.DataFrame
            Blocks put back, per revision, see `blocks_frame`.
        """
        touched = set(self.revision_of[gone].tolist()) | set(new)
        found, is_stuck = [np.zeros(0, np.int64)], False
        for number in sorted(touched & set(self.snapshot.config.revisions)):
            revision = self.snapshot.config.revisions[number]
            mine = self.blocks.filter(pl.col("revision") == number).select(_BLOCKS.names())
            staying = mine.filter(~pl.Series(gone[mine["file"].to_numpy()], dtype=pl.Boolean))
            broken = _broken(pl.concat([staying, new.get(number, staying.clear())]), revision)
            if broken.height:
                before = _broken(mine, revision).filter("above")["text"]
                known = broken.filter(pl.col("above") & pl.col("text").is_in(before.implode()))["cube"]
                broken = broken.filter(~pl.col("cube").is_in(known.implode()))
            sides = self._cheaper_sides(broken)
            found.append(sides["file"].to_numpy())
            is_stuck = is_stuck or sides["cube"].n_unique() < broken["cube"].n_unique()
        return Disorder(np.unique(np.concatenate(found)), is_stuck)

    def _cheaper_sides(self, broken: pl.DataFrame) -> pl.DataFrame:
        """Return the files of one side of each faulty cube, where a side has live files alone."""
        sizes = self.snapshot.files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"), pl.col("size_bytes").alias("bytes")
        )
        sides = broken.unique(["cube", "above", "file"]).join(sizes, on="file", how="left")
        cheapest = (
            sides.group_by("cube", "above")
            .agg(pl.col("bytes").sum(), (pl.col("file") == NEW_FILE).any().alias("fixed"))
            .filter(~pl.col("fixed"))
            .sort("cube", "bytes", "above", descending=[False, False, True])
            .unique("cube", keep="first", maintain_order=True)
        )
        return sides.join(cheapest, on=["cube", "above"], how="semi")


def blocks_frame(blocks: list[Block]) -> pl.DataFrame:
    """Return blocks of files that are not live yet, as `IndexState` wants them.

    Examples
    --------
    >>> blocks_frame([Block("w", -5, 7, 2)]).rows()
    [(-1, 'w', -5, 7, 2)]
    """
    rows = [(NEW_FILE, b.cube, b.min_weight, b.max_weight, b.element_count) for b in blocks]
    return pl.DataFrame(rows, schema=_BLOCKS, orient="row")


def _broken(blocks: pl.DataFrame, revision: Revision) -> pl.DataFrame:
    """Blame blocks: `cube`, `above`, and the block's `file` and cube as `text`."""
    found = broken_order(_cubes(blocks, revision), **_bounds(blocks))
    return found.select(
        "cube",
        "above",
        blocks["file"][found["block"]].alias("file"),
        blocks["cube"][found["block"]].alias("text"),
    )


def _cubes(blocks: pl.DataFrame, revision: Revision) -> Cubes:
    return decode_cubes(blocks["cube"].to_list(), dimensions=len(revision.columns))


def _bounds(blocks: pl.DataFrame) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return {
        "min_weights": blocks["min_weight"].cast(pl.Int32).to_numpy(),
        "max_weights": blocks["max_weight"].cast(pl.Int32).to_numpy(),
    }


def block_frame(snapshot: Snapshot) -> pl.DataFrame:
    """Return one row per block of every live file, in the order of files and of rows in each.

    Parameters
    ----------
    snapshot : Snapshot
        The table. Files without readable tags have no blocks.

    Returns
    -------
    polars.DataFrame
        `path` (decoded), `revision_id`, `cube` (text form), `depth`, `min_weight`, `max_weight`, `element_count`,
        `replicated`.
    """
    files = snapshot.files.with_row_index("file").with_columns(pl.col("file").cast(pl.Int64))
    tagged, _ = decode_blocks(files.filter(pl.col("blocks").is_not_null()).select("file", "blocks"))
    old = files.filter(pl.col("blocks").is_null() & pl.col("cube").is_not_null())
    flat = flat_blocks(old).with_columns(old["max_weight"].alias("max_weight"))
    latest = snapshot.config.latest
    characters = max(-(-len(latest.columns) // _BITS_PER_CHARACTER), 1) if latest is not None else 1
    blocks = pl.concat([tagged, flat.select(tagged.columns).cast(tagged.schema)])
    named = pl.DataFrame(
        {
            "file": files["file"],
            "path": pl.Series(snapshot.data_paths, dtype=pl.String),
            "revision_id": files["revision"],
        }
    )
    return (
        blocks.sort("file", maintain_order=True)
        .join(named, on="file", how="left", maintain_order="left")
        .select(
            "path",
            "revision_id",
            "cube",
            (pl.col("cube").str.len_chars() // characters).cast(pl.Int64).alias("depth"),
            "min_weight",
            "max_weight",
            pl.col("rows").alias("element_count"),
            "replicated",
        )
    )


def live_tree(snapshot: Snapshot, revision: Revision) -> ExistingTree:
    """Return the tree of a revision's live blocks; copies (format 11) and unreadable tags do not count.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    revision : Revision
        One of its revisions.
    """
    files = snapshot.files.filter(pl.col("revision") == revision.revision_id)
    files = files.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("file"), pl.all())
    tagged, _ = decode_blocks(files.filter(pl.col("blocks").is_not_null()).select("file", "blocks"))
    flat = files.filter(pl.col("blocks").is_null() & pl.col("cube").is_not_null())
    # Thresholds of flat tags say nothing about rows, but the JVM stops descending at them all the same.
    old = flat_blocks(flat).with_columns(flat["max_weight"].alias("max_weight"))
    blocks = pl.concat([tagged, old.select(tagged.columns).cast(tagged.schema)]).drop_nulls()
    blocks, cubes = _decoded(blocks.filter(~pl.col("replicated")), len(revision.columns))
    return existing_tree(
        cubes,
        min_weights=blocks["min_weight"].cast(pl.Int32).to_numpy(),
        max_weights=blocks["max_weight"].cast(pl.Int32).to_numpy(),
        element_counts=blocks["rows"].to_numpy(),
    )


def _decoded(blocks: pl.DataFrame, dimensions: int) -> tuple[pl.DataFrame, Cubes]:
    """Decode the blocks' cubes and leave out blocks that name none."""
    try:
        return blocks, decode_cubes(blocks["cube"].to_list(), dimensions=dimensions)
    except InvalidMetadataError:
        texts = blocks["cube"].unique()
        good = texts.filter([_is_cube(text, dimensions) for text in texts])
        known = blocks.filter(pl.col("cube").is_in(good.implode()))
        return known, decode_cubes(known["cube"].to_list(), dimensions=dimensions)


def _is_cube(text: str, dimensions: int) -> bool:
    try:
        decode_cubes([text], dimensions=dimensions)
    except InvalidMetadataError:
        return False
    return True


def growth_of(snapshot: Snapshot, revision: Revision, tree: ExistingTree) -> Growth:
    """Return how a revision fares: the table's rows, those outside each column's quantiles, its cubes.

    Rows outside are estimated from the files' statistics: a file counts with the share of its range that
    lies outside.
    """
    outside: dict[str, float] = {}
    ranges: dict[str, Range] = {}
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        files = _known_files(snapshot.files, name)
        if files is None or not isinstance(space, QuantilesTransformation):
            continue
        texts = isinstance(space, CDFStringQuantilesTransformation)
        if texts != (files["low"].dtype == pl.String):
            continue  # another writer changed the type
        share, ends = _of_texts(files, space) if texts else _of_numbers(files, space)
        outside[name] = float((files["rows"].to_numpy() * share).sum())
        ranges[name] = ends
    rows = int(snapshot.files["num_records"].fill_null(0).sum())
    return Growth(rows=rows, outside_rows=outside, ranges=ranges, cubes=tree.cube_count)


def _known_files(files: pl.DataFrame, name: str) -> pl.DataFrame | None:
    """Give rows, lowest and highest value of the files that tell; None where none does."""
    bounds: dict[str, pl.Series] = {}
    for side, alias in (("min", "low"), ("max", "high")):
        dtype = files.schema.get(side)
        if not isinstance(dtype, pl.Struct) or name not in {field.name for field in dtype.fields}:
            return None
        bounds[alias] = files[side].struct.field(name)
    known = pl.DataFrame({"rows": files["num_records"].fill_null(0), **bounds}).drop_nulls()
    return known if known.height else None


def _of_texts(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, Range]:
    """Give the share of each file outside, all of it or nothing: a range of texts has no length."""
    first, last = str(space.quantiles[0]), str(space.quantiles[-1])
    low, high = files["low"], files["high"]
    beyond = (low.str.head(KNOT_CHARACTERS) > last) | (high < first)
    lows = low.sort()  # the upper bounds may be cut and raised, so they are no values
    return beyond.to_numpy().astype(np.float64), (str(lows[0]), str(lows[-1]))


def _of_numbers(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, Range]:
    """Give the share of each file's range outside; a single point counts whole."""
    lowest, highest = _numbers(files["low"]), _numbers(files["high"])
    first, last = float(space.quantiles[0]), float(space.quantiles[-1])
    low, high = lowest / 2, highest / 2  # halved: the range of extreme doubles does not overflow
    span = high - low
    above = np.maximum(high - np.maximum(low, last / 2), 0.0)
    below = np.maximum(np.minimum(high, first / 2) - low, 0.0)
    share = ((lowest > last) | (highest < first)).astype(np.float64)
    np.divide(above + below, span, out=share, where=span > 0)
    return np.minimum(share, 1.0), (float(lowest.min()), float(highest.max()))


def _numbers(values: pl.Series) -> F64Array:
    column = to_index_column(values)
    if not isinstance(column, NumberColumn):
        msg = f"the statistics of {values.name!r} are no numbers"
        raise TypeError(msg)
    return number_values(column)

"""The index of a snapshot for appends and rewrites: revisions and ranges of files, trees, and breaks of the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.rebase import clustered_by_others, is_clustered
from qbeast_core.log.values import joined_files, statistics_of, typed_partitions
from qbeast_core.plan.blocks import NO_REVISION, BlockTable
from qbeast_core.plan.decode_tags import fits_schema
from qbeast_core.plan.nodes import Unknown
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.space.values import (
    BoolArray,
    F64Array,
    I32Array,
    I64Array,
    NumberColumn,
    distinct,
    number_values,
    weight_to_fraction,
)
from qbeast_core.spec.blocks import WITHOUT_HIDDEN_WEIGHTS
from qbeast_core.spec.revision import HashTransformation, Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.table.snapshot.log_files import PlanUnusable
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.build import ExistingTree, broken_order, existing_tree, open_where_broken
from qbeast_core.tree.grid import text_column, to_index_column
from qbeast_core.tree.pages import Axis
from qbeast_core.tree.summary import NO_PARTITIONS, Partitions

if TYPE_CHECKING:
    from qbeast_core.table.index.planned_cubes import PlannedCubes

# In place of a revision id: the file has no usable index.
STAGED: Final = NO_REVISION

# In place of a file index: the block is in a file that is not committed yet, or in files that are not in memory.
NEW_FILE: Final = -1
OTHER_FILES: Final = -2


class NeedsAllFilesError(Exception):
    """A change has to rewrite files of a version that are not in memory: it is made again with all of them."""


# `tree` is the number of the partition of the block's file.
_BLOCKS: Final = pl.Schema(
    {
        "file": pl.Int64,
        "tree": pl.Int64,
        "cube": pl.String,
        "min_weight": pl.Int64,
        "max_weight": pl.Int64,
        "rows": pl.Int64,
    }
)


# The lowest and the highest value of each file along a column, halved; NaN: unknown.
Ranges: TypeAlias = tuple[F64Array, F64Array]


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Index:
    """The files of a snapshot by revision, and their blocks."""

    snapshot: Snapshot
    # By number of the revision, see `_ranges_of`.
    _ranges: dict[int, list[Ranges]] = field(default_factory=dict[int, list[Ranges]], init=False, repr=False)

    @cached_property
    def newest(self) -> Revision | None:
        """The newest revision if it fits the types of the columns. Rows are not added to other revisions."""
        snapshot, latest = self.snapshot, self.snapshot.config.latest
        fits = latest is not None and fits_schema(latest, snapshot.schema, snapshot.columns.rehashed)
        return latest if fits else None

    @property
    def table(self) -> BlockTable:
        """The blocks of all files, with masks of valid blocks."""
        return self.snapshot.blocks

    @property
    def blocks(self) -> pl.DataFrame:
        """The blocks that rewrites rely on."""
        return self.table.usable

    def cube_count(self, revision: Revision, gone: BoolArray | None = None) -> int:
        """Return the number of cubes of a revision without the files `gone`, in addition to the roots of partitions.

        Many partitions do not make cubes larger. Above `Sizing.max_cubes`, it may be too small.
        """
        cubes = _planned_cubes(self.snapshot)
        if cubes is not None:
            return cubes.count(revision.revision_id, enough=sizing().max_cubes)
        blocks = self.bounds(revision)
        if gone is not None:
            blocks = blocks.filter(~_taken(gone, blocks))
        return blocks.select("tree", "cube").n_unique() - blocks["tree"].n_unique()

    def bounds(self, revision: Revision) -> pl.DataFrame:
        """Return blocks that restrict appended rows as those of a revision do, in the columns of `Index`."""
        if self.snapshot.planned is not None:
            return self._of_cubes(self.snapshot, revision.revision_id)
        return self._with_others(self.binding(revision).select(_BLOCKS.names()), revision.revision_id)

    def _with_others(self, blocks: pl.DataFrame, number: int) -> pl.DataFrame:
        """Return blocks of the live files, and those of the files that are not in memory."""
        others = self.snapshot.others
        return blocks if others is None else pl.concat([blocks, self._of_cubes(others, number)])

    def _of_cubes(self, snapshot: Snapshot, number: int) -> pl.DataFrame:
        """Return blocks that set the same bounds as those of all files of a version that has a plan file."""
        cubes = _planned_cubes(snapshot)
        if cubes is None:
            return Index(snapshot.unplanned).live_blocks(number)
        blocks = cubes.blocks(number)
        columns = self.partitions.columns
        trees = self.partitions.numbers(blocks["partition"].struct.unnest()) if columns else None
        tree = pl.lit(0) if trees is None else pl.lit(pl.Series(trees))
        placed = blocks.with_columns(pl.lit(OTHER_FILES).alias("file"), tree.alias("tree"))
        return placed.select(_BLOCKS.names()).cast(_BLOCKS)

    def binding(self, revision: Revision) -> pl.DataFrame:
        """Return the blocks of a revision that restrict appended rows."""
        blocks = self.table.binding
        mask = blocks["revision"] == revision.revision_id
        return self.in_trees(blocks if mask.all() else blocks.filter(mask))

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions of the live files."""
        columns = self.snapshot.columns.partitions
        if not columns:
            return NO_PARTITIONS
        whole = self.snapshot.whole or self.snapshot
        listed = whole.light(["partition"])["partition"].struct.unnest()
        return NO_PARTITIONS.with_rows(listed.select(columns))

    @cached_property
    def tree_of(self) -> I64Array:
        """Number of the tree of each live file."""
        numbers = self.partitions.numbers(self.snapshot.partitions)
        return np.zeros(self.snapshot.files.height, np.int64) if numbers is None else numbers

    @cached_property
    def files_by_tree(self) -> list[I64Array]:
        """Indexes of the live files of each tree."""
        order = np.argsort(self.tree_of, kind="stable")
        ends = np.cumsum(np.bincount(self.tree_of, minlength=self.partitions.tree_count))
        return np.split(order, ends[:-1])

    def in_trees(self, blocks: pl.DataFrame) -> pl.DataFrame:
        """Return blocks of live files with the numbers of their trees."""
        if not self.partitions.columns:
            return blocks.with_columns(pl.lit(0, pl.Int64).alias("tree"))
        return blocks.with_columns(pl.Series("tree", self.tree_of[blocks["file"].to_numpy()]))

    def live_blocks(self, number: int) -> pl.DataFrame:
        """Return the blocks of a revision that rewrites rely on, with the numbers of their trees."""
        live = self.in_trees(self.blocks.filter(pl.col("revision") == number)).select(_BLOCKS.names())
        return self._with_others(live, number)

    def listed(self) -> pl.DataFrame:
        """Return one row per block of all files with valid tags; see `Table.blocks`."""
        return pl.concat(map(_listed, self.snapshot.with_copies.parts(Unknown())))

    @property
    def revision_of(self) -> I64Array:
        """Revision of each live file, or `STAGED`; shape (files,)."""
        return self.table.revision_of

    @cached_property
    def of_other_columns(self) -> BoolArray:
        """Mask of the live files that are indexed by other columns than the newest revision."""
        config = self.snapshot.config
        latest = () if config.latest is None else config.latest.columns
        others = [number for number, revision in config.revisions.items() if revision.columns != latest]
        return np.isin(self.revision_of, others)

    @property
    def rows_of_other_columns(self) -> int:
        """Number of rows that are indexed by other columns than the newest revision."""
        return int(self.snapshot.files["num_records"].filter(_mask(self.of_other_columns)).sum())

    @cached_property
    def clustered_by_others(self) -> BoolArray:
        """Mask of the live files that another implementation clustered. By the protocol only it clusters them again."""
        files = self.snapshot.files
        if not is_clustered(self.snapshot.protocol):
            return np.zeros(files.height, np.bool_)
        return clustered_by_others(files).to_numpy()

    @property
    def rows_clustered_by_others(self) -> int:
        """Number of rows in files that another implementation clustered."""
        return int(self.snapshot.files["num_records"].filter(_mask(self.clustered_by_others)).sum())

    @property
    def rows_without_sample(self) -> int:
        """Number of rows without a value in the sample column that can be trusted; 0 in a table without one."""
        if self.snapshot.sample_column is None:
            return 0
        return int(self.snapshot.files["num_records"].filter(~_mask(self.has_samples)).sum())

    @cached_property
    def has_samples(self) -> BoolArray:
        """Mask of the live files whose values of a sample column can be trusted: indexed files of this library.

        Their sample column replaces the hidden weights. Versions from before the column write hidden weights, and null
        or any values in the column.
        """
        files = self.snapshot.files
        ours = files["rules"].cast(pl.String).eq("1")
        computed = files["layout"].cast(pl.String).str.contains(WITHOUT_HIDDEN_WEIGHTS, literal=True)
        trusted = (ours & computed).fill_null(value=False)
        return np.asarray(trusted.to_numpy() & (self.revision_of != STAGED), np.bool_)

    @cached_property
    def begins(self) -> F64Array:
        """Fraction of all weights at which each live file begins; 1.0 for files without usable blocks."""
        least = self.blocks.group_by("file").agg(pl.col("min_weight").min())
        begins = np.ones(self.snapshot.files.height)
        weights: I32Array = least["min_weight"].cast(pl.Int32).to_numpy()
        begins[least["file"].to_numpy()] = weight_to_fraction(weights)
        return begins

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row per live file: `file`, `path` (decoded), `rows`, `bytes` and `revision_id` (null: not indexed)."""
        files = self.snapshot.files
        return files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
            pl.Series("path", self.snapshot.data_paths, dtype=pl.String),
            pl.col("num_records").cast(pl.Int64).alias("rows"),
            pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
            pl.Series("revision_id", self.revision_of).replace(STAGED, None),
        )

    def tree(
        self,
        revision: Revision,
        gone: BoolArray | None = None,
        new: pl.DataFrame | None = None,
        *,
        partitions: Partitions | None = None,
        keeps_places: bool = False,
    ) -> ExistingTree:
        """Return the trees to place rows in, without the files `gone` and with the blocks `new`.

        `partitions` are those of the live files and of the files of `new`, see `with_partitions`. `keeps_places` keeps
        the thresholds of the files `gone`, so that rewritten rows stay in their cubes.
        """
        taken: BoolArray | None = None
        if gone is None:
            blocks = self.bounds(revision)
        else:
            live = self.live_blocks(revision.revision_id)
            blocks = pl.concat([live, NO_BLOCKS if new is None else new])
            taken = _taken(gone, blocks).to_numpy()
            if not keeps_places:
                blocks, taken = blocks.filter(~_mask(taken)), None
        cubes, rows = _cubes(blocks, len(revision.columns)), blocks["rows"].to_numpy()
        tree = existing_tree(cubes, **_bounds(blocks), element_counts=rows, gone=taken)
        tree = replace(tree, partitions=partitions or self.partitions)
        return (
            tree if gone is None else replace(open_where_broken(tree), spreads=self._spreads(revision, gone))
        )

    def axes(self, revision: Revision, tree: int) -> list[Axis]:
        """Return the dimensions of a tree of a revision, with the ranges of all files of the tree."""
        number, here = revision.revision_id, self.files_by_tree[tree]
        if number not in self._ranges:
            snapshot = self.snapshot
            rehashed = snapshot.columns.rehashed
            self._ranges[number] = _ranges_of(snapshot.files, snapshot.schema, revision, rehashed=rehashed)
        rows = self.rows[here]
        return [Axis.of(low[here], high[here], rows) for low, high in self._ranges[number]]

    @cached_property
    def rows(self) -> I64Array:
        """Rows of each live file, with those that deletion vectors hide; 0 if the log does not have the number."""
        rows: I64Array = self.snapshot.files["num_records"].fill_null(0).cast(pl.Int64).to_numpy()
        return rows

    def _spreads(self, revision: Revision, files: BoolArray) -> dict[int, float]:
        """Return how widely the rows of some files are spread, see `ExistingTree`."""
        rows = self.rows.astype(np.float64)
        spreads: dict[int, float] = {}
        for tree in distinct(self.tree_of[files]).tolist():
            of_tree = self.files_by_tree[tree]
            chosen = files[of_tree]
            weights = rows[of_tree[chosen]]
            extents = [(axis.highest - axis.lowest)[chosen] for axis in self.axes(revision, tree)]
            spreads[tree] = float((np.array(extents) @ weights).min() / max(weights.sum(), 1.0))
        return spreads

    def with_partitions(
        self, adds: Sequence[AddFile], before: Partitions | None = None
    ) -> tuple[Partitions, I64Array]:
        """Return the partitions `before`, by default of the live files, and the partitions of new files.

        Also return the number of the tree of each new file.
        """
        before, columns = before or self.partitions, self.snapshot.columns
        if not columns.partitions:
            return before, np.zeros(len(adds), np.int64)
        rows = typed_partitions([add.partition_values for add in adds], columns)
        partitions = before.with_rows(rows)
        numbers = partitions.numbers(rows)
        return partitions, np.zeros(len(adds), np.int64) if numbers is None else numbers

    def disorder(
        self, gone: BoolArray, new: pl.DataFrame, revision: Revision | None
    ) -> tuple[I64Array, bool]:
        """Return the live files to rewrite, ascending, because files are removed and blocks are added.

        These break the order of weights (format 8.3); breaks of the snapshot (of the JVM) are ignored. `new` are blocks
        of `revision`. To fix a break, either the files of the cube or those of its descendants are rewritten: the
        smaller ones. The second value is whether only new blocks cause a break, which no rewrite can fix.
        """
        new_id = None if revision is None else revision.revision_id
        touched = {*self.revision_of[gone].tolist(), *([] if new_id is None else [new_id])}
        files, is_stuck = [np.zeros(0, np.int64)], False
        for number in sorted(touched & set(self.snapshot.config.revisions)):
            dimensions = len(self.snapshot.config.revisions[number].columns)
            live = self.live_blocks(number)
            staying = live.filter(~_taken(gone, live))
            broken = broken_blocks(pl.concat([staying, new]) if number == new_id else staying, dimensions)
            if broken.is_empty():
                continue
            before = broken_blocks(live, dimensions).filter("above")
            old = broken.filter("above").join(before, on=["tree", "text"], how="semi")["cube"]
            broken = broken.filter(~pl.col("cube").is_in(old.implode()))
            sides = self._cheaper_sides(broken)
            files.append(sides["file"].to_numpy())
            is_left = sides["cube"].n_unique() < broken["cube"].n_unique()
            if is_left and (broken["file"] == OTHER_FILES).any():
                raise NeedsAllFilesError
            is_stuck = is_stuck or is_left
        return distinct(np.concatenate(files)), is_stuck

    def _cheaper_sides(self, broken: pl.DataFrame) -> pl.DataFrame:
        """Return the files of the smaller side of each broken cube. A side with other files cannot be chosen."""
        sides = broken.unique(["cube", "above", "file"]).join(self.files, on="file", how="left")
        cheapest = (
            sides.group_by("cube", "above")
            .agg(pl.col("bytes").sum(), (pl.col("file") < 0).any().alias("fixed"))
            .filter(~pl.col("fixed"))
            .sort("cube", "bytes", "above", descending=[False, False, True])
            .unique("cube", keep="first", maintain_order=True)
        )
        return sides.join(cheapest, on=["cube", "above"], how="semi")


@dataclass(frozen=True, eq=False)
class FileIndex(Index):
    """The files of a version by revision, without their blocks: what a choice of files to rewrite needs."""

    # `revision`, `has_samples` and `begins` of each file, as in `Index`.
    facts: pl.DataFrame = field(kw_only=True, repr=False)

    @property
    def revision_of(self) -> I64Array:
        """See `Index`."""
        return self.facts["revision"].to_numpy()

    @cached_property
    def has_samples(self) -> BoolArray:
        """See `Index`."""
        return self.facts["has_samples"].to_numpy()

    @cached_property
    def begins(self) -> F64Array:
        """See `Index`."""
        return self.facts["begins"].to_numpy()


_FACTS: Final = 1  # format of the facts that are kept beside a plan file

# Columns by which files are chosen, beside the bounds of indexed columns.
_CHOSEN_BY: Final = (
    *("path", "size_bytes", "modification_time", "num_records", "partition", "rules"),
    *("deletion_vector", "has_deletion_vector", "clustering_provider"),
)


def file_index(snapshot: Snapshot) -> Index:
    """Return the index to choose files by. Of a version with a plan file, it holds a few columns of the files.

    Their order is that of the plan file, and not of the log.
    """
    planned = snapshot.planned
    if planned is None or snapshot.copies:
        return Index(snapshot)
    indexed = {name for revision in snapshot.config.revisions.values() for name in revision.columns}
    columns = [name for name in _CHOSEN_BY if name in snapshot.listed.columns]
    tail = snapshot.with_files(snapshot.listed)
    newer = tail.listed.select(*columns, *statistics_of(tail.listed, indexed))
    try:
        facts = planned.kept(_facts_name(snapshot), lambda: _facts_of_plan(snapshot)).filter(planned.is_live)
        files = joined_files([*planned.columns(columns, indexed), newer]).drop("null_count", strict=False)
    except PlanUnusable:
        return Index(snapshot.from_log())
    return FileIndex(snapshot.with_files(files), facts=pl.concat([facts, _facts(tail)]))


def _facts_name(snapshot: Snapshot) -> str:
    """Return a name for the facts of a plan file: they depend on the revisions, and on types that changed."""
    revisions = [revision.to_json() for _, revision in sorted(snapshot.config.revisions.items())]
    depends = repr((_FACTS, revisions, snapshot.schema, sorted(snapshot.columns.rehashed.items())))
    return f"facts-{blake2b(depends.encode(), digest_size=8).hexdigest()}"


def _facts_of_plan(snapshot: Snapshot) -> pl.DataFrame:
    """Return the facts of all files of a plan file, live or not."""
    planned = snapshot.planned
    rows = np.arange(0 if planned is None else planned.plan.facts.files)
    parts = () if planned is None else planned.parts(rows)
    return pl.concat(_facts(snapshot.with_files(part)) for part in parts)


def _facts(snapshot: Snapshot) -> pl.DataFrame:
    index = Index(snapshot)
    return pl.DataFrame(
        {"revision": index.revision_of, "has_samples": index.has_samples, "begins": index.begins}
    )


def new_blocks(adds: Sequence[AddFile], trees: I64Array) -> pl.DataFrame:
    """Return the blocks of files that are not committed yet, in the columns of `Index`.

    `trees` are the numbers of the files' trees, see `Index.with_partitions`.
    """
    rows = [
        (NEW_FILE, tree, block.cube, block.min_weight, block.max_weight, block.element_count)
        for add, tree in zip(adds, trees.tolist(), strict=True)
        for block in add.blocks or ()
    ]
    return pl.DataFrame(rows, schema=_BLOCKS, orient="row")


NO_BLOCKS: Final = pl.DataFrame(schema=_BLOCKS)


def broken_blocks(blocks: pl.DataFrame, dimensions: int) -> pl.DataFrame:
    """Return the blocks that cause breaks: `cube`, `above`, and the block's `file`, `tree` and cube as `text`."""
    breaks = broken_order(_cubes(blocks, dimensions), **_bounds(blocks))
    return breaks.select(
        "cube",
        "above",
        blocks["file"][breaks["block"]].alias("file"),
        blocks["tree"][breaks["block"]].alias("tree"),
        blocks["cube"][breaks["block"]].alias("text"),
    )


def _cubes(blocks: pl.DataFrame, dimensions: int) -> Cubes:
    cubes = decode_cubes(text_column(blocks["cube"]), dimensions=dimensions)
    trees = blocks["tree"].to_numpy()
    return replace(cubes, trees=trees) if trees.any() else cubes


def _bounds(blocks: pl.DataFrame) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return {
        "min_weights": blocks["min_weight"].cast(pl.Int32).to_numpy(),
        "max_weights": blocks["max_weight"].cast(pl.Int32).to_numpy(),
    }


def _planned_cubes(snapshot: Snapshot) -> PlannedCubes | None:
    if snapshot.planned is None:
        return None
    from qbeast_core.table.index.planned_cubes import planned_cubes  # noqa: PLC0415 - for few tables

    return planned_cubes(snapshot)


def _taken(gone: BoolArray, blocks: pl.DataFrame) -> pl.Series:
    """Return which blocks are in files that are removed."""
    # `NEW_FILE` and `OTHER_FILES` are the last two indexes.
    return _mask(np.append(gone, [False, False])[blocks["file"].to_numpy()])


def _listed(snapshot: Snapshot) -> pl.DataFrame:
    path = pl.Series("path", snapshot.data_paths, dtype=pl.String)
    return snapshot.blocks.readable.select(
        pl.lit(path).gather(pl.col("file")).alias("path"),
        pl.col("revision").replace(NO_REVISION, None).alias("revision_id"),
        "cube",
        "depth",
        "min_weight",
        "max_weight",
        pl.col("rows").alias("element_count"),
        "replicated",
    )


def _mask(files: BoolArray) -> pl.Series:
    return pl.Series(files, dtype=pl.Boolean)


def _ranges_of(
    files: pl.DataFrame, schema: pl.Schema, revision: Revision, *, rehashed: Mapping[str, str] | None = None
) -> list[Ranges]:
    """Return the ranges of files of a snapshot along the columns of a revision.

    Only columns of numbers, dates and times have known ranges.
    """
    fits = fits_schema(revision, schema, rehashed)
    bounded = bounded_columns(files) if fits else set[str]()
    unknown = np.full(files.height, np.nan)
    return [
        _ranges(files, name, schema[name])
        if name in bounded and not isinstance(space, HashTransformation)
        else (unknown, unknown)
        for name, space in zip(revision.columns, revision.transformations, strict=True)
    ]


def bounded_columns(files: pl.DataFrame) -> set[str]:
    """Return the columns with a minimum and a maximum in the statistics."""
    schema = files.schema
    low, high = (
        {field.name for field in dtype.fields}
        if isinstance(dtype := schema.get(side), pl.Struct)
        else set[str]()
        for side in ("min", "max")
    )
    return low & high


def _ranges(files: pl.DataFrame, name: str, dtype: pl.DataType) -> Ranges:
    bounds = pl.DataFrame(
        {end: files[end].struct.field(name).cast(dtype, strict=False) for end in ("min", "max")}
    )
    if dtype.is_float():
        bounds = bounds.with_columns(pl.when(pl.all().is_finite()).then(pl.all()).name.keep())
    known = bounds.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    both = to_index_column(pl.concat([bounds["min"].filter(known), bounds["max"].filter(known)]))
    lowest, highest = np.full(files.height, np.nan), np.full(files.height, np.nan)
    if isinstance(both, NumberColumn) and known.any():
        # Halved: the range of extreme doubles does not overflow.
        low, high = np.split(number_values(both) / 2, 2)
        lowest[known], highest[known] = np.minimum(low, high), np.maximum(low, high)
    return lowest, highest

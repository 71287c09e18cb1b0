"""Choose the revision of new rows: its columns, thresholds of live cubes, and files staged for the order."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.columns import StoredColumns, named_revision, stored_revision
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.log.rebase import dialect_of
from qbeast_core.plan.decode_tags import texts_changed
from qbeast_core.space.values import MAX_WEIGHT, BoolArray, F64Array, NumberColumn, number_values
from qbeast_core.spec.blocks import Block, BlocksDialect, FilePath
from qbeast_core.spec.revision import (
    KINDS,
    STAGING_REVISION_ID,
    ColumnKind,
    ColumnSpec,
    QuantilesTransformation,
    Revision,
    parse_column_spec,
)
from qbeast_core.spec.table_config import TableConfig
from qbeast_core.support.text import did_you_mean
from qbeast_core.table.data.schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.index.live_index import Index, bounded_columns, broken_blocks, new_blocks
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.fit import KNOT_CHARACTERS, Growth, IndexWish, ValueRange, first_revision, next_revision
from qbeast_core.tree.grid import data_type_of, to_index_column
from qbeast_core.tree.summary import IndexSummary

# A list of names, `"name:kind"`, pairs of name and kind, or `pl.col`; or a mapping from name to kind (None: any kind).
IndexColumns: TypeAlias = Sequence[str | tuple[str, str | None] | pl.Expr] | Mapping[str, str | None]

_UNKNOWN_TO_JVM: Final = (pl.Int8(), pl.Int16(), pl.Datetime("us"))

# Maximum number of indexed columns.
MAX_COLUMNS: Final = 40


def specs_of_table(index: Index, *, redraw: bool = False) -> tuple[ColumnSpec, ...]:
    """Return the indexed columns of a table. A new revision keeps their kinds."""
    config = index.snapshot.config
    latest = config.latest
    real = latest is not None and latest.revision_id != STAGING_REVISION_ID
    if latest is None or not real or (index.newest is not None and not redraw):
        return resolve_specs(None if real else config.column_specs, latest)
    # A new revision: for a redraw, or because another writer changed the type of a column.
    return _of_same_kinds(latest, index.snapshot.schema)


def specs_of_overwrite(
    columns: IndexColumns | None, config: TableConfig, schema: pl.Schema
) -> tuple[ColumnSpec, ...]:
    """Return the columns to index in an overwrite.

    A hashed column stays hashed unless another kind is named: other kinds put values into the metadata.
    """
    latest = config.latest
    if latest is None or latest.revision_id == STAGING_REVISION_ID:
        specs = () if config.column_specs is None else resolve_specs(config.column_specs, latest)
    else:
        specs = _of_same_kinds(latest, schema)
    if columns is None:
        return specs or resolve_specs(None, latest)
    hashed = {spec.name for spec in specs if spec.kind == "hashing"}
    return tuple(
        ColumnSpec(spec.name, "hashing") if spec.kind == "auto" and spec.name in hashed else spec
        for spec in resolve_specs(columns, None)
    )


def _of_same_kinds(revision: Revision, schema: pl.Schema) -> tuple[ColumnSpec, ...]:
    """Return the columns of a revision with their kinds. A column that changed from or to text may change its kind."""
    changed = texts_changed(revision, schema)
    kinds: dict[str, ColumnKind] = {
        item.column_name: item.kind
        for item in revision.column_transformers
        if item.kind != "empty" and (item.kind == "hashing" or item.column_name not in changed)
    }
    return tuple(ColumnSpec(name, kinds.get(name, "auto")) for name in revision.columns)


def resolve_specs(columns: IndexColumns | None, current: Revision | None) -> tuple[ColumnSpec, ...]:
    """Return the columns to index, by default the columns of `current`. Raise if they differ from `current`.

    An empty list is a table without index.
    """
    if columns is None:
        if current is None:
            msg = (
                "a new table needs columns to index. Pass columns=['a', 'b:quantiles'], or "
                "columns that qbeast.suggest_columns(rows) proposes, with its reasons; or columns=[] for a table "
                "without index."
            )
            raise InvalidColumnsError(msg)
        return tuple(ColumnSpec(name) for name in current.columns)
    specs = tuple(parse_column_spec(text) for text in column_texts(columns))
    names = [spec.name for spec in specs]
    if not names and current is None:
        return ()  # no index
    if len(names) > MAX_COLUMNS:
        msg = f"a table is indexed by at most {MAX_COLUMNS} columns, got {len(names)}"
        raise InvalidColumnsError(msg, columns=names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"columns to index named twice: {twice}. Name each once."
        raise InvalidColumnsError(msg, columns=twice)
    if current is not None and tuple(names) != current.columns:
        msg = (
            f"the table is indexed by {list(current.columns)}, not by {names}. Append with its "
            "own columns in that order (or leave `columns` out). Table.reindex indexes it by other columns, and "
            'mode="overwrite" replaces its rows.'
        )
        raise InvalidColumnsError(msg, columns=names)
    return specs


def check_columns(specs: Sequence[ColumnSpec], schema: pl.Schema, dialect: BlocksDialect) -> None:
    """Raise if a column is missing or cannot be indexed."""
    unknown = [spec.name for spec in specs if spec.name not in schema]
    if unknown:
        misspelled = [name.rpartition(":") for name in unknown if name.rpartition(":")[0] in schema]
        if misspelled:
            _, _, kind = misspelled[0]
            guess = f" {kind!r} is not a kind of index: there are {', '.join(KINDS)}.{did_you_mean([kind], KINDS)}"
        else:
            guess = did_you_mean(unknown, schema)
            nested = [name for name in unknown if name.partition(".")[0] in schema]
            if nested:
                guess = f" A field cannot be indexed: write {nested[0]!r} as a column of its own."
        message = f"`columns` names no such column(s): {unknown}. The rows have {list(schema)}.{guess}"
        raise InvalidColumnsError(message, columns=unknown, value=unknown, known=schema)
    for spec in specs:
        data_type_of(spec.name, schema[spec.name])
        if dialect == "qbeast-spark" and schema[spec.name] in _UNKNOWN_TO_JVM:
            msg = (
                f"column {spec.name!r} has type {schema[spec.name]}, which qbeast-spark cannot index. "
                "Cast it to int or to a timestamp with time zone."
            )
            raise InvalidColumnsError(msg, columns=[spec.name])


def refuse_collations(names: Sequence[str], collated: Collection[str]) -> None:
    """Raise if new indexed columns have a collation: filters of Spark would compare otherwise than the index."""
    refused = [name for name in names if name in collated]
    if refused:
        msg = (
            f"columns {refused} have a collation: values that are equal by it would be far apart in the index, and "
            "have different weights. Choose other columns, or cast them to plain strings (collate "
            "UTF8_BINARY)."
        )
        raise InvalidColumnsError(msg, columns=refused)


def column_texts(columns: IndexColumns) -> list[str]:
    """Return columns to index as texts, ``"name"`` or ``"name:kind"``.

    >>> column_texts(["a", ("b", "hash"), pl.col("c")]), column_texts({"a": "linear", "b": None})
    (['a', 'b:hash', 'c'], ['a:linear', 'b:auto'])
    """
    value = cast("object", columns)
    ordered = isinstance(value, Iterable) and not isinstance(value, str | frozenset | set)
    pairs: object = value.items() if isinstance(value, Mapping) else value
    items: list[object] = list(cast("Iterable[object]", pairs)) if ordered else []
    texts = [text for item in items if (text := _column_text(item)) is not None]
    if not ordered or len(texts) < len(items):
        split = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
        message = (
            "`columns` must be a list of names, 'a' or 'a:hash', or map names to kinds, not "
            f"{reprlib.repr(value)}.{f' Did you mean columns={split}?' if any(split) else ''}"
        )
        raise InvalidColumnsError(message, value=value)
    return texts


def _column_text(item: object) -> str | None:
    match item:
        case str():
            return item
        case (str(name), None):
            return f"{name}:auto"
        case (str(name), str(kind)):
            return f"{name}:{kind}"
        case pl.Expr() if item.meta.is_column():
            return item.meta.output_name()
        case _:
            return None


# Maximum number of values of a column that has few.
_MAX_FEW: Final = 4
_FIRST_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ChosenRevision:
    """The revision that rows are indexed in."""

    revision: Revision
    # Whether the revision is not in the table yet.
    is_new: bool
    # Number of rows to index.
    rows: int
    # Number of values of the columns that have few, of the first revision of a table; of large tables in a sample.
    few_values: Mapping[str, int] = field(default_factory=dict[str, int])


def choose_revision(
    wish: IndexWish,
    summary_of: Callable[[Sequence[str]], IndexSummary],
    index: Index | None,
    *,
    uri: str,
    now_ms: int,
    gone: BoolArray | None = None,
) -> ChosenRevision:
    """Return the revision for rows: the newest of the table, or a new one if they need it."""
    summary = summary_of(wish.names)
    if index is None or index.newest is None:
        first = first_revision(wish, summary, table_id=uri, timestamp_ms=now_ms)
        return ChosenRevision(
            first, is_new=True, rows=summary.rows, few_values=_few_values(summary, wish.names)
        )
    current = index.newest
    if gone is None:
        files = index.snapshot.light(["num_records"], _with_quantiles(current))
    else:
        files = index.snapshot.files.filter(~pl.Series(gone, dtype=pl.Boolean))
    growth = growth_of(files, current, cubes=index.cube_count(current, gone))
    revision = next_revision(current, wish, summary, growth=growth, timestamp_ms=now_ms)
    return ChosenRevision(revision, is_new=revision is not current, rows=summary.rows)


def _few_values(summary: IndexSummary, names: Sequence[str]) -> dict[str, int]:
    """Return the number of values of columns that have few; null is one."""
    sampled = map(summary.values, names)
    # The first values rule out most columns.
    likely = [values for values in sampled if values.head(_FIRST_ROWS).n_unique() <= _MAX_FEW]
    counts = {values.name: values.n_unique() for values in likely}
    return {name: count for name, count in counts.items() if count <= _MAX_FEW}


def wish_of_table(index: Index, *, redraw: bool = False) -> IndexWish:
    """Return the index options of a table for a rewrite of its rows."""
    snapshot = index.snapshot
    latest, dialect = snapshot.config.latest, dialect_of(snapshot)
    keeps = index.newest is not None and not redraw
    specs = specs_of_table(index, redraw=redraw)
    refuse_taken_name(snapshot.uri, snapshot.schema_json)
    if latest is not None:
        refuse_lost_columns(snapshot.uri, latest, snapshot.schema, snapshot.columns)
    check_columns(specs, snapshot.schema, dialect)
    size = None if latest is None or keeps else latest.desired_cube_size
    return IndexWish(
        specs=specs,
        cube_size=size,
        dialect=dialect,
        decimals=snapshot.columns.rehashed,
        sample_by=snapshot.config.sample_by,
    )


def growth_of(files: pl.DataFrame, revision: Revision, *, cubes: int) -> Growth:
    """Return the number of rows of the table, of rows outside the quantiles of each column, and of cubes.

    Rows outside are estimated from the statistics of files: a file counts with the share of its range that is outside.
    """
    outside: dict[str, float] = {}
    ranges: dict[str, ValueRange] = {}
    bounded = bounded_columns(files)
    spaces = dict(zip(revision.columns, revision.transformations, strict=False))
    for name in _with_quantiles(revision):
        space = spaces[name]
        if name not in bounded or not isinstance(space, QuantilesTransformation):
            continue
        bounds, texts = _bounds_of(files, name), space.holds_texts
        if bounds.is_empty() or texts != (bounds["low"].dtype == pl.String):
            continue  # no statistics, or another writer changed the type
        share, ends = _of_texts(bounds, space) if texts else _of_numbers(bounds, space)
        outside[name] = float((bounds["rows"].to_numpy() * share).sum())
        ranges[name] = ends
    rows = int(files["num_records"].sum())
    return Growth(rows=rows, outside_rows=outside, ranges=ranges, cubes=cubes)


def _with_quantiles(revision: Revision) -> list[str]:
    """Return the columns whose coordinates are quantiles."""
    spaces = zip(revision.columns, revision.transformations, strict=False)
    return [name for name, space in spaces if isinstance(space, QuantilesTransformation)]


def _bounds_of(files: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return number of rows, minimum and maximum of each file with statistics."""
    bounds = files.lazy().select(
        pl.col("num_records").fill_null(0).alias("rows"),
        pl.col("min").struct.field(name).alias("low"),
        pl.col("max").struct.field(name).alias("high"),
    )
    return bounds.drop_nulls().collect()


def _of_texts(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, ValueRange]:
    """Return the share of each file outside, 0 or 1 because a range of texts has no length; and all bounds."""
    first, last = str(space.quantiles[0]), str(space.quantiles[-1])
    low, high = files["low"], files["high"]
    beyond = (low.str.head(KNOT_CHARACTERS) > last) | (high < first)
    lows = low.sort()  # upper bounds may be truncated, so they are not values of the column
    return beyond.to_numpy().astype(np.float64), (str(lows[0]), str(lows[-1]))


def _of_numbers(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, ValueRange]:
    """Return the share of each file's range outside, 0 or 1 for a single value; and all bounds."""
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
        msg = f"the statistics of {values.name!r} are not numbers"
        raise TypeError(msg)
    return number_values(column)


def fit_blocks(intent: WriteIntent, snapshot: Snapshot) -> WriteIntent:
    """Adapt an intent to `snapshot`, which is newer than the version it was planned on.

    New files that have no place in the tree (format 8.3), or lack a sample column that the table has by now, are
    staged, and optimize indexes them later, so an append does not fail. Changes that replace files are returned as they
    are.
    """
    if intent.mode == "append" and not intent.removes and snapshot.sample_column is not None:
        adds = (add.without_index() if add.has_hidden_weights else add for add in intent.adds)
        intent = replace(intent, adds=tuple(adds))
    revision = intent.revision
    indexed = [add for add in intent.adds if add.blocks is not None]
    if intent.mode != "append" or intent.removes or intent.new_revision or revision is None or not indexed:
        return intent
    files = [add.blocks or () for add in indexed]
    index = Index(snapshot)
    live = index.bounds(revision)
    live = live if _knows(snapshot, revision) else live.clear()
    trees = index.with_partitions(indexed)[1].tolist()
    fitting = blocks_in_order(files, live, trees=trees, dimensions=len(revision.columns))
    if fitting == files:
        return intent
    fitted = {add.path: _fitted(add, blocks) for add, blocks in zip(indexed, fitting, strict=True)}
    return replace(intent, adds=tuple(fitted.get(add.path, add) for add in intent.adds))


def with_new_names(intent: WriteIntent, base: Metadata, snapshot: Snapshot) -> WriteIntent:
    """Return an intent with the names that columns have in `snapshot`, which may be newer than its plan."""
    if intent.revision is None or base.schema_string == snapshot.schema_json:
        return intent
    stored = stored_revision(intent.revision, StoredColumns.of(base))
    return replace(intent, revision=named_revision(stored, snapshot.columns))


def breaks_order(intent: WriteIntent, snapshot: Snapshot) -> bool:
    """Return whether blocks of `snapshot` rely on thresholds that the change removes (format 8.3)."""
    removed = {FilePath.of_log(remove.path).text for remove in intent.removes}
    gone = pl.Series(snapshot.data_paths, dtype=pl.String).is_in(list(removed)).to_numpy()
    revision = intent.revision
    beside = not intent.new_revision and _knows(snapshot, revision)
    index = Index(snapshot)
    new = new_blocks(intent.adds, index.with_partitions(intent.adds)[1])
    files, is_stuck = index.disorder(gone, new, revision if beside else None)
    return is_stuck or len(files) > 0


def _knows(snapshot: Snapshot, revision: Revision | None) -> bool:
    """Return whether the table has this revision. Otherwise the commit publishes it with a new id."""
    return revision is not None and snapshot.config.revisions.get(revision.revision_id) == revision


def _fitted(add: AddFile, blocks: tuple[Block, ...] | None) -> AddFile:
    return add.without_index() if blocks is None else add.model_copy(update={"blocks": blocks})


_LIVE: Final = -1
_BLOCKS: Final = pl.Schema(
    {
        "file": pl.Int64,
        "tree": pl.Int64,
        "cube": pl.String,
        "min_weight": pl.Int64,
        "max_weight": pl.Int64,
    }
)


def blocks_in_order(
    files: Sequence[Sequence[Block]],
    live: pl.DataFrame,
    *,
    trees: Sequence[int] | None = None,
    dimensions: int,
) -> list[tuple[Block, ...] | None]:
    """Return the blocks to publish for each new file. None: the file has to be published without index.

    `trees` are the numbers of the files' trees, by default 0; each tree has an order of its own.

    Two plans on the same version may conflict: a cube without rows in one plan has no threshold there, and its
    threshold in the other plan may be too large for the rows below. A new file loses its index if its rows are below a
    live threshold, or if live blocks are below its threshold. Breaks between live blocks only (of the JVM) are ignored.

    A cube without descendants is a leaf: its new blocks get the threshold of a leaf.

    >>> weights = {"min_weight": [-9, 3], "max_weight": [2, 2147483647]}
    >>> live = pl.DataFrame({"tree": [0, 0], "cube": ["", "ww"], **weights})
    >>> low, high = [Block("A", 2, 2147483647, 2)], [Block("w", 1, 3, 2)]
    >>> blocks_in_order([low, high], live, dimensions=2)
    [None, None]
    >>> blocks_in_order([high], live[:1], dimensions=2)
    [None]
    >>> blocks_in_order([high], live, trees=[1], dimensions=2)
    [(Block(cube='w', min_weight=1, max_weight=2147483647, element_count=2, replicated=False),)]
    """
    trees = [0] * len(files) if trees is None else trees
    new = [
        (file, tree, block.cube, block.min_weight, block.max_weight)
        for file, (blocks, tree) in enumerate(zip(files, trees, strict=True))
        for block in blocks
    ]
    old = live.select(pl.lit(_LIVE, pl.Int64).alias("file"), *_BLOCKS.names()[1:])
    blocks = pl.concat([old.cast(_BLOCKS), pl.DataFrame(new, schema=_BLOCKS, orient="row")])
    faults = _faults(blocks, dimensions)
    while len(unfit := _unfit(faults)):
        # Blocks that relied on thresholds of these files show up in the next round.
        blocks = blocks.filter(~pl.col("file").is_in(unfit.implode()))
        faults = _faults(blocks, dimensions)
    fitting, leaves = set(blocks["file"]), set(faults.filter("leaf").select("tree", "text").iter_rows())
    return [
        _raised(file_blocks, tree, leaves) if file in fitting or not file_blocks else None
        for file, (file_blocks, tree) in enumerate(zip(files, trees, strict=True))
    ]


def _faults(blocks: pl.DataFrame, dimensions: int) -> pl.DataFrame:
    """Return the blocks that cause breaks, and which sides of the cube have live blocks."""
    is_live = pl.col("file") == _LIVE
    return broken_blocks(blocks, dimensions).with_columns(
        (~pl.col("above")).any().not_().over("cube").alias("leaf"),
        (is_live & pl.col("above")).any().over("cube").alias("live_above"),
        (is_live & ~pl.col("above")).any().over("cube").alias("live_below"),
    )


def _unfit(faults: pl.DataFrame) -> pl.Series:
    """Return the new files to stage: the side of a cube without live blocks, the lower side if neither has any."""
    stages_above = pl.col("live_below") & ~pl.col("live_above")
    is_unfit = (pl.col("file") != _LIVE) & ~pl.col("leaf") & (pl.col("above") == stages_above)
    return faults.filter(is_unfit)["file"].unique()


def _raised(blocks: Sequence[Block], tree: int, leaves: set[tuple[int, str]]) -> tuple[Block, ...]:
    return tuple(
        replace(block, max_weight=MAX_WEIGHT) if (tree, block.cube) in leaves else block for block in blocks
    )

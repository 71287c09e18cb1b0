"""Repeated index keys and the design effect of a table, small partitions, and tables without an index."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from qbeast_core.errors import (
    DesignEffectWarning,
    InvalidColumnsError,
    InvalidMetadataError,
    NotQbeastTableError,
    SmallPartitionsWarning,
)
from qbeast_core.log.actions import AddFile
from qbeast_core.log.protocol import damaged_index
from qbeast_core.plan.nodes import Unknown
from qbeast_core.space.values import U64Array, distinct
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import SAMPLE_BY
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import convert_call
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.grid import data_type_of, frame_weights
from qbeast_core.tree.keys import (
    CLUSTERED,
    KEYS_TAG,
    HeavyKeys,
    KeySketch,
    KeyTotal,
    design_effect,
    parse_keys,
)

_CACHED_TABLES: Final = 8


@dataclass(slots=True, eq=False)
class KeyCounts:
    """How often index keys repeat in some files."""

    total: KeyTotal = field(default_factory=KeyTotal)
    # Number of files without a key sketch, and number of their rows in the log.
    unknown_files: int = 0
    unknown_rows: int = 0
    # Whether the log does not count the rows of some of these files.
    uncounted: bool = False

    def copy(self) -> KeyCounts:
        """Return a copy that can be changed."""
        return replace(self, total=self.total.copy())

    def add(self, tags: pl.DataFrame) -> None:
        """Count the keys of more files."""
        for text, records in tags.iter_rows():
            sketch = parse_keys(text)
            if sketch is not None and records in {None, sketch.rows}:
                self.total.add(sketch)
                continue
            self.unknown_files += 1
            self.unknown_rows += records or 0
            self.uncounted |= records is None

    @property
    def design_effect(self) -> float | None:
        """The design effect, at least 1.0. None if files have no key sketch."""
        return None if self.unknown_files else self.total.design_effect()

    @property
    def lower_bound(self) -> float:
        """Lower bound of the design effect. It is exact if all files have a key sketch."""
        return 1.0 if self.uncounted else self.total.design_effect(unknown_rows=self.unknown_rows)


_BY_VERSION: Final[WeakKeyDictionary[Snapshot, KeyCounts]] = WeakKeyDictionary()


def counts_of(snapshot: Snapshot) -> KeyCounts:
    """Return how often index keys repeat in a version. The result is cached: copy it before you add to it."""
    counts = _BY_VERSION.get(snapshot)
    if counts is None:
        counts = count_keys(snapshot.files) if snapshot.planned is None else KeyCounts()
        for part in () if snapshot.planned is None else snapshot.parts(Unknown()):
            counts.add(part.files.select("keys", "num_records"))
        _BY_VERSION[snapshot] = counts
    return counts


def known_counts(snapshot: Snapshot) -> KeyCounts:
    """Return `counts_of` a version, without the keys of files that a plan file lists: a write reads no tags of them."""
    if snapshot.planned is None:
        return counts_of(snapshot)
    counts = count_keys(snapshot.listed).copy()
    counts.unknown_files += snapshot.planned.count
    counts.unknown_rows += snapshot.planned.rows
    counts.uncounted |= bool(snapshot.planned.uncounted)
    return counts


def count_keys(files: pl.DataFrame) -> KeyCounts:
    """Return how often index keys repeat in live files. Deleted rows are counted.

    The last counts of some tables are cached. If files were only added since, only these are counted.
    """
    tags = files.select("keys", "num_records")
    counts = KeyCounts()
    if files.height < sizing().min_cached_files:
        counts.add(tags)
        return counts
    cached = _CACHE.largest_subset_of(hashes := _file_hashes(tags))
    if cached is not None:
        counts = cached[1].copy()
        tags = tags.filter(pl.Series(~np.isin(hashes, cached[0]), dtype=pl.Boolean))
    counts.add(tags)
    _CACHE.replace(cached, (hashes, counts.copy()))
    return counts


def count_other_keys(files: pl.DataFrame, listed: Sequence[HeavyKeys | None]) -> KeyCounts:
    """Return how often index keys repeat in files, without some keys of each file."""
    is_plain = pl.Series([keys is None or not len(keys) for keys in listed], dtype=pl.Boolean)
    counts = count_keys(files.filter(is_plain)).copy()
    for (text, records), keys in zip(files.select("keys", "num_records").iter_rows(), listed, strict=True):
        sketch = parse_keys(text)
        if keys is not None and len(keys) and sketch is not None and records == sketch.rows:
            counts.total.add(sketch.without(keys.weights, keys.rows))
    return counts


# A hash of each of some files, and their counts.
_CachedCounts: TypeAlias = tuple[U64Array, KeyCounts]


class _CountsCache:
    """The last counts of some tables. Safe to share between threads: if two replace at once, one is not cached."""

    def __init__(self) -> None:
        self._items: list[_CachedCounts] = []

    def largest_subset_of(self, hashes: U64Array) -> _CachedCounts | None:
        subsets = [item for item in self._items if _is_subset(item[0], hashes)]
        return max(subsets, key=lambda item: len(item[0]), default=None)

    def replace(self, old: _CachedCounts | None, new: _CachedCounts) -> None:
        others = [item for item in self._items if item is not old]
        self._items = [*others, new][-_CACHED_TABLES:]


_CACHE: Final = _CountsCache()


def _is_subset(hashes: U64Array, others: U64Array) -> bool:
    # The first hash is a cheap test: most other tables fail it.
    if len(hashes) > len(others) or not np.isin(hashes[:1], others).all():
        return False
    return bool(np.isin(hashes, others).all())


def _file_hashes(tags: pl.DataFrame) -> U64Array:
    """Return a different hash for each file, from its tags. Files with equal tags are numbered."""
    hashes: U64Array = tags.select(pl.struct("keys", "num_records").hash()).to_series().to_numpy()
    if len(distinct(hashes)) < len(hashes):  # rare: sketches of many keys differ
        numbered = pl.DataFrame({"hash": hashes}).with_columns(
            pl.int_range(pl.len()).over("hash").alias("number")
        )
        hashes = numbered.select(pl.struct("hash", "number").hash()).to_series().to_numpy()
    return hashes


_TRIED: Final = 3

# Fewer rows are examples, of which nobody takes a sample.
_MIN_ROWS: Final = 1_000


def keys_of_write(adds: Iterable[AddFile], design_effect: float | None = None) -> KeySketch:
    """Return how often index keys repeat in the files of one write."""
    total = KeyTotal()
    for add in adds:
        sketch = parse_keys((add.tags or {}).get(KEYS_TAG))
        if sketch is not None:
            total.add(sketch)
    return total.joined(None if design_effect is None else design_effect * total.rows)


def with_write(others: KeyCounts | None, keys: KeySketch) -> tuple[float, KeyCounts]:
    """Return the lower bound of the design effect before a write, and the counts of the table with the write."""
    counts = KeyCounts() if others is None else others.copy()
    before = counts.lower_bound
    counts.total.add(keys)
    return before, counts


def warn_if_clustered(
    effects: tuple[float, float],
    revision: Revision | None,
    frame: pl.DataFrame | None = None,
    *,
    own_effect: float = 1.0,
) -> None:
    """Warn if a write brings the design effect of its table above 2. Later writes do not warn again."""
    before, effect = effects
    if revision is None or before > CLUSTERED or effect <= CLUSTERED:
        return
    if revision.sample_by:  # whole keys are requested
        return
    indexed = revision.columns
    cure = _cure(frame, indexed) if frame is not None and own_effect > CLUSTERED else None
    warnings.warn(
        _clustered_message(effect, indexed, cure), DesignEffectWarning, stacklevel=caller_stacklevel()
    )


def warn_if_one_key(revision: Revision, rows: int, own_effect: float) -> None:
    """Warn if one value of the sampling key of a new table has most of the rows."""
    if not revision.sample_by or rows < _MIN_ROWS or 2 * own_effect < rows:
        return
    message = (
        f"one value of the sampling key {list(revision.sample_by)} has most of the rows: a sample holds either these "
        "rows or few others, and estimates read all rows. The rows are written and complete. To sample by columns of "
        'many values, write them again (mode="overwrite", sample_by=[...]); sample_by=[] removes the key.'
    )
    warnings.warn(message, DesignEffectWarning, stacklevel=caller_stacklevel())


def warn_if_growing(before: pl.DataFrame, after: pl.DataFrame, revision: Revision | None) -> None:
    """Warn if a change brings the lower bound of the design effect of its table above 2."""
    effect = count_keys(after).lower_bound
    if effect > CLUSTERED:  # count the files before the change only if needed: it takes time per file
        warn_if_clustered((count_keys(before).lower_bound, effect), revision)


def _clustered_message(effect: float, indexed: Sequence[str], cure: tuple[str, float] | None = None) -> str:
    """Return the text of the warning. `cure` is a column that helps, and the design effect with it."""
    column = f": with {cure[0]!r} the design effect of these rows would be {cure[1]:.2f}" if cure else ""
    return (
        f"rows with equal values of {list(indexed)} enter a sample together (cluster sampling); design effect "
        f"{effect:.2f}: a sampled count varies {effect**0.5:.1f} times as much as with independent rows. The rows are "
        f"written and complete. Index a column of many values as well, with Table.reindex(columns=[...]){column}."
    )


def _cure(frame: pl.DataFrame, indexed: Sequence[str]) -> tuple[str, float] | None:
    """Return the column that reduces the design effect most, in the syntax of ``columns=``, and the effect with it."""
    others = [name for name, dtype in frame.schema.items() if name not in indexed and _indexable(name, dtype)]
    if not others:
        return None
    counts = frame.select(pl.col(others).approx_n_unique()).row(0, named=True)
    likely = sorted(others, key=counts.__getitem__, reverse=True)[:_TRIED]
    effects = {name: design_effect(frame_weights(frame, [*indexed, name])) for name in likely}
    best = min(effects, key=effects.__getitem__)
    # Suggest a hash for texts: quantiles would put values, perhaps names of people, into the metadata.
    return f"{best}:hash" if frame.schema[best] == pl.String else best, effects[best]


def _indexable(name: str, dtype: pl.DataType) -> bool:
    try:
        data_type_of(name, dtype)
    except InvalidColumnsError:
        return False
    return True


_MIN_PARTITIONS: Final = 2


def warn_if_small(before: Snapshot | None, after: Snapshot) -> None:
    """Warn if a write makes a table whose median partition has fewer rows than one cube.

    Later writes do not warn again. A table that fits in one cube has no use for a tree anyway.
    """
    median = _small_median(after)
    if median is None or (before is not None and _small_median(before) is not None):
        return
    latest, columns = after.config.latest, list(after.columns.partitions)
    size = 0 if latest is None else latest.desired_cube_size
    msg = (
        f"half of the partitions of {columns} have {median:,.0f} rows or fewer, less than one cube ({size:,} rows): "
        "the index cannot skip rows inside of them, and each has files of its own. The rows are written and complete. "
        "Partition by fewer values, for example by month instead of day, or index these columns instead."
    )
    warnings.warn(msg, SmallPartitionsWarning, stacklevel=caller_stacklevel())


def _small_median(snapshot: Snapshot) -> float | None:
    """Return the rows of the median partition if they are fewer than a cube has. None: they are enough."""
    latest = snapshot.config.latest
    if not snapshot.columns.partitions or latest is None:
        return None
    rows = (
        snapshot.light(["partition", "num_records"])
        .group_by("partition")
        .agg(pl.col("num_records").fill_null(0).cast(pl.Int64).sum())
        .get_column("num_records")
    )
    size, median = latest.desired_cube_size, rows.median()
    if len(rows) < _MIN_PARTITIONS or int(rows.sum()) <= size or not isinstance(median, float):
        return None
    return median if median < size else None


def index_call(snapshot: Snapshot) -> str:
    """Return the call that begins an index, without moving data."""
    return "Table.reindex([...])" if snapshot.config.is_left_unindexed else convert_call(snapshot.uri)


def latest_revision(snapshot: Snapshot) -> Revision:
    """Return the newest revision that can be read. Raise if the table has no index."""
    refuse_unindexed(snapshot)
    config = snapshot.config
    if config.latest is None or SAMPLE_BY in config.faults:
        raise InvalidMetadataError(damaged_index(config, path=snapshot.uri))
    return config.latest


def refuse_unindexed(snapshot: Snapshot) -> None:
    """Raise if a table has no index, for an operation that needs one."""
    if snapshot.config.is_indexed:
        return
    uri = snapshot.uri
    what = (
        "a table without index" if snapshot.config.is_left_unindexed else "a Delta table without Qbeast index"
    )
    msg = f"{uri!r} is {what}, and this needs one. Index it, which moves no data: {index_call(snapshot)}."
    raise NotQbeastTableError(msg, path=uri)

"""Choose the files that optimize rewrites, and those to write together, by what filters open (format 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.values import BoolArray, F64Array, I64Array, distinct
from qbeast_core.spec.blocks import FilePath
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.table.index.live_index import STAGED, Index
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN, logged_counts
from qbeast_core.tree.pages import FILTER_SHARE, Boxes, Gain


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The files of a table as boxes in the space of a revision."""

    index: Index
    revision: Revision
    gain: Gain

    @staticmethod
    def of(index: Index, number: int | None = None) -> Grouping | None:
        """Return the files in the space of a revision, by default the newest. None: it has no columns to compare."""
        snapshot = index.snapshot
        revision = snapshot.config.revisions.get(number) if number else index.newest
        if revision is None or not revision.columns:
            return None
        names = map(snapshot.columns.stored_name, revision.columns)
        importance = [snapshot.config.importance.get(name, 1.0) for name in names]
        largest = max(int(index.rows.max(initial=0)), sizing().min_file_rows)
        gain = Gain(int(index.rows.sum()), importance, float(largest))
        return Grouping(index, revision, gain)

    def sets(self, tree: int, files: I64Array, units: I64Array, is_certain: BoolArray) -> list[I64Array]:
        """Return the files of a tree to rewrite, as sets.

        Files of the same number in `units` stay together. Files that are certain are rewritten in any case.
        """
        _, unit = np.unique(units, return_inverse=True)
        unit = np.asarray(unit, np.int64)
        count = int(unit.max()) + 1
        is_free = np.zeros(count, np.bool_)
        is_free[unit[is_certain]] = True
        joined = self.gain.joined(self._boxes(tree, files, unit, count), is_free)
        alone = np.setdiff1d(np.flatnonzero(is_free), np.concatenate([*joined, np.zeros(0, np.int64)]))
        return [files[np.isin(unit, members)] for members in [*joined, *alone[:, None]]]

    def opened(self, groups: Sequence[I64Array] = ()) -> dict[str, float]:
        """Return the share of the rows that a filter on each column opens, after some files are written together.

        The filter takes 1/30 of the values of the column. It opens the whole of files without pages that divide these
        columns.
        """
        index, files = self.index, self.index.snapshot.files
        _, key = np.unique(files["modification_time"].to_numpy(), return_inverse=True)
        numbers = [
            number
            for number, item in index.snapshot.config.revisions.items()
            if item.columns == self.revision.columns
        ]
        is_paged = np.isin(index.revision_of, numbers)
        # A file without such pages is a box of its own.
        key = np.where(is_paged, key, files.height + np.arange(files.height))
        for number, group in enumerate(groups):
            key[group], is_paged[group] = 2 * files.height + number, True
        opened, total = np.zeros(len(self.revision.columns)), 0.0
        for tree, here in enumerate(index.files_by_tree):
            _, unit = np.unique(key[here], return_inverse=True)
            boxes = self._boxes(tree, here, np.asarray(unit, np.int64), int(unit.max(initial=-1)) + 1)
            paged = np.zeros(len(boxes), np.bool_)
            paged[unit] = is_paged[here]
            whole = np.minimum((boxes.highest - boxes.lowest).T + FILTER_SHARE, 1.0)
            shares: F64Array = np.where(
                paged, np.minimum(self.gain.sides(boxes).T + FILTER_SHARE, 1.0), whole
            )
            opened, total = opened + shares @ boxes.rows, total + float(boxes.rows.sum())
        shares_opened = (opened / max(total, 1.0)).round(4).tolist()
        return dict(zip(self.revision.columns, shares_opened, strict=True))

    def _boxes(self, tree: int, files: I64Array, unit: I64Array, count: int) -> Boxes:
        """Return the boxes of files of a tree, by the number of their unit."""
        at = np.searchsorted(self.index.files_by_tree[tree], files)
        axes = [axis.at(at) for axis in self.index.axes(self.revision, tree)]
        return Boxes.of_groups(axes, self.index.rows[files], unit, count)


def opened_shares(index: Index, groups: Sequence[I64Array] = ()) -> dict[str, float]:
    """Return what a filter on each column opens, see `Grouping.opened`; nothing for a table without index."""
    grouping = Grouping.of(index) if index.snapshot.config.is_indexed else None
    return {} if grouping is None else grouping.opened(groups)


def shares_text(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Describe what filters open before and after.

    >>> shares_text({"day": 0.3, "user": 0.05}, {"day": 0.1, "user": 0.05})
    'day 30 % -> 10 %, user 5 %'
    """
    pairs = {name: (_percent(share), _percent(after.get(name, share))) for name, share in before.items()}
    return ", ".join(f"{name} {' -> '.join(dict.fromkeys(pair))}" for name, pair in pairs.items())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 and round(1000 * share) % 10 else f"{100 * share:.0f} %"


# Why a file is rewritten.
RewriteReason: TypeAlias = Literal[
    "requested",
    "staged",
    "older revision",
    "deletion vector",
    "foreign layout",
    "small file",
    "wide pages",
    "order of weights",
]

_SMALL_SHARE: Final = 0.5

# Minimum share of hidden rows for which a file is rewritten.
_MIN_HIDDEN_SHARE: Final = 0.1

# Maximum share of the table's bytes that one optimize moves from revisions with other columns, at least one file.
_MOVED_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Files to consider, and conditions to select them."""

    # Revision of the files. None: the table has no revision.
    revision: int | None = None
    # Use the newest revision of each version instead: a commit may add one.
    newest: bool = False
    # Include files without index.
    staged: bool = True
    # Include files of other revisions with the same columns, and files with hidden rows of any revision.
    beyond: bool = False
    # Include all files of other revisions.
    older: bool = False
    # Include some files that are indexed by other columns.
    moves: bool = False
    # Include all files of the revision, also those in good shape.
    full: bool = False
    # Include all files with hidden rows, also those with few, or that another implementation clustered.
    purge: bool = False
    # Include only these files (decoded paths), also those in good shape. None: any files.
    paths: frozenset[str] | None = None
    # Include only files with a block that begins at or below this fraction of all weights. Of staged files, include
    # the oldest up to this fraction of their bytes.
    fraction: float | None = None

    def at(self, index: Index) -> Scope:
        """Return the scope in a version."""
        if not self.newest:
            return self
        return replace(self, revision=None if index.newest is None else index.newest.revision_id)


# Scope of an optimize without options.
DEFAULT_SCOPE: Final = Scope(newest=True, beyond=True, moves=True)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Files to rewrite."""

    # Indexes in the snapshot, ascending.
    files: I64Array
    reasons: list[RewriteReason]
    # The same files, as sets whose rows are written together.
    groups: Sequence[I64Array] = ()

    def frame(self, index: Index) -> pl.DataFrame:
        """Return `path` (decoded), `rows` (without hidden ones), `bytes`, `revision_id` (null: none), `reason`."""
        files = index.snapshot.files[self.files]
        hidden = pl.Series(np.maximum(logged_counts(files), 0))
        return files.select(
            pl.Series("path", [FilePath.of_log(path).text for path in files["path"]], dtype=pl.String),
            pl.col("num_records").cast(pl.Int64).alias("rows") - hidden,
            pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
            pl.Series("revision_id", index.revision_of[self.files]).replace(STAGED, None),
            pl.Series("reason", self.reasons, dtype=pl.String),
        )


def choose_files(index: Index, scope: Scope) -> Choice:
    """Return the files to rewrite, each with the first reason that holds."""
    if not index.snapshot.config.is_indexed:
        return _choose_without_index(index, scope)
    files, scope = index.snapshot.files, scope.at(index)
    current = index.revision_of == (-2 if scope.revision is None else scope.revision)  # -2 matches no file
    staged = index.revision_of == STAGED
    considered = current | (~staged & scope.beyond)
    hidden = _hides_rows(index, scope)
    within = _within(index, scope, staged) & (~index.clustered_by_others | (hidden & scope.purge))
    if scope.paths is not None:
        named = index.files["path"].is_in(list(scope.paths)).to_numpy()
        within = within & named & (current | (staged & scope.staged) | (~staged & scope.older))
    lacks_samples = ~index.has_samples & (index.snapshot.sample_column is not None)
    # In this order: the first reason that holds is reported.
    reasons: dict[RewriteReason, BoolArray] = {
        "requested": current if scope.full else (current | staged) & (scope.paths is not None),
        "staged": staged & scope.staged,
        "older revision": (~current & ~staged & scope.older) | _to_move(index, scope, within),
        "deletion vector": considered & hidden,
        "foreign layout": (current & ~has_exact_layout(files)) | (considered & lacks_samples),
    }
    # Files with one of these reasons are rewritten in any case.
    certain = np.logical_or.reduce([within & mask for mask in reasons.values()])
    if scope.full or scope.paths is not None:
        groups = [np.flatnonzero(certain)]
    else:
        others = considered & within & ~certain & ~index.of_other_columns & has_exact_layout(files)
        moved = reasons["staged"] | reasons["older revision"]
        groups = _groups(index, scope, certain=certain, others=others, moved=moved)
    chosen = np.zeros_like(certain)
    chosen[np.concatenate([*groups, np.zeros(0, np.int64)])] = True
    small = _is_small(index)
    reasons |= {"small file": small, "wide pages": ~small}
    numbers = np.flatnonzero(chosen)
    names = list(reasons)
    first = np.select(list(reasons.values()), list(range(len(names))), default=0)
    return Choice(numbers, [names[reason] for reason in first[numbers].tolist()], groups)


def _choose_without_index(index: Index, scope: Scope) -> Choice:
    """Return the files of a table without index to rewrite: only files of one partition are joined."""
    files, sizes = index.snapshot.files, _sizes(index)
    named = np.full(files.height, scope.full)
    if scope.paths is not None:
        named = index.files["path"].is_in(list(scope.paths)).to_numpy()
    hidden = _hides_rows(index, scope) & (scope.paths is None)
    reasons = np.select([named, hidden], ["requested", "deletion vector"], "").astype(object)
    for here in index.files_by_tree if scope.paths is None else ():
        chosen = reasons[here] != ""
        small = _small(sizes[:, here], ~chosen, int(sizes[0, here[chosen]].sum()))
        reasons[here[small]] = "small file"
    numbers = np.flatnonzero(reasons != "")
    return Choice(numbers, reasons[numbers].tolist(), [numbers])


def _hides_rows(index: Index, scope: Scope) -> BoolArray:
    """Return which files to rewrite for their hidden rows."""
    files = index.snapshot.files
    has_vector: BoolArray = files["has_deletion_vector"].to_numpy()
    # A JVM of qbeast-spark reads files without their vectors.
    if scope.purge or not has_vector.any() or dialect_of(index.snapshot) == "qbeast-spark":
        return has_vector
    hidden = logged_counts(files)
    few = (hidden != UNKNOWN) & (hidden < _MIN_HIDDEN_SHARE * index.rows)
    chosen: BoolArray = has_vector & ~few
    return chosen


def _within(index: Index, scope: Scope, staged: BoolArray) -> BoolArray:
    """Return which files are within `Scope.fraction`."""
    files = index.snapshot.files
    if scope.fraction is None:
        return np.ones(files.height, np.bool_)
    within: BoolArray = ~staged & (index.begins <= scope.fraction)
    order = files.with_row_index("file").filter(pl.Series(staged, dtype=pl.Boolean))
    order = order.sort("modification_time", maintain_order=True)
    before = order["size_bytes"].cum_sum() - order["size_bytes"]
    oldest = order.filter(before < scope.fraction * int(order["size_bytes"].sum()))["file"]
    within[oldest.to_numpy()] = True
    return within


def _to_move(index: Index, scope: Scope, within: BoolArray) -> BoolArray:
    """Return the oldest files that are indexed by other columns, up to a share of the table's bytes."""
    files = index.snapshot.files
    chosen, others = np.zeros(files.height, np.bool_), index.of_other_columns & within
    if not (scope.moves and index.newest is not None and others.any()):
        return chosen
    order = files.with_row_index("file").filter(pl.Series(others, dtype=pl.Boolean))
    order = order.sort("modification_time", maintain_order=True)
    sizes = order["size_bytes"].cum_sum().to_numpy()
    fitting = max(int((sizes <= _MOVED_SHARE * int(files["size_bytes"].sum())).sum()), 1)
    chosen[order["file"].head(fitting).to_numpy()] = True
    return chosen


def has_exact_layout(files: pl.DataFrame) -> BoolArray:
    """Return which files follow the exact rules and list their pages: reads can open parts of them."""
    is_exact: BoolArray = files["rules"].cast(pl.String).eq("1").fill_null(value=False).to_numpy()
    return is_exact


def _sizes(index: Index) -> I64Array:
    """Return the rows and the bytes of each file, shape (2, files)."""
    return np.stack([index.rows, index.snapshot.files["size_bytes"].cast(pl.Int64).to_numpy()])


def _small(sizes: I64Array, among: BoolArray, anyway: int) -> BoolArray:
    """Return which small files to join. A file is joined only with at least as many rows as it has.

    Then the file of a row at least doubles with each rewrite, so a row is rewritten a logarithmic number of times.
    `anyway` is the number of rows that are rewritten in any case.
    """
    rows, size_bytes = sizes
    chosen = np.zeros(len(rows), np.bool_)
    if not among.any():
        return chosen
    largest = rows[among].argmax()
    max_rows, max_bytes = rows[among][largest], size_bytes[among][largest]
    small = (rows < _SMALL_SHARE * max_rows) & (size_bytes < _SMALL_SHARE * max_bytes)
    ascending = np.flatnonzero(among & (small | (rows < sizing().small_file_rows)))
    ascending = ascending[np.argsort(rows[ascending], kind="stable")]
    below = anyway + np.cumsum(rows[ascending]) - rows[ascending]
    fitting = np.flatnonzero(rows[ascending] <= below)
    last = int(fitting[-1]) + 1 if len(fitting) else 0
    chosen[ascending[:last]] = True
    return chosen


def _is_small(index: Index) -> BoolArray:
    """Return which files are small: in any table, or beside the largest file of this one."""
    smallest = max(sizing().small_file_rows, _SMALL_SHARE * int(index.rows.max(initial=0)))
    small: BoolArray = index.rows < smallest
    return small


def _groups(
    index: Index, scope: Scope, *, certain: BoolArray, others: BoolArray, moved: BoolArray
) -> list[I64Array]:
    """Return the files to rewrite, as sets whose rows are written together. Sets can have files of several partitions.

    Files `certain` are rewritten in any case, those of them that are `moved` together. `others` only with files that
    it is worth to write them with.
    """
    grouping, by_tree = Grouping.of(index, scope.revision), list[list[I64Array]]()
    _, written = np.unique(index.snapshot.files["modification_time"].to_numpy(), return_inverse=True)
    units = np.where(moved & certain, -1, 2 * written + certain)  # files of one write have the same time
    for tree, here in enumerate(index.files_by_tree):  # each partition has files and a tree of its own
        files = here[(certain | others)[here]]
        if grouping is None:
            by_tree.append([files] if len(files) else [])
        elif certain[files].any() or len(distinct(units[files])) > 1:
            by_tree.append(grouping.sets(tree, files, units[files], certain[files]))
    none = np.zeros(0, np.int64)
    return [np.sort(np.concatenate(sets)) for sets in zip_longest(*by_tree, fillvalue=none)]

"""Choose the files that optimize rewrites (format 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.space.weights import weight_to_fraction
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.table.index.live_index import STAGED, Index
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN, logged_counts
from qbeast_core.tree.layout.gain import Blocks, Gain
from qbeast_core.tree.space.index_values import text_column

# Why a file is rewritten.
RewriteReason: TypeAlias = Literal[
    "requested",
    "staged",
    "older revision",
    "deletion vector",
    "foreign layout",
    "small file",
    "overfull cubes",
    "order of weights",
]

_SMALL_SHARE: Final = 0.5

# Minimum share of hidden rows for which a file is rewritten.
_MIN_HIDDEN_SHARE: Final = 0.1

# Maximum number of rows that one optimize restores: for each row that it rewrites for another reason, and as a share of
# the table. Without other rows to rewrite it restores the rows of a large file.
_RESTORED_PER_ROW: Final = 0.8
_RESTORED_SHARE: Final = 0.05

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
    # Include small files and files with hidden rows of other revisions.
    beyond: bool = False
    # Include all files of other revisions.
    older: bool = False
    # Include some files that are indexed by other columns.
    moves: bool = False
    # Include all files of the revision, also those in good shape.
    full: bool = False
    # Include some files of the revision whose cubes are overfull.
    restores: bool = True
    # Include all files with hidden rows, also those with few, or that another implementation clustered.
    purge: bool = False
    # Include only these files (decoded paths), also those in good shape. None: any files.
    paths: frozenset[str] | None = None
    # Include only files with a block that begins at or below this fraction of all weights. Of staged files, include
    # the oldest up to this fraction of their bytes.
    fraction: float | None = None

    def at(self, state: Index) -> Scope:
        """Return the scope in a version."""
        if not self.newest:
            return self
        return replace(self, revision=None if state.newest is None else state.newest.revision_id)

    @property
    def can_be_finished(self) -> bool:
        """Whether a rewritten file leaves the scope: the scope depends on the shape of files only."""
        return not self.full and self.paths is None and self.fraction is None


# Scope of an optimize without options.
DEFAULT_SCOPE: Final = Scope(newest=True, beyond=True, moves=True)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Files to rewrite."""

    # Indexes in the snapshot, ascending.
    files: I64Array
    reasons: list[RewriteReason]

    def frame(self, state: Index) -> pl.DataFrame:
        """Return `path` (decoded), `rows` (without hidden ones), `bytes`, `revision_id` (null: none), `reason`."""
        files = state.files[self.files].drop("file")
        hidden = pl.Series(np.maximum(logged_counts(state.snapshot.files[self.files]), 0))
        return files.with_columns(pl.col("rows") - hidden, pl.Series("reason", self.reasons, dtype=pl.String))


def choose_files(state: Index, scope: Scope) -> Choice:
    """Return the files to rewrite, each with the first reason that holds."""
    if not state.snapshot.config.is_indexed:
        return _choose_without_index(state, scope)
    files, scope = state.snapshot.files, scope.at(state)
    current = state.revision_of == (-2 if scope.revision is None else scope.revision)  # -2 matches no file
    staged = state.revision_of == STAGED
    considered = current | (~staged & scope.beyond)
    hidden = _hides_rows(state, scope)
    within = _within(state, scope, staged) & (~state.clustered_by_others | (hidden & scope.purge))
    if scope.paths is not None:
        named = state.files["path"].is_in(list(scope.paths)).to_numpy()
        within = within & named & (current | (staged & scope.staged) | (~staged & scope.older))
    # In this order: the first reason that holds is reported.
    reasons: dict[RewriteReason, BoolArray] = {
        "requested": current if scope.full else (current | staged) & (scope.paths is not None),
        "staged": staged & scope.staged,
        "older revision": (~current & ~staged & scope.older) | _to_move(state, scope),
        "deletion vector": considered & hidden,
        "foreign layout": (current & ~has_exact_layout(files)) | (considered & _lacks_samples(state)),
    }
    # Files with one of these reasons are rewritten in any case. Small and overfull files are worth it only if enough
    # rows are rewritten with them.
    certain = np.logical_or.reduce([within & mask for mask in reasons.values()])
    shaped = considered & within & ~certain & (scope.paths is None) & (current | ~state.of_other_columns)
    small, overfull = np.zeros_like(certain), np.zeros_like(certain)
    gains = _Gains(state, state.snapshot.config.revisions.get(scope.revision or STAGED))
    sizes = _sizes(files)
    for tree, here in enumerate(state.files_by_tree):  # each partition has files and a tree of its own
        if shaped[here].any():
            restorable = shaped[here] & current[here] & scope.restores
            masks = _of_shape(gains, tree, sizes[:, here], shaped[here], (restorable, certain[here]))
            small[here], overfull[here] = masks
    reasons |= {"small file": small, "overfull cubes": overfull}
    chosen = within & np.logical_or.reduce(list(reasons.values()))
    numbers = np.flatnonzero(chosen)
    names = list(reasons)
    first = np.select(list(reasons.values()), list(range(len(names))), default=0)
    return Choice(numbers, [names[index] for index in first[numbers].tolist()])


def _choose_without_index(state: Index, scope: Scope) -> Choice:
    """Return the files of a table without index to rewrite: only files of one partition are joined."""
    files, sizes = state.snapshot.files, _sizes(state.snapshot.files)
    named = np.full(files.height, scope.full)
    if scope.paths is not None:
        named = state.files["path"].is_in(list(scope.paths)).to_numpy()
    hidden = _hides_rows(state, scope) & (scope.paths is None)
    reasons = np.select([named, hidden], ["requested", "deletion vector"], "").astype(object)
    for here in state.files_by_tree if scope.paths is None else ():
        chosen = reasons[here] != ""
        small = _small(sizes[:, here], ~chosen, int(sizes[0, here[chosen]].sum()))
        reasons[here[small]] = "small file"
    numbers = np.flatnonzero(reasons != "")
    return Choice(numbers, reasons[numbers].tolist())


def _hides_rows(state: Index, scope: Scope) -> BoolArray:
    """Return which files to rewrite for their hidden rows."""
    files = state.snapshot.files
    has_vector: BoolArray = files["has_deletion_vector"].to_numpy()
    # A JVM of qbeast-spark reads files without their vectors.
    if scope.purge or not has_vector.any() or dialect_of(state.snapshot) == "qbeast-spark":
        return has_vector
    hidden = logged_counts(files)
    few = (hidden != UNKNOWN) & (hidden < _MIN_HIDDEN_SHARE * _rows(files))
    chosen: BoolArray = has_vector & ~few
    return chosen


def saved_share(state: Index, choice: Choice) -> float:
    """Return the share of the rows that filters open now, which they would not open after a rewrite, in [0, 1].

    It is an estimate for the files of the newest revision.
    """
    if state.newest is None or not len(choice.files):
        return 0.0
    chosen = np.zeros(state.snapshot.files.height, np.bool_)
    chosen[choice.files] = True
    chosen &= state.revision_of == state.newest.revision_id
    if not chosen.any():
        return 0.0
    gains, saved, opened = _Gains(state, state.newest), np.zeros(1), np.zeros(1)
    for tree, here in enumerate(state.files_by_tree):
        gain = gains.of_tree(tree)
        if gain is not None:
            saved, opened = saved + gain.saved(chosen[here]), opened + gain.opened
    return max(float((saved / np.maximum(opened, 1.0)).mean()), 0.0)


def _within(state: Index, scope: Scope, staged: BoolArray) -> BoolArray:
    """Return which files are within `Scope.fraction`."""
    files = state.snapshot.files
    if scope.fraction is None:
        return np.ones(files.height, np.bool_)
    begins = state.blocks.group_by("file").agg(pl.col("min_weight").min())
    low = np.ones(files.height)
    low[begins["file"].to_numpy()] = weight_to_fraction(begins["min_weight"].cast(pl.Int32).to_numpy())
    within: BoolArray = ~staged & (low <= scope.fraction)
    order = files.with_row_index("file").filter(pl.Series(staged, dtype=pl.Boolean))
    order = order.sort("modification_time", "path")
    before = order["size_bytes"].cum_sum() - order["size_bytes"]
    oldest = order.filter(before < scope.fraction * int(order["size_bytes"].sum()))["file"]
    within[oldest.to_numpy()] = True
    return within


def _to_move(state: Index, scope: Scope) -> BoolArray:
    """Return the oldest files that are indexed by other columns, up to a share of the table's bytes."""
    files = state.snapshot.files
    chosen = np.zeros(files.height, np.bool_)
    if not (scope.moves and state.newest is not None and state.of_other_columns.any()):
        return chosen
    order = files.with_row_index("file").filter(pl.Series(state.of_other_columns, dtype=pl.Boolean))
    order = order.sort("modification_time", "path")
    sizes = order["size_bytes"].cum_sum().to_numpy()
    within = max(int((sizes <= _MOVED_SHARE * int(files["size_bytes"].sum())).sum()), 1)
    chosen[order["file"].head(within).to_numpy()] = True
    return chosen


def has_exact_layout(files: pl.DataFrame) -> BoolArray:
    """Return which files follow the exact rules and list their pages: reads can open parts of them."""
    is_exact: BoolArray = files["rules"].cast(pl.String).eq("1").fill_null(value=False).to_numpy()
    return is_exact


def _lacks_samples(state: Index) -> BoolArray:
    """Return which files have no values of the table's sample column that can be trusted."""
    has_column = state.snapshot.sample_column is not None
    return ~state.has_samples if has_column else np.zeros(state.snapshot.files.height, np.bool_)


def _rows(files: pl.DataFrame) -> I64Array:
    rows: I64Array = files["num_records"].fill_null(0).cast(pl.Int64).to_numpy()
    return rows


def _sizes(files: pl.DataFrame) -> I64Array:
    """Return the rows and the bytes of each file, shape (2, files)."""
    return np.stack([_rows(files), files["size_bytes"].cast(pl.Int64).to_numpy()])


def _of_shape(
    gains: _Gains, tree: int, sizes: I64Array, among: BoolArray, others: tuple[BoolArray, BoolArray]
) -> tuple[BoolArray, BoolArray]:
    """Return which files of a tree are small, and which have overfull cubes. A file has one of these reasons.

    `sizes` are those of the files of the tree, see `_sizes`; `others` are the files that may be rewritten for their
    overfull cubes, and the files that are rewritten in any case.
    """
    rows, (restorable, anyway) = sizes[0], others
    small = _small(sizes, among, int(rows[anyway].sum()))
    overfull = _overfull(gains, tree, rows, restorable & ~small, anyway | small)
    more = _small(sizes, among & ~small & ~overfull, int(rows[anyway | small | overfull].sum()))
    return small | more, overfull


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


def _overfull(gains: _Gains, tree: int, rows: I64Array, among: BoolArray, anyway: BoolArray) -> BoolArray:
    """Return the files whose rewrite would save filters most, up to a number of rows."""
    is_divided = int(rows.sum()) > gains.cube_size  # other trees have one cube
    gain = gains.of_tree(tree) if among.any() and is_divided else None
    if gain is None:
        return np.zeros_like(among)
    others = float(rows[anyway].sum())
    restored = _RESTORED_PER_ROW * others if others else sizing().max_file_rows
    max_rows = max(restored, _RESTORED_SHARE * float(rows.sum()))
    return gain.files_to_restore(among, anyway, max_rows=max_rows)


class _Gains:
    """The gain of rewrites within a revision, for each tree."""

    def __init__(self, state: Index, revision: Revision | None) -> None:
        self.state, self._revision = state, revision
        self.cube_size = 0 if revision is None else revision.desired_cube_size

    def of_tree(self, tree: int) -> Gain | None:
        """Return the gain of rewrites of files of a tree. None: the revision has no files there."""
        blocks, revision = self._blocks.get((tree,)), self._revision
        if blocks is None or revision is None:
            return None
        listed = Blocks(
            decode_cubes(text_column(blocks["cube"]), dimensions=len(revision.columns)),
            min_weights=blocks["min_weight"].cast(pl.Int32).to_numpy(),
            max_weights=blocks["max_weight"].cast(pl.Int32).to_numpy(),
            element_counts=blocks["rows"].to_numpy(),
            files=np.searchsorted(self.state.files_by_tree[tree], blocks["file"].to_numpy()),
            axes=self.state.axes(revision, tree),
        )
        return Gain(listed, cube_size=revision.desired_cube_size)

    @cached_property
    def _blocks(self) -> dict[tuple[object, ...], pl.DataFrame]:
        if self._revision is None:
            return {}
        return self.state.live_blocks(self._revision.revision_id).partition_by("tree", as_dict=True)

"""Which files to rewrite, and why: what is out of shape, not the table (format 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import polars as pl

from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.space.weights import weight_to_fraction
from qbeast_core.table.index.state import STAGED, IndexState
from qbeast_core.tree.layout.deepen import files_to_deepen
from qbeast_core.tree.space.columns import text_column

# Why a file is rewritten.
RewriteReason: TypeAlias = Literal[
    "asked for",
    "staged",
    "older revision",
    "deletion vector",
    "foreign layout",
    "small file",
    "overfull cubes",
    "order of weights",
]

# A file of fewer rows is small; no write of several files makes one.
_SMALL_ROWS: Final = 1 << 15

_SMALL_SHARE: Final = 0.5
_ORDER: Final[tuple[RewriteReason, ...]] = get_args(RewriteReason)[:-1]  # the last is found while rewriting


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where to look for files, and how."""

    # The revision whose files are looked at; None: none, as in a table without a real one.
    revision: int | None = None
    # Look at the newest revision of each version instead: a commit may bring a new one.
    newest: bool = False
    # Look at files without index as well.
    staged: bool = True
    # Look at small files and deletion vectors in other revisions as well.
    beyond: bool = False
    # Take all files of other revisions.
    older: bool = False
    # Take every file of the revision, whatever its shape.
    every: bool = False
    # Only these files (decoded paths), whatever their shape; None: any.
    paths: frozenset[str] | None = None
    # Only files with a block that begins at or below this share of all weights; of staged files the oldest,
    # up to this share of their bytes.
    fraction: float | None = None

    def at(self, state: IndexState) -> Scope:
        """Return the scope in a version."""
        if not self.newest:
            return self
        return replace(self, revision=None if state.newest is None else state.newest.revision_id)

    @property
    def can_be_finished(self) -> bool:
        """Whether files that were rewritten are out of it then: neither all are taken, nor a share of them."""
        return not self.every and self.paths is None and self.fraction is None


# What an optimize without options looks at.
DEFAULT_SCOPE: Final = Scope(newest=True, beyond=True)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Files to rewrite."""

    # Indexes in the snapshot, ascending.
    files: I64Array
    reasons: list[RewriteReason]

    def frame(self, state: IndexState) -> pl.DataFrame:
        """Return `path` (decoded), `rows`, `bytes`, `revision_id` (null: none), `reason`."""
        files = state.files[self.files].drop("file")
        return files.with_columns(pl.Series("reason", self.reasons, dtype=pl.String))


def choose_files(state: IndexState, scope: Scope) -> Choice:
    """Return the files to rewrite, each with the first reason that holds."""
    files, scope = state.snapshot.files, scope.at(state)
    mine = state.revision_of == (-2 if scope.revision is None else scope.revision)
    staged = state.revision_of == STAGED
    looked_at = mine | (~staged & scope.beyond)
    within = _within(state, scope, staged)
    if scope.paths is not None:
        named = state.files["path"].is_in(list(scope.paths)).to_numpy()
        within = within & named & (mine | (staged & scope.staged) | (~staged & scope.older))
    reasons: dict[RewriteReason, BoolArray] = {
        "asked for": mine if scope.every else (mine | staged) & (scope.paths is not None),
        "staged": staged & scope.staged,
        "older revision": ~mine & ~staged & scope.older,
        "deletion vector": looked_at & files["has_deletion_vector"].to_numpy(),
        "foreign layout": mine & ~_ours(files),
    }
    certain = np.logical_or.reduce([within & mask for mask in reasons.values()])
    shaped = looked_at & within & ~certain & (scope.paths is None)
    small = _small(files, shaped, int(_rows(files)[certain].sum()))
    overfull = _overfull(state, scope, shaped & mine & ~small, certain | small)
    more = _small(files, shaped & ~small & ~overfull, int(_rows(files)[certain | small | overfull].sum()))
    reasons |= {"small file": small | more, "overfull cubes": overfull}
    chosen = within & np.logical_or.reduce(list(reasons.values()))
    numbers = np.flatnonzero(chosen)
    first = np.select([reasons[reason] for reason in _ORDER], list(range(len(_ORDER))), default=0)
    return Choice(numbers, [_ORDER[at] for at in first[numbers].tolist()])


def _within(state: IndexState, scope: Scope, staged: BoolArray) -> BoolArray:
    """Return which files are within the fraction."""
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


def _ours(files: pl.DataFrame) -> BoolArray:
    """Return which files follow the exact rules and know their pages, so that reads open parts of them."""
    ours: BoolArray = files["rules"].cast(pl.String).eq("1").fill_null(value=False).to_numpy()
    return ours


def _rows(files: pl.DataFrame) -> I64Array:
    rows: I64Array = files["num_records"].fill_null(0).cast(pl.Int64).to_numpy()
    return rows


def _small(files: pl.DataFrame, among: BoolArray, anyway: int) -> BoolArray:
    """Return which small files to join: as many as there are, while each at least doubles.

    So a row is rewritten as often as the files it lies in double, up to the usual size of the table's files.
    """
    rows, sizes = _rows(files), files["size_bytes"].to_numpy()
    chosen = np.zeros(files.height, np.bool_)
    if not among.any():
        return chosen
    largest = rows[among].argmax()
    most_rows, most_bytes = rows[among][largest], sizes[among][largest]
    small = (rows < _SMALL_SHARE * most_rows) & (sizes < _SMALL_SHARE * most_bytes)
    ascending = np.flatnonzero(among & (small | (rows < _SMALL_ROWS)))
    ascending = ascending[np.argsort(rows[ascending], kind="stable")]
    below = anyway + np.cumsum(rows[ascending]) - rows[ascending]
    fitting = np.flatnonzero(rows[ascending] <= below)
    last = int(fitting[-1]) + 1 if len(fitting) else 0
    chosen[ascending[:last]] = True
    return chosen


def _overfull(state: IndexState, scope: Scope, among: BoolArray, anyway: BoolArray) -> BoolArray:
    """Return which files hold mostly rows that would go deeper if they were put back now."""
    if scope.revision is None or not among.any():
        return np.zeros_like(among)
    revision = state.snapshot.config.revisions[scope.revision]
    blocks = state.blocks.filter(pl.col("revision") == scope.revision)
    return files_to_deepen(
        decode_cubes(text_column(blocks["cube"]), dimensions=len(revision.columns)),
        min_weights=blocks["min_weight"].cast(pl.Int32).to_numpy(),
        max_weights=blocks["max_weight"].cast(pl.Int32).to_numpy(),
        element_counts=blocks["rows"].to_numpy(),
        files=blocks["file"].to_numpy(),
        among=among,
        anyway=anyway,
        cube_size=revision.desired_cube_size,
    )

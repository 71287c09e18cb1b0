"""Optimize: choose files and replace them, with one commit per revision."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import polars as pl

from qbeast_core.errors import (
    InvalidInputError,
    changed_before,
    check_choice,
    invalid_argument,
)
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.plan.weights import Share, share_of
from qbeast_core.results import RewriteResult
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.spec.revision import STAGING_REVISION_ID
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.table.commit import CommitOutcome
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.index.counts import refuse_unindexed
from qbeast_core.table.index.live_index import STAGED, Index, NeedsAllFilesError, file_index
from qbeast_core.table.rewrite.candidates import (
    DEFAULT_SCOPE,
    Choice,
    Scope,
    choose_files,
    opened_shares,
    shares_text,
)
from qbeast_core.table.rewrite.replace import (
    Placement,
    Replaced,
    Replacement,
    publish_replaced,
    refuse_copies,
    replace_rows,
    with_attempts,
)
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh
from qbeast_core.tree.pages import WORTH

# Where rows of other revisions go: to the newest revision, or together with all other rows to a new revision.
Into: TypeAlias = Literal["newest", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """Options of an optimize. `Table.optimize` documents them."""

    files: Sequence[str | os.PathLike[str]] | None = None
    revision: int | Literal["all"] | None = None
    fraction: Share | None = None
    full: bool = False
    into: Into | None = None
    purge: bool = False
    dry_run: bool = False
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: ProgressCallback | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """Files chosen in one scope. `done` is None if they were not replaced."""

    plan: pl.DataFrame
    groups: Sequence[I64Array]
    done: tuple[Replaced, CommitOutcome] | None = None


def optimize(
    snapshot: Snapshot, options: OptimizeOptions, *, engine: Engine = MEMORY
) -> tuple[OptimizeResult, Snapshot]:
    """Optimize the newest version; see `Table.optimize`. Return the result and the new version."""
    snapshot = first = refresh(snapshot)
    scopes = _scopes(snapshot, options)
    rounds: list[_Round] = []
    while scopes:
        scope = scopes.pop(0)
        with changed_before(lambda: any(step.done for step in rounds)):
            rounds.append(_round(snapshot, scope, options, engine))
        if rounds[-1].done is not None:
            snapshot = _after(snapshot, rounds[-1].done[1])
        if scope.newest and not scope.older and (options.revision == "all" or scope.paths is not None):
            # Only now: a round may add a revision or move files to another one.
            scopes = _older_scopes(snapshot, scope)
    index = file_index(first)
    before = opened_shares(index)
    if any(step.done for step in rounds):
        index = file_index(snapshot)
        after = opened_shares(index)
    else:
        after = opened_shares(index, rounds[0].groups) if options.dry_run else before
    result = _result(rounds, options, index, (before, after))
    report(options.progress, Progress("done", rows=result.rows))
    return result, snapshot


def _after(snapshot: Snapshot, outcome: CommitOutcome) -> Snapshot:
    return outcome.snapshot or refresh(snapshot)


def _scopes(snapshot: Snapshot, options: OptimizeOptions) -> list[Scope]:
    """Return the first scopes, one commit each."""
    _check(options)
    _check_index(snapshot, options)
    fraction = options.fraction
    if fraction is not None:
        fraction = share_of(fraction, "fraction", zero=True)
    shared: dict[str, Any] = {"fraction": fraction, "full": options.full, "purge": options.purge}
    if options.into == "new":
        return [Scope(newest=True, full=True, older=True, purge=options.purge)]
    older = options.into == "newest"
    if options.files is not None:
        return [Scope(newest=True, older=older, paths=_paths(snapshot, options.files), **shared)]
    older |= options.full and options.revision is None
    if options.revision in (None, "all"):
        return [replace(DEFAULT_SCOPE, older=older, **shared)]
    revisions = sorted(snapshot.config.revisions)
    if options.revision not in {*revisions, STAGING_REVISION_ID}:
        problem = f'must be one of the table\'s, {revisions}, or "all"'
        invalid_argument("revision", problem, value=options.revision, known=revisions)
    if options.revision == STAGING_REVISION_ID:
        return [Scope(**shared)]
    if older and options.revision != revisions[-1]:
        index = file_index(snapshot)
        chosen = (index.revision_of == options.revision).tolist()
        paths = frozenset(compress(index.snapshot.data_paths, chosen))
        return [Scope(newest=True, older=True, paths=paths, **shared)]
    return [Scope(revision=options.revision, staged=False, **shared)]


def _older_scopes(snapshot: Snapshot, newest: Scope) -> list[Scope]:
    """Return a scope for each other revision that has files, one commit each."""
    index = file_index(snapshot)
    among = [newest.paths is None or path in newest.paths for path in index.snapshot.data_paths]
    ids = sorted(set(index.revision_of[among].tolist()) - {STAGED, newest.at(index).revision})
    return [
        replace(newest, revision=number, newest=False, staged=False, beyond=False, moves=False)
        for number in ids
    ]


def _check(options: OptimizeOptions) -> None:
    """Validate options."""
    check_choice("into", options.into, (None, *get_args(Into)))
    if options.files is not None and options.revision is not None:
        msg = "`files` and `revision` cannot be combined"
        raise InvalidInputError(msg, argument="revision")
    selectors = (options.files, options.revision, options.fraction)
    if options.into == "new" and any(selector is not None for selector in selectors):
        msg = 'into="new" rewrites the whole table: omit the options that choose files'
        raise InvalidInputError(msg, argument="into")
    if not isinstance(cast("object", options.purge), bool):
        invalid_argument("purge", "must be True or False", value=options.purge)
    chosen = (options.files, None if options.revision == "all" else options.revision, options.fraction)
    if options.purge and any(selector is not None for selector in chosen):
        msg = "purge=True rewrites all files with deleted rows: omit the options that choose files"
        raise InvalidInputError(msg, argument="purge")


def _check_index(snapshot: Snapshot, options: OptimizeOptions) -> None:
    """Raise if an option needs an index, or the table has none without having been left so."""
    needs_index = options.into or options.fraction is not None or options.revision not in (None, "all")
    if needs_index or not snapshot.config.is_left_unindexed:
        refuse_unindexed(snapshot)


def _paths(snapshot: Snapshot, files: Sequence[str | os.PathLike[str]]) -> frozenset[str]:
    """Return the decoded log paths of files. A file is named by its path in the table or by its URI."""
    live = [FilePath.of_log(path).text for path in snapshot.light(["path"])["path"]]
    paths = {path: path for path in live}
    paths |= {f"{snapshot.store.uri}/{path}": path for path in live}
    names = [os.fspath(file) for file in ([files] if isinstance(files, str) else files)]
    unknown = [name for name in names if name not in paths]
    if unknown:
        msg = f"no live file(s) of the table: {unknown[:3]}. Table.rows().files() lists them."
        raise InvalidInputError(msg, argument="files")
    return frozenset(paths[name] for name in names)


def _round(snapshot: Snapshot, scope: Scope, options: OptimizeOptions, engine: Engine) -> _Round:
    """Optimize one scope. Plan again after a conflict with thresholds of another writer."""
    return with_attempts(
        snapshot,
        lambda newest: _attempt(newest, scope, options, engine),
        # If another writer replaced the files, it did the same work, or more work may follow. Leave the files to it.
        may_retry=lambda before, now: _are_live(before, now, scope),
    )


def _are_live(before: Snapshot, now: Snapshot, scope: Scope) -> bool:
    """Return whether the chosen files are still live."""
    columns, index = ["path", "deletion_vector"], file_index(before)
    chosen = index.snapshot.files[choose_files(index, scope).files].select(columns)
    live = now.light(columns)
    return chosen.join(live, on=columns, how="anti", nulls_equal=True).is_empty()


def _attempt(snapshot: Snapshot, scope: Scope, options: OptimizeOptions, engine: Engine) -> _Round:
    index = file_index(snapshot)
    refuse_copies(index)
    scope = scope.at(index)
    choice = choose_files(index, scope)
    plan = choice.frame(index)
    if options.dry_run or not (len(choice.files) or options.into == "new"):
        return _Round(plan, choice.groups)
    snapshot.check_writable("append", brings="files")
    report(options.progress, Progress("read", rows=int(plan["rows"].fill_null(0).sum())))
    chosen = index.snapshot.files["path"][choice.files]
    rewritten = partial(_rewritten, paths=chosen, plan=plan, scope=scope, options=options, engine=engine)
    if snapshot.planned is not None:
        with suppress(NeedsAllFilesError):
            return rewritten(snapshot.at_paths(chosen), choice)
    return rewritten(snapshot.unplanned, choice)


def _rewritten(
    snapshot: Snapshot,
    choice: Choice,
    *,
    paths: pl.Series,
    plan: pl.DataFrame,
    scope: Scope,
    options: OptimizeOptions,
    engine: Engine,
) -> _Round:
    """Replace the chosen files, which are at some paths, in a version that may have only these files in memory."""
    numbered, reasons = _numbered(snapshot, choice, paths), sorted(set(choice.reasons))
    replaced = replace_rows(
        snapshot,
        numbered,
        _placement(Index(snapshot), scope, options),
        engine=engine,
        progress=options.progress,
        only_fewer=reasons == ["small file"] and options.into != "new",
    )
    if len(choice.files) and not replaced.gone.any():
        return _Round(plan, choice.groups)
    scoped = {} if scope.revision is None else {"revision": str(scope.revision)}
    intent = WriteIntent(
        mode="append",
        brings="files",
        operation="OPTIMIZE",
        drops_unused=options.into == "new",
        commit_info={
            **options.commit_metadata,
            "operationParameters": {"predicate": "[]", **scoped, "reasons": ", ".join(reasons)},
            "operationMetrics": {**replaced.metrics(snapshot.files), "numOutputRows": replaced.rows},
        },
    )
    outcome = publish_replaced(snapshot, replaced, intent)
    more = np.setdiff1d(np.flatnonzero(replaced.gone), numbered.files)
    moved = Choice(more, ["order of weights"] * len(more)).frame(Index(snapshot))
    return _Round(pl.concat([plan, moved]), choice.groups, (replaced, outcome))


def _numbered(snapshot: Snapshot, choice: Choice, paths: pl.Series) -> Replacement:
    """Return the files to replace by their numbers in a version, which may be others than in the choice."""
    wanted, numbers = set(paths), np.zeros(int(choice.files.max(initial=-1)) + 1, np.int64)
    at = {path: number for number, path in enumerate(snapshot.files["path"]) if path in wanted}
    numbers[choice.files] = [at[path] for path in paths]
    return Replacement(
        files=np.sort(numbers[choice.files]), groups=[np.sort(numbers[group]) for group in choice.groups]
    )


def _placement(index: Index, scope: Scope, options: OptimizeOptions) -> Placement:
    if options.into == "new":
        return "redraw"
    revision = index.snapshot.config.revisions.get(scope.revision or STAGING_REVISION_ID)
    return "fresh" if revision is None or revision == index.newest or not scope.revision else revision


def _result(
    rounds: Sequence[_Round],
    options: OptimizeOptions,
    index: Index,
    opened: tuple[Mapping[str, float], Mapping[str, float]],
) -> OptimizeResult:
    replaced = [step.done[0] for step in rounds if step.done]
    outcomes = [step.done[1] for step in rounds if step.done]
    last = outcomes[-1] if outcomes else None
    latest = index.snapshot.config.last_revision_id or 0
    # If a round replaced files, omit the files that other rounds chose but left. Two rounds may choose the same file.
    plans = [step.plan for step in rounds if step.done] or [step.plan for step in rounds]
    plan = pl.concat(plans).unique("path", keep="first", maintain_order=True)
    # A later round may replace files of an earlier one: these count neither as new nor as replaced.
    gone = set(plan["path"])
    adds = [add for step in replaced for add in step.adds]
    new = [add for add in adds if add.path not in gone]
    plan = plan.filter(~pl.col("path").is_in([add.path for add in adds]))
    return OptimizeResult(
        version=index.snapshot.version if last is None else last.version,
        committed=last is not None,
        dry_run=options.dry_run,
        plan=plan,
        rows=sum(step.rows for step in replaced),
        files=len(new),
        bytes=sum(add.size for add in new),
        cubes=sum(step.cubes for step in replaced),
        revision_id=latest if last is None or last.revision_id is None else last.revision_id,
        new_revision=any(step.is_new for step in replaced),
        commits=len(replaced),
        attempts=sum(outcome.attempts for outcome in outcomes),
        files_left=int(index.clustered_by_others.sum()),
        rows_left=index.rows_of_other_columns,
        opened=opened[0],
        opened_after=opened[1],
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OptimizeResult(RewriteResult):
    """Result of an optimize. `committed` is False if all files were in good shape.

    Attributes
    ----------
    plan : polars.DataFrame
        The files to replace: `path` (decoded), `rows`, `bytes`, `revision_id` (null: not indexed), `reason`:
        ``"requested"``, ``"staged"``, ``"older revision"``, ``"deletion vector"``, ``"foreign layout"``,
        ``"small file"``, ``"wide pages"``, or ``"order of weights"`` for files that are rewritten with the others to
        keep the index in order (not known to a dry run).
    rows : int
        Number of rows written.
    cubes : int
        Number of cubes that hold the rows.
    commits : int
        Number of versions committed; `attempts` counts the tries.
    files_left : int
        Number of files that stay as they are because another implementation clustered them, such as Delta's liquid
        clustering (``clusteringProvider`` in the log). Deletes, updates and merges may rewrite them.
    rows_left : int
        Number of rows that are still indexed by other columns, after `Table.reindex`.
    opened, opened_after : mapping of str to float
        Share of the rows that a filter on 1/30 of the values of each indexed column opens, in [0, 1], before and after
        the optimize; for a dry run, the expected share. Estimated from the statistics of the files. Empty for a table
        without index.
    others
        See `RewriteResult`.
    """

    rows: int
    cubes: int
    commits: int
    files_left: int = 0
    rows_left: int = 0
    opened: Mapping[str, float] = field(default_factory=dict[str, float])
    opened_after: Mapping[str, float] = field(default_factory=dict[str, float])

    def __repr__(self) -> str:
        """Return a summary of a few lines."""
        head, left = f"OptimizeResult: version {self.version}", []
        if self.files_left:
            left = [f"  left alone: {self.files_left:,} files that another implementation clustered"]
        if self.rows_left:
            moves = 'optimize(into="newest") moves all of them'
            left.append(f"  left: {self.rows_left:,} rows that are indexed by other columns; {moves}")
        if self.opened:
            shares = shares_text(self.opened, self.opened_after)
            left.append(f"  a filter on 1/30 of the values of a column opens: {shares}")
        if self.committed and not self.plan.height:
            return f"{head} begins revision {self.revision_id}; there are no rows"
        if not self.plan.height:
            shape = (
                f"{head} is in shape: no file is staged or has many deleted rows, and to write files together would "
                f"save filters and samples less than {WORTH:.0%}; nothing was changed"
            )
            return "\n".join([shape, *left])
        counts = self.plan.group_by("reason", maintain_order=True).agg(
            pl.len(), pl.col("rows").sum(), pl.col("bytes").sum()
        )
        lines = [
            f"  {reason}: {files:,} files, {rows:,} rows, {size:,} bytes"
            for reason, files, rows, size in counts.iter_rows()
        ]
        if self.dry_run:
            head = f"OptimizeResult: a dry run on version {self.version} would rewrite"
        elif self.committed:
            head += f", {self.files:,} files of {self.bytes:,} bytes instead of"
        else:
            head += " would gain nothing; nothing was changed. Considered"
        return "\n".join([head, *lines, *left])

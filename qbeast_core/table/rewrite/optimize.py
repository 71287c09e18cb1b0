"""Optimize: choose files, rewrite them, one commit per revision; again where another writer was faster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import CommitConflictError, InvalidInputError, changed_before, invalid_argument
from qbeast_core.query.fractions import Share, share_of
from qbeast_core.results import RewriteResult
from qbeast_core.runtime import Progress, ProgressCallback
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.revision import STAGING_REVISION_ID
from qbeast_core.table.engine.memory import MEMORY
from qbeast_core.table.engine.protocol import GROUP_BYTES, Engine, PlanSize
from qbeast_core.table.index.state import STAGED, IndexState
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.candidates import Choice, Scope, choose_files
from qbeast_core.table.rewrite.rewrite import Replaced, Rewrite, refuse_copies, rewrite
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh
from qbeast_core.table.write.options import check_metadata

_MOST_PLANS: Final = 4

_MOST_ROUNDS: Final = 4

# Where the rows of other revisions go: to the newest one, or with all rows to a revision of their own.
Into: TypeAlias = Literal["newest", "new"]

_SHAPE: Final = frozenset({"small file", "overfull cubes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """Options of an optimize, as `Table.optimize` documents them."""

    files: Sequence[str | os.PathLike[str]] | None = None
    revision: int | Literal["all"] | None = None
    fraction: Share | None = None
    full: bool = False
    into: Into | None = None
    dry_run: bool = False
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: ProgressCallback | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    """One scope: what was chosen, and what came of it."""

    snapshot: Snapshot
    plan: pl.DataFrame
    replaced: Replaced | None


def optimize(
    reader: Reader, options: OptimizeOptions, *, engine: Engine = MEMORY
) -> tuple[OptimizeResult, Snapshot]:
    """Optimize the table as it is now; see `Table.optimize`."""
    reader = reader.renewed()
    scopes = _scopes(reader, options)
    done: list[_Done] = []
    while scopes:
        scope = scopes.pop(0)
        for number in range(_MOST_ROUNDS):
            try:
                with changed_before(lambda: any(map(_committed, done))):
                    done.append(_one(reader.renewed(), scope, options, engine))
            except CommitConflictError:
                if number == 0:
                    raise
                break  # what the first round did stands, and the rest can wait
            reader = reader.at(done[-1].snapshot)
            # Beside a file that was joined, others may be small now.
            if done[-1].replaced is None or not scope.can_be_finished or options.into == "new":
                break
        if scope.newest and not scope.older and (options.revision == "all" or scope.paths is not None):
            scopes = _older_scopes(
                reader, scope
            )  # only now: a new one may have come, and files may have gone into it
    if options.progress is not None:
        rows = sum(one.replaced.rows for one in done if one.replaced is not None)
        options.progress(Progress("done", rows=rows))
    return _result(done, options, reader.snapshot), reader.snapshot


def _committed(done: _Done) -> bool:
    return done.replaced is not None and done.replaced.outcome is not None


def _scopes(reader: Reader, options: OptimizeOptions) -> list[Scope]:
    """Return what to look at first, one commit each."""
    _check(options)
    given = options.fraction
    fraction = None if given is None else share_of(given, "fraction", "nothing was changed", zero=True)
    shared: dict[str, Any] = {"fraction": fraction, "every": options.full}
    if options.into == "new":
        return [Scope(newest=True, every=True, older=True)]
    older = options.into == "newest"
    if options.files is not None:
        return [Scope(newest=True, older=older, paths=_paths(reader, options.files), **shared)]
    if options.revision in (None, "all"):
        return [Scope(newest=True, beyond=True, older=older, **shared)]
    known = reader.snapshot.config.revisions
    if options.revision not in {*known, STAGING_REVISION_ID}:
        what = f'must be one of the table\'s, {sorted(known)}, or "all"'
        invalid_argument("revision", what, "nothing was changed", value=options.revision, known=sorted(known))
    if options.revision == STAGING_REVISION_ID:
        return [Scope(**shared)]
    if older and options.revision != max(known):
        mine = (reader.index_state.revision_of == options.revision).tolist()
        return [Scope(newest=True, older=True, paths=frozenset(compress(reader.paths, mine)), **shared)]
    return [Scope(revision=options.revision, staged=False, **shared)]


def _older_scopes(reader: Reader, newest: Scope) -> list[Scope]:
    """Return the scopes of all other revisions that have files, one commit each."""
    state = reader.index_state
    among = [newest.paths is None or path in newest.paths for path in reader.paths]
    ids = sorted(set(state.revision_of[among].tolist()) - {STAGED, newest.at(state).revision})
    return [replace(newest, revision=one, newest=False, staged=False, beyond=False) for one in ids]


def _check(options: OptimizeOptions) -> None:
    """Validate options."""
    check_metadata(options.commit_metadata)
    if options.into not in (None, "newest", "new"):
        what, known = 'must be "newest" or "new"', ("newest", "new")
        invalid_argument("into", what, "nothing was changed", value=options.into, known=known)
    if options.files is not None and options.revision is not None:
        msg = "`files` and `revision` cannot be combined; nothing was changed"
        raise InvalidInputError(msg, argument="revision")
    chosen = {"files": options.files, "revision": options.revision, "fraction": options.fraction}
    if options.into == "new" and any(value is not None for value in chosen.values()):
        msg = 'into="new" rewrites the whole table: omit the options that choose files; nothing was changed'
        raise InvalidInputError(msg, argument="into")


def _paths(reader: Reader, files: Sequence[str | os.PathLike[str]]) -> frozenset[str]:
    """Return decoded log paths of files named by these or by where they lie."""
    known = {path: path for path in reader.paths}
    known |= {f"{reader.store.uri}/{path}": path for path in reader.paths}
    named = [os.fspath(file) for file in ([files] if isinstance(files, str) else files)]
    strange = [name for name in named if name not in known]
    if strange:
        msg = f"no live file(s) of the table: {strange[:3]}; nothing was changed. Table.files() lists them."
        raise InvalidInputError(msg, argument="files")
    return frozenset(known[name] for name in named)


def _one(reader: Reader, scope: Scope, options: OptimizeOptions, engine: Engine) -> _Done:
    """Optimize one scope; where thresholds of another writer are in the way, plan again."""
    for _ in range(_MOST_PLANS - 1):
        try:
            return _attempt(reader, scope, options, engine)
        except CommitConflictError:
            newest = reader.renewed()
            if not _still_there(reader, newest, scope):
                raise
            reader = newest
    return _attempt(reader, scope, options, engine)


def _still_there(before: Reader, now: Reader, scope: Scope) -> bool:
    """Tell whether the files to rewrite are as they were, so that another plan may do better."""
    state = before.index_state
    columns = ["path", "deletion_vector"]
    wanted = before.snapshot.files[choose_files(state, scope).numbers].select(columns)
    live = now.snapshot.files.select(columns)
    return wanted.join(live, on=columns, how="anti", nulls_equal=True).is_empty()


def _attempt(reader: Reader, scope: Scope, options: OptimizeOptions, engine: Engine) -> _Done:
    state = reader.index_state
    refuse_copies(state)
    scope = scope.at(state)
    choice = choose_files(state, scope)
    plan = choice.frame(state)
    if options.dry_run or not (len(choice.numbers) or options.into == "new"):
        return _Done(reader.snapshot, plan, None)
    if options.progress is not None:
        options.progress(Progress("read", rows=int(plan["rows"].fill_null(0).sum())))
    named = reader.snapshot.config.revisions.get(scope.revision or STAGING_REVISION_ID)
    scoped = {} if scope.revision is None else {"revision": str(scope.revision)}
    asked = Rewrite(
        files=choice.numbers,
        revision=None if named == state.newest or not scope.revision else named,
        parameters={"predicate": "[]", **scoped, "reasons": ", ".join(sorted(set(choice.reasons)))},
        commit_metadata=options.commit_metadata,
        redraw=options.into == "new",
        is_worth=_gains(state) if set(choice.reasons) <= _SHAPE and options.into != "new" else None,
        progress=options.progress,
        group_bytes=GROUP_BYTES,
    )
    replaced = rewrite(reader, asked, engine=engine)
    if replaced is None or replaced.outcome is None:
        return _Done(reader.snapshot, plan, None)
    extra = np.setdiff1d(np.flatnonzero(replaced.gone), choice.numbers)
    taken = Choice(extra, ["order of weights"] * len(extra)).frame(state)
    newest_known = replaced.outcome.snapshot or refresh(reader.snapshot)
    return _Done(newest_known, pl.concat([plan, taken]), replaced)


def _gains(state: IndexState) -> Callable[[I64Array, PlanSize], bool]:
    """Return a judge: rewriting files for their shape has to leave fewer files, or fewer blocks."""

    def is_worth(numbers: I64Array, plan: PlanSize) -> bool:
        blocks = state.blocks.filter(pl.col("file").is_in(numbers)).height
        return plan.file_count < len(numbers) or plan.block_count < blocks

    return is_worth


def _result(done: Sequence[_Done], options: OptimizeOptions, snapshot: Snapshot) -> OptimizeResult:
    replaced = [one.replaced for one in done if one.replaced is not None]
    outcomes = [one.outcome for one in replaced if one.outcome is not None]
    last = outcomes[-1] if outcomes else None
    latest = snapshot.config.last_revision_id or 0
    # Where something was rewritten, files that were looked at in vain stay; two scopes may have looked at the same.
    told = [one for one in done if one.replaced is not None] or done
    plan = pl.concat([one.plan for one in told]).unique("path", keep="first", maintain_order=True)
    gone = set(plan["path"])
    adds = [add for one in replaced for add in one.adds]
    came = [add for add in adds if add.path not in gone]
    plan = plan.filter(~pl.col("path").is_in([add.path for add in adds]))
    return OptimizeResult(
        version=snapshot.version if last is None else last.version,
        committed=last is not None,
        dry_run=options.dry_run,
        plan=plan,
        rows=sum(one.rows for one in replaced),
        files=len(came),
        bytes=sum(add.size for add in came),
        cubes=sum(one.cubes for one in replaced),
        revision_id=latest if last is None or last.revision_id is None else last.revision_id,
        new_revision=any(one.is_new for one in replaced),
        commits=len(outcomes),
        attempts=sum(outcome.attempts for outcome in outcomes),
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OptimizeResult(RewriteResult):
    """What an optimize did; prints as a few lines. `committed` is False where all was in shape.

    Attributes
    ----------
    plan : polars.DataFrame
        The files that are, or would be, taken out: `path` (decoded), `rows`, `bytes`, `revision_id` (null:
        not indexed), `reason`: ``"asked for"``, ``"staged"``, ``"older revision"``, ``"deletion vector"``,
        ``"foreign layout"``, ``"small file"``, ``"overfull cubes"``, or ``"order of weights"`` for files that
        had to go with the others (known only once it is done).
    rows : int
        Rows put back.
    cubes : int
        Cubes that hold the rows.
    commits : int
        Versions made; `attempts` counts those tried.
    others
        As `RewriteResult` has them.
    """

    rows: int
    cubes: int
    commits: int

    def __repr__(self) -> str:
        """Say it in a few lines."""
        if self.committed and not self.plan.height:
            return f"OptimizeResult: version {self.version} begins revision {self.revision_id}; there are no rows"
        if not self.plan.height:
            return f"OptimizeResult: version {self.version} is in shape; nothing was changed"
        counts = self.plan.group_by("reason", maintain_order=True).agg(
            pl.len(), pl.col("rows").sum(), pl.col("bytes").sum()
        )
        lines = [
            f"  {reason}: {files:,} files, {rows:,} rows, {size:,} bytes"
            for reason, files, rows, size in counts.iter_rows()
        ]
        if self.dry_run:
            return "\n".join([f"OptimizeResult: a dry run on version {self.version} would rewrite", *lines])
        if not self.committed:
            head = (
                f"OptimizeResult: version {self.version} would gain nothing; nothing was changed. Looked at"
            )
            return "\n".join([head, *lines])
        head = f"OptimizeResult: version {self.version}, {self.files:,} files of {self.bytes:,} bytes in place of"
        return "\n".join([head, *lines])

"""What a write would do to the table as it is now: planned to the row, nothing written."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.io.location import resolve_location
from qbeast_core.table.data_files import World
from qbeast_core.table.design import table_design_effect, with_write
from qbeast_core.table.frames import FrameLike, to_frame
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.prepare import prepare
from qbeast_core.table.progress import Progress
from qbeast_core.table.publish import is_applied
from qbeast_core.table.result import transformers_of
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.table.target import find_target
from qbeast_core.table.write import index_rows
from qbeast_core.table.write_options import WriteOptions, check_options, tell
from qbeast_core.tree.key_sketch import KeySketch
from qbeast_core.tree.key_total import KeyTotal
from qbeast_core.tree.plan import IndexPlan

__all__ = ["WritePreview", "preview_frame"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePreview:
    """What a write would do; other writers may change that until it is done.

    Attributes
    ----------
    version : int
        The newest version of the table, -1 where there is none.
    would_write : bool
        False where mode ``"ignore"`` meets a table, or `txn` has been applied before.
    rows, files, cubes : int
        Rows that would be added, in how many data files, in how many cubes.
    revision_id : int
        Revision the rows would be indexed with.
    new_revision : bool
        Whether the write would make it.
    transformers : dict of str to str
        How each indexed column would be indexed, as in `WriteResult`.
    cube_size : int
        Rows a cube would aim to hold.
    design_effect : float or None
        Of the table with the rows in it, as in `WriteResult`.
    """

    version: int
    would_write: bool
    rows: int
    files: int
    cubes: int
    revision_id: int
    new_revision: bool
    transformers: dict[str, str]
    cube_size: int
    design_effect: float | None


def preview_frame(data: FrameLike, uri: str, options: WriteOptions, world: World) -> WritePreview:
    """Plan a write of `data` and throw the plan away; options and errors are those of `qbeast.write_table`."""
    check_options(options)
    uri = resolve_location(uri)
    target = find_target(uri, options.mode, options.storage_options)
    version = -1 if target is None else target.version
    if target is not None and (options.mode == "ignore" or is_applied(target, options.txn)):
        latest = target.config.latest
        return WritePreview(
            version=version,
            would_write=False,
            rows=0,
            files=0,
            cubes=0,
            revision_id=latest.revision_id if latest else 0,
            new_revision=False,
            transformers=transformers_of(latest),
            cube_size=latest.desired_cube_size if latest else 0,
            design_effect=table_design_effect(target),
        )
    tell(options, Progress("read"))
    rows, prepared = prepare(to_frame(data), target, options, world)
    refuse_unsafe_locking(uri, options.storage_options)
    tell(options, Progress("plan", rows=rows.height))
    space, plan, effect = index_rows(rows, prepared, target, options, uri=uri, now_ms=world.now_ms())
    return WritePreview(
        version=version,
        would_write=True,
        rows=rows.height,
        files=plan.file_count,
        cubes=len(plan.thresholds),
        revision_id=space.revision.revision_id,
        new_revision=space.is_new,
        transformers=transformers_of(space.revision),
        cube_size=space.revision.desired_cube_size,
        design_effect=_design_effect(plan, target if options.mode == "append" else None, effect),
    )


def _design_effect(plan: IndexPlan, target: Snapshot | None, own: float) -> float | None:
    total = KeyTotal()
    for number in range(plan.file_count):
        total.add(KeySketch.of(plan.file(number).weights))
    keys = total.joined(own * total.rows)
    return with_write(None if target is None else target.files, (), keys)[1].design_effect

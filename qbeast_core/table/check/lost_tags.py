"""Restore the index tags of files from the copies in them (format 14).

A program may drop the tags of a file from the log and keep the file. The copy in the file is a proposal. It counts if
the table has its revision, a check of all rows finds each row where the copy says, and the blocks keep the order of
weights with the live blocks: others may have added rows since, to a tree without this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.log.replay import RULES, RULES_TAG, TAG_KEYS, digest_of
from qbeast_core.plan.decode_tags import fits_schema
from qbeast_core.spec.blocks import BlocksDialect, dump_blocks
from qbeast_core.spec.revision import Revision
from qbeast_core.support.frames import own_column
from qbeast_core.table.check.faults import OF_INDEX, OF_LAYOUT, Fault
from qbeast_core.table.check.file_tags import FileTags, UntaggedFile
from qbeast_core.table.check.log import check_log
from qbeast_core.table.check.rows import FileCheck
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import blocks_in_order
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.keys import KEYS_TAG

# The tags of files, by their paths as in the log.
LostTags: TypeAlias = Mapping[str, FileTags]

_SPOILED: Final = OF_INDEX | OF_LAYOUT
_FILE: Final = own_column("file")


def tag_texts(tags: FileTags, dialect: BlocksDialect) -> dict[str, str]:
    """Return tags as the log has them."""
    texts = {
        "revision": str(tags.revision.revision_id),
        "blocks": dump_blocks(tags.blocks, dialect=dialect),
        RULES_TAG: RULES,
        KEYS_TAG: tags.keys,
    }
    return texts if tags.layout is None else texts | {"qbeast.layout": tags.layout}


def with_tags(snapshot: Snapshot, tags: LostTags) -> Snapshot:
    """Return the snapshot as if files had these tags."""
    if not tags:
        return snapshot
    texts = {path: tag_texts(of_file, "documented") for path, of_file in tags.items()}
    files, paths = snapshot.files, snapshot.files["path"].to_list()
    columns: list[pl.Series] = []
    for name, key in TAG_KEYS.items():
        old = files[name].cast(pl.String).to_list()
        new = [texts[path].get(key) if path in texts else text for path, text in zip(paths, old, strict=True)]
        columns.append(pl.Series(name, new, pl.String).cast(files.schema[name]))
    return replace(snapshot, files=files.with_columns(columns))


def untagged(snapshot: Snapshot) -> pl.Series:
    """Return which files have no index tags in the log."""
    texts = pl.col("revision", "blocks", "state", "rules")
    return snapshot.files.select(pl.all_horizontal(texts.is_null())).to_series()


def untagged_files(
    snapshot: Snapshot, jobs: Sequence[FileCheck], spoiled: Iterable[str]
) -> list[UntaggedFile]:
    """Return the files to look for copies in: those without tags, and those at `spoiled` paths."""
    revisions = {
        digest_of(revision, snapshot.columns): revision
        for revision in snapshot.config.revisions.values()
        if fits_schema(revision, snapshot.schema)
    }
    if not revisions:
        return []
    paths = pl.Series([job.path for job in jobs], dtype=pl.String)
    chosen = paths.is_in(list(spoiled)) | untagged(snapshot)
    return [UntaggedFile(job, revisions) for job, is_chosen in zip(jobs, chosen, strict=True) if is_chosen]


def proven_tags(
    snapshot: Snapshot, tags: LostTags, check: Callable[[Snapshot, Sequence[str]], Iterable[Fault]]
) -> LostTags:
    """Return the tags that a check of log and rows finds nothing wrong with. `check` reads the files at some paths."""
    tagged = with_tags(snapshot, tags)
    paths = dict(zip(snapshot.files["path"].to_list(), snapshot.data_paths, strict=True))
    index, faults, _ = check_log(Index(tagged))
    wrong = pl.concat(faults).filter(pl.col("code").is_in(list(_SPOILED)))["path"].to_list()
    usable = {tagged.data_paths[number] for number in index.usable["file"].unique()}
    sound = [path for path in tags if paths[path] in usable.difference(wrong)]
    wrong += [
        fault.path for fault in check(tagged, [paths[path] for path in sound]) if fault.code in _SPOILED
    ]
    return {path: tags[path] for path in sound if paths[path] not in wrong}


def fitting_tags(snapshot: Snapshot, tags: LostTags) -> LostTags:
    """Return the tags of live files that keep the order of weights, with thresholds of the live tree."""
    numbers = {path: number for number, path in enumerate(snapshot.files["path"].to_list()) if path in tags}
    state, fitting = Index(snapshot), dict[str, FileTags]()
    taken = list(numbers.values())
    for revision, partition, paths in _trees(snapshot, tags, numbers):
        if snapshot.config.revisions.get(revision.revision_id) != revision:
            continue  # another writer replaced it
        live = state.binding(revision).filter(
            ~pl.col("file").is_in(taken) & pl.col("file").is_in(list(partition))
        )
        blocks = [tags[path].blocks for path in paths]
        fitted = blocks_in_order(blocks, live, dimensions=len(revision.columns))
        fitting |= {
            path: replace(tags[path], blocks=of_file)
            for path, of_file in zip(paths, fitted, strict=True)
            if of_file is not None
        }
    return fitting


def _trees(
    snapshot: Snapshot, tags: LostTags, numbers: Mapping[str, int]
) -> Iterator[tuple[Revision, Sequence[int], list[str]]]:
    """Yield the revision of each tree, the live files of its partition, and the files with tags."""
    path_of, keys = {number: path for path, number in numbers.items()}, snapshot.columns.partitions
    groups: Iterable[Sequence[int]] = [range(snapshot.files.height)]
    if keys:
        rows = snapshot.partitions.with_row_index(_FILE)
        groups = rows.group_by(keys, maintain_order=True).agg(_FILE)[_FILE].to_list()
    for group in groups:
        trees: dict[int, list[str]] = {}
        for number in group:
            if number in path_of:
                path = path_of[number]
                trees.setdefault(tags[path].revision.revision_id, []).append(path)
        for paths in trees.values():
            yield tags[paths[0]].revision, group, paths

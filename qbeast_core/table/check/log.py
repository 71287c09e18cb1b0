"""Check the log alone: tags, counts, order of weights, deletion vectors; restore tags from files (format 14).

A program may drop the tags of a file from the log and keep the file. The copy in the file is a proposal. It counts if
the table has its revision, a check of all rows finds each row where the copy says, and the blocks keep the order of
weights with the live blocks: others may have added rows since, to a tree without this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError, QbeastError
from qbeast_core.io.store import map_files
from qbeast_core.log.deletion_vectors import parse_vector, vector_path
from qbeast_core.log.replay import RULES, RULES_TAG, SPELLED_DIFFERENTLY, TAG_KEYS, digest_of
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.decode_tags import fits_schema, levels_shared
from qbeast_core.plan.nodes import Unknown
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT, BoolArray, I32Array, I64Array
from qbeast_core.spec.blocks import BlocksDialect, FilePath, Layout, blocks_dialect, dump_blocks, parse_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import REVISION_PREFIX, SAMPLE_COLUMN
from qbeast_core.support.frames import own_column
from qbeast_core.table.check.faults import NO_FAULTS, OF_INDEX, OF_LAYOUT, Fault, fault_frame, faults_at
from qbeast_core.table.check.rows import FileCheck, FileTags
from qbeast_core.table.data.schema import lost_key_columns, taken_name
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import blocks_in_order
from qbeast_core.table.snapshot.hidden_rows import deleted_rows
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.keys import KEYS_TAG
from qbeast_core.tree.summary import NO_PARTITIONS

_UNUSABLE: Final[dict[str, tuple[str, str]]] = {
    "unreadable": ("tags-unreadable", "its blocks tag is not a list of blocks"),
    "incomplete": ("tags-incomplete", "it names an index, but not both a revision and blocks"),
    "unknown revision": ("revision-unknown", "the table has no such revision"),
    "other types": ("revision-types", "its revision has no space, or columns of other types than the table"),
    "no cube": ("cube-unreadable", "a block has an invalid cube"),
}

_CUBE: Final = r'"[A-Za-z0-9+/]*"'
_WEIGHTS: Final = r'"minWeight":-?\d{1,10},"maxWeight":-?\d{1,10}'
_OBJECTS: Final[dict[BlocksDialect, str]] = {
    "documented": rf'\{{"cube":{_CUBE},{_WEIGHTS},"replicated":(?:true|false),"elementCount":\d+\}}',
    "qbeast-spark": rf'\{{"cubeId":{_CUBE},{_WEIGHTS},"elementCount":\d+,"replicated":(?:true|false)\}}',
}
_ROOT: Final = "the root"
# Each partition has its own tree.
_CUBE_KEY: Final = ["tree", "cube"]


def check_log(state: Index) -> tuple[list[pl.DataFrame], list[str]]:
    """Check what the log says of a table, some files at a time. Return faults and notes."""
    snapshot = state.snapshot
    parts = [_Part(part) for part in snapshot.parts(Unknown())]
    branches, notes = _branch_faults(parts, snapshot.config.revisions)
    dialect = _dialect_faults(parts, snapshot.config.dialect or "qbeast-spark")
    faults = [frame for part in parts for frame in part.faults]
    return [_revision_faults(snapshot), *faults, dialect, branches], [*_notes(snapshot, parts), *notes]


class _Part:
    """What the log says of some files: their faults, and what the order of weights and dialects depend on."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.paths = pl.Series("path", snapshot.data_paths, dtype=pl.String)
        index, revisions = snapshot.blocks, snapshot.config.revisions
        files = snapshot.files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
            self.paths,
            pl.col("revision", "num_records", "size_bytes", "layout", "blocks"),
            pl.col("rules").eq("1").fill_null(value=False).alias("ours"),
        )
        places = files.select("file", "path", "num_records")
        blocks = index.binding.join(places, on="file", how="left", maintain_order="left")
        self.faults = [
            *_tag_faults(files, index, widened=bool(snapshot.columns.type_changes)),
            *_count_faults(files, blocks),
            _layout_faults(files, index.binding, revisions),
            _path_faults(snapshot),
        ]
        self.blocks = index.binding.select(
            pl.col("file").cast(pl.UInt32),
            *("revision", "cube", pl.col("depth").cast(pl.UInt8)),
            pl.col("min_weight", "max_weight").cast(pl.Int32),
            *("ours", "replicated"),
        )
        self.partitions = snapshot.partitions
        state = Index(snapshot)
        self.rows_without_sample = state.rows_without_sample
        self.rows_of_other_columns = state.rows_of_other_columns
        self.staged = files.join(index.binding, on="file", how="anti")["num_records"]
        # Dialects of our files, and the files that have another one, by dialect.
        texts = files.filter(pl.col("ours") & pl.col("blocks").is_not_null())
        self.dialects: set[BlocksDialect] = {
            name for name in map(blocks_dialect, texts["blocks"]) if name is not None
        }
        self.others = {dialect: _of_other_dialect(texts, dialect) for dialect in _OBJECTS}


def _revision_faults(snapshot: Snapshot) -> pl.DataFrame:
    config = snapshot.config
    newest = max(config.revisions, default=None)
    faults: list[Fault] = []
    for key, why in config.faults.items():
        number = key.removeprefix(REVISION_PREFIX)
        revision = None if number == key else int(number)
        faults.append(Fault("settings-unreadable", f"{key}: {why}", revision=revision))
    if newest is not None and config.newest_fault is None and config.last_revision_id != newest:
        message = f"qbeast.lastRevisionID is {config.last_revision_id}, and the newest revision is {newest}"
        faults.append(Fault(code="last-revision", message=message, revision=newest))
    latest = config.latest
    lost = {} if latest is None else lost_key_columns(latest, snapshot.schema, snapshot.columns)
    for name, why in lost.items():
        use = "has the sampling key" if name in config.sample_by else "is indexed by"
        message = f"the table {use} {name!r}, which {why}: samples and appends are refused"
        faults.append(Fault(code="indexed-columns", message=message, revision=config.last_revision_id))
    taken = taken_name(snapshot.schema_json)
    if taken is not None:
        message = f"another writer added a column {taken!r}, the name of a column of ours: no read shows it"
        faults.append(Fault(code="reserved-column", message=message))
    return fault_frame(faults)


def _tag_faults(files: pl.DataFrame, index: BlockTable, *, widened: bool) -> list[pl.DataFrame]:
    named = index.unusable.join(files, on="file", how="left")
    if widened:  # older files are staging then, as a note reports
        named = named.filter(pl.col("reason") != "other types")
    return [
        faults_at(code, named.filter(pl.col("reason") == reason), f"{text}: the file is read whole")
        for reason, (code, text) in _UNUSABLE.items()
    ]


def _count_faults(files: pl.DataFrame, blocks: pl.DataFrame) -> list[pl.DataFrame]:
    """Compare blocks with the statistics of their files (format 8.5)."""
    copies = pl.col("replicated")
    sums = blocks.group_by("file").agg(pl.col("rows").sum(), some=copies.any(), all=copies.all())
    wrong, mixed, silent = _parts(
        files.join(sums, on="file", how="inner", maintain_order="left"),
        pl.col("rows") != pl.col("num_records"),
        pl.col("some") & ~pl.col("all") & ~pl.col("ours"),
        pl.col("num_records").is_null() & pl.col("ours"),
    )
    marked, empty, turned = _parts(
        blocks,
        pl.col("replicated") & pl.col("ours"),
        (pl.col("rows") == 0) & pl.col("ours"),
        pl.col("min_weight") > pl.col("max_weight"),
    )
    counts = pl.format("its blocks hold {} rows, its statistics count {}", "rows", "num_records")
    beside = "copies lie beside other rows, and which rows they are is not known: it cannot be read"
    ours = "the block is marked as a copy, which our files never hold: no read returns its rows"
    return [
        faults_at("blocks-count", wrong, counts),
        faults_at("blocks-count", empty, "a block of our file has no rows"),
        faults_at("min-weight", turned, "the block's smallest weight is above its threshold"),
        faults_at("copies-misplaced", mixed, beside),
        faults_at("copies-misplaced", marked, ours),
        faults_at("stats-missing", silent, "its statistics do not count its rows"),
    ]


def _parts(frame: pl.DataFrame, *conditions: pl.Expr) -> list[pl.DataFrame]:
    """Give the rows that meet each condition; all are judged in one pass, for most are met by none."""
    named = {str(number): condition for number, condition in enumerate(conditions)}
    return [frame.filter(met) if met.any() else frame.head(0) for met in frame.select(**named)]


def _of_other_dialect(texts: pl.DataFrame, dialect: BlocksDialect) -> pl.DataFrame:
    block = _OBJECTS[dialect]
    fits = pl.col("blocks").str.contains(rf"^\[(?:{block}(?:,{block})*)?\]$")
    return texts.filter(~fits).select("path", "revision")


def _dialect_faults(parts: Sequence[_Part], default: BlocksDialect) -> pl.DataFrame:
    """Find files of ours whose blocks have another dialect than the table; a JVM fails on other keys."""
    dialects = {name for part in parts for name in part.dialects}
    dialect = dialects.pop() if len(dialects) == 1 else default
    wrong = pl.concat(part.others[dialect] for part in parts)
    return faults_at("tags-spelling", wrong, f"its blocks are not written in dialect {dialect!r}")


def _path_faults(snapshot: Snapshot) -> pl.DataFrame:
    """Find paths in another encoding than that of Spark, whose VACUUM compares texts."""
    odd = snapshot.files.filter(pl.col("path").str.contains(SPELLED_DIFFERENTLY))["path"].to_list()
    paths = [(raw, FilePath.of_log(raw)) for raw in odd]
    wrong = [path.text for raw, path in paths if path.kind == "inside" and path.encoded != raw]
    message = "its path in the log is encoded differently than Spark does: VACUUM of Spark deletes the file"
    return faults_at("path-encoding", pl.DataFrame({"path": wrong}, schema={"path": pl.String}), message)


def _notes(snapshot: Snapshot, parts: Sequence[_Part]) -> Iterator[str]:
    """Yield which rows have no index, which other engines may miss in a sample, and which a reindex left."""
    staged = sum(len(part.staged) for part in parts)
    if not snapshot.config.is_indexed:
        yield "the table has no index"
    elif staged:
        rows = sum(int(part.staged.sum()) for part in parts)
        yield f"{staged:,} file(s) with {rows:,} rows have no index that can be used: staging"
    name, named = snapshot.sample_column, snapshot.config.entries.get(SAMPLE_COLUMN)
    if name is None and named is not None:
        yield f"another writer dropped or changed the sample column {named!r}"
    if name is not None and (rows := sum(part.rows_without_sample for part in parts)):
        yield (
            f"{rows:,} rows have no value in {name!r} that can be trusted: other engines may miss them until an "
            "optimize"
        )
    if rows := sum(part.rows_of_other_columns for part in parts):
        yield f"{rows:,} rows are indexed by other columns than the newest revision; each optimize moves some"


def _branch_faults(
    parts: Sequence[_Part], revisions: Mapping[int, Revision]
) -> tuple[pl.DataFrame, list[str]]:
    """Find blocks that reach below a threshold above them, and thresholds that fall on the way down.

    These are faults in revisions that we alone wrote to; elsewhere a note counts them, and revisions with
    copies of rows are not looked at. Unless the whole table has blocks, a cube may be a leaf only because what lay
    below it is staged now, which is not a fault.
    """
    frames, notes, blocks = [NO_FAULTS], list[str](), _all_blocks(parts)
    whole = not any(len(part.staged) for part in parts)
    for number in blocks["revision"].unique().sort():
        selected = blocks.filter(pl.col("revision") == number)
        if selected["replicated"].any():
            notes.append(f"revision {number} holds copies of rows: the order of its weights is not checked")
            continue
        faults = _of_revision(selected.drop("ours", "replicated"), revisions, parts)
        if not whole:
            faults = faults.filter(pl.col("code") != "leaf-threshold")
        if selected["ours"].all():
            frames.append(faults)
        elif faults.height:
            notes.append(
                f"revision {number}, written by others in part or whole, has {faults.height:,} block(s) out of the "
                "order of weights: our reads are right, samples of the JVM may lack rows"
            )
    return pl.concat(frames), notes


def _all_blocks(parts: Sequence[_Part]) -> pl.DataFrame:
    """Return the blocks of all parts, with the numbers of their trees and of their files among all."""
    partitions, before, frames = NO_PARTITIONS, 0, list[pl.DataFrame]()
    for part in parts:
        partitions = partitions.with_rows(part.partitions)
        numbers = partitions.numbers(part.partitions)
        trees = pl.Series("tree", np.zeros(len(part.paths), np.int64) if numbers is None else numbers)
        tree = trees.cast(pl.UInt32)[part.blocks["file"]]
        frames.append(part.blocks.with_columns(pl.col("file") + before, tree))
        before += len(part.paths)
    return pl.concat(frames)


def _of_revision(
    blocks: pl.DataFrame, revisions: Mapping[int, Revision], parts: Sequence[_Part]
) -> pl.DataFrame:
    blocks = blocks.with_row_index("block").sort(*_CUBE_KEY, "block")
    is_first = pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in _CUBE_KEY)
    starts = blocks.select(is_first.fill_null(value=True)).to_series().arg_true().to_numpy()
    cubes = blocks[starts].select("revision", *_CUBE_KEY, pl.col("depth").cast(pl.Int64))
    thresholds = blocks["max_weight"].to_numpy()
    least, most = np.minimum.reduceat(thresholds, starts), np.maximum.reduceat(thresholds, starts)
    nearest, highest, is_inner = _thresholds_above(cubes, least, levels_shared(cubes, revisions))
    cube_of = np.repeat(np.arange(len(starts)), np.diff(starts, append=blocks.height))
    above = least[nearest]
    falling, leaves = (nearest >= 0) & (least < above), ~is_inner & (most < MAX_WEIGHT)
    masks = blocks["min_weight"].to_numpy() <= highest[cube_of], falling[cube_of], leaves[cube_of]

    def chosen(mask: BoolArray) -> pl.DataFrame:
        rows, at = blocks.filter(mask), cube_of[mask]
        named = rows.with_columns(
            pl.Series("path", _paths_of(parts, rows["file"])),
            pl.Series("highest", highest[at]),
            pl.Series("least", least[at]),
            pl.Series("most", most[at]),
            pl.Series("nearest", above[at]),
            pl.Series("nearest_cube", cubes["cube"][nearest[at]]).replace("", _ROOT),
        )
        return named.sort("block")

    low, *of_cubes = map(chosen, masks)
    falling_at, leaves_at = (rows.unique(_CUBE_KEY, keep="first", maintain_order=True) for rows in of_cubes)
    not_above = "its smallest weight {} is not above {}, the threshold of a cube over it"
    below = "the cube's threshold {} is below that of {} over it, {}"
    no_leaf = "no cube lies below it, and yet its threshold is {}"
    return pl.concat(
        [
            faults_at("weight-order", low, pl.format(not_above, "min_weight", "highest")),
            faults_at("threshold-order", falling_at, pl.format(below, "least", "nearest_cube", "nearest")),
            faults_at("leaf-threshold", leaves_at, pl.format(no_leaf, "most")),
        ]
    )


def _paths_of(parts: Sequence[_Part], files: pl.Series) -> pl.Series:
    """Return the paths of some files, by their numbers among all."""
    return pl.concat(part.paths for part in parts)[files] if len(files) else pl.Series(dtype=pl.String)


def _thresholds_above(
    cubes: pl.DataFrame, least: I32Array, shared: I64Array
) -> tuple[I64Array, I64Array, BoolArray]:
    """Return the nearest cube above each cube, the highest threshold above, and which cubes have cubes below.

    `cubes` are sorted, see `levels_shared`. -1: there is none above.
    """
    depth, numbers = cubes["depth"].to_numpy(), np.arange(cubes.height)
    nearest = np.full(cubes.height, -1)
    highest = np.full(cubes.height, MIN_WEIGHT - 1)
    is_inner = np.zeros(cubes.height, np.bool_)
    for level in range(int(depth.max(initial=0))):
        # The last cube of this level is above, unless a cube since is in another branch of it.
        last = np.maximum.accumulate(np.where((depth == level) | (shared < level), numbers, 0))
        found = np.flatnonzero((depth > level) & (depth[last] == level))
        above = last[found]
        nearest[found] = above
        highest[found] = np.maximum(highest[found], least[above])
        is_inner[above] = True
    return nearest, highest, is_inner


def _layout_faults(
    files: pl.DataFrame, blocks: pl.DataFrame, revisions: Mapping[int, Revision]
) -> pl.DataFrame:
    """Find layouts that cannot be read, or that say other than the blocks do."""
    tagged = files.filter(pl.col("ours") & pl.col("layout").is_not_null())
    columns = ["file", "rows", "min_weight"]
    blocks_of = blocks.filter("ours").select(columns).partition_by("file", as_dict=True, include_key=False)
    faults: list[Fault] = []
    for file in tagged.iter_rows(named=True):
        of_file = blocks_of.get((file["file"],))
        if of_file is None or of_file["rows"].sum() != file["num_records"]:
            continue  # a fault of the blocks; the layout counts for nothing there
        try:
            layout = parse_layout(file["layout"])
        except InvalidMetadataError as error:
            message = f"its layout tag cannot be read, so its pages may not be chosen: {error}"
            fault = Fault("layout-unreadable", message)
        else:
            if layout is None:
                continue  # of a version to come
            dimensions = len(revisions[file["revision"]].columns)
            wrong = _disagreement(layout, file["num_records"], file["size_bytes"], of_file, dimensions)
            if wrong is None:
                continue
            fault = Fault("layout", wrong)
        faults.append(replace(fault, path=file["path"], revision=file["revision"]))
    return fault_frame(faults)


def _disagreement(layout: Layout, rows: int, size: int, blocks: pl.DataFrame, dimensions: int) -> str | None:
    """Return how a layout contradicts the other facts of its file; None if it does not."""
    if sum(band[0] for band in layout.bands) != rows:
        return f"its layout has bands of other rows than the {rows:,} of the file"
    if not layout.fits(rows, dimensions):
        return "its layout has other boxes than pages"
    if layout.directory_bytes > layout.tail_bytes or layout.tail_bytes >= size:
        return (
            f"its layout has a page directory of {layout.directory_bytes} bytes, {layout.tail_bytes} before the end of "
            f"a file of {size}"
        )
    weights = [band[2] for band in layout.bands]
    if weights != sorted(set(weights)):
        return "the bands of its layout do not rise in weight"
    least = blocks["min_weight"].min()
    if weights[0] != least:
        return f"its layout begins with a weight of {weights[0]}, its blocks with {least!s}"
    return None


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
    return snapshot.with_files(files.with_columns(columns))


def untagged(snapshot: Snapshot) -> pl.Series:
    """Return which files have no index tags in the log."""
    texts = pl.col("revision", "blocks", "state", "rules")
    return snapshot.files.select(pl.all_horizontal(texts.is_null())).to_series()


def usable_revisions(snapshot: Snapshot) -> dict[str, Revision]:
    """Return the revisions that rows can be indexed by, by digest."""
    return {
        digest_of(revision, snapshot.columns): revision
        for revision in snapshot.config.revisions.values()
        if fits_schema(revision, snapshot.schema)
    }


def untagged_files(
    snapshot: Snapshot, jobs: Sequence[FileCheck], spoiled: Iterable[str]
) -> dict[str, FileCheck]:
    """Return the files to look for copies in, by path in the log: those without tags, and those at `spoiled` paths."""
    paths = pl.Series([job.path for job in jobs], dtype=pl.String)
    chosen = paths.is_in(list(spoiled)) | untagged(snapshot)
    return dict(compress(zip(snapshot.files["path"], jobs, strict=True), chosen))


def proven_tags(
    snapshot: Snapshot, tags: LostTags, check: Callable[[Snapshot, Sequence[str]], Iterable[Fault]]
) -> LostTags:
    """Return the tags that a check of log and rows finds nothing wrong with. `check` reads the files at some paths."""
    tagged = with_tags(snapshot, tags)
    paths = dict(zip(snapshot.files["path"].to_list(), snapshot.data_paths, strict=True))
    index, (faults, _) = tagged.blocks, check_log(Index(tagged))
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


def vector_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Return the faults of all deletion vectors of a version."""
    listed, faults = readable_vectors(snapshot, _with_vectors(snapshot))
    yield from faults
    for number, rows in listed.items():
        path, logged = snapshot.data_paths[number], snapshot.files["num_records"][number]
        if logged is not None and len(rows) and rows[-1] >= logged:
            message = f"its deletion vector hides row {rows[-1]:,}, and the log counts {logged:,}"
            yield Fault("deletion-vector", message, path=path)
        count = (parse_vector(snapshot.files["deletion_vector"][number]) or {}).get("cardinality")
        if count != len(rows):
            message = (
                f"its deletion vector hides {len(rows):,} rows, and the log counts {count!r}: reads refuse it"
            )
            yield Fault("vector-count", message, path=path)


def missing_vectors(snapshot: Snapshot) -> Iterator[Fault]:
    """Return a fault for each file whose deletion vector does not exist, without reading the vectors."""
    numbers = _with_vectors(snapshot)
    try:
        vectors = {number: parse_vector(snapshot.files["deletion_vector"][number]) for number in numbers}
        files = {number: vector_path(vector or {}) for number, vector in vectors.items()}
    except (QbeastError, ValueError):  # an invalid descriptor: reading finds which one
        yield from readable_vectors(snapshot, numbers)[1]
        return
    texts = {number: file.text for number, file in files.items() if file is not None}
    paths = list(dict.fromkeys(texts.values()))
    problems = dict(
        zip(paths, map_files(snapshot.store, lambda path: _problem(snapshot, path), paths), strict=True)
    )
    for number, text in texts.items():
        if problems[text] is not None:
            message = f"its deletion vector is in {text!r}: {problems[text]}"
            yield Fault("deletion-vector", message, path=snapshot.data_paths[number])


def readable_vectors(snapshot: Snapshot, numbers: Sequence[int]) -> tuple[dict[int, I64Array], list[Fault]]:
    """Return the rows that the vectors of some files hide, and the faults of vectors that cannot be read."""
    try:
        return deleted_rows(snapshot, numbers), []
    except QbeastError as error:
        if len(numbers) == 1:
            return {}, [Fault("deletion-vector", str(error), path=snapshot.data_paths[numbers[0]])]
    # In halves, so that one damaged vector of many costs few rounds of requests.
    middle = len(numbers) // 2
    first, second = (readable_vectors(snapshot, part) for part in (numbers[:middle], numbers[middle:]))
    return first[0] | second[0], first[1] + second[1]


def _with_vectors(snapshot: Snapshot) -> list[int]:
    return snapshot.files["has_deletion_vector"].arg_true().to_list()


def _problem(snapshot: Snapshot, path: str) -> str | None:
    """Return why a file cannot be read; None: it is there."""
    try:
        snapshot.store.size(path)
    except FileNotFoundError:
        return "it does not exist, so the deleted rows are not known"
    except QbeastError as error:
        return str(error)
    return None

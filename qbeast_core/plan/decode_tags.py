"""Build the index table of a snapshot from the tags of its files and the revisions that fit its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidMetadataError
from qbeast_core.plan.blocks import NO_REVISION, BlockTable, RevisionSpace
from qbeast_core.space.cubes import Cubes, cube_boxes, decode_cubes
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT, BoolArray, I64Array
from qbeast_core.spec.blocks import MAX_ROWS, Block, parse_blocks
from qbeast_core.spec.revision import DECIMAL_TYPE, EmptyTransformation, Revision, Transformer
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.grid import data_type_of, text_column


def fits_schema(revision: Revision, schema: pl.Schema, rehashed: Mapping[str, str] | None = None) -> bool:
    """Return whether a revision has a space, and the columns have the types that it was built for (format 3).

    `rehashed` are decimal columns whose type was widened, and their types: a revision fits if it notes the same type.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> fits_schema(staging, pl.Schema({"x": pl.Int64}))
    False
    """
    has_space = any(not isinstance(part, EmptyTransformation) for part in revision.transformations)
    typed = all(_has_type(part, schema) for part in revision.column_transformers)
    noted = {part.column_name: part.model_extra or {} for part in revision.column_transformers}
    typed &= all(
        noted[name].get(DECIMAL_TYPE) == dtype for name, dtype in (rehashed or {}).items() if name in noted
    )
    return has_space and typed and not texts_changed(revision, schema)


def texts_changed(revision: Revision, schema: pl.Schema) -> tuple[str, ...]:
    """Return the columns that are text in the schema but not in the revision, or the reverse.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> texts_changed(staging, pl.Schema({"x": pl.String}))
    ()
    """
    is_text = {name: schema.get(name) == pl.String for name in revision.columns}
    was_text = {
        transformer.column_name: transformer.data_type == "StringDataType"
        for transformer in revision.column_transformers
        if transformer.data_type is not None
    }
    wrong = {name for name, text in was_text.items() if text != is_text[name]}
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        if space.holds_texts not in {None, is_text[name]}:
            wrong.add(name)
    return tuple(name for name in revision.columns if name in wrong)


def _has_type(transformer: Transformer, schema: pl.Schema) -> bool:
    dtype = schema.get(transformer.column_name)
    if dtype is None:
        return False
    try:
        data_type = data_type_of(transformer.column_name, dtype)
    except InvalidColumnsError:
        return False
    return getattr(transformer, "data_type", data_type) == data_type


# Why the index of a file is ignored.
UnusableReason: TypeAlias = Literal["unreadable", "incomplete", "unknown revision", "other types", "no cube"]

_BITS_PER_CHARACTER: Final = 6
_UNUSABLE: Final = pl.Schema({"file": pl.Int64, "reason": pl.String})

# One row per block; `file` numbers the files of a snapshot from 0.
BLOCK_SCHEMA = pl.Schema(
    {
        "file": pl.Int64,
        "cube": pl.String,
        "min_weight": pl.Int64,
        "max_weight": pl.Int64,
        "rows": pl.Int64,
        "replicated": pl.Boolean,
    }
)

_BLOCKS: Final = pl.Schema(
    [
        *BLOCK_SCHEMA.items(),
        ("revision", pl.Int64()),
        ("ours", pl.Boolean()),
        ("depth", pl.Int64()),
        ("binding", pl.Boolean()),
        ("usable", pl.Boolean()),
    ]
)
_JSON = pl.List(
    pl.Struct(
        {
            "cube": pl.String,
            "cubeId": pl.String,
            "minWeight": pl.Int64,
            "maxWeight": pl.Int64,
            "elementCount": pl.Int64,
            "replicated": pl.Boolean,
        }
    )
)
_MIN_KEYS = 4  # keys of a block; `replicated` is optional


def build_block_table(
    files: pl.DataFrame,
    revisions: Mapping[int, Revision],
    schema: pl.Schema,
    rehashed: Mapping[str, str] | None = None,
) -> BlockTable:
    """Build the index table of a snapshot's files. `rehashed`: see `fits_schema`.

    >>> files = pl.DataFrame({"path": ["a"], "num_records": [3], "revision": [1], "rules": [None],
    ...     "blocks": ['[{"cube":"","minWeight":-9,"maxWeight":9,"elementCount":3}]'], "layout": [None],
    ...     "state": [None]})
    >>> table = build_block_table(files, {}, pl.Schema({"x": pl.Int64}))
    >>> table.unusable.rows(), table.min_weight.tolist(), table.spaces
    ([(0, 'unknown revision')], [-2147483648], ())
    """
    few = _few_blocks(files, revisions, schema, rehashed)
    if few is not None:
        return few
    tagged_blocks, unread = _decode_tags(files)
    fitting = {
        number: revision for number, revision in revisions.items() if fits_schema(revision, schema, rehashed)
    }
    named = files.select(
        pl.col("revision").cast(pl.Int64).fill_null(NO_REVISION),
        pl.col("rules").cast(pl.String).eq("1").fill_null(value=False).alias("ours"),
        pl.col("blocks").is_not_null().alias("tagged"),
        pl.col("layout").is_not_null().alias("paged"),
    )
    revision, ours, tagged, _ = (column.to_numpy() for column in named)
    blocks = _all_blocks(files, tagged_blocks)
    file = blocks["file"].to_numpy()
    blocks = blocks.with_columns(
        pl.Series("revision", revision[file], dtype=pl.Int64), pl.Series("ours", ours[file], dtype=pl.Boolean)
    )
    filled = _marked(tagged_blocks["file"], files.height)
    unreadable = _marked(unread, files.height)
    unusable = _unusable_files(named, unreadable, filled, revisions, list(fitting))
    binding = blocks["cube"].is_not_null().to_numpy() & ~_marked(unusable["file"], files.height)[file]
    cubes, misnamed = _decoded_cubes(blocks, binding, fitting)
    unusable = pl.concat([unusable, misnamed]).sort("file")
    is_misnamed = _marked(misnamed["file"], files.height)
    contradicted = _marked(_contradicted_files(files, tagged_blocks), files.height)
    binding &= ~is_misnamed[file]
    usable = binding & ~contradicted[file]
    return BlockTable(
        files=files,
        blocks=blocks.with_columns(
            _depth(blocks, revisions), pl.Series("binding", binding), pl.Series("usable", usable)
        ),
        spaces=_spaces(cubes, fitting, usable, foreign=~ours[file]),
        unusable=unusable,
        contradicted=contradicted,
        corrupt_files=contradicted | unreadable | (tagged & ~filled) | is_misnamed,
        ours=ours,
    )


def index_of_blocks(files: pl.DataFrame, blocks: Sequence[Sequence[Block]], revision: Revision) -> BlockTable:
    """Return the index table of files that this library just wrote to one revision, from their blocks.

    `build_block_table` returns the same from the tags, in twenty queries: a third of the time of a small append.
    """
    width = max(_characters_per_level(revision), 1)
    rows = [
        (
            *(file, block.cube, block.min_weight, block.max_weight, block.element_count, block.replicated),
            *(revision.revision_id, True, len(block.cube) // width, True, True),
        )
        for file, of_file in enumerate(blocks)
        for block in of_file
    ]
    frame = pl.DataFrame(rows, schema=_BLOCKS, orient="row")
    usable, none = np.ones(frame.height, np.bool_), np.zeros(files.height, np.bool_)
    number, positions = revision.revision_id, np.arange(frame.height)
    cubes = {number: (positions, _decoded(frame, positions, len(revision.columns)))}
    return BlockTable(
        files=files,
        blocks=frame,
        spaces=_spaces(cubes, {number: revision}, usable, foreign=~usable),
        unusable=pl.DataFrame(schema=_UNUSABLE),
        contradicted=none,
        corrupt_files=none,
        ours=~none,
    )


def _few_blocks(
    files: pl.DataFrame,
    revisions: Mapping[int, Revision],
    schema: pl.Schema,
    rehashed: Mapping[str, str] | None,
) -> BlockTable | None:
    """Return the index table of files of this library with few blocks of one revision, decoded without queries.

    None: there are more, or a tag is unusual.
    """
    texts = files["blocks"]
    if not files.height or texts.null_count() or texts.str.len_bytes().sum() > sizing().few_tag_bytes:
        return None
    numbers, rules = files["revision"].unique().to_list(), files["rules"].to_list()
    revision = revisions.get(numbers[0]) if len(numbers) == 1 else None
    if revision is None or revision.revision_id != numbers[0]:
        return None
    if any(rule != "1" for rule in rules) or not fits_schema(revision, schema, rehashed):
        return None
    miscounted = files["miscounted"] if "miscounted" in files.columns else pl.Series([False])
    if miscounted.any():
        return None
    try:
        blocks = [
            _plain_blocks(text, rows)
            for text, rows in zip(texts.to_list(), files["num_records"], strict=True)
        ]
        return index_of_blocks(files, blocks, revision)
    except (InvalidMetadataError, ValueError, TypeError, LookupError, AttributeError):
        return None


def _plain_blocks(text: str, rows: int | None) -> list[Block]:
    """Return the blocks of a tag as this library writes it. Raise for others, and for those that contradict `rows`."""
    stored: list[dict[str, Any]] = orjson.loads(text)
    blocks: list[Block] = []
    for block in stored:
        cube, low, high = (
            block["cube" if "cube" in block else "cubeId"],
            block["minWeight"],
            block["maxWeight"],
        )
        count, replicated = block["elementCount"], block.get("replicated", False)
        is_typed = type(cube) is str and type(low) is type(high) is type(count) is int
        is_plain = len(block) == _MIN_KEYS + ("replicated" in block) and type(replicated) is bool
        if not (is_typed and is_plain and MIN_WEIGHT <= low <= high <= MAX_WEIGHT and 0 <= count <= MAX_ROWS):
            raise ValueError(text)
        blocks.append(Block(cube, low, high, count, replicated))
    is_whole = len(orjson.dumps(stored)) == len(text)  # no key is repeated
    if not blocks or not is_whole or rows not in {None, sum(block.element_count for block in blocks)}:
        raise ValueError(text)
    return blocks


def _characters_per_level(revision: Revision) -> int:
    """Return how many characters of a cube's text encode one level (format 5)."""
    return -(-len(revision.columns) // _BITS_PER_CHARACTER)


def levels_shared(cubes: pl.DataFrame, revisions: Mapping[int, Revision]) -> I64Array:
    """Return how many levels each cube shares with the one before it, -1 if that is of another tree.

    `cubes` are distinct, and sorted by `revision`, `tree` and `cube`: the cubes below a cube follow it.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> space = staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500)
    >>> cubes = pl.DataFrame({"revision": 0, "tree": [0, 0, 0, 1], "cube": ["A", "AB", "ACD", "A"]})
    >>> levels_shared(cubes.with_columns(depth=pl.col("cube").str.len_bytes()), {0: space}).tolist()
    [-1, 1, 1, -1]
    """
    widths = {number: max(_characters_per_level(revision), 1) for number, revision in revisions.items()}
    width = pl.col("revision").replace_strict(widths, default=None, return_dtype=pl.Int64)
    is_same = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("revision", "tree"))
    shared = cubes.select(is_same.fill_null(value=False).cast(pl.Int64) - 1).to_series().to_numpy().copy()
    deepest = cubes["depth"].max()
    for level in range(
        1, 1 + (deepest if isinstance(deepest, int) else 0)
    ):  # one at a time, for little memory
        head = pl.col("cube").str.head(level * width)
        is_deep = (pl.col("depth") >= level) & (pl.col("depth").shift() >= level)
        equal = cubes.select((is_same & is_deep & (head == head.shift())).fill_null(value=False))
        shared += equal.to_series().to_numpy()
    return shared


def _marked(files: pl.Series | list[int], num_files: int) -> BoolArray:
    return np.bincount(np.asarray(files, np.int64), minlength=num_files) > 0


def _all_blocks(files: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Return the blocks of all tags, and a block without a cube for each file without tags."""
    bare = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.lit(None, pl.String).alias("cube"),
        pl.lit(MIN_WEIGHT, pl.Int64).alias("min_weight"),
        pl.lit(MAX_WEIGHT, pl.Int64).alias("max_weight"),
        pl.col("num_records").cast(pl.Int64).fill_null(0).alias("rows"),
        pl.lit(value=False).alias("replicated"),
    ).filter(~pl.col("file").is_in(blocks["file"].unique().implode()))
    return pl.concat([blocks, bare]).sort("file", maintain_order=True) if bare.height else blocks


def _depth(blocks: pl.DataFrame, revisions: Mapping[int, Revision]) -> pl.Expr:
    number = blocks["revision"].to_numpy()
    width = np.ones(len(number), np.int64)
    for revision_id, revision in revisions.items():
        width[number == revision_id] = max(_characters_per_level(revision), 1)
    return (pl.col("cube").str.len_bytes().cast(pl.Int64) // pl.Series(width)).alias("depth")


def _unusable_files(
    named: pl.DataFrame,
    unreadable: BoolArray,
    filled: BoolArray,
    revisions: Mapping[int, Revision],
    fitting: list[int],
) -> pl.DataFrame:
    """Return the files whose index cannot be used, except for invalid cubes, which `_decoded_cubes` finds."""
    revision, ours, tagged, paged = (column.to_numpy() for column in named)
    wrong: dict[UnusableReason, BoolArray] = {
        "unreadable": unreadable,
        "incomplete": ~tagged | ~filled | (revision == NO_REVISION),
        "unknown revision": ~np.isin(revision, list(revisions)),
        "other types": ~np.isin(revision, fitting),
    }
    has_index = tagged | paged | ours | (revision != NO_REVISION)
    numbers = np.flatnonzero(has_index & np.logical_or.reduce(list(wrong.values())))
    reasons = np.select([mask[numbers] for mask in wrong.values()], list(wrong), "")
    return pl.DataFrame({"file": numbers, "reason": reasons.tolist()}, schema=_UNUSABLE)


def _decoded_cubes(
    blocks: pl.DataFrame, binding: BoolArray, revisions: Mapping[int, Revision]
) -> tuple[dict[int, tuple[I64Array, Cubes]], pl.DataFrame]:
    """Return the positions and cubes of the blocks by revision, and the files with an invalid cube."""
    cubes: dict[int, tuple[I64Array, Cubes]] = {}
    misnamed = [pl.DataFrame(schema=_UNUSABLE)]
    number = blocks["revision"].to_numpy()
    for revision_id, revision in revisions.items():
        members, dimensions = np.flatnonzero(binding & (number == revision_id)), len(revision.columns)
        try:
            cubes[revision_id] = members, _decoded(blocks, members, dimensions)
        except InvalidMetadataError:
            texts = blocks.select("file", "cube")[members]
            wrong = _misnamed_cubes(texts["cube"], dimensions=dimensions)
            files = texts.filter(pl.col("cube").is_in(wrong.implode()))["file"].unique()
            misnamed.append(files.to_frame().with_columns(reason=pl.lit("no cube")))
            members = members[~texts["file"].is_in(files.implode()).to_numpy()]
            cubes[revision_id] = members, _decoded(blocks, members, dimensions)
    return cubes, pl.concat(misnamed)


def _decoded(blocks: pl.DataFrame, members: I64Array, dimensions: int) -> Cubes:
    texts = blocks["cube"] if len(members) == blocks.height else blocks["cube"][members]
    return decode_cubes(text_column(texts), dimensions=dimensions)


def _spaces(
    cubes: Mapping[int, tuple[I64Array, Cubes]],
    revisions: Mapping[int, Revision],
    usable: BoolArray,
    *,
    foreign: BoolArray,
) -> tuple[RevisionSpace, ...]:
    """Return the boxes of usable blocks by revision and kind of writer."""
    spaces: list[RevisionSpace] = []
    for revision_id, (members, revision_cubes) in cubes.items():
        lower, upper = cube_boxes(revision_cubes)
        upper[upper >= 1.0] = np.inf
        for is_foreign in (False, True):
            mask = usable[members] & (foreign[members] == is_foreign)
            if mask.any():
                bounds = (side if mask.all() else side[mask] for side in (lower, upper))
                low, high = (tuple(np.ascontiguousarray(side.T)) for side in bounds)
                spaces.append(RevisionSpace(revisions[revision_id], members[mask], is_foreign, low, high))
    return tuple(spaces)


def _decode_tags(files: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Decode the `blocks` tags of a snapshot's files, without a check against statistics.

    Return the blocks, of `BLOCK_SCHEMA`, and the files whose tag cannot be read.
    """
    numbered = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"), pl.col("blocks").cast(pl.String)
    )
    return _decode_blocks(numbered.drop_nulls())


def _decode_blocks(texts: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Decode `blocks` tags.

    >>> texts = pl.DataFrame({"file": [0, 1], "blocks": [
    ...     '[{"cubeId":"w","minWeight":-5,"maxWeight":7,"elementCount":2},]', "oops"]})
    >>> blocks, corrupt = _decode_blocks(texts)
    >>> blocks.rows(), corrupt
    ([(0, 'w', -5, 7, 2, False)], [1])
    """
    rows, unread = _decode_slices(texts)
    unread += _with_other_keys(texts, rows)
    rows = rows.with_columns(pl.col("replicated").fill_null(value=False))
    sound = pl.all_horizontal(
        pl.col("cube").is_not_null(),
        pl.col("min_weight", "max_weight").is_between(MIN_WEIGHT, MAX_WEIGHT).fill_null(value=False),
        pl.col("rows").is_between(0, MAX_ROWS).fill_null(value=False),
    )
    faulty = rows.filter(~sound).get_column("file").unique().to_list()
    if not faulty and not unread:
        return rows, []
    retries = texts.filter(pl.col("file").is_in([*faulty, *unread]))
    parsed, corrupt = _decode_singly(retries)
    good = rows.filter(~pl.col("file").is_in(retries.get_column("file").implode()))
    return pl.concat([good, parsed]).sort("file", maintain_order=True), corrupt


def _contradicted_files(files: pl.DataFrame, blocks: pl.DataFrame) -> pl.Series:
    """Return the numbers of files whose blocks contradict their statistics; both are ignored.

    >>> files = pl.DataFrame({"num_records": [2, 2, None]})
    >>> blocks = pl.DataFrame({"file": [0, 1, 2], "min_weight": [1, 1, 9], "max_weight": [5, 5, 5],
    ...     "rows": [2, 3, 4]})
    >>> _contradicted_files(files, blocks).to_list()
    [1, 2]
    """
    counts = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.col("num_records").cast(pl.Int64),
        pl.col("miscounted") if "miscounted" in files.columns else pl.lit(value=False).alias("miscounted"),
    )
    tagged = blocks.group_by("file").agg(
        pl.col("rows").sum(),
        (pl.col("min_weight") > pl.col("max_weight")).any().alias("turned"),
    )
    wrong = (pl.col("rows") != pl.col("num_records")) | pl.col("miscounted") | pl.col("turned")
    both = tagged.join(counts, on="file", how="inner")
    return both.filter(wrong.fill_null(value=False)).get_column("file").sort()


def _misnamed_cubes(texts: pl.Series, *, dimensions: int) -> pl.Series:
    """Return the distinct texts that are not cubes.

    >>> _misnamed_cubes(pl.Series(["", "w", "#", "#"]), dimensions=2).to_list()
    ['#']
    """
    return pl.Series([text for text in texts.unique() if not _is_cube(text, dimensions)], dtype=pl.String)


def _is_cube(text: str, dimensions: int) -> bool:
    try:
        decode_cubes([text], dimensions=dimensions)
    except InvalidMetadataError:
        return False
    return True


def _decode_slices(texts: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Decode slices in parallel, one row per block, and return the files of slices with invalid JSON."""
    empty = pl.DataFrame(schema=BLOCK_SCHEMA)
    plans = [_as_rows(part.lazy()) for part in texts.iter_slices(sizing().slice_files)]
    try:
        return pl.concat([empty, *pl.collect_all(plans)]), []
    except pl.exceptions.PolarsError:
        pass  # a text may be empty, invalid, or two JSON values: find the slice
    decoded: list[pl.DataFrame] = []
    unread: list[int] = []
    for part, plan in zip(texts.iter_slices(sizing().slice_files), plans, strict=True):
        try:
            decoded.append(plan.collect())
        except pl.exceptions.PolarsError:
            unread.extend(part.get_column("file").to_list())
    return pl.concat([empty, *decoded]), unread


def _as_rows(texts: pl.LazyFrame) -> pl.LazyFrame:
    return (
        texts.with_columns(pl.col("blocks").str.json_decode(_JSON))
        .filter(pl.col("blocks").list.len() > 0)
        .explode("blocks", empty_as_null=False)
        .unnest("blocks")
        .select(
            "file",
            pl.coalesce("cube", "cubeId"),
            pl.col("minWeight").alias("min_weight"),
            pl.col("maxWeight").alias("max_weight"),
            pl.col("elementCount").alias("rows"),
            "replicated",
        )
    )


def _with_other_keys(texts: pl.DataFrame, rows: pl.DataFrame) -> list[int]:
    """Return the files with unknown or repeated keys, which are parsed one by one.

    Values of a block never hold a colon, so the number of colons is the number of keys.
    """
    files = texts["file"].to_numpy()
    place = np.searchsorted(files, rows["file"].to_numpy())
    keys = np.bincount(place, _MIN_KEYS + rows["replicated"].is_not_null().to_numpy(), len(files))
    colons = texts["blocks"].str.count_matches(":", literal=True).to_numpy()
    return [int(file) for file in files[(keys > 0) & (keys != colons)]]


def _decode_singly(texts: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    rows: list[tuple[int, str, int, int, int, bool]] = []
    corrupt: list[int] = []
    for file, text in texts.rows():
        try:
            blocks = parse_blocks(text)
        except InvalidMetadataError:
            corrupt.append(file)
            continue
        rows += [(file, b.cube, b.min_weight, b.max_weight, b.element_count, b.replicated) for b in blocks]
    return pl.DataFrame(rows, schema=BLOCK_SCHEMA, orient="row"), corrupt

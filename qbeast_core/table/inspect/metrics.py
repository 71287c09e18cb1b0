"""Index metrics as values: what each revision holds, and how evenly (format 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import polars as pl
from pydantic import BaseModel, ConfigDict

from qbeast_core.errors import refuse
from qbeast_core.html import html_of
from qbeast_core.plain_text import in_lines
from qbeast_core.query.build import characters_per_level
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.table.index.key_counts import counts_of
from qbeast_core.table.index.state import IndexState

_SPREADS: Final = ("rows_per_cube", "rows_per_block", "bytes_per_file", "blocks_per_cube", "blocks_per_file")

_SHOWN: Final = ("min", "q1", "median", "q3", "max", "mean", "std")

_TYPES: Final[Mapping[Any, Any]] = {
    int: pl.Int64,
    float: pl.Float64,
    float | None: pl.Float64,
    tuple[str, ...]: pl.List(pl.String),
}

_KINDS: Final[dict[bool, Literal["inner", "leaf"]]] = {True: "inner", False: "leaf"}

# A revision's number; or with depth and whether cubes are inner ones.
_Key: TypeAlias = tuple[Any, ...]

# Revisions that `repr` shows with their spreads and levels, so that a table of many fits a screen.
_IN_FULL: Final = 1

_REVISION: Final = ["revision"]

_LEVEL: Final = ["revision", "depth", "inner"]


class _Value(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")


class Distribution(_Value):
    """How numbers spread."""

    # How many numbers, 1 or more.
    count: int
    # Mean and standard deviation (of the whole, not of a sample).
    mean: float
    std: float
    min: float
    q1: float
    median: float
    q3: float
    max: float


class LevelMetrics(_Value):
    """The cubes of one depth that have descendants (inner), or those that have none (leaf)."""

    depth: int
    # Whether a live block lies below these cubes.
    kind: Literal["inner", "leaf"]
    # Cubes with blocks, their blocks and rows; files that hold such a block.
    cubes: int
    blocks: int
    files: int
    rows: int
    # Over these cubes and blocks alone; a file counts with all its bytes.
    rows_per_cube: Distribution | None
    rows_per_block: Distribution | None
    bytes_per_file: Distribution | None
    blocks_per_cube: Distribution | None
    blocks_per_file: Distribution | None


class RevisionMetrics(_Value):
    """What a revision holds. Copies of rows (format 11) count in `replicated_*`, files and bytes alone."""

    # 0 is staging: files without an index that can be used.
    revision_id: int
    columns: tuple[str, ...]
    dimensions: int
    # Rows, cubes and blocks without copies; data files and their bytes.
    rows: int
    cubes: int
    blocks: int
    files: int
    bytes: int
    # Staged files whose rows the log does not tell; they count as none.
    uncounted_files: int
    # Blocks that repeat rows of descendants, and these rows.
    replicated_blocks: int
    replicated_rows: int
    # Rows a cube aims to hold.
    desired_cube_size: int
    # Levels of the tree, and the fewest that so many rows need; 0 without cubes.
    height: int
    min_height: int
    # Children of an inner cube on average, cubes that only hold cubes included; None without inner cubes.
    fan_out: float | None
    max_fan_out: int
    # None where there is nothing to count.
    rows_per_cube: Distribution | None
    rows_per_block: Distribution | None
    bytes_per_file: Distribution | None
    blocks_per_cube: Distribution | None
    blocks_per_file: Distribution | None
    # By depth, inner cubes before leaves.
    levels: tuple[LevelMetrics, ...]


class Metrics(_Value):
    """Index metrics of a table at one version; prints as tables, gives frames and JSON.

    Attributes
    ----------
    version : int
        Of the table.
    revisions : tuple of RevisionMetrics
        By id.
    design_effect : float or None
        Of the whole table, see `Table.design_effect`.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
    >>> metrics = qbeast.open_table("ids").metrics()
    >>> metrics.revisions[-1].rows, metrics.revisions[-1].height, metrics.frame["rows"].to_list()
    (1000, 1, [0, 1000])
    """

    version: int
    revisions: tuple[RevisionMetrics, ...]
    design_effect: float | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """One row per revision; distributions in columns such as `rows_per_cube_median`."""
        return _frame(RevisionMetrics, [_flat(one, {}) for one in self.revisions])

    @property
    def levels(self) -> pl.DataFrame:
        """One row per revision, depth and kind of cube, columns as in `frame`."""
        return _frame(
            LevelMetrics,
            [
                _flat(level, {"revision_id": one.revision_id})
                for one in self.revisions
                for level in one.levels
            ],
        )

    def to_json(self, *, indent: int | None = None) -> str:
        """Return everything as JSON; `Metrics.model_validate_json` reads it back."""
        return self.model_dump_json(indent=indent)

    def __repr__(self) -> str:
        effect = "" if self.design_effect is None else f", design effect {self.design_effect:.2f}"
        head = f"Index metrics of version {self.version}{effect}"
        newest = [one.revision_id for one in self.revisions if one.blocks][-_IN_FULL:]
        lines = (line for one in self.revisions for line in _lines(one, in_full=one.revision_id in newest))
        return in_lines([head, *lines])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        facts = {} if self.design_effect is None else {"design effect": f"{self.design_effect:.2f}"}
        revisions = self.frame.select(
            *("revision_id", "columns", "rows", "cubes", "blocks", "files", "bytes", "height", "fan_out")
        )
        levels = self.levels.select(
            *("revision_id", "depth", "kind", "cubes", "blocks", "files", "rows", "rows_per_cube_mean")
        )
        return html_of(f"Index metrics of version {self.version}", facts, revisions, levels)


def _frame(model: type[RevisionMetrics | LevelMetrics], rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema: dict[str, Any] = {} if model is RevisionMetrics else {"revision_id": pl.Int64}
    for name, field in model.model_fields.items():
        if name in _SPREADS:
            inner = Distribution.model_fields.items()
            schema |= {f"{name}_{part}": _TYPES[one.annotation] for part, one in inner}
        elif name != "levels":
            schema[name] = _TYPES.get(field.annotation, pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _flat(one: RevisionMetrics | LevelMetrics, start: dict[str, Any]) -> dict[str, Any]:
    flat = dict(start)
    for name, value in one.model_dump(exclude={"levels"}).items():
        if name in _SPREADS:
            parts = value or dict.fromkeys(Distribution.model_fields)
            flat |= {f"{name}_{part}": number for part, number in parts.items()}
        else:
            flat[name] = list(value) if isinstance(value, tuple) else value
    return flat


def _lines(one: RevisionMetrics, *, in_full: bool) -> list[str]:
    if not one.dimensions or (one.revision_id == 0 and not one.blocks):
        return ["", f"Revision 0, staging: {one.rows:,} rows in {one.files:,} files, {one.bytes:,} bytes"]
    fan_out = "-" if one.fan_out is None else f"{one.fan_out:.2f}"
    lines = [
        "",
        f"Revision {one.revision_id}, indexed by {', '.join(one.columns)}",
        f"  rows {one.rows:,}, cubes {one.cubes:,}, blocks {one.blocks:,}, files {one.files:,}, bytes {one.bytes:,}",
        (
            f"  desired cube size {one.desired_cube_size:,} rows, height {one.height} "
            f"(at least {one.min_height}), fan-out {fan_out} of {one.max_fan_out}"
        ),
    ]
    if not in_full:
        return lines
    if one.replicated_blocks:
        lines.append(f"  besides, {one.replicated_rows:,} copies of rows in {one.replicated_blocks:,} blocks")
    spreads = [(name, value) for name in _SPREADS if (value := getattr(one, name)) is not None]
    if spreads:
        lines += _table(
            ("", *_SHOWN),
            [(name.replace("_", " "), *_cells(value, _SHOWN)) for name, value in spreads],
        )
    if one.levels:
        lines += _table(
            ("depth", "kind", "cubes", "blocks", "files", "rows", "rows per cube", "std"),
            [
                (
                    str(level.depth),
                    level.kind,
                    *(f"{count:,}" for count in (level.cubes, level.blocks, level.files, level.rows)),
                    *_cells(level.rows_per_cube, ("mean", "std")),
                )
                for level in one.levels
            ],
        )
    return lines


def _cells(spread: Distribution | None, names: Sequence[str]) -> list[str]:
    numbers = [] if spread is None else [getattr(spread, name) for name in names]
    return [f"{n:,.0f}" if n >= 100 or n == int(n) else f"{n:,.2f}" for n in numbers]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Lay out rows under a head, numbers to the right."""
    widths = [max(len(row[at]) for row in [head, *rows] if at < len(row)) for at in range(len(head))]
    lines = [""]
    for row in [head, *rows]:
        first, *rest = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  " + "  ".join([first, *rest]).rstrip())
    return lines


def build_metrics(state: IndexState, revision: int | None = None) -> Metrics:
    """Count what every revision holds; see `Table.metrics`."""
    snapshot, blocks = state.snapshot, state.table.binding
    known = snapshot.config.revisions
    counting = blocks.group_by("file").agg(pl.col("revision").first())
    files = (
        snapshot.files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
            pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
            pl.col("num_records").cast(pl.Int64),
        )
        .join(counting, on="file", how="left", maintain_order="left")
        .with_columns(pl.col("revision").fill_null(STAGING_REVISION_ID))
    )
    numbers = sorted({*known, *files["revision"].unique()})
    if revision is not None and revision not in numbers:
        what = f"must be one of the table's, {numbers}"
        refuse("revision", what, "nothing was read", given=revision, known=numbers)
    counted = _count_blocks(blocks, files, known)
    return Metrics(
        version=snapshot.version,
        revisions=tuple(
            _revision(number, known.get(number, snapshot.config.latest), counted, files)
            for number in numbers
            if revision in {None, number}
        ),
        design_effect=counts_of(snapshot).design_effect,
    )


def fewest_levels(rows: int, cube_size: int, dimensions: int) -> int:
    """Return the height that a full tree of so many rows has: ``ceil(log_r(ceil(n / c) * (r - 1) + 1))``.

    >>> fewest_levels(1000, 100, 2), fewest_levels(500, 100, 2), fewest_levels(0, 100, 2)
    (3, 2, 0)
    """
    cubes = -(-rows // cube_size)
    levels = room = 0
    while room < cubes:  # in whole numbers: a logarithm in floats may step over a power
        room += 1 << dimensions * levels
        levels += 1
    return levels


def _revision(
    number: int, revision: Revision | None, counted: _Counted, files: pl.DataFrame
) -> RevisionMetrics:
    mine = files.filter(pl.col("revision") == number)
    key = (number,)
    totals, tree = counted.totals.get(key, {}), counted.trees.get(key, {})
    copies = counted.copies.get(key, {})
    staging = number == STAGING_REVISION_ID
    rows = int(mine["num_records"].fill_null(0).sum()) if staging else totals.get("rows", 0)
    columns = () if revision is None else revision.columns
    size = 1 if revision is None else revision.desired_cube_size
    return RevisionMetrics(
        revision_id=number,
        columns=columns,
        dimensions=len(columns),
        rows=rows,
        cubes=totals.get("cubes", 0),
        blocks=totals.get("blocks", 0),
        files=mine.height,
        bytes=int(mine["bytes"].sum()),
        uncounted_files=mine["num_records"].null_count() if staging else 0,
        replicated_blocks=copies.get("blocks", 0),
        replicated_rows=copies.get("rows", 0),
        desired_cube_size=size,
        height=tree["depth"] + 1 if tree else 0,
        min_height=fewest_levels(rows, size, len(columns)) if tree else 0,
        # All nodes but the root are children.
        fan_out=(tree["nodes"] - 1) / tree["inner"] if tree and tree["inner"] else None,
        max_fan_out=1 << len(columns),
        levels=_levels(number, counted),
        **_spreads(key, counted),
    )


def _levels(number: int, counted: _Counted) -> tuple[LevelMetrics, ...]:
    keys = [key for key in counted.totals if len(key) == 3 and key[0] == number]
    in_order = sorted(keys, key=lambda key: (key[1], not key[2]))
    return tuple(
        LevelMetrics.model_validate(
            {"depth": key[1], "kind": _KINDS[key[2]], **counted.totals[key], **_spreads(key, counted)}
        )
        for key in in_order
    )


def _spreads(key: tuple[object, ...], counted: _Counted) -> dict[str, Distribution | None]:
    return {
        name: Distribution(**found[key]) if key in found else None for name, found in counted.spreads.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Sums (copies left out), spreads by name, trees and copies, by revision or level; nothing to count: no key."""

    totals: dict[_Key, dict[str, Any]]
    spreads: dict[str, dict[_Key, dict[str, Any]]]
    trees: dict[_Key, dict[str, Any]]
    copies: dict[_Key, dict[str, Any]]


def _count_blocks(blocks: pl.DataFrame, files: pl.DataFrame, revisions: Mapping[int, Revision]) -> _Counted:
    """Group the blocks of live files; `files` tell of each its bytes, and the revision that counts it (0: staging)."""
    own = blocks.filter(~pl.col("replicated"))
    cubes = own.select("revision", "cube", "depth").unique()
    inner = _inner_nodes(cubes, revisions)
    marked = inner.with_columns(inner=pl.lit(value=True))
    own = own.join(marked, on=["revision", "cube"], how="left").with_columns(
        pl.col("inner").fill_null(value=False)
    )
    held = own.group_by("revision", "cube").agg(
        pl.col("depth", "inner").first(), pl.col("rows").sum(), pl.len().alias("blocks")
    )
    spreads: dict[str, dict[_Key, dict[str, Any]]] = {}
    for by in (_REVISION, _LEVEL):
        packed = own.group_by(*by, "file").agg(pl.len().alias("blocks"))
        sized = files if by is _REVISION else packed.join(files.select("file", "bytes"), on="file")
        for name, frame, column in (
            ("rows_per_cube", held, "rows"),
            ("rows_per_block", own, "rows"),
            ("bytes_per_file", sized, "bytes"),
            ("blocks_per_cube", held, "blocks"),
            ("blocks_per_file", packed, "blocks"),
        ):
            spreads.setdefault(name, {}).update(_spread(frame, by, column))
    copies = (
        blocks.filter("replicated").group_by(_REVISION).agg(pl.len().alias("blocks"), pl.col("rows").sum())
    )
    return _Counted(
        totals=_totals(own, held, _REVISION) | _totals(own, held, _LEVEL),
        spreads=spreads,
        trees=_trees(cubes, inner),
        copies=_keyed(copies, _REVISION),
    )


def _inner_nodes(cubes: pl.DataFrame, revisions: Mapping[int, Revision]) -> pl.DataFrame:
    """Give all proper ancestors of the cubes, once each, whether they have blocks or not."""
    parts = [cubes.select("revision", "cube").clear()]
    for number in cubes["revision"].unique():
        mine, width = cubes.filter(pl.col("revision") == number), characters_per_level(revisions[number])
        deepest = mine["depth"].max()
        for level in range(deepest if isinstance(deepest, int) else 0):
            below = mine.filter(pl.col("depth") > level)
            parts.append(below.select("revision", pl.col("cube").str.head(level * width)).unique())
    return pl.concat(parts)


def _trees(cubes: pl.DataFrame, inner: pl.DataFrame) -> dict[_Key, dict[str, Any]]:
    every = pl.concat([inner, cubes.select("revision", "cube")]).unique()
    found = (
        every.group_by("revision")
        .agg(pl.len().alias("nodes"))
        .join(inner.group_by("revision").agg(pl.len().alias("inner")), on="revision", how="left")
        .join(cubes.group_by("revision").agg(pl.col("depth").max()), on="revision")
        .with_columns(pl.col("inner").fill_null(0))
    )
    return _keyed(found, _REVISION)


def _totals(own: pl.DataFrame, held: pl.DataFrame, by: list[str]) -> dict[_Key, dict[str, Any]]:
    counts = own.group_by(by).agg(
        pl.len().alias("blocks"), pl.col("rows").sum(), pl.col("file").n_unique().alias("files")
    )
    return _keyed(counts.join(held.group_by(by).agg(pl.len().alias("cubes")), on=by), by)


def _spread(frame: pl.DataFrame, by: list[str], column: str) -> dict[_Key, dict[str, Any]]:
    number = pl.col(column).cast(pl.Float64)
    found = frame.group_by(by).agg(
        number.len().cast(pl.Int64).alias("count"),
        number.mean().alias("mean"),
        number.std(ddof=0).alias("std"),
        number.min().alias("min"),
        number.quantile(0.25, "linear").alias("q1"),
        number.median().alias("median"),
        number.quantile(0.75, "linear").alias("q3"),
        number.max().alias("max"),
    )
    return _keyed(found, by)


def _keyed(frame: pl.DataFrame, by: list[str]) -> dict[_Key, dict[str, Any]]:
    """Give a row a group, by its key and without it."""
    return {tuple(row.pop(name) for name in by): row for row in frame.iter_rows(named=True)}

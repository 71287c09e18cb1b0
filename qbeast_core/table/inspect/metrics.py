"""Index metrics as values: what each revision holds, and how evenly (format 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from qbeast_core.errors import invalid_argument
from qbeast_core.query.index.build import characters_per_level
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.support.html import html_of
from qbeast_core.support.plain_text import in_lines
from qbeast_core.table.index.key_counts import counts_of
from qbeast_core.table.index.state import IndexState
from qbeast_core.table.rewrite.candidates import DEFAULT_SCOPE, choose_files

_SPREADS: Final = ("rows_per_cube", "rows_per_block", "bytes_per_file", "blocks_per_cube", "blocks_per_file")
_SHOWN: Final = ("min", "q1", "median", "q3", "max", "mean", "std")
_SPREAD: Final = pl.Struct({"count": pl.Int64, **dict.fromkeys(("mean", "std", *_SHOWN[:5]), pl.Float64)})
_REVISION: Final = ["revision"]
_LEVEL: Final = ["revision", "depth", "inner"]

# Revisions that `repr` shows with their spreads and levels, so that a table of many fits a screen.
_IN_FULL: Final = 1


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


class Health(_Value):
    """Whether `Table.optimize` without options would rewrite files, and why."""

    needs_optimize: bool
    # The reasons as in the plan of `optimize(dry_run=True)`, each once, sorted.
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        """Return yes or no, and why."""
        why = ", ".join(self.reasons)
        return f"yes, because {why}" if self.needs_optimize else f"no{f': {why}' if why else ''}"


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
    health : Health
        Of the whole table: `needs_optimize`, and `reasons` as in the plan of ``optimize(dry_run=True)``.

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
    health: Health

    @property
    def frame(self) -> pl.DataFrame:
        """One row per revision; distributions in columns such as `rows_per_cube_median`."""
        return _frame([one.model_dump(exclude={"levels"}) for one in self.revisions], RevisionMetrics)

    @property
    def levels(self) -> pl.DataFrame:
        """One row per revision, depth and kind of cube, columns as in `frame`."""
        rows = [
            {"revision_id": one.revision_id, **level.model_dump()}
            for one in self.revisions
            for level in one.levels
        ]
        return _frame(rows, LevelMetrics)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return everything as JSON; `Metrics.model_validate_json` reads it back."""
        return self.model_dump_json(indent=indent)

    def __repr__(self) -> str:
        effect = "" if self.design_effect is None else f", design effect {self.design_effect:.2f}"
        head = f"Index metrics of version {self.version}{effect}, needs optimize: {self.health}"
        newest = [one.revision_id for one in self.revisions if one.blocks][-_IN_FULL:]
        lines = (line for one in self.revisions for line in _lines(one, in_full=one.revision_id in newest))
        return in_lines([head, *lines])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        facts = {} if self.design_effect is None else {"design effect": f"{self.design_effect:.2f}"}
        facts["needs optimize"] = str(self.health)
        revisions = self.frame.select(
            *("revision_id", "columns", "rows", "cubes", "blocks", "files", "bytes", "height", "fan_out")
        )
        levels = self.levels.select(
            *("revision_id", "depth", "kind", "cubes", "blocks", "files", "rows", "rows_per_cube_mean")
        )
        return html_of(f"Index metrics of version {self.version}", facts, revisions, levels)


def _frame(rows: list[dict[str, Any]], model: type[RevisionMetrics | LevelMetrics]) -> pl.DataFrame:
    """Return values as rows, the parts of distributions as columns `rows_per_cube_median` and the like."""
    types: dict[str, Any] = {"columns": pl.List(pl.String), "kind": pl.String, "fan_out": pl.Float64}
    names = ["revision_id", *(name for name in model.model_fields if name not in {"revision_id", "levels"})]
    schema: dict[str, Any] = {
        name: _SPREAD if name in _SPREADS else types.get(name, pl.Int64) for name in names
    }
    spreads = [pl.col(name).name.prefix_fields(f"{name}_") for name in _SPREADS]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(spreads).unnest(_SPREADS)


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
    of_file = blocks.group_by("file").agg(pl.col("revision").first())
    files = (
        snapshot.files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
            pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
            pl.col("num_records").cast(pl.Int64),
        )
        .join(of_file, on="file", how="left", maintain_order="left")
        .with_columns(pl.col("revision").fill_null(STAGING_REVISION_ID))
    )
    numbers = sorted({*known, *files["revision"].unique()})
    if revision is not None and revision not in numbers:
        what = f"must be one of the table's, {numbers}"
        invalid_argument("revision", what, "nothing was read", value=revision, known=numbers)
    counts = _count_blocks(blocks, files, known)
    return Metrics(
        version=snapshot.version,
        revisions=tuple(
            _revision(number, known.get(number, snapshot.config.latest), counts)
            for number in numbers
            if revision in {None, number}
        ),
        design_effect=counts_of(snapshot).design_effect,
        health=_health(state),
    )


def _health(state: IndexState) -> Health:
    """Choose files as an optimize without options does."""
    if state.has_copies:  # optimize refuses such a table
        return Health(needs_optimize=False, reasons=("it holds copies of rows: upgrade the table first",))
    reasons = choose_files(state, DEFAULT_SCOPE).reasons
    return Health(needs_optimize=bool(reasons), reasons=tuple(sorted(set(reasons))))


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


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """What was counted, by revision; a revision without blocks has no entry."""

    revisions: dict[int, dict[str, Any]]
    levels: dict[int, list[dict[str, Any]]]


def _revision(number: int, revision: Revision | None, counts: _Counts) -> RevisionMetrics:
    mine = counts.revisions.get(number, {})
    staging = number == STAGING_REVISION_ID
    rows = mine.get("staged_rows" if staging else "rows") or 0
    columns = () if revision is None else revision.columns
    size = 1 if revision is None else revision.desired_cube_size
    depth, inner = mine.get("depth"), mine.get("inner")
    spreads: dict[str, Any] = {name: mine.get(name) for name in _SPREADS}
    sums = ("cubes", "blocks", "files", "bytes", "replicated_blocks", "replicated_rows")
    return RevisionMetrics(
        revision_id=number,
        columns=columns,
        dimensions=len(columns),
        rows=rows,
        uncounted_files=mine.get("uncounted_files", 0) if staging else 0,
        desired_cube_size=size,
        height=0 if depth is None else depth + 1,
        min_height=0 if depth is None else fewest_levels(rows, size, len(columns)),
        # All nodes but the root are children.
        fan_out=(mine["nodes"] - 1) / inner if inner else None,
        max_fan_out=1 << len(columns),
        levels=tuple(LevelMetrics.model_validate(level) for level in counts.levels.get(number, ())),
        **{name: int(mine.get(name) or 0) for name in sums},
        **spreads,
    )


def _count_blocks(blocks: pl.DataFrame, files: pl.DataFrame, revisions: Mapping[int, Revision]) -> _Counts:
    """Count the blocks of live files; `files` has the bytes of each and the revision that counts it (0: staging)."""
    own = blocks.filter(~pl.col("replicated"))
    cubes = own.select("revision", "cube", "depth").unique()
    inner = _inner_nodes(cubes, revisions)
    own = own.join(inner.with_columns(inner=True), on=["revision", "cube"], how="left").with_columns(
        pl.col("inner").fill_null(value=False)
    )
    by_revision = _joined(
        _REVISION,
        files.group_by(_REVISION).agg(
            pl.len().alias("files"),
            pl.col("bytes").sum(),
            pl.col("num_records").sum().alias("staged_rows"),
            pl.col("num_records").null_count().alias("uncounted_files"),
        ),
        _counted(own, files, _REVISION).drop("files"),
        blocks.filter("replicated")
        .group_by(_REVISION)
        .agg(pl.len().alias("replicated_blocks"), pl.col("rows").sum().alias("replicated_rows")),
        _trees(cubes, inner),
    )
    levels: dict[int, list[dict[str, Any]]] = {}
    by_level = _counted(own, files, _LEVEL).sort(_LEVEL, descending=[False, False, True])
    for row in by_level.iter_rows(named=True):
        row["kind"] = "inner" if row.pop("inner") else "leaf"
        levels.setdefault(row.pop("revision"), []).append(row)
    return _Counts({row["revision"]: row for row in by_revision.iter_rows(named=True)}, levels)


def _inner_nodes(cubes: pl.DataFrame, revisions: Mapping[int, Revision]) -> pl.DataFrame:
    """Return all proper ancestors of the cubes, once each, whether they have blocks or not."""
    parts = [cubes.select("revision", "cube").clear()]
    for number in cubes["revision"].unique():
        mine, width = cubes.filter(pl.col("revision") == number), characters_per_level(revisions[number])
        deepest = mine["depth"].max()
        for level in range(deepest if isinstance(deepest, int) else 0):
            below = mine.filter(pl.col("depth") > level)
            parts.append(below.select("revision", pl.col("cube").str.head(level * width)).unique())
    return pl.concat(parts)


def _trees(cubes: pl.DataFrame, inner: pl.DataFrame) -> pl.DataFrame:
    """Return by revision the number of nodes and of inner nodes, and the largest depth."""
    every = pl.concat([inner, cubes.select("revision", "cube")]).unique()
    return _joined(
        _REVISION,
        every.group_by(_REVISION).agg(pl.len().alias("nodes")),
        inner.group_by(_REVISION).agg(pl.len().alias("inner")),
        cubes.group_by(_REVISION).agg(pl.col("depth").max()),
    )


def _counted(own: pl.DataFrame, files: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return sums and spreads of blocks that are not copies, one row a group."""
    of_cubes = own.group_by("revision", "cube").agg(
        pl.col("depth", "inner").first(), pl.col("rows").sum(), pl.len().alias("blocks")
    )
    packed = own.group_by(*by, "file").agg(pl.len().alias("blocks"))
    # A file counts in each level that it has blocks of, with all its bytes.
    sized = files if by is _REVISION else packed.join(files.select("file", "bytes"), on="file")
    sums = own.group_by(by).agg(
        pl.len().alias("blocks"), pl.col("rows").sum(), pl.col("file").n_unique().alias("files")
    )
    return _joined(
        by,
        sums,
        of_cubes.group_by(by).agg(pl.len().alias("cubes")),
        _spread("rows_per_cube", of_cubes, by, "rows"),
        _spread("rows_per_block", own, by, "rows"),
        _spread("bytes_per_file", sized, by, "bytes"),
        _spread("blocks_per_cube", of_cubes, by, "blocks"),
        _spread("blocks_per_file", packed, by, "blocks"),
    )


def _joined(by: list[str], first: pl.DataFrame, *others: pl.DataFrame) -> pl.DataFrame:
    for other in others:
        first = first.join(other, on=by, how="full", coalesce=True)
    return first


def _spread(name: str, frame: pl.DataFrame, by: list[str], column: str) -> pl.DataFrame:
    number = pl.col(column).cast(pl.Float64)
    parts = pl.struct(
        number.len().cast(pl.Int64).alias("count"),
        number.mean().alias("mean"),
        number.std(ddof=0).alias("std"),
        number.min().alias("min"),
        number.quantile(0.25, "linear").alias("q1"),
        number.median().alias("median"),
        number.quantile(0.75, "linear").alias("q3"),
        number.max().alias("max"),
    )
    return frame.group_by(by).agg(parts.alias(name))

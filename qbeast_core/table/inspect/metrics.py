"""Metrics of the index: size and balance of each revision (format 13), and the data of its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from qbeast_core.errors import InvalidInputError, invalid_argument
from qbeast_core.plan.bounds import reach
from qbeast_core.plan.decode_tags import levels_shared
from qbeast_core.plan.nodes import Unknown
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.weights import Sample
from qbeast_core.space.values import U32Array
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.support.frames import html_of
from qbeast_core.support.process import require
from qbeast_core.support.text import in_lines
from qbeast_core.table.index.counts import counts_of, latest_revision
from qbeast_core.table.index.live_index import Index, file_index
from qbeast_core.table.read.explain import Plan, explain
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.rewrite.candidates import DEFAULT_SCOPE, choose_files, opened_shares, shares_text
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.summary import NO_PARTITIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SPREADS: Final = ("rows_per_cube", "rows_per_block", "bytes_per_file", "blocks_per_cube", "blocks_per_file")
_SHOWN: Final = ("min", "q1", "median", "q3", "max", "mean", "std")
_SPREAD: Final = pl.Struct({"count": pl.Int64, **dict.fromkeys(("mean", "std", *_SHOWN[:5]), pl.Float64)})
_REVISION: Final = ["revision"]
_LEVEL: Final = ["revision", "depth", "inner"]
_GROUP: Final = ["group"]
# A cube: each partition has a tree of its own.
_CUBE: Final = ["revision", "tree", "cube"]

# Number of revisions that `repr` shows with distributions and levels, so that the text fits a screen.
_IN_FULL: Final = 1


class _Value(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")


class Distribution(_Value):
    """Distribution of numbers."""

    # Number of values, 1 or more.
    count: int
    # Mean and population standard deviation.
    mean: float
    std: float
    min: float
    q1: float
    median: float
    q3: float
    max: float


class LevelMetrics(_Value):
    """The inner cubes (with descendants) or the leaf cubes of one depth."""

    depth: int
    # Whether there are live blocks below these cubes.
    kind: Literal["inner", "leaf"]
    # Number of cubes with blocks, of their blocks and rows, and of files with such blocks.
    cubes: int
    blocks: int
    files: int
    rows: int
    # Distributions over these cubes and blocks. A file counts with its whole size.
    rows_per_cube: Distribution | None
    rows_per_block: Distribution | None
    bytes_per_file: Distribution | None
    blocks_per_cube: Distribution | None
    blocks_per_file: Distribution | None


class RevisionMetrics(_Value):
    """Metrics of a revision. Copies of rows (format 11) count only in `replicated_*`, `files` and `bytes`."""

    # 0 is staging: files without a usable index.
    revision_id: int
    columns: tuple[str, ...]
    dimensions: int
    # Number of rows, cubes and blocks without copies; number and size of data files.
    rows: int
    cubes: int
    blocks: int
    files: int
    bytes: int
    # Staged files whose rows the log does not count. They add 0 to `rows`.
    uncounted_files: int
    # Blocks that repeat rows of descendants, and the number of these rows.
    replicated_blocks: int
    replicated_rows: int
    # Target number of rows per cube.
    desired_cube_size: int
    # Number of levels of the highest tree, and the minimum for the largest tree; 0 without cubes.
    height: int
    min_height: int
    # Number of trees with cubes: one per partition.
    trees: int = 0
    # Average number of children of an inner cube, including cubes without blocks; None without inner cubes.
    fan_out: float | None
    max_fan_out: int
    # None if there are no values.
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
    # Distinct reasons in the plan of `optimize(dry_run=True)`, sorted.
    reasons: tuple[str, ...]
    # Share of the rows that a filter on 1/30 of the values of each indexed column opens, now and after the next
    # optimize. Estimated from the statistics of the files.
    opened: dict[str, float] = {}
    opened_after: dict[str, float] = {}
    # Rows without a value in the sample column that can be trusted; 0 in a table without one. Optimize computes them.
    rows_without_sample: int = 0
    # Rows that are indexed by other columns than the newest revision, after a reindex. Optimize moves them in steps.
    rows_of_other_columns: int = 0
    # Rows that deletion vectors hide, by the log, and their share of the rows in the files: no read returns them.
    hidden_rows: int = 0
    hidden_share: float = 0.0
    # Rows in files that another implementation clustered (``clusteringProvider`` in the log), which optimize leaves
    # alone.
    rows_clustered_by_others: int = 0

    def __str__(self) -> str:
        """Return "yes" or "no", with the reasons."""
        reasons = ", ".join(self.reasons)
        rows = self.rows_of_other_columns
        reasons += f" ({rows:,} rows are indexed by other columns)" if rows else ""
        hidden = f"{self.hidden_rows:,} rows ({self.hidden_share:.1%})"
        reasons += f" ({hidden} are hidden by deletion vectors)" if self.hidden_rows else ""
        left = self.rows_clustered_by_others
        reasons += f" ({left:,} rows are clustered by another implementation)" if left else ""
        shares = shares_text(self.opened, self.opened_after)
        reasons += f"; a filter on 1/30 of a column opens: {shares}" if shares else ""
        if self.needs_optimize:
            return f"yes, because {reasons}"
        reasons = reasons.strip(" ;")
        return f"no: {reasons}" if reasons else "no"


class Metrics(_Value):
    """Index metrics of a table at one version.

    Attributes
    ----------
    version : int
        Version of the table.
    revisions : tuple of RevisionMetrics
        Metrics of each revision, by id.
    design_effect : float or None
        Design effect of the table, see `Table.design_effect`.
    sample_by : tuple of str
        Sampling key, see `Table.sample_by`.
    health : Health
        State of the table: `needs_optimize`; `reasons` as in the plan of ``optimize(dry_run=True)``; `opened` and
        `opened_after`, by indexed column the share of the rows that a filter on 1/30 of its values opens, in [0, 1],
        now and after the next optimize (estimated); `rows_without_sample`, the rows that
        samples of other engines may lack (see `Table.add_sample_column`); `rows_of_other_columns`, the rows that a
        reindex left to `Table.optimize`; and `hidden_rows`, the rows that deletion vectors hide, which no read returns
        and ``optimize(purge=True)`` removes, with `hidden_share`, their share of the rows in files, in [0, 1]. Other
        counts include hidden rows, as the blocks of the index do.

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
    sample_by: tuple[str, ...] = ()
    health: Health

    @property
    def frame(self) -> pl.DataFrame:
        """One row per revision; distributions in columns such as `rows_per_cube_median`."""
        return _frame([item.model_dump(exclude={"levels"}) for item in self.revisions], RevisionMetrics)

    @property
    def levels(self) -> pl.DataFrame:
        """One row per revision, depth and kind of cube; columns as in `frame`."""
        rows = [
            {"revision_id": revision.revision_id, **level.model_dump()}
            for revision in self.revisions
            for level in revision.levels
        ]
        return _frame(rows, LevelMetrics)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the metrics as JSON. `Metrics.model_validate_json` parses it."""
        return self.model_dump_json(indent=indent)

    def __repr__(self) -> str:
        effect = "" if self.design_effect is None else f", design effect {self.design_effect:.2f}"
        key = f", sampling key {', '.join(self.sample_by)}" if self.sample_by else ""
        head = f"Index metrics of version {self.version}{key}{effect}, needs optimize: {self.health}"
        newest = [item.revision_id for item in self.revisions if item.blocks][-_IN_FULL:]
        parts = (_lines(item, in_full=item.revision_id in newest) for item in self.revisions)
        return in_lines([head, *(line for lines in parts for line in lines)])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        facts = {"sampling key": ", ".join(self.sample_by)} if self.sample_by else {}
        if self.design_effect is not None:
            facts["design effect"] = f"{self.design_effect:.2f}"
        facts["needs optimize"] = str(self.health)
        revisions = self.frame.select(
            *("revision_id", "columns", "rows", "cubes", "blocks", "files", "bytes", "height", "fan_out")
        )
        levels = self.levels.select(
            *("revision_id", "depth", "kind", "cubes", "blocks", "files", "rows", "rows_per_cube_mean")
        )
        return html_of(f"Index metrics of version {self.version}", facts, revisions, levels)


def _frame(rows: list[dict[str, Any]], model: type[RevisionMetrics | LevelMetrics]) -> pl.DataFrame:
    """Return a frame of metrics. Distributions become columns such as `rows_per_cube_median`."""
    types: dict[str, Any] = {"columns": pl.List(pl.String), "kind": pl.String, "fan_out": pl.Float64}
    names = ["revision_id", *(name for name in model.model_fields if name not in {"revision_id", "levels"})]
    schema: dict[str, Any] = {
        name: _SPREAD if name in _SPREADS else types.get(name, pl.Int64) for name in names
    }
    spreads = [pl.col(name).name.prefix_fields(f"{name}_") for name in _SPREADS]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(spreads).unnest(_SPREADS)


def _lines(item: RevisionMetrics, *, in_full: bool) -> list[str]:
    if not item.dimensions or (item.revision_id == 0 and not item.blocks):
        kind = "Revision 0, staging" if item.columns else "Without index"
        return ["", f"{kind}: {item.rows:,} rows in {item.files:,} files, {item.bytes:,} bytes"]
    fan_out = "-" if item.fan_out is None else f"{item.fan_out:.2f}"
    trees = f"{item.trees:,} trees, " if item.trees > 1 else ""
    lines = [
        "",
        f"Revision {item.revision_id}, indexed by {', '.join(item.columns)}",
        (
            f"  rows {item.rows:,}, cubes {item.cubes:,}, blocks {item.blocks:,}, files {item.files:,}, "
            f"bytes {item.bytes:,}"
        ),
        (
            f"  desired cube size {item.desired_cube_size:,} rows, {trees}height {item.height} "
            f"(at least {item.min_height}), fan-out {fan_out} of {item.max_fan_out}"
        ),
    ]
    if not in_full:
        return lines
    if item.replicated_blocks:
        lines.append(
            f"  besides, {item.replicated_rows:,} copies of rows in {item.replicated_blocks:,} blocks"
        )
    spreads = [(name, value) for name in _SPREADS if (value := getattr(item, name)) is not None]
    if spreads:
        rows = [(name.replace("_", " "), *_cells(value, _SHOWN)) for name, value in spreads]
        lines += _table(("", *_SHOWN), rows)
    return [*lines, *_level_lines(item)] if item.levels else lines


def _level_lines(item: RevisionMetrics) -> list[str]:
    return _table(
        ("depth", "kind", "cubes", "blocks", "files", "rows", "rows per cube", "std"),
        [
            (
                str(level.depth),
                level.kind,
                *(f"{count:,}" for count in (level.cubes, level.blocks, level.files, level.rows)),
                *_cells(level.rows_per_cube, ("mean", "std")),
            )
            for level in item.levels
        ],
    )


def _cells(spread: Distribution | None, names: Sequence[str]) -> list[str]:
    numbers = [] if spread is None else [getattr(spread, name) for name in names]
    return [f"{n:,.0f}" if n >= 100 or n == int(n) else f"{n:,.2f}" for n in numbers]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Format rows as a table with right-aligned numbers."""
    widths = [max(len(row[i]) for row in [head, *rows] if i < len(row)) for i in range(len(head))]
    lines = [""]
    for row in [head, *rows]:
        cells = zip(row, widths, strict=False)
        line = "  ".join(
            cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(cells)
        )
        lines.append(f"  {line.rstrip()}")
    return lines


def build_metrics(state: Index, revision: int | None = None) -> Metrics:
    """Compute the metrics of all revisions or of one; see `Table.metrics`."""
    snapshot = state.snapshot.with_copies
    revisions = snapshot.config.revisions
    files, blocks = _files_and_blocks(snapshot)
    numbers = sorted({*revisions, *files["revision"].unique()})
    if revision is not None and revision not in numbers:
        problem = f"must be one of the table's, {numbers}"
        invalid_argument("revision", problem, value=revision, known=numbers)
    counts = _count_blocks(blocks, files, revisions)
    return Metrics(
        version=snapshot.version,
        revisions=tuple(
            _revision(number, revisions.get(number, snapshot.config.latest), counts.get(number, {}))
            for number in numbers
            if revision in {None, number}
        ),
        design_effect=counts_of(snapshot).design_effect,
        sample_by=snapshot.config.sample_by,
        health=_health(file_index(state.snapshot)),
    )


def _files_and_blocks(snapshot: Snapshot) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `bytes`, `num_records` and the revision of each file, and the blocks, in few bytes.

    Files without a usable index are of the staging revision.
    """
    files, blocks = list[pl.DataFrame](), list[pl.DataFrame]()
    partitions, before = NO_PARTITIONS, 0
    for part in snapshot.parts(Unknown()):
        partitions = partitions.with_rows(part.partitions)
        trees = partitions.numbers(part.partitions)
        of_part = part.blocks.binding
        revision_of = np.full(part.files.height, STAGING_REVISION_ID)
        revision_of[of_part["file"].to_numpy()] = of_part["revision"].to_numpy()
        of_file = pl.Series(np.zeros(len(revision_of), np.int64) if trees is None else trees)
        files.append(
            part.files.select(
                pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
                pl.col("num_records").cast(pl.Int64),
                pl.Series("revision", revision_of),
            )
        )
        blocks.append(
            of_part.select(
                (pl.col("file") + before).cast(pl.UInt32),
                pl.lit(of_file).gather(pl.col("file")).cast(pl.UInt32).alias("tree"),
                *("revision", "cube", pl.col("depth").cast(pl.UInt8), "rows", "replicated"),
            )
        )
        before += part.files.height
    return pl.concat(files), pl.concat(blocks)


def _health(state: Index) -> Health:
    """Return whether an optimize without options would rewrite files."""
    if state.snapshot.copies:  # optimize refuses such a table
        return Health(needs_optimize=False, reasons=("it holds copies of rows: upgrade the table first",))
    choice, counted = choose_files(state, DEFAULT_SCOPE), state.snapshot.counted_rows
    hidden = counted - state.snapshot.live_rows
    return Health(
        needs_optimize=bool(choice.reasons),
        reasons=tuple(sorted(set(choice.reasons))),
        opened=opened_shares(state),
        opened_after=opened_shares(state, choice.groups),
        rows_without_sample=state.rows_without_sample,
        hidden_rows=hidden,
        hidden_share=round(hidden / max(counted, 1), 6),
        rows_of_other_columns=state.rows_of_other_columns,
        rows_clustered_by_others=state.rows_clustered_by_others,
    )


def min_levels(rows: int, cube_size: int, dimensions: int) -> int:
    """Return the height of a full tree with this number of rows: ``ceil(log_r(ceil(n / c) * (r - 1) + 1))``.

    >>> min_levels(1000, 100, 2), min_levels(500, 100, 2), min_levels(0, 100, 2)
    (3, 2, 0)
    """
    cubes = -(-rows // cube_size)
    levels = room = 0
    while room < cubes:  # integers, because the logarithm of a float is not exact
        room += 1 << dimensions * levels
        levels += 1
    return levels


def _revision(number: int, revision: Revision | None, values: Mapping[str, Any]) -> RevisionMetrics:
    """Return the metrics of a revision from its counts."""
    staging = number == STAGING_REVISION_ID
    rows = values.get("staged_rows" if staging else "rows") or 0
    columns = () if revision is None else revision.columns
    size = 1 if revision is None else revision.desired_cube_size
    depth, inner = values.get("depth"), values.get("inner")
    spreads: dict[str, Any] = {name: values.get(name) for name in _SPREADS}
    sums = ("cubes", "blocks", "files", "bytes", "replicated_blocks", "replicated_rows")
    return RevisionMetrics(
        revision_id=number,
        columns=columns,
        dimensions=len(columns),
        rows=rows,
        uncounted_files=values.get("uncounted_files", 0) if staging else 0,
        desired_cube_size=size,
        height=0 if depth is None else depth + 1,
        min_height=0 if depth is None else min_levels(values["largest_tree"], size, len(columns)),
        trees=values.get("trees") or 0,
        # All nodes but the roots are children. Trees without inner cubes have only a root.
        fan_out=(values["nodes"] - values["trees"]) / inner if inner else None,
        max_fan_out=1 << len(columns),
        levels=tuple(LevelMetrics.model_validate(level) for level in values.get("levels", ())),
        **{name: int(values.get(name) or 0) for name in sums},
        **spreads,
    )


def _count_blocks(
    blocks: pl.DataFrame, files: pl.DataFrame, revisions: Mapping[int, Revision]
) -> dict[int, dict[str, Any]]:
    """Count the blocks of live files by revision; a revision without files has no entry.

    `files` has the size and the revision (0: staging) of each file.
    """
    originals = blocks.filter(~pl.col("replicated")).sort(_CUBE)
    is_first = pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in _CUBE).fill_null(value=True)
    number = originals.select(is_first.cum_sum().cast(pl.UInt32) - 1).to_series().to_numpy()
    cubes = _cubes(originals, number, revisions)
    originals = originals.select("file", "rows")
    by_revision = _joined(
        _REVISION,
        files.group_by(_REVISION).agg(
            pl.len().alias("files"),
            pl.col("bytes").sum(),
            pl.col("num_records").sum().alias("staged_rows"),
            pl.col("num_records").null_count().alias("uncounted_files"),
        ),
        _counted(originals, number, cubes, files, _REVISION).drop("files"),
        blocks.filter("replicated")
        .group_by(_REVISION)
        .agg(pl.len().alias("replicated_blocks"), pl.col("rows").sum().alias("replicated_rows")),
        _trees(cubes),
    )
    counts: dict[int, dict[str, Any]] = {
        row["revision"]: {**row, "levels": []} for row in by_revision.iter_rows(named=True)
    }
    by_level = _counted(originals, number, cubes, files, _LEVEL)
    for row in by_level.sort(_LEVEL, descending=[False, False, True]).iter_rows(named=True):
        row["kind"] = "inner" if row.pop("inner") else "leaf"
        counts[row.pop("revision")]["levels"].append(row)
    return counts


def _cubes(blocks: pl.DataFrame, number: U32Array, revisions: Mapping[int, Revision]) -> pl.DataFrame:
    """Return the distinct cubes of sorted blocks, by number: their rows and blocks, and whether blocks lie below.

    `nodes` and `inner_nodes` count the cube with its ancestors, and those of them with blocks below, that no cube
    before it has. In this order the cubes below a cube follow it.
    """
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    cubes = blocks[starts].select(*_CUBE, pl.col("depth").cast(pl.Int64))
    shared, depth = levels_shared(cubes, revisions), cubes["depth"].to_numpy()
    before = np.concatenate([[0], depth[:-1]])[: len(depth)]
    known = np.where(shared < 0, 0, np.minimum(shared + 1, before))
    return cubes.select(
        *("revision", "tree", "depth"),
        pl.Series("rows", np.add.reduceat(blocks["rows"].to_numpy(), starts)),
        pl.Series("blocks", np.diff(starts, append=blocks.height)),
        pl.Series("inner", np.append(shared[1:] == depth[:-1], values=False)[: len(depth)]),
        pl.Series("nodes", depth - shared),
        pl.Series("inner_nodes", depth - known),
    )


def _trees(cubes: pl.DataFrame) -> pl.DataFrame:
    """Return the number of trees, nodes and inner nodes, the largest tree and the maximum depth of each revision."""
    rows = cubes.group_by("revision", "tree").agg(pl.col("rows").sum())
    return _joined(
        _REVISION,
        rows.group_by(_REVISION).agg(pl.len().alias("trees"), pl.col("rows").max().alias("largest_tree")),
        cubes.group_by(_REVISION).agg(
            pl.col("nodes").sum(),
            pl.col("inner_nodes").sum().alias("inner"),
            pl.col("depth").max(),
        ),
    )


def _counted(
    blocks: pl.DataFrame, number: U32Array, cubes: pl.DataFrame, files: pl.DataFrame, by: list[str]
) -> pl.DataFrame:
    """Return sums and distributions of blocks, whose cubes have a `number`, one row per group of cubes."""
    groups = cubes.select(by).unique(maintain_order=True).with_row_index("group")
    of_cube = cubes.select(by).join(groups, on=by, how="left", maintain_order="left")["group"]
    of_cubes = cubes.select(of_cube, "rows", "blocks")
    blocks = blocks.with_columns(of_cube[number])
    keys, packed = np.unique(
        blocks["file"].to_numpy().astype(np.uint64) * groups.height + blocks["group"].to_numpy(),
        return_counts=True,
    )
    file, group = np.divmod(keys, max(groups.height, 1))
    of_files = pl.DataFrame(
        {"group": group.astype(np.uint32), "blocks": packed, "bytes": files["bytes"].to_numpy()[file]}
    )
    counted = _joined(
        _GROUP,
        groups,
        blocks.group_by(_GROUP).agg(pl.len().alias("blocks"), pl.col("rows").sum()),
        of_files.group_by(_GROUP).agg(pl.len().alias("files")),
        of_cubes.group_by(_GROUP).agg(pl.len().alias("cubes")),
        _spread("rows_per_cube", of_cubes, _GROUP, "rows"),
        _spread("rows_per_block", blocks, _GROUP, "rows"),
        _spread("blocks_per_cube", of_cubes, _GROUP, "blocks"),
        _spread("blocks_per_file", of_files, _GROUP, "blocks"),
    )
    # A file counts with its whole size in each level that it has blocks of.
    sized, key = (files, _REVISION) if by is _REVISION else (of_files, _GROUP)
    return _joined(key, counted, _spread("bytes_per_file", sized, key, "bytes")).drop("group")


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


PlotKind: TypeAlias = Literal["tree", "space", "fraction"]

# Width and height of a new picture, inches.
_SIZES: Final[dict[PlotKind, tuple[float, float]]] = {
    "tree": (9.0, 4.8),
    "space": (7.0, 6.2),
    "fraction": (6.4, 4.8),
}
_FRACTIONS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


def plot_table(
    planner: Planner,
    kind: PlotKind,
    *,
    columns: Sequence[str] | None,
    predicate: pl.Expr | None,
    sample: Sample | None,
    revision: int | None,
    fractions: Sequence[float] | None,
    axes: Axes | None,
) -> Figure:
    """Draw a picture of a version; see `Table.plot`."""
    kinds = get_args(PlotKind)
    if kind not in kinds:
        problem = f"must be one of {', '.join(kinds)}"
        invalid_argument("kind", problem, value=kind, known=kinds)
    require("matplotlib", "drawing")
    from qbeast_core.table.inspect.drawings import new_axes  # noqa: PLC0415 - loads matplotlib

    axes = new_axes(_SIZES[kind]) if axes is None else axes
    match kind:
        case "tree":
            _tree(planner, axes, _drawn_revision(planner, revision))
        case "space":
            drawn = _drawn_revision(planner, revision)
            _space(planner, axes, drawn, _two_columns(drawn, columns), predicate=predicate, sample=sample)
        case "fraction":
            _fraction(planner, axes, columns, predicate, fractions)
    figure = axes.get_figure(root=True)
    if figure is None:
        msg = "these axes do not belong to a figure"
        raise InvalidInputError(msg, argument="axes")
    return figure


def _tree(planner: Planner, axes: Axes, revision: Revision) -> None:
    from qbeast_core.table.inspect.drawings import draw_tree  # noqa: PLC0415 - loads matplotlib

    draw_tree(axes, Index(planner.snapshot).binding(revision), revision)


def _space(
    planner: Planner,
    axes: Axes,
    revision: Revision,
    columns: tuple[str, str],
    *,
    predicate: pl.Expr | None,
    sample: Sample | None,
) -> None:
    from qbeast_core.table.inspect.drawings import draw_space, title  # noqa: PLC0415 - loads matplotlib

    plan = explain(planner, predicate, sample, None)
    caption = f"{_query_text(plan)}: {plan.share:.1%} of the bytes"
    box = _box(planner, predicate, revision, columns)
    # Plan again: the first plan of a version may not have decoded the cubes of skipped files.
    all_blocks = planner.plan(plan.scan_plan.predicate, sample)
    draw_space(axes, all_blocks.selection, box, revision, columns)
    title(axes, caption)


def _box(
    planner: Planner, predicate: pl.Expr | None, revision: Revision, columns: tuple[str, str]
) -> tuple[float, float, float, float] | None:
    """Return the box of possible matches along two columns. None: anywhere, or nowhere."""
    if predicate is None or not revision.transformations:
        return None
    node = parse_predicate(predicate, planner.snapshot.schema)
    spaces = dict(zip(revision.columns, revision.transformations, strict=True))
    (left, right), (bottom, top) = (reach(node, name, spaces[name]) for name in columns)
    whole = (left, right, bottom, top) == (0.0, 1.0, 0.0, 1.0)
    return None if whole or left > right or bottom > top else (left, right, bottom, top)


def _fraction(
    planner: Planner,
    axes: Axes,
    columns: Sequence[str] | None,
    predicate: pl.Expr | None,
    wanted: Sequence[float] | None,
) -> None:
    from qbeast_core.table.inspect.drawings import draw_fraction  # noqa: PLC0415 - loads matplotlib

    fractions = sorted(_FRACTIONS if wanted is None else wanted)
    if not fractions or fractions[0] <= 0:
        invalid_argument("fractions", "must be above 0, one at least", value=fractions)
    columns = None if columns is None else list(columns)
    plans = [explain(planner, predicate, fraction, columns) for fraction in fractions]
    where = "" if predicate is None else f" where {_shown(predicate)}"
    draw_fraction(
        axes,
        fractions,
        [plan.share for plan in plans],
        caption=f"Bytes opened by samples of {plans[0].rows_total:,} rows{where}",
        whole=predicate is None and columns is None,
    )


def _drawn_revision(planner: Planner, number: int | None) -> Revision:
    """Return a revision, by default the newest one that has files."""
    revisions = planner.snapshot.config.revisions
    if number is None:
        live = {*planner.snapshot.light(["revision"])["revision"].unique()} & {*revisions}
        return revisions[max(live)] if live else latest_revision(planner.snapshot)
    if number not in revisions:
        problem = f"must be one of the table's, {list(revisions)}"
        invalid_argument("revision", problem, value=number, known=list(revisions))
    return revisions[number]


def _two_columns(revision: Revision, columns: Sequence[str] | None) -> tuple[str, str]:
    chosen = tuple(revision.columns[:2] if columns is None else columns)
    unknown = [name for name in chosen if name not in revision.columns]
    if len(chosen) != 2 or unknown:
        msg = (
            f"give two indexed columns of {', '.join(revision.columns)} to draw the space, got {list(chosen)}"
        )
        raise InvalidInputError(msg, argument="columns")
    return chosen[0], chosen[1]


def _query_text(plan: Plan) -> str:
    parts = [] if plan.scan_plan.predicate is None else [_shown(plan.scan_plan.predicate)]
    if plan.sample is not None:
        parts.append(f"a sample of {plan.sample}")
    return ", ".join(parts) or "everything"


def _shown(predicate: pl.Expr) -> str:
    text = str(predicate)
    return text if len(text) <= 70 else f"{text[:69]}…"

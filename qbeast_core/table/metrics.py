"""Index metrics as values: what each revision holds, and how evenly (format 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

__all__ = ["Distribution", "LevelMetrics", "Metrics", "RevisionMetrics"]

_SPREADS: Final = ("rows_per_cube", "rows_per_block", "bytes_per_file", "blocks_per_cube", "blocks_per_file")


class _Value(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")


class Distribution(_Value):
    """How numbers spread.

    Attributes
    ----------
    count : int
        How many numbers, 1 or more.
    mean, std : float
        Mean and standard deviation (of the whole, not of a sample).
    min, q1, median, q3, max : float
        Least, quartiles (linear interpolation), greatest.
    """

    count: int
    mean: float
    std: float
    min: float
    q1: float
    median: float
    q3: float
    max: float


class LevelMetrics(_Value):
    """The cubes of one depth that have descendants (inner), or those that have none (leaf).

    Attributes
    ----------
    depth : int
        Levels below the root.
    kind : {"inner", "leaf"}
        Whether a live block lies below these cubes.
    cubes, blocks, files, rows : int
        Cubes with blocks, their blocks and rows; files that hold such a block.
    rows_per_cube, rows_per_block, bytes_per_file, blocks_per_cube, blocks_per_file : Distribution
        Over these cubes and blocks alone; a file counts with all its bytes.
    """

    depth: int
    kind: Literal["inner", "leaf"]
    cubes: int
    blocks: int
    files: int
    rows: int
    rows_per_cube: Distribution | None
    rows_per_block: Distribution | None
    bytes_per_file: Distribution | None
    blocks_per_cube: Distribution | None
    blocks_per_file: Distribution | None


class RevisionMetrics(_Value):
    """What a revision holds. Copies of rows (format 11) count in `replicated_*`, files and bytes alone.

    Attributes
    ----------
    revision_id : int
        0 is staging: files without an index that can be used.
    columns : tuple of str
        Indexed columns, in order.
    dimensions : int
        How many they are.
    rows, cubes, blocks, files, bytes : int
        Rows, cubes and blocks without copies; data files and their bytes.
    uncounted_files : int
        Staged files whose rows the log does not tell; they count as none.
    replicated_blocks, replicated_rows : int
        Blocks that repeat rows of descendants, and these rows.
    desired_cube_size : int
        Rows a cube aims to hold.
    height, min_height : int
        Levels of the tree, and the fewest that so many rows need; 0 without cubes.
    fan_out : float or None
        Children of an inner cube on average, cubes that only hold cubes included; None without inner cubes.
    max_fan_out : int
        ``2 ** dimensions``.
    rows_per_cube, rows_per_block, bytes_per_file, blocks_per_cube, blocks_per_file : Distribution or None
        None where there is nothing to count.
    levels : tuple of LevelMetrics
        By depth, inner cubes before leaves.
    """

    revision_id: int
    columns: tuple[str, ...]
    dimensions: int
    rows: int
    cubes: int
    blocks: int
    files: int
    bytes: int
    uncounted_files: int
    replicated_blocks: int
    replicated_rows: int
    desired_cube_size: int
    height: int
    min_height: int
    fan_out: float | None
    max_fan_out: int
    rows_per_cube: Distribution | None
    rows_per_block: Distribution | None
    bytes_per_file: Distribution | None
    blocks_per_cube: Distribution | None
    blocks_per_file: Distribution | None
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
        return "\n".join([head, *(line for one in self.revisions for line in _lines(one))])

    __str__ = __repr__


_TYPES: Final[Mapping[Any, Any]] = {
    int: pl.Int64,
    float: pl.Float64,
    float | None: pl.Float64,
    tuple[str, ...]: pl.List(pl.String),
}


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


def _lines(one: RevisionMetrics) -> list[str]:
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
    if one.replicated_blocks:
        lines.append(f"  besides, {one.replicated_rows:,} copies of rows in {one.replicated_blocks:,} blocks")
    spreads = [(name, value) for name in _SPREADS if (value := getattr(one, name)) is not None]
    if spreads:
        lines += _table(
            ("", "min", "q1", "median", "q3", "max", "mean", "std"),
            [(name.replace("_", " "), *map(_short, _shown(value))) for name, value in spreads],
        )
    if one.levels:
        lines += _table(
            ("depth", "kind", "cubes", "blocks", "files", "rows", "rows per cube", "std"),
            [
                (
                    str(level.depth),
                    level.kind,
                    *(f"{count:,}" for count in (level.cubes, level.blocks, level.files, level.rows)),
                    *map(_short, _mean_and_std(level.rows_per_cube)),
                )
                for level in one.levels
            ],
        )
    return lines


def _shown(value: Distribution) -> tuple[float, ...]:
    return (value.min, value.q1, value.median, value.q3, value.max, value.mean, value.std)


def _mean_and_std(value: Distribution | None) -> tuple[float, ...]:
    return () if value is None else (value.mean, value.std)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.2f}"


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

"""The same number of rows of each group, read at the lowest weights of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from qbeast_core.errors import check_whole_number, invalid_argument
from qbeast_core.support.frames import own_column
from qbeast_core.table.read.file_scans import scans_of
from qbeast_core.table.read.planner import Planner, different_names, log_read
from qbeast_core.table.read.scan import SAMPLING_WEIGHT, sampling_weight
from qbeast_core.table.read.scan_task import read_scans

_GROUP_WEIGHT: Final = own_column("weight")
_COUNT, _QUOTA, _FRACTION = own_column("count"), own_column("quota"), own_column("fraction")
_PLACE: Final = own_column("place")

# A sample for a group has this many standard deviations of rows more than it needs.
_GROUP_MARGIN: Final = 4.0
_GROWTH: Final = 8


def read_strata(
    planner: Planner,
    condition: pl.Expr | None,
    columns: Sequence[str],
    rows: int,
    by: str | Sequence[str],
    *,
    expand: bool,
) -> pl.DataFrame:
    """Return equal numbers of random rows of each group, `rows` in all. Small groups give all of their rows."""
    check_whole_number("rows", rows, 1)
    groups = different_names(
        [by] if isinstance(by, str) else by, list(planner.snapshot.schema), argument="by"
    )
    if expand:
        sampling_weight(planner, None)  # raises if the table has a column of this name
    wanted = _quotas(_counted(planner, condition, groups), rows)
    read = list(dict.fromkeys([*columns, *groups]))
    found = [pl.DataFrame(schema={name: planner.snapshot.schema[name] for name in columns})]
    found[0] = found[0].with_columns(pl.Series(SAMPLING_WEIGHT, [], pl.Float64))
    is_all = False
    while wanted.height and not is_all:
        fraction = min(float(wanted[_FRACTION].min()) * _GROWTH, 1.0)  # type: ignore[arg-type]
        tier = wanted.filter(pl.col(_FRACTION) <= fraction)
        chosen = _lowest_of_groups(planner, condition, read, tier, groups=groups, fraction=fraction)
        is_all = fraction == 1.0
        counts = chosen.group_by(groups).len(_PLACE)
        full = tier.join(counts, on=groups, nulls_equal=True)
        full = full.filter((pl.col(_PLACE) >= pl.col(_QUOTA)) | is_all)
        complete = chosen.join(full.select(groups), on=groups, how="semi", nulls_equal=True)
        found.append(complete.select(*columns, pl.col(_COUNT).truediv(pl.col(_QUOTA)).alias(SAMPLING_WEIGHT)))
        wanted = wanted.join(full, on=groups, how="anti", nulls_equal=True).with_columns(
            pl.col(_FRACTION).clip(lower_bound=fraction)
        )
    frame = pl.concat(found)
    return frame if expand else frame.drop(SAMPLING_WEIGHT)


def _counted(planner: Planner, condition: pl.Expr | None, groups: list[str]) -> pl.DataFrame:
    """Return the number of matching rows of each group."""
    plan = planner.plan(condition, None)
    frames = read_scans(scans_of(planner, plan), planner.row_filter(plan, groups), planner.files)
    counts = [frame.group_by(groups).len(_COUNT) for frame in frames]
    if not counts:
        return pl.DataFrame(
            schema={**{name: planner.snapshot.schema[name] for name in groups}, _COUNT: pl.Int64}
        )
    return pl.concat(counts).group_by(groups).agg(pl.col(_COUNT).cast(pl.Int64).sum()).sort(groups)


def _quotas(counts: pl.DataFrame, rows: int) -> pl.DataFrame:
    """Return how many rows to take of each group, and the fraction of the table to read for them."""
    if counts.height > rows:
        problem = f"must be at least the number of groups, {counts.height:,}"
        invalid_argument("rows", problem, value=rows)
    sizes, left = counts[_COUNT].sort(), rows
    quota = 0
    for number, size in enumerate(sizes):  # small groups leave rows to the others
        quota = left // (len(sizes) - number)
        if size >= quota:
            break
        left -= size
    taken = pl.min_horizontal(pl.col(_COUNT), pl.lit(quota)).cast(pl.Int64)
    needed = (pl.col(_QUOTA) + _GROUP_MARGIN * pl.col(_QUOTA).sqrt()) / pl.col(_COUNT)
    is_all = pl.col(_QUOTA) == pl.col(_COUNT)
    return counts.with_columns(taken.alias(_QUOTA)).with_columns(
        pl.when(is_all).then(1.0).otherwise(needed.clip(upper_bound=1.0)).alias(_FRACTION)
    )


def _lowest_of_groups(
    planner: Planner,
    condition: pl.Expr | None,
    columns: list[str],
    tier: pl.DataFrame,
    *,
    groups: list[str],
    fraction: float,
) -> pl.DataFrame:
    """Return the rows with the lowest weights of some groups in a sample: as many as their quotas, or fewer."""
    keys = pl.struct(groups) if len(groups) > 1 else pl.col(groups[0])
    listed = tier.select(keys.alias(_PLACE))[_PLACE]
    belongs = keys.is_in(listed.implode(), nulls_equal=True)
    plan = planner.plan(belongs if condition is None else condition & belongs, fraction)
    log_read(planner, plan, fraction)
    keep = replace(planner.row_filter(plan, columns), weight_column=_GROUP_WEIGHT)
    place = pl.col(_GROUP_WEIGHT).rank("ordinal").over(groups)
    kept = pl.DataFrame(
        schema={**{name: planner.snapshot.schema[name] for name in columns}, _GROUP_WEIGHT: pl.Int32}
    )
    kept = kept.join(tier, on=groups, nulls_equal=True)
    for frame in read_scans(scans_of(planner, plan), keep, planner.files):
        both = pl.concat([kept, frame.join(tier, on=groups, nulls_equal=True).select(kept.columns)])
        kept = both.filter(place <= pl.col(_QUOTA))
    return kept

"""Scan a snapshot as a LazyFrame with pushdown, or read a number of rows, of the table or of each group."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias
from weakref import WeakSet

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import (
    EmptySampleWarning,
    InvalidInputError,
    UnevenSampleWarning,
    check_whole_number,
    invalid_argument,
)
from qbeast_core.plan.bounds import trusted_counts
from qbeast_core.plan.nodes import Nothing, named_columns
from qbeast_core.plan.predicate import parse_complement
from qbeast_core.plan.select import RowCount, count_rows, match
from qbeast_core.plan.weights import ALL_WEIGHTS, Sample, fraction_below, fractions_of, sample_to_weights
from qbeast_core.space.values import I64Array
from qbeast_core.support.frames import own_column
from qbeast_core.support.hints import quoted
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.support.text import reason_of, without_trees
from qbeast_core.table.data.expressions import (
    Predicate,
    clock_of_text,
    condition_of,
    evaluating,
    reading_sql,
    refuse_statement,
)
from qbeast_core.table.index.counts import counts_of
from qbeast_core.table.read.planner import (
    Planner,
    ScanPlan,
    different_names,
    log_read,
    scans_of,
    warn_of_full_read,
)
from qbeast_core.table.read.tasks import read_scans
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN, logged_counts
from qbeast_core.table.snapshot.snapshot import Snapshot

_Source: TypeAlias = Callable[
    [list[str] | None, pl.Expr | None, int | None, int | None], Iterator[pl.DataFrame]
]

_JOINS: Final = "A query reads this table alone; to join others, use polars.SQLContext and qbeast.scan_table"

# The first name of a table in a query.
_FROM: Final = re.compile(r"\bFROM\s+('[^']*'|(?:[\w.]|`[^`]*`|\"[^\"]*\")+)", re.IGNORECASE)

# Column with the sampling weight of a row: 1 over the probability to be in the sample.
SAMPLING_WEIGHT: Final = "sampling_weight"

# Columns before the columns of the table, see `_counting`. Queries do not see them.
_HIDDEN: Final = (own_column("rows"), own_column("never"))

# Expected rows: with 20 independent rows, a sample is empty once in half a billion times.
_MIN_EXPECTED: Final = 20
# A sample is uneven if its size differs from the expected one by this share,
_UNEVEN: Final = 0.2
# and by this number of standard deviations.
_CERTAIN: Final = 5


def scan(planner: Planner, sample: Sample | None = None, *, expand: bool = False) -> pl.LazyFrame:
    """Return the snapshot as a LazyFrame."""
    if sample is not None:
        warn_of_sample(planner, sample)  # raises for an invalid sample now, not at `collect`

    lazy = _counting(planner, sample)
    if not expand:
        return lazy
    return lazy.with_columns(pl.lit(sampling_weight(planner, sample), pl.Float64).alias(SAMPLING_WEIGHT))


def query_rows(query: str, rows_of: Callable[[], pl.LazyFrame], schema: pl.Schema) -> pl.LazyFrame:
    """Run a query in SQL on the rows ``self``: ours, or that of Polars; see `Read.sql`."""
    from qbeast_core.sql.select import selected  # noqa: PLC0415 - reads of no query do not parse

    refuse_statement(query)
    rows = rows_of()
    with reading_sql(query, "query", schema), evaluating(query, "query"):
        chosen = selected(query, rows, "self", clock=clock_of_text())
    if chosen is not None:
        return chosen
    try:
        answer = rows.sql(query)
        answer.collect_schema()
    except (pl.exceptions.PolarsError, TypeError) as error:
        reason = without_trees(reason_of(error)).rstrip(".")
        keywords = [name for name in schema if reason.endswith(f"unsupported function {name!r}")]
        reason += "".join(f'. Write the column in double quotes: "{name}"' for name in keywords)
        reason += f". {_JOINS}" if reason.startswith("relation ") else ""
        msg = (
            f"Polars cannot run the query {query!r}: {reason}. The table is called self{_named_self(query)}."
        )
        raise InvalidInputError(msg, argument="query") from error
    return answer


def _named_self(query: str) -> str:
    """Return the query of the table itself, for one that has another name or none, after a colon."""
    named = _FROM.search(query)
    if named is None:
        return ': write "SELECT ... FROM self"'
    right = f"{query[: named.start(1)]}self{query[named.end(1) :]}"
    return "" if right == query else f": write {quoted(right)}"


def sampling_weight(planner: Planner, sample: Sample | None) -> float:
    """Return the number of rows that each sampled row represents."""
    if SAMPLING_WEIGHT in planner.snapshot.schema:
        msg = f"expand adds a column {SAMPLING_WEIGHT!r}, and the table has one"
        raise InvalidInputError(msg, argument="expand")
    probability = 1.0 if sample is None else sample_to_weights(sample).probability
    return 1.0 / (probability or 1.0)


def _counting(planner: Planner, sample: Sample | None) -> pl.LazyFrame:
    """Return all rows as a LazyFrame that detects queries which need only the number of rows.

    If a query needs no column, Polars requests the first one. Here the first column has a name that no query uses, so
    it is requested only in this case, perhaps with columns of the filter. The second hidden column prevents a request
    of all columns, for which Polars passes no list.
    """
    shown = pl.Schema({**dict.fromkeys(_HIDDEN, pl.Null()), **planner.snapshot.schema})
    return lazy_frame(partial(_rows_or_heights, planner, sample), shown).drop(_HIDDEN)


def _rows_or_heights(
    planner: Planner,
    sample: Sample | None,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _size: int | None,
) -> Iterator[pl.DataFrame]:
    """Read rows with hidden columns for Polars, or count them if only their number is needed."""
    columns = [*_HIDDEN, *planner.snapshot.schema] if with_columns is None else with_columns
    if _HIDDEN[0] in columns and set(columns) <= {_HIDDEN[0], *named_columns(predicate)}:
        yield from first_rows(_nulls(planner, columns, heights(planner, predicate, sample)), n_rows)
        return
    shown = [name for name in columns if name not in _HIDDEN]
    missing = [pl.lit(None).alias(name) for name in columns if name in _HIDDEN]
    for frame in first_rows(_rows(planner, sample, shown, predicate, n_rows), n_rows):
        yield frame.with_columns(missing).select(columns) if missing else frame


def _rows(
    planner: Planner, sample: Sample | None, columns: list[str], predicate: pl.Expr | None, limit: int | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a filter and a sample, in frames of bounded size. The limit is only a hint."""
    for part, plan in planner.plans(predicate, sample):
        log_read(part, plan, sample)
        row_filter = part.row_filter(plan, columns)
        yield from read_scans(scans_of(part, plan), row_filter, part.files, limit=limit)


def _nulls(planner: Planner, columns: list[str], counts: Iterator[int]) -> Iterator[pl.DataFrame]:
    """Yield frames of nulls with these numbers of rows. Only their heights are used; they need little memory."""
    types = {name: dtype for name, dtype in planner.snapshot.schema.items() if name in columns}
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in types.items()]
    for count in counts:
        rows = pl.select(pl.repeat(None, count, dtype=pl.Null).alias(_HIDDEN[0]))
        yield rows.with_columns(nulls).select(columns)


def first_rows(frames: Iterator[pl.DataFrame], limit: int | None) -> Iterator[pl.DataFrame]:
    """Yield the first rows of frames; all of them without a limit."""
    if limit is None:
        yield from frames
        return
    for frame in frames:
        yield frame.head(limit)
        limit -= min(frame.height, limit)
        if limit == 0:
            return


class _Scan:
    """Adapter between Polars and a source, as in `register_io_source`, whose closure cannot be pickled."""

    def __init__(self, source: _Source) -> None:
        self.io_source = source

    def __call__(
        self, with_columns: list[str] | None, predicate: bytes | None, n_rows: int | None, size: int | None
    ) -> tuple[Iterator[pl.DataFrame], bool]:
        expr, is_applied = None, True
        if predicate:
            try:
                expr = pl.Expr.deserialize(predicate)
            except (pl.exceptions.PolarsError, ImportError, AttributeError, TypeError, ValueError):
                is_applied = False  # a Python function: Polars filters the rows itself
        return self.io_source(with_columns, expr, n_rows, size), is_applied


def lazy_frame(source: _Source, schema: pl.Schema) -> pl.LazyFrame:
    """Return a LazyFrame of the rows that a function yields."""
    scan_function = getattr(pl.LazyFrame, "_scan_python_function", None)
    if scan_function is None:  # it is private in Polars; without it, the LazyFrame cannot be pickled
        return register_io_source(source, schema=schema, is_pure=True)
    lazy: pl.LazyFrame = scan_function(schema=schema, scan_fn=_Scan(source), is_pure=True)
    return lazy


def pushed_down(
    schema: pl.Schema, predicate: pl.Expr | None, columns: Sequence[str] | None
) -> tuple[pl.Expr | None, list[str]]:
    """Return the filter and the columns that Polars' optimizer passes to `_rows_or_heights`.

    Polars itself applies conditions that can fail (a strict cast), and reads the columns for them.

    >>> schema = pl.Schema({"x": pl.Int64, "y": pl.String, "z": pl.String})
    >>> pushed, columns = pushed_down(schema, (pl.col("x") > 1) & (pl.col("y").cast(pl.Int8) > 2), ["x"])
    >>> str(pushed), columns
    ('[(col("x")) > (1)]', ['x', 'y'])
    """
    requests: list[tuple[pl.Expr | None, list[str]]] = []

    def source(
        with_columns: list[str] | None, pushed: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = list(schema) if with_columns is None else with_columns
        requests.append((pushed, names))
        yield pl.DataFrame(schema={name: schema[name] for name in names})

    lazy = register_io_source(source, schema=schema, is_pure=True)
    filtered = lazy if predicate is None else lazy.filter(predicate)
    (filtered if columns is None else filtered.select(columns)).collect()
    # Without a request, Polars knows that no row matches.
    return requests[0] if requests else (pl.lit(value=False), list(columns or schema))


def warn_of_sample(planner: Planner, sample: Sample | None, *, opens: bool = False) -> None:
    """Warn if a sample reads all files, or is empty by the index although many rows were expected.

    No file is read: a sample that begins at 0 is empty if no block begins below its end. Files without index may hold
    rows of the sample, so they prevent the warning. `planner` is that of all files; `opens`: the read, which may have a
    filter, opens a file.
    """
    if sample is None or planner.weights_of(sample).is_full:  # raises if a sample needs other arguments
        return
    warn_of_full_read(planner)
    first, last = fractions_of(sample)
    rows = planner.snapshot.live_rows
    expected = (last - first) * rows
    if expected < _MIN_EXPECTED:
        return
    _warn_if_uneven(planner, sample, rows)
    if opens:
        return
    if any(plan.selection.opened.any() for _, plan in planner.plans(None, sample)):
        return
    many = "choose a sampling key of many values: overwrite with sample_by=[...]."
    if not planner.snapshot.config.sample_by:
        many = "index a column of many values as well: Table.reindex."
    message = (
        f"the sample {sample} of {planner.snapshot.uri!r} holds no row; about {expected:,.0f} of {rows:,} rows were "
        f"expected: rows with equal values of {list(planner.hashed)} enter a sample together (cluster sampling), "
        f"and there are few such values. Take a larger sample, or {many}"
    )
    warnings.warn(message, EmptySampleWarning, stacklevel=caller_stacklevel())


# Versions whose samples were checked.
_CHECKED: Final[WeakSet[Snapshot]] = WeakSet()


def _warn_if_uneven(planner: Planner, sample: Sample, rows: int) -> None:
    """Warn if a sample of a table of some rows has another size by the index: a reindex has moved a part of the rows.

    The rows of a block have weights between its bounds. Optimize moves whole files, which do not have the rows of all
    weights, to other weights.
    """
    snapshot = planner.snapshot
    if snapshot in _CHECKED or not planner.moves_rows:
        return
    _CHECKED.add(snapshot)  # once for a version: the tags of all its files are decoded
    weights, found, counted = planner.weights_of(sample), 0.0, 0
    for part in planner.parts(None):
        table, uneven = part.blocks, part.has_other_weights
        first, last = (
            np.clip(weights_, weights.from_, weights.to)
            for weights_ in (table.min_weight, table.max_weight + 1)
        )
        shares = (last - first) / (table.max_weight + 1 - table.min_weight)
        found += float((table.rows * np.where(uneven[table.file], shares, weights.probability)).sum())
        counted += int(table.rows.sum())
    expected = weights.probability * rows
    found *= rows / max(counted, 1)  # some rows are hidden
    off = abs(found - expected)
    # Few rows, and rows with repeated keys, are off by chance.
    if off > _UNEVEN * expected and off**2 > _CERTAIN**2 * counts_of(planner.snapshot).lower_bound * expected:
        message = (
            f"the sample {sample} of {planner.snapshot.uri!r} has about {found:,.0f} rows instead of {expected:,.0f}, "
            "unevenly: a reindex has moved a part of the rows to other columns. "
            'Table.optimize(into="newest") moves the others; until then, '
            f"sample_by={list(planner.hashed)} returns an even sample, and reads all files."
        )
        warnings.warn(message, UnevenSampleWarning, stacklevel=caller_stacklevel())


def heights(planner: Planner, predicate: pl.Expr | None, sample: Sample | None) -> Iterator[int]:
    """Yield the number of rows of a read in parts. The first part is known without a read of data files."""
    column = next(iter([*named_columns(predicate), *planner.hashed, *planner.snapshot.schema]))
    for part, whole in planner.plans(predicate, sample):
        count = _log_count(part, whole) if whole.weights.is_full else None
        plan = whole if count is None else replace(whole, selection=count.undecided)
        if count is not None:
            yield count.known
        log_read(part, plan, sample)
        for frame in read_scans(scans_of(part, plan), part.row_filter(plan, [column]), part.files):
            yield frame.height


def known_rows(planner: Planner) -> int | None:
    """Return the number of rows of a version from the log. None: a file is not counted, or cannot be counted right.

    >>> import qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
    >>> known_rows(qbeast.open_table("ids").planner)
    1000
    """
    counts, hidden = _counts(planner)
    return None if (counts < hidden).any() else int((counts - hidden).sum())


def _counts(planner: Planner) -> tuple[I64Array, I64Array]:
    """Return the rows of each file, -1 if unknown, and its hidden rows."""
    logged = planner.snapshot.light(["num_records", "deletion_vector"])
    counts, hidden = trusted_counts(logged), logged_counts(logged)
    if (hidden == UNKNOWN).any() or planner.snapshot.copies:
        parts = [
            (trusted_counts(part.snapshot.files), part.hidden_rows.counts) for part in planner.parts(None)
        ]
        counts, hidden = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return counts, hidden


def max_rows(planner: Planner, plan: ScanPlan) -> int | None:
    """Return the maximum number of rows of a read, from the log. None: the log does not count the rows."""
    count = _log_count(planner, plan)
    return None if count is None else count.known + count.rows_read


def _log_count(planner: Planner, plan: ScanPlan) -> RowCount | None:
    keeps = plan.selection
    # Pages that hold no row of the opposite of the filter match completely: they are counted without a read.
    opposite = (
        Nothing() if plan.predicate is None else parse_complement(plan.predicate, planner.snapshot.schema)
    )
    leaves = match(keeps.table, opposite).within(ALL_WEIGHTS)
    return count_rows(keeps, leaves, files=np.ones_like(keeps.opened), hidden=planner.hidden_rows)


# Returns the lowest weights of matching rows below a fraction, ascending, with columns `weight` and `rows`. Returns all
# weights, or as many as hold the requested rows, and one more.
LowestWeights: TypeAlias = Callable[[float], pl.DataFrame]

_WEIGHT: Final = own_column("weight")  # the weights of rows, beside their columns
_MARGIN: Final = 4.0  # standard deviations that a read adds to the requested rows, of the table or of a group
_MIN_GROWTH, _MAX_GROWTH = 2.0, 16.0
_NO_WEIGHTS: Final = pl.Schema({"weight": pl.Int32, "rows": pl.Int64})


def sample_of_rows(
    planner: Planner, rows: int | None, sample: Sample | None, where: Predicate | None = None
) -> Sample | None:
    """Return the sample with a number of rows.

    Without a filter, the number is approximate and based on the log. With a filter, the sample has at least this number
    of rows: fewer if fewer match, more if the last rows share their index key. The weights of matching rows are read.
    """
    if rows is None:
        return sample
    refuse_rows(rows, sample)
    if where is None:
        total = planner.snapshot.counted_rows - int(_counts(planner)[1].sum())
        return min(rows / total, 1.0) if total > 0 else 1.0
    condition = condition_of(where, planner.snapshot.schema).expr
    pushed, columns = pushed_down(planner.snapshot.schema, condition, planner.hashed)
    planner = planner.narrowed(pushed)
    plan_of = planner.of_filter(pushed)

    def lowest(fraction: float) -> pl.DataFrame:
        plan = plan_of(fraction)
        keep = replace(planner.row_filter(plan, columns), weight_column=_WEIGHT)
        frames = read_scans(scans_of(planner, plan), keep, planner.files)
        return _lowest((frame.filter(condition)[_WEIGHT] for frame in frames), rows)

    with evaluating(where):
        return fraction_of_matches(rows, max_rows(planner, plan_of(None)), lowest)


def fraction_of_matches(rows: int, maximum: int | None, lowest: LowestWeights) -> float:
    """Return the minimum fraction with a number of matching rows; 1.0 if fewer match.

    `maximum` is the maximum number of matching rows, if known. The fraction ends at the next weight of a matching row,
    so that 1 over the fraction is the sampling weight of each row.

    >>> weights = pl.DataFrame({"weight": range(-2**31, 2**31, 2**28), "rows": [1] * 16})
    >>> round(fraction_of_matches(4, 100, lambda fraction: weights.head(int(fraction * 16))), 6)
    0.25
    """
    if rows == 0 or (maximum is not None and maximum <= rows):
        return min(float(rows), 1.0)
    target = rows + 1 + _MARGIN * rows**0.5
    fraction = 1.0 if maximum is None else min(target / maximum, 1.0)
    while True:
        weights = lowest(fraction)
        needed = _needed(weights, rows)
        if weights.height > needed:
            return fraction_below(int(weights["weight"][needed]))
        if fraction == 1.0:
            return 1.0
        growth = target / max(int(weights["rows"].sum()), 1)
        fraction = min(fraction * min(max(growth, _MIN_GROWTH), _MAX_GROWTH), 1.0)


def refuse_rows(rows: object, sample: Sample | None) -> None:
    """Raise unless `rows` is a whole number and `sample` is None."""
    if sample is not None:
        msg = "`rows` and `sample` cannot be combined. Pass one of them."
        raise InvalidInputError(msg, argument="rows")
    check_whole_number("rows", rows, 0)


def _lowest(parts: Iterable[pl.Series], rows: int) -> pl.DataFrame:
    """Count the rows of each weight. Keep only the lowest weights that are needed."""
    lowest = pl.DataFrame(schema=_NO_WEIGHTS)
    for weights in parts:
        counts = (
            pl.DataFrame({"weight": weights}).group_by("weight").agg(pl.len().cast(pl.Int64).alias("rows"))
        )
        both = pl.concat([lowest, counts]).group_by("weight").agg(pl.col("rows").sum()).sort("weight")
        lowest = both.head(_needed(both, rows) + 1)
    return lowest


def _needed(weights: pl.DataFrame, rows: int) -> int:
    """Return the number of weights that hold the rows, or more than there are if all are not enough."""
    return int((weights["rows"].cum_sum() < rows).sum()) + 1


_COUNT, _QUOTA, _FRACTION = own_column("count"), own_column("quota"), own_column("fraction")
_PLACE: Final = own_column("place")

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
    counts: list[pl.DataFrame] = []
    for part, plan in planner.plans(condition, None):
        frames = read_scans(scans_of(part, plan), part.row_filter(plan, groups), part.files)
        counts += [frame.group_by(groups).len(_COUNT) for frame in frames]
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
    needed = (pl.col(_QUOTA) + _MARGIN * pl.col(_QUOTA).sqrt()) / pl.col(_COUNT)
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
    wanted = belongs if condition is None else condition & belongs
    planner = planner.narrowed(wanted)
    plan = planner.plan(wanted, fraction)
    log_read(planner, plan, fraction)
    keep = replace(planner.row_filter(plan, columns), weight_column=_WEIGHT)
    place = pl.col(_WEIGHT).rank("ordinal").over(groups)
    kept = pl.DataFrame(
        schema={**{name: planner.snapshot.schema[name] for name in columns}, _WEIGHT: pl.Int32}
    )
    kept = kept.join(tier, on=groups, nulls_equal=True)
    for frame in read_scans(scans_of(planner, plan), keep, planner.files):
        both = pl.concat([kept, frame.join(tier, on=groups, nulls_equal=True).select(kept.columns)])
        kept = both.filter(place <= pl.col(_QUOTA))
    return kept

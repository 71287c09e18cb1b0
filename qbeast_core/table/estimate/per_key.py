"""Values per key: aggregates over the rows of one key, whose results are the rows of an estimate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.plan.weights import WeightRange
from qbeast_core.sampling.batch import RowSums
from qbeast_core.sampling.sums import WEIGHT, KeySizes, Sums
from qbeast_core.spec.own_column import own_column
from qbeast_core.support.plain_text import excerpt
from qbeast_core.table.data.expressions import evaluating, type_by_row
from qbeast_core.table.estimate.named import refuse
from qbeast_core.table.estimate.task import sums_of
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.reader import Planner, Reader
from qbeast_core.table.read.scan_task import ScanTask

# Prefix of the columns of groups of rows.
_ROW_GROUP: Final = own_column("row_group")


@dataclass(frozen=True, slots=True, eq=False)
class PerKey:
    """The expressions that turn rows into rows of keys; it can be pickled."""

    # Expressions on rows by column name: the key, and groups of rows. Each distinct combination becomes a row.
    keys: Mapping[str, pl.Expr]
    # Aggregates over the rows of a key, by column name.
    values: Mapping[str, pl.Expr]
    # Only rows of keys that match count.
    condition: pl.Expr | None
    # The columns of `keys` and `values`.
    schema: pl.Schema

    @staticmethod
    def of(
        keys: Mapping[str, pl.Expr],
        values: Mapping[str, pl.Expr],
        schema: pl.Schema,
        condition: pl.Expr | None = None,
    ) -> PerKey:
        """Check the expressions."""
        for name in values:
            if name in keys:
                refuse(
                    "per", f"cannot name a value {name!r}: the rows of keys have another column of this name"
                )
        per = PerKey(keys, values, condition, pl.Schema())
        rows = pl.DataFrame(schema=schema).lazy()
        with evaluating(_shown(values), "per"):
            types = per.grouped(rows).collect_schema()
            by_row = rows.select(**values).collect_schema()
        for name, expr in values.items():
            if by_row[name] != types[name]:
                cure = " Use one that has a single value, such as its sum or first."
                refuse(
                    "per",
                    f"must have aggregates, and {name!r}, {excerpt(expr)}, has several values per key",
                    cure,
                )
        return replace(per, schema=types)

    @property
    def columns(self) -> list[str]:
        """Columns of rows that the expressions use."""
        exprs = (*self.keys.values(), *self.values.values())
        return [name for expr in exprs for name in expr.meta.root_names()]

    def grouped(self, rows: pl.LazyFrame, *more: pl.Expr) -> pl.LazyFrame:
        """Return one row for each key."""
        keys = [expr.alias(name) for name, expr in self.keys.items()]
        return rows.group_by(keys).agg(*(expr.alias(name) for name, expr in self.values.items()), *more)

    def grouping_rows(self, groups: Mapping[str, pl.Expr], schema: pl.Schema) -> PerKey:
        """Return the same values for each key and group of its rows."""
        return PerKey.of({**self.keys, **groups}, self.values, schema, self.condition)


def split_groups(
    groups: Mapping[str, pl.Expr], per: PerKey, schema: pl.Schema
) -> tuple[dict[str, pl.Expr], PerKey]:
    """Split groups into groups of keys, which use columns of `per`, and groups of rows, which `per` computes.

    Returns all groups as expressions on the rows of keys, and the values per key with the groups of rows.
    """
    result, of_rows = dict[str, pl.Expr](), dict[str, pl.Expr]()
    for name, expr in groups.items():
        roots = expr.meta.root_names()
        double = [root for root in roots if root in per.values and root in schema]
        if double:
            cure = " Rename the value."
            refuse(
                "by", f"uses {double[0]!r}, which is both a value of `per` and a column of the table", cure
            )
        result[name] = expr
        if all(root in per.schema for root in roots):
            continue
        mixed = [root for root in roots if root in per.values]
        if mixed:
            cure = " Group by two expressions, or make the column a value of `per`."
            refuse("by", f"combines {mixed[0]!r}, a value per key, with columns of rows in {name!r}", cure)
        type_by_row(expr, schema, argument="by")
        column = f"{_ROW_GROUP}{len(of_rows)}"
        of_rows[column], result[name] = expr, pl.col(column)
    return result, per.grouping_rows(of_rows, schema) if of_rows else per


def key_of(reader: Reader, argument: str) -> tuple[str, ...]:
    """Return the columns of the key; raise if samples of the table do not hold all rows of their keys."""
    if not reader.hashed:
        cure = ' Pass sample_by=["user"] to name the key and read all rows.'
        refuse(argument, "needs a key, and the table has neither an index nor a sampling key", cure)
    if reader.hashes_differ:
        key = list(reader.hashed)
        cure = f" Call Table.optimize(full=True), or pass sample_by={key} to read all rows."
        refuse(argument, f"needs samples by {key}, and files of older revisions are sampled by others", cure)
    return reader.hashed


def refuse_split_keys(key: Sequence[str], keys: Collection[pl.Expr]) -> None:
    """Reject an inner query whose groups hold only some rows of a key, or rows of several keys."""
    missing = [name for name in key if not any(expr.meta.eq(pl.col(name)) for expr in keys)]
    if missing:
        refuse(
            "aggregates",
            f"has an inner query that does not group by {missing}; samples hold all rows of {list(key)}, so its "
            "GROUP BY must contain these columns",
        )


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The rows of a range of weights need more memory than the limit."""

    size_bytes: int
    max_bytes: int
    # The weight of more than half of the rows that were read, if there is one.
    weight: int | None


def gathered(frames: Iterable[pl.DataFrame], max_bytes: int) -> tuple[int, pl.DataFrame | TooLarge]:
    """Return the number of rows of some frames, and all of them, unless they need more memory than `max_bytes`."""
    parts, rows, size_bytes = list[pl.DataFrame](), 0, 0
    for frame in frames:
        parts.append(frame)
        rows += frame.height
        size_bytes += int(frame.estimated_size())
        if size_bytes > max_bytes:
            return rows, TooLarge(size_bytes, max_bytes, _main_weight(parts))
    return rows, pl.concat(parts) if parts else pl.DataFrame()


def _main_weight(frames: Sequence[pl.DataFrame]) -> int | None:
    """Return the weight of more than half of the rows, if there is one."""
    if WEIGHT not in frames[0].columns:
        return None
    weights = pl.concat([frame[WEIGHT] for frame in frames])
    middle = int(weights.quantile(0.5, "lower") or 0)
    return middle if 2 * (weights == middle).sum() > len(weights) else None


def split_plan(plan: Plan, planner: Planner, parts: int) -> list[Plan]:
    """Split the read of all rows of keys into ranges of weights of equal width."""
    if parts <= 1:
        return [plan]
    weights = plan.scan_plan.weights
    edges = np.linspace(weights.from_, weights.to, parts + 1).round().astype(np.int64)
    return _within(plan, planner, edges.tolist())


def narrower_plans(plan: Plan, planner: Planner, large: TooLarge) -> list[Plan]:
    """Split a range in halves, or before and after a key with most of the rows."""
    weights, key = plan.scan_plan.weights, large.weight
    if weights.to - weights.from_ == 1:
        msg = (
            f"the rows of one key need {large.size_bytes:,} bytes of memory or more, and the limit for rows is "
            f"{large.max_bytes:,}. Increase `memory_bytes`, or select fewer rows by `where`"
        )
        raise InvalidInputError(msg, argument="memory_bytes")
    inner = [(weights.from_ + weights.to) // 2] if key is None else [key, key + 1]
    return _within(plan, planner, sorted({weights.from_, *inner, weights.to}))


def _within(plan: Plan, planner: Planner, edges: Sequence[int]) -> list[Plan]:
    """Split a read at these weights; parts that open no file are left out."""
    whole, parts = plan.scan_plan, list[Plan]()
    for weights in (WeightRange(*ends) for ends in pairwise(edges)):
        if whole.keys is not None and whole.keys.only:
            keys = whole.keys.weights
            part = planner.of_keys(keys[(keys >= weights.from_) & (keys <= weights.last)])
            part = replace(part, weights=weights)
        else:
            part = replace(planner.within(weights), keys=whole.keys)
        opened = part.selection.opened & whole.selection.opened
        part = replace(part, selection=replace(part.selection, opened=opened))
        if opened.any():
            parts.append(replace(plan, scan_plan=part))
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class RangeSums:
    """The function that `Engine.map` calls with the read of all rows of some keys."""

    per: PerKey
    # The conditions and joins of rows.
    row_sums: RowSums
    # The sums of the rows of keys.
    key_sums: RowSums
    # Whether keys are sampled: the sums then have entries by key.
    by_key: bool
    max_bytes: int

    def __call__(self, task: ScanTask) -> tuple[int, Sums | TooLarge]:
        """Read a task; return the number of its rows, and the sums of their keys."""
        rows, frame = gathered(task.read(), self.max_bytes)
        return rows, frame if isinstance(frame, TooLarge) else self.sums(frame)

    def keys(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return one row for each key of some rows; an error names the failing expression."""
        weight = [pl.col(WEIGHT).first()] if WEIGHT in frame.columns else []
        kept = self.row_sums.kept(frame.lazy())
        try:
            return self.per.grouped(kept, *weight).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            with evaluating(self.row_sums.condition, "where"):
                rows = kept.collect().lazy()
            with evaluating(_shown(self.per.values), "per"):
                self.per.grouped(rows).collect()
            raise

    def sums(self, frame: pl.DataFrame) -> Sums:
        """Return the sums of all rows of some keys."""
        keys = self.keys(frame)
        if not self.by_key:
            return sums_of(self.key_sums, keys.drop(WEIGHT, strict=False), sizes=False)
        # All rows of sampled keys are compared with the log.
        sizes = KeySizes(frame[WEIGHT].to_numpy()).by_key()
        return replace(sums_of(self.key_sums, keys, sizes=False), sizes=sizes)


def _shown(values: Mapping[str, pl.Expr]) -> str:
    return ", ".join(f"{name}={expr}" for name, expr in values.items())

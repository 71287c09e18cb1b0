"""Sum a part of a read by key, in any process: expressions by name, and values per key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.nodes import named_columns
from qbeast_core.sampling.sums import WEIGHT, KeySizes, RowSums, Sums
from qbeast_core.support.frames import own_column
from qbeast_core.support.text import excerpt
from qbeast_core.table.data.expressions import evaluating, type_by_row
from qbeast_core.table.read.tasks import ScanTask

# Prefix of the columns of groups of rows.
_ROW_GROUP: Final = own_column("row_group")

# Expressions or SQL texts: one, several in a list, or several by name.
Expressions: TypeAlias = pl.Expr | str | Sequence[pl.Expr | str] | Mapping[str, pl.Expr | str]


def named_expressions(
    expressions: object, name: str, parse: Callable[[str], Mapping[str, pl.Expr]]
) -> dict[str, pl.Expr]:
    """Return expressions by name, in order.

    Without a mapping, the name of an expression is its output name in Polars; the name of SQL is its text or alias.

    >>> expressions = named_expressions([pl.col("a").sum(), pl.len().alias("n")], "aggregates", lambda text: {})
    >>> {name: str(expr) for name, expr in expressions.items()}
    {'a': 'col("a").sum()', 'n': 'len().alias("n")'}
    """
    result: dict[str, pl.Expr] = {}
    for alias, item in _items(expressions, name):
        if not isinstance(alias, str | None) or not isinstance(item, str | pl.Expr):
            refuse(name, f"takes Polars expressions or SQL texts, by names, not {item!r}")
        parts = (
            parse(item) if isinstance(item, str) else {_name_of(item, name) if alias is None else alias: item}
        )
        if alias is not None and len(parts) != 1:
            refuse(name, f"takes one expression for the name {alias!r}, and {item!r} has several")
        duplicates = [part for part in parts if part in result]
        if duplicates:
            refuse(name, f"has two expressions named {duplicates[0]!r}; use a mapping with different names")
        result |= parts if alias is None else dict.fromkeys([alias], *parts.values())
    return result


def _items(expressions: object, name: str) -> Iterable[tuple[object, object]]:
    if isinstance(expressions, Mapping):
        return cast("Mapping[object, object]", expressions).items()
    if isinstance(expressions, str | pl.Expr):
        return [(None, expressions)]
    if isinstance(expressions, Sequence):
        return [(None, item) for item in cast("Sequence[object]", expressions)]
    what = f"takes Polars expressions or SQL texts: one, a list, or a mapping of names, not {expressions!r}"
    return refuse(name, what)


def _name_of(expr: pl.Expr, name: str) -> str:
    alias = None if expr.meta.has_multiple_outputs() else expr.meta.output_name(raise_if_undetermined=False)
    if alias is None:
        refuse(name, f"takes expressions of one column each, not {excerpt(expr)}; use a list")
    return alias


def refuse(name: str, what: str, cure: str = "") -> NoReturn:
    """Refuse an argument before anything is read."""
    msg = f"`{name}` {what}{cure and '.'}{cure}"
    raise InvalidInputError(msg, argument=name)


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
        with evaluating(per.text, "per"):
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
        return named_columns(*self.keys.values(), *self.values.values())

    @property
    def text(self) -> str:
        """The values, for errors."""
        return ", ".join(f"{name}={expr}" for name, expr in self.values.items())

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
        roots = named_columns(expr)
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


def refuse_split_keys(key: Sequence[str], keys: Collection[pl.Expr]) -> None:
    """Reject an inner query whose groups hold only some rows of a key, or rows of several keys."""
    missing = [name for name in key if not any(expr.meta.eq(pl.col(name)) for expr in keys)]
    if missing:
        refuse(
            "aggregates",
            f"has an inner query that does not group by {missing}; samples hold all rows of {list(key)}, so its "
            "GROUP BY must contain these columns",
        )


def sums_of_task(task: ScanTask, *, row_sums: RowSums, sizes: bool) -> tuple[int, Sums]:
    """Read a task; return the number of its rows, and their sums. `sizes`: also of rows that do not match."""
    rows, parts = 0, list[Sums]()
    for frame in task.read():
        rows += frame.height
        parts += (sums_of(row_sums, piece, sizes=sizes) for piece in row_sums.pieces(frame))
    return rows, Sums.concat(parts, row_sums.by).by_key(row_sums.by)


def sums_of(row_sums: RowSums, frame: pl.DataFrame, *, sizes: bool) -> Sums:
    """Return the sums of a batch; an error names the failing expression."""
    try:
        return row_sums.of(frame, sizes=sizes)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        with evaluating(row_sums.condition, "where"):
            kept = row_sums.kept(frame.lazy()).collect()
        for argument, expressions in (
            ("by", row_sums.groups.values()),
            ("aggregates", (*row_sums.totals, *row_sums.quantiles)),
        ):
            for expr in expressions:
                with evaluating(expr, argument):
                    kept.with_columns(**row_sums.centres).select(expr)
        raise


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
            with evaluating(self.per.text, "per"):
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

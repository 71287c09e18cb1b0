"""Scan a snapshot as a Polars LazyFrame: projection, filter, limit and sample are pushed down to pages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import EmptySampleWarning, InvalidInputError
from qbeast_core.query.plan.fractions import Sample, fractions_of, sample_to_weights
from qbeast_core.spec.own_column import own_column
from qbeast_core.support.runtime import caller_stacklevel
from qbeast_core.table.read.heights import heights
from qbeast_core.table.read.reader import Reader, ScanPlan, tell_of_read
from qbeast_core.table.read.scan_task import read_parts
from qbeast_core.table.read.split_scan import all_parts

_Source: TypeAlias = Callable[
    [list[str] | None, pl.Expr | None, int | None, int | None], Iterator[pl.DataFrame]
]

# The column with the number of rows that a sampled row stands for: 1 over the probability to be in the
# sample.
SAMPLING_WEIGHT: Final = "sampling_weight"

# Columns that stand before those of the table where Polars looks; no query sees them.
_HIDDEN: Final = (own_column("rows"), own_column("never"))

# Rows; of so many independent rows none is left out once in half a billion samples.
_MIN_EXPECTED: Final = 20


def scan(reader: Reader, sample: Sample | None = None, *, expand: bool = False) -> pl.LazyFrame:
    """Return the snapshot as a LazyFrame."""
    if sample is not None:
        # A wrong sample fails here, not when the frame is collected.
        warn_if_empty(reader, sample, reader.plan(None, sample))

    lazy = _counting(reader, sample)
    if not expand:
        return lazy
    return lazy.with_columns(pl.lit(sampling_weight(reader, sample), pl.Float64).alias(SAMPLING_WEIGHT))


def sampling_weight(reader: Reader, sample: Sample | None) -> float:
    """Return how many rows each row of a sample stands for."""
    if SAMPLING_WEIGHT in reader.snapshot.schema:
        msg = f"expand adds a column {SAMPLING_WEIGHT!r}, and the table has one; nothing was read"
        raise InvalidInputError(msg, argument="expand")
    probability = 1.0 if sample is None else sample_to_weights(sample).probability
    return 1.0 / (probability or 1.0)


def _counting(reader: Reader, sample: Sample | None) -> pl.LazyFrame:
    """Return all rows as a LazyFrame that lets this module see when nothing but their number is asked for.

    Polars asks for the first column where it needs none, and hands no sign of it. Here the first one is a column that
    no query can name, so it is asked for then and only then, beside columns of the filter at most. The second one
    keeps what is asked for from being all columns, for which Polars gives no list.
    """
    shown = pl.Schema({**dict.fromkeys(_HIDDEN, pl.Null()), **reader.snapshot.schema})
    return lazy_frame(partial(_rows_or_heights, reader, sample), shown).drop(_HIDDEN)


def _rows_or_heights(  # noqa: PLR0917 -- as Polars calls it
    reader: Reader,
    sample: Sample | None,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    size: int | None,
) -> Iterator[pl.DataFrame]:
    """Read as Polars asks for rows with hidden columns before them, or count them where it needs their number."""
    filtered = [] if predicate is None else predicate.meta.root_names()
    if (
        with_columns is not None
        and _HIDDEN[0] in with_columns
        and set(with_columns) <= {_HIDDEN[0], *filtered}
    ):
        yield from _nulls(reader, with_columns, heights(reader, predicate, sample), n_rows)
        return
    wanted = [*_HIDDEN, *reader.snapshot.schema] if with_columns is None else with_columns
    shown = [name for name in wanted if name not in _HIDDEN]
    for frame in _rows(reader, sample, shown, predicate, n_rows, size):
        missing = [pl.lit(None).alias(name) for name in wanted if name in _HIDDEN]
        yield frame.with_columns(missing).select(wanted) if missing else frame


def _rows(
    reader: Reader,
    sample: Sample | None,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _: int | None,
) -> Iterator[pl.DataFrame]:
    """Read as Polars asks for rows."""
    wanted = list(reader.snapshot.schema) if with_columns is None else with_columns
    return _read_rows(reader, wanted, predicate=predicate, sample=sample, limit=n_rows)


def _nulls(
    reader: Reader, columns: list[str], counts: Iterator[int], limit: int | None
) -> Iterator[pl.DataFrame]:
    """Yield frames of so many rows whose values nobody looks at; they take no memory."""
    left = limit
    for count in counts:
        rows = count if left is None else min(count, left)
        frame = pl.DataFrame({_HIDDEN[0]: pl.repeat(None, rows, dtype=pl.Null, eager=True)})
        types = {name: reader.snapshot.schema[name] for name in columns if name not in _HIDDEN}
        yield frame.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in types.items()).select(
            columns
        )
        left = None if left is None else left - rows
        if left == 0:
            return


class _Scan:
    """What `register_io_source` puts between Polars and a source; that is a closure, which does not pickle."""

    def __init__(self, source: _Source) -> None:
        self.io_source = source

    def __call__(
        self, with_columns: list[str] | None, predicate: bytes | None, n_rows: int | None, size: int | None
    ) -> tuple[Iterator[pl.DataFrame], bool]:
        given, understood = None, True
        if predicate:
            try:
                given = pl.Expr.deserialize(predicate)
            except (pl.exceptions.PolarsError, ImportError, AttributeError, TypeError, ValueError):
                understood = False  # a function of the user's: Polars filters then
        return self.io_source(with_columns, given, n_rows, size), understood


def lazy_frame(source: _Source, schema: pl.Schema) -> pl.LazyFrame:
    """Return a LazyFrame of rows that a function gives, as Polars asks for them."""
    scan_function = getattr(pl.LazyFrame, "_scan_python_function", None)
    if (
        scan_function is None
    ):  # not of Polars' public interface; without it all is as it should but for pickles
        return register_io_source(source, schema=schema, is_pure=True)
    lazy: pl.LazyFrame = scan_function(schema=schema, scan_fn=_Scan(source), is_pure=True)
    return lazy


def pushed_down(
    schema: pl.Schema, predicate: pl.Expr | None, columns: Sequence[str] | None
) -> tuple[pl.Expr | None, list[str]]:
    """Return what of a filter and a choice of columns reaches `_read_rows` through Polars' optimizer.

    Polars keeps to itself what can fail (a strict cast), and reads the columns for it.

    >>> schema = pl.Schema({"x": pl.Int64, "y": pl.String, "z": pl.String})
    >>> given, columns = pushed_down(schema, (pl.col("x") > 1) & (pl.col("y").cast(pl.Int8) > 2), ["x"])
    >>> str(given), columns
    ('[(col("x")) > (1)]', ['x', 'y'])
    """
    asked: list[tuple[pl.Expr | None, list[str]]] = []

    def source(
        with_columns: list[str] | None, given: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema) if with_columns is None else with_columns
        asked.append((given, wanted))
        yield pl.DataFrame(schema={name: schema[name] for name in wanted})

    lazy = register_io_source(source, schema=schema, is_pure=True)
    kept = lazy if predicate is None else lazy.filter(predicate)
    (kept if columns is None else kept.select(columns)).collect()
    return asked[0] if asked else (pl.lit(value=False), list(columns or schema))


def warn_if_empty(reader: Reader, sample: Sample | None, plan: ScanPlan | None = None) -> None:
    """Warn when the index alone tells that a sample holds no row, and many were to be expected.

    Nothing is read: a sample that begins at 0 is empty where no block begins below its end. Of files without index
    nothing is known, so no warning is given.
    """
    if sample is None:
        return
    first, last = fractions_of(sample)
    rows = reader.snapshot.counted_rows
    expected = (last - first) * rows
    if expected < _MIN_EXPECTED or (plan or reader.plan(None, sample)).selection.opened.any():
        return
    message = (
        f"the sample {sample} of {reader.snapshot.uri!r} holds no row, where about {expected:,.0f} of {rows:,} were to "
        f"be expected: rows with equal values of {list(reader.indexed)} enter a sample together (cluster sampling), "
        "and such values are few. Take a larger sample, or index a column of many values as well in a new table."
    )
    warnings.warn(message, EmptySampleWarning, stacklevel=caller_stacklevel())


def _read_rows(
    reader: Reader,
    columns: list[str],
    *,
    predicate: pl.Expr | None = None,
    sample: Sample | None = None,
    limit: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield exactly the rows that filter and sample keep, in frames of bounded size."""
    plan = reader.plan(predicate, sample)
    tell_of_read(reader, plan, sample)
    left = limit
    yielded = False
    for frame in read_parts(
        all_parts(reader, plan), reader.row_filter(plan, columns), reader.files, limit=limit
    ):
        cut = frame if left is None else frame.head(left)
        if cut.height or not yielded:
            yielded = True
            yield cut
        if left is not None:
            left -= cut.height
            if left <= 0:
                return
    if not yielded:
        yield pl.DataFrame(schema={name: reader.snapshot.schema[name] for name in columns})

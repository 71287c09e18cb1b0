"""The types of columns of CSV: inferred from some rows, and checked against all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

_SAMPLED_ROWS: Final = 10_000

# Polars infers types value by value, with regular expressions: that takes ten times as long as to read the rows.


def scan_typed(
    scan: Callable[..., pl.LazyFrame],
    known: Mapping[str, pl.DataType],
    step: Callable[[], None] = lambda: None,
) -> pl.LazyFrame:
    """Return the rows of CSV. Types that are not known are those that Polars infers from all values.

    They are inferred from rows that are spread over the file. If a value of a column does not have its type, the type
    is inferred from all values. `scan` is called with options of `polars.scan_csv`; `step` before each pass.
    """
    texts = scan(infer_schema=False)
    names = [name for name in texts.collect_schema() if name not in known]
    if not names:
        return scan(infer_schema=False, schema_overrides=known)
    try:
        types = _sampled_types(texts.select(names), names, step)
        step()
        unfit = _unfit(scan, texts.select(names), {**known, **types}, names)
    except pl.exceptions.PolarsError:  # such as lines that do not fit: reading all rows reports them
        types, unfit = {}, set(names)
    types = {name: dtype for name, dtype in types.items() if name not in unfit}
    if unfit:
        step()
        inferred = scan(infer_schema_length=None, schema_overrides={**known, **types}).collect_schema()
        types |= {name: inferred[name] for name in unfit}
    return scan(infer_schema=False, schema_overrides={**known, **types})


def _sampled_types(texts: pl.LazyFrame, names: list[str], step: Callable[[], None]) -> dict[str, pl.DataType]:
    step()
    rows = int(texts.select(pl.len()).collect(engine="streaming").item())
    sample = texts.gather_every(max(rows // _SAMPLED_ROWS, 1)).collect(engine="streaming")
    types = dict(_inferred(sample))
    for name in names:
        if sample[name].null_count() == sample.height:  # a column with few values
            few = texts.select(name).drop_nulls().head(_SAMPLED_ROWS).collect(engine="streaming")
            types |= dict(_inferred(few))
    return types


def _inferred(texts: pl.DataFrame) -> pl.Schema:
    """Return the types that Polars infers from all of these texts."""
    if not texts.height:
        return texts.schema
    text = texts.write_csv().encode()
    return pl.read_csv(text, infer_schema_length=None, try_parse_dates=True).schema


def _unfit(
    scan: Callable[..., pl.LazyFrame], texts: pl.LazyFrame, types: Mapping[str, pl.DataType], names: list[str]
) -> set[str]:
    """Return the columns in which a value does not have its type."""
    typed = scan(infer_schema=False, schema_overrides=types, ignore_errors=True).select(names)
    mixed = [_is_mixed(name, types[name]).any() for name in names]
    parts = pl.struct(pl.all().null_count()).alias("missing"), pl.struct(mixed).alias("mixed")
    found = texts.select(parts).collect(engine="streaming").row(0, named=True)
    missing = typed.select(pl.all().null_count()).collect(engine="streaming").row(0, named=True)
    return {name for name in names if found["mixed"][name] or found["missing"][name] != missing[name]}


def _is_mixed(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return whether a value fits the type, but alone has one that Polars does not join with it, such as a date."""
    text = pl.col(name)
    if isinstance(dtype, pl.Datetime):
        return ~text.str.contains(":", literal=True)
    if dtype == pl.Float64:  # a whole number beyond 64 bits
        return (text.str.len_bytes() > 18) & ~text.str.contains(".", literal=True)
    return pl.lit(value=False).alias(name)

"""A task before a merge: it matches the rows of files with those of the source."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.own_column import own_column
from qbeast_core.table.dml.count_rows import AT_ONCE
from qbeast_core.table.dml.merge.clauses import Clauses, MergeConditions
from qbeast_core.table.read.scan_task import FileParts, RowFilter, TableFiles, read_parts

# Name of a column that numbers the rows of the table that are looked at.
ROW: Final = own_column("row")

# Name of a column that numbers the rows of the source.
SOURCE_ROW: Final = own_column("source_row")

_FILE: Final = own_column("file")
_SAME: Final = own_column("same")
_FATE: Final = own_column("is_updated")


@dataclass(frozen=True, slots=True, eq=False)
class MatchRows:
    """Matches the rows of some files with those of a source."""

    files: TableFiles = field(repr=False)
    # The keys, and what the conditions look at.
    keep: RowFilter
    source: pl.DataFrame = field(repr=False)
    clauses: Clauses
    conditions: MergeConditions

    def __call__(self, parts: Sequence[FileParts]) -> tuple[I64Array, I64Array]:
        """Return the source rows that match, and per file the rows updated, deleted, and deleted without a match."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            frames = list(pool.map(self._read, range(len(parts)), parts))
        rows = pl.concat(frames).with_row_index(ROW)
        verdict = judge(rows, self.source, self.clauses, self.conditions)
        fates = (verdict.updated, verdict.deleted, verdict.not_matched)
        counts = [np.bincount(fate[_FILE].to_numpy(), minlength=len(parts)) for fate in fates]
        return verdict.matched.to_numpy(), np.array(counts)

    def _read(self, number: int, parts: FileParts) -> pl.DataFrame:
        rows = pl.concat(list(read_parts(parts, self.keep, self.files)))
        return rows.with_columns(pl.lit(number, dtype=pl.Int64).alias(_FILE))


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The fates of some rows of the table."""

    # Those that change, each with the row of the source that it matches.
    updated: pl.DataFrame
    # Those that match and go, and those that go because they do not match.
    deleted: pl.DataFrame
    not_matched: pl.DataFrame
    # Numbers of the rows of the source that match here.
    matched: pl.Series


def judge(rows: pl.DataFrame, source: pl.DataFrame, clauses: Clauses, conditions: MergeConditions) -> Verdict:
    """Decide about rows."""
    keys = list(clauses.keys)
    pairs = _join_keys(rows, source, keys, how="inner", maintain_order="left_right")
    goes = pl.repeat(clauses.when_matched == "delete", pairs.height, dtype=pl.Boolean, eager=True)
    if conditions.delete is not None:
        goes = conditions.delete.mask(pairs)
    acts = conditions.matched.mask(pairs)
    if clauses.when_matched != "delete":
        acts = (acts | goes) & (clauses.when_matched == "update")
    acting = pairs.with_columns((~goes).alias(_FATE)).filter(acts)
    if clauses.when_matched == "delete":
        acting = acting.unique(ROW, keep="first", maintain_order=True)
    _refuse_several(acting, keys)
    not_matched = rows.clear()
    if clauses.when_not_matched_by_source == "delete":
        alone = _join_keys(rows, source, keys, how="anti", maintain_order="left")
        not_matched = alone.filter(conditions.not_matched.mask(alone))
    updated = acting.filter(_FATE).drop(_FATE)
    return Verdict(updated, acting.filter(~pl.col(_FATE)), not_matched, pairs[SOURCE_ROW].unique())


def _join_keys(
    rows: pl.DataFrame,
    others: pl.DataFrame,
    keys: Sequence[str],
    *,
    how: Literal["inner", "anti"],
    maintain_order: Literal["none", "left", "left_right"] = "none",
) -> pl.DataFrame:
    """Join rows where all keys are equal: a null equals nothing, NaN equals NaN, and 0.0 equals -0.0.

    >>> nan = pl.DataFrame({"a": [float("nan")]})
    >>> _join_keys(nan, nan, ["a"], how="inner").height
    1
    """
    if len(keys) > 1 or not rows.schema[keys[0]].is_float():
        return rows.join(others, on=keys, how=how, maintain_order=maintain_order)
    # A single key, of one row on either side, is compared in another way by Polars (2.1), which finds no NaN.
    same = pl.lit(value=True).alias(_SAME)
    joined = rows.with_columns(same).join(
        others.with_columns(same), on=[*keys, _SAME], how=how, maintain_order=maintain_order
    )
    return joined.drop(_SAME)


def join_source(
    source: pl.DataFrame, keys: pl.DataFrame, on: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows of the source once for each of the keys they match, with its other columns; and the rest of them."""
    numbered = source.with_row_index(SOURCE_ROW)
    pairs = _join_keys(numbered, keys, on, how="inner")
    matched = pairs.select(SOURCE_ROW).unique()
    rest = numbered.join(matched, on=SOURCE_ROW, how="anti", maintain_order="left")
    return pairs.drop(SOURCE_ROW), rest.drop(SOURCE_ROW)


def _refuse_several(acting: pl.DataFrame, keys: list[str]) -> None:
    again = acting.filter(pl.col(ROW).is_duplicated())
    if again.height:
        example = again.select(keys).row(0, named=True)
        msg = (
            f"{again[ROW].n_unique()} or more rows of the table match several rows of the source that would change "
            f"them, for example {example}; nothing was changed. Leave one row of a key in the source."
        )
        raise InvalidInputError(msg, argument="source")

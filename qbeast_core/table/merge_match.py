"""Match rows of a table with those of a source: which change, which go, and which of the source are new."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.nodes import Unknown, any_of
from qbeast_core.query.predicate import parse_predicate
from qbeast_core.query.select import select
from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.dml_match import UNKNOWN, Matches, live_rows, read_one
from qbeast_core.table.merge_clauses import Clauses, MergeConditions
from qbeast_core.table.merge_source import SOURCE_ROW, Source
from qbeast_core.table.reader import Job, Reader

__all__ = ["ROW", "Found", "Verdict", "judge", "match_files"]

ROW: Final = "__qbeast_row"
"""Name of a column that numbers the rows of the table that are looked at."""

_FILE: Final = "__qbeast_file"
_AT_ONCE: Final = 8
_ROWS_AT_ONCE: Final = 1 << 22
_FATE: Final = "__qbeast_is_updated"


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What becomes of some rows of the table.

    Attributes
    ----------
    updated : polars.DataFrame
        Those that change, each with its partner.
    deleted, lonely : polars.DataFrame
        Those that go, with a partner and without one.
    matched : polars.Series
        Numbers of the rows of the source that have a partner here.
    """

    updated: pl.DataFrame
    deleted: pl.DataFrame
    lonely: pl.DataFrame
    matched: pl.Series


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a merge finds in a version.

    Attributes
    ----------
    matches : Matches
        Files with rows that change or go.
    matched : ndarray of bool, shape (source rows,)
        Rows of the source that have a partner, to be changed or not.
    updated, deleted, lonely : ndarray of int64, shape (files,)
        Rows of each file of `matches` that change, that go with a partner, and that go without one.
    """

    matches: Matches
    matched: BoolArray
    updated: I64Array
    deleted: I64Array
    lonely: I64Array


def judge(
    rows: pl.DataFrame, partners: pl.DataFrame, clauses: Clauses, conditions: MergeConditions
) -> Verdict:
    """Decide about rows.

    Parameters
    ----------
    rows : polars.DataFrame
        Of the table, numbered by `ROW`: the keys, and what the conditions look at.
    partners : polars.DataFrame
        Of the source, see `Source.partners`.
    clauses, conditions : Clauses, MergeConditions
        What to do.

    Raises
    ------
    InvalidInputError
        A row would be changed by several rows of the source.
    """
    keys = list(clauses.keys)
    pairs = rows.join(partners, on=keys, how="inner", maintain_order="left_right")
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
    lonely = rows.clear()
    if clauses.when_not_matched_by_source == "delete":
        alone = rows.join(partners, on=keys, how="anti", maintain_order="left")
        lonely = alone.filter(conditions.lonely.mask(alone))
    updated = acting.filter(_FATE).drop(_FATE)
    return Verdict(updated, acting.filter(~pl.col(_FATE)), lonely, pairs[SOURCE_ROW].unique())


def _refuse_several(acting: pl.DataFrame, keys: list[str]) -> None:
    again = acting.filter(pl.col(ROW).is_duplicated())
    if again.height:
        example = again.select(keys).row(0, named=True)
        msg = (
            f"{again[ROW].n_unique()} or more rows of the table have several partners in the source that would change "
            f"them, for example {example}; nothing was changed. Leave one row of a key in the source."
        )
        raise InvalidInputError(msg, argument="source")


def match_files(
    reader: Reader,
    source: Source,
    clauses: Clauses,
    conditions: MergeConditions,
    *,
    among: BoolArray | None = None,
) -> Found:
    """Match the rows of a version with a source.

    Of files that can hold no row to look at, by statistics or cubes, nothing is read; of the others the keys and
    what the conditions look at.

    Parameters
    ----------
    reader : Reader
        Of the version.
    source : Source
        Rows to merge.
    clauses, conditions : Clauses, MergeConditions
        What to do.
    among : ndarray of bool, shape (files,), optional
        Files to look at; all by default.

    Raises
    ------
    InvalidInputError
        A row would be changed by several rows of the source.
    """
    live = live_rows(reader)
    job = _job(reader, source, clauses, conditions)
    files = np.flatnonzero(job.selection.opened & (True if among is None else among))
    columns = list(dict.fromkeys([*clauses.keys, *conditions.columns_of_rows(reader.snapshot.schema)]))
    partners = source.partners(whole=conditions.looks_at(source.name))
    matched = np.zeros(source.frame.height, np.bool_)
    counts = np.zeros((3, len(live)), np.int64)
    for part in _parts(files, live):
        verdict = judge(_rows(reader, job, part, columns), partners, clauses, conditions)
        matched[verdict.matched.to_numpy()] = True
        for fate, rows in enumerate((verdict.updated, verdict.deleted, verdict.lonely)):
            counts[fate] += np.bincount(rows[_FILE].to_numpy(), minlength=len(live))
    touched = np.flatnonzero(counts.sum(axis=0))
    matches = Matches(touched, counts[:, touched].sum(axis=0), live[touched])
    return Found(matches, matched, *counts[:, touched])


def _job(reader: Reader, source: Source, clauses: Clauses, conditions: MergeConditions) -> Job:
    """Plan what to open: what can hold partners, and what can hold rows that go for want of one."""
    schema = reader.snapshot.schema
    nodes = [source.node(schema)]
    if clauses.when_not_matched_by_source == "delete":
        lonely = conditions.lonely
        nodes.append(Unknown() if lonely.constant else parse_predicate(lonely.expr, schema))
    return Job(select(reader.blocks, any_of(nodes), ALL_WEIGHTS), ALL_WEIGHTS, None)


def _parts(files: I64Array, live: I64Array) -> Iterator[I64Array]:
    """Cut files into parts of so many rows that joining them is worth the while, and that fit in memory."""
    rows = np.where(live[files] == UNKNOWN, _ROWS_AT_ONCE, live[files])
    cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(rows) - 1, 0) // _ROWS_AT_ONCE)) + 1
    yield from (part for part in np.split(files, cuts) if len(part))


def _rows(reader: Reader, job: Job, files: I64Array, columns: list[str]) -> pl.DataFrame:
    """Read some columns of files, numbered by row and by file."""

    def read(number: int) -> pl.DataFrame:
        return pl.concat(read_one(reader, job, number, columns)).with_columns(
            pl.lit(number, dtype=pl.Int64).alias(_FILE)
        )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        frames = list(pool.map(read, files.tolist()))
    return pl.concat(frames).with_row_index(ROW)

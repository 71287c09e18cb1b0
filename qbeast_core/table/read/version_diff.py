"""The net changes between two versions, by a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import polars as pl

from qbeast_core.errors import InvalidInputError, VersionNotFoundError, invalid_argument, unknown_columns
from qbeast_core.log.actions import AddFile, RemoveFile
from qbeast_core.log.values import removes_of
from qbeast_core.table.data.schema import CHANGE_TYPE, FEED_COLUMNS
from qbeast_core.table.read.changed_files import ChangeReader, CommitChanges
from qbeast_core.table.read.changes import change_reader, commits_between, shown_rows
from qbeast_core.table.read.net_rows import SignedRows, net_rows
from qbeast_core.table.read.scan import lazy_frame
from qbeast_core.table.snapshot.snapshot import Snapshot


def diff_of(old: Snapshot, new: Snapshot, key: str | Sequence[str]) -> pl.LazyFrame:
    """Return the net changes between two versions, in the columns of `new`; see `Table.diff`."""
    keys = [key] if isinstance(key, str) else list(key)
    if not keys or len(set(keys)) < len(keys):
        invalid_argument("key", "must name one column or several, each once", value=key)
    unknown = [name for name in keys if name not in new.schema]
    if unknown:
        unknown_columns("key", unknown, new.schema)
    diff = _VersionDiff(old, new, change_reader(new), keys)
    return lazy_frame(diff.rows, diff.schema)


@dataclass(frozen=True, slots=True, eq=False)
class _VersionDiff:
    old: Snapshot
    new: Snapshot
    reader: ChangeReader
    keys: list[str]

    @property
    def schema(self) -> pl.Schema:
        return pl.Schema({**self.new.schema, CHANGE_TYPE: FEED_COLUMNS[CHANGE_TYPE]})

    def rows(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        _size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Compute the net changes for Polars."""
        commits, sign = self._cheaper()

        def read() -> Iterator[SignedRows]:
            for commit in commits:
                for side, rows in self.reader.signed(commit):
                    yield sign * side, rows

        sides = {side: [self.new.schema.to_frame()] for side in (-1, 1)}
        for side, rows in net_rows(read):
            sides[side].append(rows)
        found = _by_key(pl.concat(sides[-1]), pl.concat(sides[1]), self.keys)
        names = list(self.schema) if with_columns is None else with_columns
        yield from shown_rows(iter([found]), names, predicate, n_rows)

    def _cheaper(self) -> tuple[list[CommitChanges], int]:
        """Return what to read: the commits between the versions, or the files that only one of them has.

        -1: the commits lead from the new version back to the old one.
        """
        files = _different_files(self.old, self.new)
        first, last, sign = self.old, self.new, 1
        if first.version > last.version:
            first, last, sign = last, first, -1
        with suppress(VersionNotFoundError):
            commits = commits_between(last, first.version, None)
            if sum(commit.size_bytes for commit in commits) < files.size_bytes:
                return commits, sign
        return [files], 1


def _different_files(old: Snapshot, new: Snapshot) -> CommitChanges:
    """Return the files that only one version has, as if one commit had removed and added them."""
    removes, adds = (
        removes_of(_files_without(version, other), version.columns, data_change=True)
        for version, other in ((old, new), (new, old))
    )
    return CommitChanges(
        version=new.version,
        timestamp_ms=new.timestamp_ms,
        operation=None,
        removes=removes,
        adds=tuple(map(_as_add, adds)),
    )


def _files_without(version: Snapshot, other: Snapshot) -> pl.DataFrame:
    key = ["path", "deletion_vector"]
    return version.files.join(
        other.files.select(key), on=key, how="anti", nulls_equal=True, maintain_order="left"
    )


def _as_add(file: RemoveFile) -> AddFile:
    return AddFile(
        path=file.path,
        size=file.size or 0,
        modification_time=0,
        partition_values=file.partition_values or {},
        deletion_vector=file.deletion_vector,
    )


def _by_key(removed: pl.DataFrame, added: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return removed and added rows with their kinds: rows of one key are an update."""
    for rows in (removed, added):
        doubled = rows.filter(pl.struct(keys).is_duplicated())
        if doubled.height:
            example = doubled.select(keys).row(0, named=True)
            msg = f"`key` {keys} does not identify rows: several changed rows have the key {example}"
            raise InvalidInputError(msg, argument="key", value=keys)
    parts: list[pl.DataFrame] = []
    for rows, others, alone, updated in (
        (removed, added, "delete", "update_preimage"),
        (added, removed, "insert", "update_postimage"),
    ):
        is_alone = rows.join(others, on=keys, how="anti", nulls_equal=True)
        is_updated = rows.join(others, on=keys, how="semi", nulls_equal=True)
        parts += [is_alone.with_columns(pl.lit(alone).alias(CHANGE_TYPE))]
        parts += [is_updated.with_columns(pl.lit(updated).alias(CHANGE_TYPE))]
    return pl.concat(parts)

"""A plan file: the live files of a checkpoint as columns of one Parquet file, of which a read opens what it needs.

A row group holds a few thousand files that are neighbours in the space of the index. A filter reads its own columns of
all files, then the other columns of the row groups with a match. The facts beside the file hold checksums of its
footer, of each column of a row group, and of the other actions of the checkpoint: damage is found before it decides
anything.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from qbeast_core.plan.blocks import NO_REVISION
from qbeast_core.plan.bounds import trusted_counts
from qbeast_core.plan.nodes import Node, columns_in
from qbeast_core.plan.select import files_that_may_match
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.sizing import sizing
from qbeast_core.table.snapshot.hidden_rows import logged_counts
from qbeast_core.table.snapshot.log_files import PlanUnusable

FORMAT: Final = 1
_FACTS, _FILES = "facts.json", "files.parquet"
OTHERS: Final = "rest.parquet"
_KINDS: Final = ("min", "max", "null_count", "partition")
_COUNTED: Final = ("num_records", "rules")
_RANK_BITS: Final = 16
_MAX_RANKED: Final = 3
_MAX_FACTS_BYTES: Final = 64 << 20


class PlanFacts(BaseModel):
    """What a plan file was made from, and sums over its files."""

    model_config = ConfigDict(frozen=True)

    format: int
    # Name of the folder, which has the version and a digest of the checkpoint.
    name: str
    table_id: str
    version: int
    # Fields of the schema, each as JSON.
    schema_fields: tuple[str, ...]
    partitions: tuple[str, ...]
    # Names of the fields of each struct of statistics, and of the partition.
    fields: dict[str, tuple[str, ...]]
    # Digests of the file of other actions, of the footer and of each column of each row group; size of the file.
    others: str = ""
    footer: str = ""
    columns: tuple[tuple[int, ...], ...] = ()
    size_bytes: int = 0
    # Files, rows, deleted rows and bytes of the table; bytes of the columns in memory; revisions of the files.
    files: int = 0
    rows: int = 0
    hidden_rows: int = 0
    data_bytes: int = 0
    memory_bytes: int = 0
    # Files whose rows the log does not count; files by their revision, -1 for files without one.
    uncounted: int = 0
    files_by_revision: dict[int, int] = {}
    # Whether other writers may write any path differently.
    has_odd_paths: bool = False


@dataclass(frozen=True, eq=False)  # no slots: the file is opened once
class PlanFile:
    """The live files of a version, in an order of their own: file i is row i."""

    folder: Path
    facts: PlanFacts
    _lock: Lock = field(default_factory=Lock, repr=False)

    @staticmethod
    def open(folder: Path) -> PlanFile:
        """Open a plan file; raise `PlanUnusable` if it is missing, of another format, or damaged."""
        with plan_errors():
            with (folder / _FACTS).open("rb") as file:
                digest, _, text = file.read(_MAX_FACTS_BYTES).partition(b"\n")
            if digest != _digest(text).encode():
                raise PlanUnusable(folder)
            facts = PlanFacts.model_validate_json(text)
            found = PlanFile(folder, facts)
            path = folder / _FILES
            if (facts.format, facts.name) != (FORMAT, folder.name):
                raise PlanUnusable(folder)
            if facts.size_bytes != path.stat().st_size:
                raise PlanUnusable(folder)
            if _digest_of_footer(path) != facts.footer or found._file.metadata.num_rows != facts.files:
                raise PlanUnusable(folder)
            if _digest(found.other_actions) != facts.others:
                raise PlanUnusable(folder)
        with suppress(OSError):  # the one that was used last is removed last
            os.utime(folder)
        return found

    @cached_property
    def other_actions(self) -> bytes:
        """A checkpoint of the actions that are not about files."""
        return (self.folder / OTHERS).read_bytes()

    @cached_property
    def _source(self) -> pa.NativeFile:
        # An open file stays readable if the cache removes it.
        return pa.OSFile(str(self.folder / _FILES))

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return pq.ParquetFile(self._source)

    @cached_property
    def _leaves(self) -> list[str]:
        """Name of the column that each leaf belongs to."""
        schema = self._file.schema
        return [schema.column(leaf).path.partition(".")[0] for leaf in range(len(schema.names))]

    @cached_property
    def _starts(self) -> I64Array:
        """First row of each row group, and the number of rows."""
        metadata = self._file.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

    @property
    def bytes_per_file(self) -> int:
        """Approximate memory of a file's columns."""
        return -(-self.facts.memory_bytes // max(self.facts.files, 1))

    def matching(self, node: Node) -> I64Array:
        """Return the rows of the files that may match a filter by their statistics, ascending."""
        found = [
            first + np.flatnonzero(files_that_may_match(frame, node))
            for first, frame in self.columns(_COUNTED, columns_in(node))
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def rows_of(self, paths: Iterable[str]) -> I64Array:
        """Return the rows of some files by their decoded paths, ascending; other paths are ignored."""
        wanted = pl.Series(sorted(set(paths)), dtype=pl.String)
        if not len(wanted):
            return np.zeros(0, np.int64)
        found = [np.zeros(0, np.int64)]
        for first, frame in self.columns(["path"]):
            listed = decoded(frame["path"]) if self.facts.has_odd_paths else frame["path"]
            found.append(first + listed.is_in(wanted.implode()).arg_true().to_numpy().astype(np.int64))
        return np.concatenate(found)

    def take(self, rows: I64Array, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return some files, given by their ascending rows, in the columns of `Snapshot.files`, by default all."""
        starts, parts = self._starts, list[pa.Table]()
        groups = np.searchsorted(starts, rows, side="right") - 1
        edges = np.flatnonzero(np.diff(groups, prepend=-1))
        for of_group in np.split(rows, edges[1:]) if len(rows) else ():
            group = int(np.searchsorted(starts, of_group[0], side="right") - 1)
            table = self._read([group], columns)
            here = of_group - starts[group]
            # Arrow loads pandas to look at an array of NumPy.
            parts.append(table if len(here) == table.num_rows else table.take(pl.Series(here).to_arrow()))
        with plan_errors():
            parts = parts or [self._file.read_row_groups([], columns=columns and list(columns))]
            flat = _frame(pa.concat_tables(parts))
        return self._nested(flat) if columns is None else flat.select(columns)

    def columns(
        self, names: Sequence[str], statistics: Collection[str] = ()
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the first row and some columns of consecutive files, with the statistics of some columns of the table.

        `names` are columns of `Snapshot.files`.
        """
        wanted = {"partition": None, **dict.fromkeys(_KINDS[:3], statistics)}
        columns = [name for name in names if name not in self.facts.fields]
        for kind, fields in self.facts.fields.items():
            chosen = fields if kind in names else wanted[kind] or ()
            columns += [_flat(kind, number) for number, name in enumerate(fields) if name in chosen]
        groups, starts = len(self._starts) - 1, self._starts
        at_once = max(sizing().plan_batch_files // max(int(starts[min(1, groups)]), 1), 1)
        for group in range(0, groups, at_once):
            some = range(group, min(group + at_once, groups))
            yield int(starts[group]), self._nested(_frame(self._read(some, columns)))

    def _read(self, groups: Sequence[int], columns: Sequence[str] | None) -> pa.Table:
        pa.default_memory_pool().release_unused()  # of the row groups before
        with plan_errors(), self._lock:
            self._verify(groups, columns)
            return self._file.read_row_groups(
                list(groups), columns=columns and list(columns), use_threads=False
            )

    def _verify(self, groups: Sequence[int], columns: Sequence[str] | None) -> None:
        """Raise `PlanUnusable` if columns of row groups are damaged. Checksums of pages do not cover their headers."""
        metadata = self._file.metadata
        chosen = [leaf for leaf, name in enumerate(self._leaves) if columns is None or name in columns]
        for group in groups:
            chunks = metadata.row_group(group)
            for leaf in chosen:
                if _checksum(self._source, chunks.column(leaf)) != self.facts.columns[group][leaf]:
                    raise PlanUnusable(self.folder)

    def _nested(self, flat: pl.DataFrame) -> pl.DataFrame:
        """Return a frame of flat columns with their structs."""
        structs: list[pl.Expr] = []
        for kind in _KINDS:
            names = self.facts.fields.get(kind)
            if names is None:
                continue
            present = [
                pl.col(_flat(kind, number)).alias(name)
                for number, name in enumerate(names)
                if _flat(kind, number) in flat.columns
            ]
            structs.append((pl.struct(present) if present else pl.lit(None, pl.Struct([]))).alias(kind))
        plain = [name for name in flat.columns if ":" not in name]
        return flat.select(*plain, *structs)


class PlanWriter:
    """Writes a plan file from parts of the live files."""

    def __init__(self, folder: Path, facts: PlanFacts, indexed: Sequence[str]) -> None:
        self._folder, self._facts, self._indexed = folder, facts, indexed
        self._writer: pq.ParquetWriter | None = None
        self._sums: Counter[str] = Counter()
        self._revisions: Counter[int] = Counter()

    def add(self, files: pl.DataFrame) -> None:
        """Add some files, in the columns of `Snapshot.files`."""
        sums = {
            "files": files.height,
            "rows": int(files["num_records"].sum()),
            "hidden_rows": int(np.maximum(logged_counts(files), 0).sum()),
            "data_bytes": int(files["size_bytes"].sum()),
            "memory_bytes": int(files.estimated_size()),
            "uncounted": int((trusted_counts(files) < 0).sum()),
        }
        self._sums.update(sums)
        self._revisions.update(files_by_revision(files))
        table = _flattened(files[_curve_order(files, self._indexed)], self._facts.fields)
        if self._writer is None:
            few_values: Any = ["rules", "revision", "clustering_provider"]  # typed as a flag
            self._writer = pq.ParquetWriter(
                self._folder / _FILES,
                table.schema,
                compression="lz4",
                use_dictionary=few_values,
                write_statistics=False,
            )
        self._writer.write_table(table.cast(self._writer.schema), row_group_size=sizing().plan_group_files)

    def finish(self, *, has_odd_paths: bool) -> None:
        """Complete the file, and write its facts."""
        if self._writer is None:
            raise PlanUnusable(self._folder)
        self._writer.close()
        path = self._folder / _FILES
        for file in (path, self._folder / OTHERS):
            _sync(file)
        facts = self._facts.model_copy(
            update={
                **self._sums,
                "files_by_revision": dict(self._revisions),
                "has_odd_paths": has_odd_paths,
                "others": _digest((self._folder / OTHERS).read_bytes()),
                "footer": _digest_of_footer(path),
                "columns": _checksums(path),
                "size_bytes": path.stat().st_size,
            }
        )
        text = facts.model_dump_json().encode()
        (self._folder / _FACTS).write_bytes(_digest(text).encode() + b"\n" + text)
        _sync(self._folder / _FACTS)


def files_by_revision(files: pl.DataFrame) -> dict[int, int]:
    """Return the number of some files by their revision, -1 for files without one."""
    keys = pl.col("revision").cast(pl.Int64).fill_null(NO_REVISION)
    return dict(files.group_by(keys).len().iter_rows())


def decoded(paths: pl.Series) -> pl.Series:
    """Return decoded paths.

    >>> decoded(pl.Series(["a%2Bb", "c"])).to_list()
    ['a+b', 'c']
    """
    is_encoded = paths.str.contains("%", literal=True)
    texts = [FilePath.of_log(path).text for path in paths.filter(is_encoded)]
    return paths.clone().scatter(is_encoded.arg_true(), texts) if texts else paths


def fields_of(files: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the names of the fields of the structs of statistics, and of the partition."""
    schema = files.schema
    return {
        kind: tuple(dtype.to_schema()) for kind in _KINDS if isinstance(dtype := schema.get(kind), pl.Struct)
    }


def _flat(kind: str, number: int) -> str:
    return f"{kind}:{number}"


def _flattened(files: pl.DataFrame, fields: dict[str, tuple[str, ...]]) -> pa.Table:
    plain = [name for name in files.columns if name not in fields]
    flat = [
        pl.col(kind).struct.field(name).alias(_flat(kind, number))
        for kind, names in fields.items()
        for number, name in enumerate(names)
    ]
    return files.select(*plain, *flat).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())


def _curve_order(files: pl.DataFrame, indexed: Sequence[str]) -> I64Array:
    """Return the order of files along a Z-order curve of their lower bounds: neighbours share row groups."""
    known = fields_of(files).get("min", ())
    names = [name for name in indexed if name in known][:_MAX_RANKED]
    key = np.zeros(files.height, np.uint64)
    for place, name in enumerate(names):
        ranks = files["min"].struct.field(name).rank("dense").fill_null(0).cast(pl.UInt64).to_numpy()
        scaled = (ranks * np.uint64((1 << _RANK_BITS) - 1)) // np.uint64(max(int(ranks.max()), 1))
        for bit in range(_RANK_BITS):
            at = np.uint64(bit * len(names) + place)
            key |= ((scaled >> np.uint64(bit)) & np.uint64(1)) << at
    return np.argsort(key, kind="stable")


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    if not isinstance(frame, pl.DataFrame):
        raise PlanUnusable(table.schema)
    return frame


def _checksums(path: Path) -> tuple[tuple[int, ...], ...]:
    """Return a checksum of each column of each row group."""
    with pa.OSFile(str(path)) as source:
        metadata = pq.read_metadata(source)
        groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
        return tuple(
            tuple(_checksum(source, group.column(leaf)) for leaf in range(group.num_columns))
            for group in groups
        )


def _checksum(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> int:
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    source.seek(start)
    return zlib.crc32(source.read_buffer(chunk.total_compressed_size))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _digest_of_footer(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return _digest(file.read())


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def plan_errors() -> Generator[None]:
    """Raise `PlanUnusable` for errors of the disk and of damaged bytes."""
    try:
        yield
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        pa.ArrowException,
        ValidationError,
        pl.exceptions.PolarsError,
    ) as error:
        raise PlanUnusable(error) from error

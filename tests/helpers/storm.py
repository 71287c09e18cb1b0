"""Random changes of a table by several processes, each with a ledger of the results."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

import qbeast
from tests.helpers.others import map_columns_and_feed

__all__ = ["INDEXED", "Event", "Ledger", "make_table", "replay", "storm"]

INDEXED = ["row", "a"]
_COLUMNS = ["row:hash", "a:linear"]
_MAX_ROWS = 40
_STEP = 100
_OVERWRITES = pl.col("parameters").struct.field("mode") == "Overwrite"
_WRITER = 1_000_000
_KINDS = ("append",) * 8 + ("read",) * 4 + ("delete", "delete", "update", "merge", "optimize", "optimize")
_OVERWRITE_SHARE = 0.004


@dataclass(frozen=True)
class Event:
    """A committed change: its version and kind."""

    version: int
    kind: str
    writer: int
    step: int = 0
    of: int = 1


@dataclass
class Ledger:
    """The results of a process.

    Attributes
    ----------
    events : list of Event
        Committed changes.
    refused : list of str
        Other changes, with the reason.
    reads : int
        Number of reads, which returned all rows of the process.
    attempts : int
        Number of attempts to commit, from the results.
    """

    events: list[Event] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    reads: int = 0
    attempts: int = 0


def make_table(
    uri: str, options: Mapping[str, str], *, with_features: bool = False, vectors: bool = False
) -> Event:
    """Write a table; with features it has partitions, column mapping and a feed. With vectors, changes hide rows."""
    qbeast.write_table(
        rows_of(9, 0),
        uri,
        columns=_COLUMNS,
        cube_size=30,
        partition_by=["value"] if with_features else None,
        deletion_vectors=vectors,
        storage_options=dict(options) or None,
    )
    if with_features:
        map_columns_and_feed(Path(uri), "value")
    return Event(0, "append", 9)


def rows_of(writer: int, step: int) -> pl.DataFrame:
    """Return the rows of a writer's step; the range of values grows with the steps."""
    rng = np.random.default_rng([writer, step])
    count = int(rng.integers(1, _MAX_ROWS))
    return pl.DataFrame(
        {
            "row": writer * _WRITER + step * _STEP + np.arange(count),
            "writer": np.full(count, writer),
            "a": rng.normal(writer, 0.1 + 0.01 * step, count),
            "value": np.zeros(count, np.int64),
        }
    )


def replay(events: Sequence[Event]) -> pl.DataFrame:
    """Return the rows of a table after these changes in order of versions."""
    rows = rows_of(0, 0).clear()
    for event in sorted(events, key=lambda event: event.version):
        rows = _APPLY[event.kind](rows, event)
    return rows


def storm(uri: str, options: dict[str, str], writer: int, steps: int, seed: int) -> Ledger:
    """Run `steps` random operations; call it in a separate process."""
    warnings.simplefilter("ignore")
    return _Writer(uri, options, writer, seed).run(steps)


def mine(event: Event) -> pl.Expr:
    """Return the condition of a delete or update: some rows of the writer."""
    return (pl.col("writer") == event.writer) & ((pl.col("row") // _STEP) % event.of == event.step % event.of)


def _upserted(rows: pl.DataFrame, event: Event) -> pl.DataFrame:
    new = _source(event)
    return pl.concat([rows.join(new, on="row", how="anti"), new])


def _source(event: Event) -> pl.DataFrame:
    """Return rows of an earlier step, which may exist, and of this step."""
    both = pl.concat([rows_of(event.writer, event.of), rows_of(event.writer, event.step)])
    return both.with_columns(value=pl.lit(event.step, pl.Int64))


def _updated(rows: pl.DataFrame, event: Event) -> pl.DataFrame:
    value = pl.when(mine(event)).then(pl.lit(event.step, pl.Int64)).otherwise("value")
    return rows.with_columns(value=value)


_APPLY: dict[str, Callable[[pl.DataFrame, Event], pl.DataFrame]] = {
    "append": lambda rows, event: pl.concat([rows, rows_of(event.writer, event.step)]),
    "overwrite": lambda _, event: rows_of(event.writer, event.step),
    "delete": lambda rows, event: rows.filter(~mine(event)),
    "update": _updated,
    "merge": _upserted,
    "optimize": lambda rows, _: rows,
}


class _Writer:
    def __init__(self, uri: str, options: dict[str, str], writer: int, seed: int) -> None:
        self.uri, self.options, self.writer = uri, options or None, writer
        self.random, self.ledger = random.Random(f"{seed} {writer}"), Ledger()  # noqa: S311 -- not secret

    def run(self, steps: int) -> Ledger:
        for step in range(2, steps + 2):
            kind = "overwrite" if self.random.random() < _OVERWRITE_SHARE else self.random.choice(_KINDS)
            if kind == "read":
                self.read()
                continue
            event = Event(-1, kind, self.writer, step, self.random.randint(1, step - 1))
            try:
                version = self.change(event)
            except qbeast.CommitUnknownError as error:
                version = self.look_later(error)
            except (qbeast.CommitConflictError, qbeast.StorageError) as error:
                self.ledger.refused.append(f"{kind}: {error}")
                continue
            if version is not None:
                self.ledger.events.append(Event(version, kind, self.writer, step, event.of))
        self.read()
        return self.ledger

    def change(self, event: Event) -> int | None:
        """Run the change; return its version, or None if there was nothing to do."""
        if event.kind in ("append", "overwrite"):
            result = qbeast.write_table(
                rows_of(event.writer, event.step), self.uri, mode=event.kind, storage_options=self.options
            )
            self.ledger.attempts += result.attempts
            return result.version
        table = qbeast.open_table(self.uri, storage_options=self.options)
        if event.kind == "optimize":
            done = table.optimize()
            self.ledger.attempts += done.attempts
            return done.version if done.committed else None
        if event.kind == "delete":
            changed = table.delete(mine(event))
        elif event.kind == "update":
            changed = table.update(mine(event), {"value": pl.lit(event.step, pl.Int64)})
        else:
            changed = table.merge(_source(event), "row")
        self.ledger.attempts += changed.attempts
        return changed.version if changed.committed else None

    def look_later(self, error: qbeast.CommitUnknownError) -> int | None:
        """Find out whether a commit with unknown outcome exists."""
        time.sleep(5)
        table = qbeast.open_table(self.uri, storage_options=self.options)
        versions = table.history().filter(txn_id=error.txn_id)["version"].to_list()
        if not versions:
            self.ledger.refused.append(f"unknown, and not there: {error}")
        return versions[0] if versions else None

    def read(self) -> None:
        """Assert that a read, also of a sample, returns the rows of committed changes only."""
        table = qbeast.open_table(self.uri, storage_options=self.options)
        whole = self.random.random() < 0.3
        sample = None if whole else self.random.random()
        rows = table.rows(sample=sample).lazy().filter(pl.col("writer") == self.writer).collect()
        over = table.history().filter(_OVERWRITES)["version"].to_list()
        since = max([version for version in over if version <= table.version], default=-1)
        events = [event for event in self.ledger.events if event.version >= since]
        expected = replay(events)
        if not whole:
            sampled = table.read(sample=sample)["row"]
            everything = table.rows().lazy().filter(pl.col("writer") == self.writer).collect()
            assert everything.sort("row").equals(expected.sort("row"))
            assert rows["row"].is_in(sampled.implode()).all()
            assert rows["row"].is_in(expected["row"].implode()).all()
        else:
            assert rows.sort("row").equals(expected.sort("row"))
        self.ledger.reads += 1

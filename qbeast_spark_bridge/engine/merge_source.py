"""A Spark DataFrame as the source of a merge: executors match its rows with the rows of the table."""

from __future__ import annotations

import pickle
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError, StorageError
from qbeast_core.io.store import Store
from qbeast_core.plan.nodes import Node
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import delete_files
from qbeast_core.table.dml.merge_rules import (
    DoubledKeys,
    KeyColumn,
    KeyDigest,
    MergedFiles,
    MergeRules,
    key_filter,
    key_nodes,
    merge_digests,
)
from qbeast_core.table.dml.merge_sources import MergeMatches, scan_plan
from qbeast_core.table.dml.plan import live_rows
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.row_change import AddedFiles, stored_by
from qbeast_core.table.read.planner import Planner, ScanPlan, scans_of
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_spark_bridge.engine.engine import spread
from qbeast_spark_bridge.engine.workers import unpickled, worker_errors
from qbeast_spark_bridge.spark_types import collated_columns, empty_frame, numbered, quoted, spark_schema
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.match_tasks import (
    DIGESTS,
    PIECES,
    BucketAnswer,
    FileAnswer,
    MatchTask,
    digest_keys,
    join_buckets,
    judge_files,
    pack_keys,
    pack_source,
)
from qbeast_spark_bridge.worker.tasks import decimals_as_longs, short_decimals, task_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALUE_BYTES: Final = 24  # approximate memory of a value
_MAX_TASKS: Final = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class SparkMergeSource:
    """Rows of a Spark DataFrame, which must be the same when they are read twice."""

    # From a classic session or Spark Connect.
    df: DataFrame
    _stored: list[str] = field(default_factory=list[str], init=False, repr=False)
    _operation: str = field(default_factory=lambda: str(uuid.uuid4()), init=False, repr=False)

    @property
    def empty(self) -> pl.DataFrame:
        """See `MergeSource`."""
        return empty_frame(self.df.schema)

    def scope(self, rules: MergeRules) -> Node | None:
        """See `MergeSource`. The keys are known after all rows were read."""
        del rules
        return None

    def match(
        self, rules: MergeRules, snapshot: Snapshot, engine: Engine, *, among: BoolArray | None = None
    ) -> MergeMatches:
        """Match the rows on the executors, by the hash of their keys; see `MergeSource`.

        One job reads the keys of the source, by which files are selected. Another job joins source and files, and
        stores the rows of the source by the file of their match, until `clear` is called.
        """
        del engine  # only Spark reads the rows
        _refuse_collations(rules, self.df, snapshot)
        planner = Planner(snapshot)
        with worker_errors(self.df.sparkSession):
            digest = self._digest(rules)
            live, plan = live_rows(snapshot), scan_plan(rules, planner, key_nodes(rules, digest))
            files = np.flatnonzero(plan.selection.opened & (True if among is None else among))
            task = self._task(rules, planner, plan, digest, int(np.maximum(live[files], 0).sum()))
            buckets, answers = self._join(task, planner, plan, files)
        return self._matches(rules, snapshot, digest, buckets, answers, scan=plan)

    def clear(self, store: Store, *, failed: bool) -> None:
        """Delete the stored rows, as far as the store allows."""
        with suppress(StorageError):
            delete_files(store, stored_by(store, self._operation) if failed else self._stored)

    def _digest(self, rules: MergeRules) -> KeyDigest:
        keys = list(rules.clauses.keys)
        keys_df = self.df.select([quoted(name) for name in keys])
        decimals = short_decimals(keys_df.schema)
        call = WorkerCall.of(digest_keys, (rules, keys, decimals))
        digests = unpickled(decimals_as_longs(numbered(keys_df), decimals).mapInArrow(call, DIGESTS))
        empty = tuple(KeyColumn.of(pl.Series(name, [], rules.schema[name])) for name in keys)
        return merge_digests([KeyDigest(0, 0, empty), *digests])

    def _task(
        self, rules: MergeRules, planner: Planner, plan: ScanPlan, digest: KeyDigest, key_rows: int
    ) -> MatchTask:
        keys = list(rules.clauses.keys)
        size = max(digest.rows * len(rules.source_schema), key_rows * (len(keys) + 1)) * _VALUE_BYTES
        file_count = int(plan.selection.opened.sum())
        return MatchTask(
            rules=rules,
            files=planner.files,
            keys=key_filter(rules, planner.row_filter(plan, keys), digest),
            judged=planner.row_filter(plan, rules.match_columns()),
            bucket_keys=task_keys(min(size // sizing().bucket_bytes + 1, _MAX_TASKS)),
            file_keys=task_keys(min(max(file_count, 1), _MAX_TASKS)),
            operation=self._operation,
        )

    def _join(
        self, task: MatchTask, planner: Planner, plan: ScanPlan, files: I64Array
    ) -> tuple[list[BucketAnswer], list[FileAnswer]]:
        spark, decimals = self.df.sparkSession, short_decimals(self.df.schema)
        opened = list(zip(files.tolist(), scans_of(planner, plan, files.tolist()), strict=True))
        pieces = decimals_as_longs(numbered(self.df), decimals).mapInArrow(
            WorkerCall.of(pack_source, (task, self.df.columns, decimals)), PIECES
        )
        if opened:
            pieces = pieces.union(spread(spark, opened).mapInArrow(WorkerCall.of(pack_keys, task), PIECES))
        by_bucket = pieces.repartition(len(task.bucket_keys), "key").sortWithinPartitions("kind")
        matches = by_bucket.mapInArrow(WorkerCall.of(join_buckets, task), PIECES)
        count = len(task.file_keys)
        items = [
            (int(task.file_keys[number % count]), number, 0, bytearray(pickle.dumps(parts, protocol=5)))
            for number, parts in opened
        ]
        if items:
            matches = spark.createDataFrame(items, PIECES).union(matches)
        by_file = matches.repartition(count, "key").sortWithinPartitions("file", "kind")
        rows = by_file.mapInArrow(WorkerCall.of(judge_files, task), PIECES).select("data").collect()
        results = [pickle.loads(bytes(row["data"])) for row in rows]  # noqa: S301 -- bytes of our own tasks
        buckets = [result for result in results if isinstance(result, BucketAnswer)]
        return buckets, [result for result in results if isinstance(result, FileAnswer)]

    def _matches(
        self,
        rules: MergeRules,
        snapshot: Snapshot,
        digest: KeyDigest,
        buckets: list[BucketAnswer],
        answers: list[FileAnswer],
        *,
        scan: ScanPlan,
    ) -> MergeMatches:
        added = AddedFiles(snapshot.location, tuple(part for bucket in buckets for part in bucket.added))
        self._stored.extend([part.path for part in added.parts] + [answer.stored for answer in answers])
        rows = sum(bucket.rows for bucket in buckets)
        advice = "persist it first (`df.persist()`), or remove random and unordered parts."
        digest.check(rows, sum(bucket.hash_sum for bucket in buckets), advice=advice)
        answers = sorted(answers, key=lambda answer: answer.number)
        stored = {snapshot.data_paths[answer.number]: answer.stored for answer in answers}
        return MergeMatches(
            found={answer.number: answer.places for answer in answers},
            scan=scan,
            any_matched=any(bucket.any_matched for bucket in buckets),
            change=MergedFiles(rules, snapshot.location, stored),
            added=added,
            doubled=DoubledKeys.sum(bucket.doubled for bucket in buckets),
            source_rows=rows,
        )


def _refuse_collations(rules: MergeRules, df: DataFrame, snapshot: Snapshot) -> None:
    names = {*collated_columns(df.schema), *collated_columns(spark_schema(snapshot.schema_json))}
    collated = [name for name in rules.clauses.keys if name in names]
    if collated:
        msg = (
            f"columns {collated} have a collation: rows of different bytes would match. "
            "Match by other columns, or cast them to plain strings (collate UTF8_BINARY)."
        )
        raise InvalidInputError(msg, argument="on")

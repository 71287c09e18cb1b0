"""Read a table or its changes with Spark's own readers, or explain a read: the driver plans, Spark reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import polars as pl
from pyspark.sql import functions as F  # noqa: N812 -- the usual name
from pyspark.sql.types import (
    DecimalType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qbeast_core.api.rows import Read
from qbeast_core.errors import hints_methods
from qbeast_core.plan.blocks import NO_REVISION
from qbeast_core.plan.weights import Sample, WeightRange
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT, sample_values
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.spec.table_config import may_have_other_columns
from qbeast_core.table.data.expressions import refuse_statement
from qbeast_core.table.data.schema import FEED_COLUMNS, taken_name
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.read.changes import ChangeTask, change_reader, commits_between
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.explain import explain as plan_read
from qbeast_core.table.read.planner import Planner, ScanPlan
from qbeast_core.table.read.scan import (
    SAMPLING_WEIGHT,
    fraction_of_matches,
    known_rows,
    max_rows,
    refuse_rows,
    sampling_weight,
    warn_of_sample,
)
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_spark_bridge.engine.engine import (
    SparkEngine,
    arrow_schema,
    frame_of_rows,
    rows_of_tasks,
    tasks_of,
)
from qbeast_spark_bridge.engine.workers import is_connect, session_settings
from qbeast_spark_bridge.predicates.columns import ColumnTranslator
from qbeast_spark_bridge.predicates.conditions import keep_where, parse_where
from qbeast_spark_bridge.spark_types import (
    by_table_names,
    can_find_columns,
    collated_columns,
    comparable_columns,
    nullable_schema,
    quoted,
    spark_schema,
    stored_schema,
    with_integer,
)
from qbeast_spark_bridge.worker.read_task import ReadTask

_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",  # the calendar of Delta, whatever the session's setting
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # folders named a=1 are not columns
}

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

_GLOB: Final = re.compile(r"[\\*?\[\]{}]")

# The first words of a query, after comments.
_WITH: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*WITH(\s+RECURSIVE)?\s", re.IGNORECASE | re.DOTALL)


_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"

_DEFAULT_THRESHOLD: Final = 32

_NO_LIMIT: Final = 1 << 30

# Spark's `hash(CAST(1.5 AS DECIMAL(10, 2)))`
_HASH_OF_DECIMAL: Final = -2056712946

_BY_SPARK: Final = (
    "Spark applies it after the read, and it skips no files; give SQL text or a Polars expression that "
    "compares columns with constants"
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from qbeast_core.table.engine.engine import Engine

# Columns whose hash is the weight, and the stored column by which Spark skips pages, if there is one.
_Weights: TypeAlias = tuple[tuple[str, ...], str | None]


@hints_methods
@dataclass(frozen=True, eq=False, repr=False)
class SparkRead(Read):
    """Rows of a table at one version, with Spark as the engine; see `qbeast.Read`.

    `read` and `sql` return a ``pyspark.sql.DataFrame``. Spark reads the files with its own Parquet reader, when it
    needs the rows. `count` and estimates run on the executors too. The driver reads the rows of all other methods.
    """

    spark: SparkSession = field(kw_only=True)

    def read(self) -> DataFrame:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the rows as a DataFrame. All columns are nullable; rows are in no particular order.

        SQL text and Polars expressions keep the rows of `qbeast.Read.read`, and skip files. A Column is applied by
        Spark only. With `rows` and a condition, this call reads weights.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").rows("user < 10").read().count()
        10
        """
        if self.request.by is not None:
            return frame_of_rows(self.spark, self._strata())
        planner, names, pushed = self._planner, self._names, self._parsed[1]
        weight = sampling_weight(planner, self._sample) if self.request.expand else None
        plans = planner.plans(pushed, self._sample)
        parts = [frame for part, plan in plans for frame in _rows(self.spark, part, plan, self._schema)]
        warn_of_sample(planner, self._sample, opens=bool(parts))
        df = self._matching(parts)
        if names is not None:
            df = df.select([quoted(name) for name in names])
        return df if weight is None else df.withColumn(SAMPLING_WEIGHT, F.lit(weight))

    def count(self) -> int:
        """Count the rows. Without a condition and a sample, only the log is read.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").rows("user < 10").count()
        10
        """
        known = known_rows(self._planner) if self.request.is_all else None
        return self.read().count() if known is None else known

    def sql(self, query: str) -> DataFrame:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Run a query in the SQL of Spark. The name of the rows is ``self``; others are those of the session.

        Statements such as DELETE raise InvalidInputError, which names the method to call. Other errors are Spark's own.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").rows("user < 10").sql("SELECT max(user) AS last FROM self").collect()
        [Row(last=9)]
        """
        refuse_statement(query)
        own = _WITH.match(query)
        rest = f" {query}" if own is None else f", {query[own.end() :]}"
        recursive = (own and own[1]) or ""
        text = f"WITH{recursive} self AS (SELECT * FROM {{qbeast_rows}}){_escaped(rest)}"  # noqa: S608 -- theirs
        return self.spark.sql(text, qbeast_rows=self.read())

    def explain(self) -> Plan:
        """Plan the read without reading rows; see `qbeast.Read.explain`.

        A Column is always one of the `unused_conditions`. Spark finds the pages to read by their statistics, so it may
        read a few more bytes than planned.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"client": range(1000)}), "clients", columns=["client:hash"])
        >>> plan = bridge.open_table(spark, "clients").rows("client < 10").explain()
        >>> list(plan.unused_conditions.values())[0][:24]
        "'client' is indexed by h"
        """
        self.request.refuse("explain", "by")
        predicate = self._parsed[1]
        plan = plan_read(self._planner, predicate, self._sample, self._names)
        if self.request.where is None or predicate is not None:
            return plan
        return replace(plan, beside={str(self.request.where): _BY_SPARK})

    @cached_property
    def _condition(self) -> Any:
        return translated(self.planner.snapshot, self.request.where)

    @cached_property
    def _engine(self) -> Engine:
        return SparkEngine(self.spark)

    @cached_property
    def _schema(self) -> StructType:
        return nullable_schema(spark_schema(self.planner.snapshot.schema_json))

    @cached_property
    def _parsed(self) -> tuple[str | Column | None, pl.Expr | None]:
        """The condition for Spark and for the planner. Only Spark compares texts with a collation."""
        return parse_where(self.request.where, self.planner.snapshot.schema, collated_columns(self._schema))

    def _matching(self, parts: Sequence[DataFrame]) -> DataFrame:
        df = reduce(
            lambda left, right: left.union(right), parts or [self.spark.createDataFrame([], self._schema)]
        )
        condition, _ = self._parsed
        if isinstance(condition, str):
            return keep_where(df, condition)
        return df if condition is None else df.where(condition)

    def _sample_of_rows(self) -> Sample | None:
        if self.request.rows is None:
            return self.request.sample
        if self.request.where is None:
            return super()._sample_of_rows()
        refuse_rows(self.request.rows, self.request.sample)
        narrow, weight_column = self._planner.narrowed(self._parsed[1]), _free_name(self._schema)
        plan_of = narrow.of_filter(self._parsed[1])

        def matching(fraction: float) -> DataFrame | None:
            parts = _rows(self.spark, narrow, plan_of(fraction), self._schema, weight_column)
            return self._matching(parts) if parts else None

        lowest = partial(_lowest_weights, matching, weight_column, self.request.rows)
        return fraction_of_matches(self.request.rows, max_rows(narrow, plan_of(None)), lowest)


def translated(snapshot: Snapshot, where: Any, argument: str = "where") -> Any:
    """Return a condition without Columns. The operation raises for values that are not conditions."""
    if where is None or isinstance(where, bool | Mapping):
        return where
    return translator_of(snapshot).condition(where, argument)


def translator_of(snapshot: Snapshot) -> ColumnTranslator:
    """Return the translator of conditions on the rows of a table."""
    return ColumnTranslator.of(comparable_columns(spark_schema(snapshot.schema_json), snapshot.schema))


def _escaped(text: str) -> str:
    """Return a text in which braces do not name a frame."""
    return text.replace("{", "{{").replace("}", "}}")


def _lowest_weights(
    matching: Callable[[float], DataFrame | None], weight_column: str, rows: int, fraction: float
) -> pl.DataFrame:
    """Return the lowest weights of matching rows below a fraction, see `fraction_of_matches`."""
    found, counts = matching(fraction), list[Any]()
    if found is not None:
        weights = found.select(F.col(quoted(weight_column)).alias("weight")).groupBy("weight")
        counts = weights.agg(F.count("*").alias("rows")).orderBy("weight").limit(rows + 1).collect()
    return pl.DataFrame(counts, schema={"weight": pl.Int32, "rows": pl.Int64}, orient="row")


def _free_name(schema: StructType) -> str:
    """Return a name for the column with the weights of rows."""
    taken, name = {field.name.lower() for field in schema.fields}, f"{WEIGHT_COLUMN}_"
    while name in taken:
        name += "_"
    return name


def _rows(
    spark: SparkSession,
    planner: Planner,
    job: ScanPlan,
    schema: StructType,
    weight_column: str | None = None,
) -> list[DataFrame]:
    """Return the rows of the sample, with all columns, and a column with their weights if it is named.

    The rows are in several frames; no frame: no file is opened.
    """
    numbers = np.flatnonzero(job.selection.opened).tolist()
    locations = {number: planner.store.locate(planner.paths[number]) for number in numbers}
    # Spark 3.5 does not read all narrower types as wider ones.
    casts = not planner.snapshot.columns.type_changes or not spark.version.startswith("3.")
    hashes = (job.weights.is_full and weight_column is None) or _hashes_like_spark(spark, schema)
    plain = [
        number
        for number in numbers
        if casts
        and hashes
        and not planner.snapshot.location.is_lent  # Spark's reader has no credentials of the catalog
        and _can_read(locations[number])
        and number not in planner.hidden_rows.files
        and can_find_columns(planner, number)
    ]
    shown = schema if weight_column is None else with_integer(schema, weight_column)
    parts: list[DataFrame] = []
    for (indexed, stored), group in _by_weights(planner, job, plain, weight_column).items():
        paths = [locations[number] for number in group]
        hidden = stored == WEIGHT_COLUMN
        files = _files(spark, paths, stored_schema(schema, planner.snapshot.columns), hidden=hidden)
        files = by_table_names(files, schema, planner, group, hidden=hidden)
        rows = _sampled(files, job.weights, indexed, stored=stored)
        rows = rows.drop(WEIGHT_COLUMN) if stored == WEIGHT_COLUMN else rows
        parts.append(
            rows if weight_column is None else rows.withColumn(weight_column, F.expr(_hash(indexed)))
        )
    if len(plain) < len(numbers):
        opened = job.selection.opened.copy()
        opened[plain] = False
        rest = replace(job, selection=replace(job.selection, opened=opened), predicate=None)
        tasks = tasks_of(planner, rest, schema=shown, weight_column=weight_column)
        parts.append(rows_of_tasks(spark, tasks, shown))
    return parts


def _by_weights(
    planner: Planner, job: ScanPlan, numbers: Sequence[int], weight_column: str | None
) -> dict[_Weights, list[int]]:
    """Group files by the columns whose hash is the weight, and by the stored column that Spark skips pages with."""
    if job.weights.is_full and weight_column is None:
        return {(planner.hashed, None): list(numbers)} if numbers else {}
    if planner.sample_by is not None:  # stored columns have other weights
        return {(planner.sample_by, None): list(numbers)} if numbers else {}
    table, sample_column = job.selection.table, planner.snapshot.sample_column
    has_samples = None if sample_column is None else Index(planner.snapshot).has_samples
    # A column of this name by another writer is not the weight.
    reserved = taken_name(planner.snapshot.schema_json) is not None
    # The hidden weights of a file without index may be computed from other columns, or from narrower types.
    snapshot = planner.snapshot
    mixed = may_have_other_columns(snapshot.metadata.configuration) or bool(snapshot.columns.type_changes)
    groups: dict[_Weights, list[int]] = {}
    for number in numbers:
        stored = None if reserved or (mixed and table.revision_of[number] == NO_REVISION) else WEIGHT_COLUMN
        if has_samples is not None:
            stored = sample_column if has_samples[number] else None
        hashed = planner.other_columns(table, number) or planner.hashed
        groups.setdefault((hashed, None if job.weights.is_full else stored), []).append(number)
    return groups


def _files(spark: SparkSession, locations: list[str], schema: StructType, *, hidden: bool) -> DataFrame:
    # Files do not have columns of type void, and Spark does not look for them.
    stored = StructType([field for field in schema.fields if not isinstance(field.dataType, NullType)])
    physical = with_integer(stored, WEIGHT_COLUMN) if hidden else stored
    with _list_on_driver(spark, locations):
        files = spark.read.schema(physical).options(**_OPTIONS).parquet(*map(_spark_path, locations))
        if len(locations) > 1:
            files.schema  # noqa: B018 -- makes a Connect server list the files now, and cache the list
    if len(stored.fields) == len(schema.fields):
        return files
    added = [quoted(WEIGHT_COLUMN)] if hidden else []
    voids = {
        field.name: F.lit(None).alias(field.name) for field in schema.fields if field not in stored.fields
    }
    return files.select(*(voids.get(name, F.col(quoted(name))) for name in schema.names), *added)


def _sampled(
    files: DataFrame, weights: WeightRange, indexed: tuple[str, ...], *, stored: str | None
) -> DataFrame:
    """Keep the rows whose hash is in the range; Spark skips pages by a condition on the stored column."""
    if weights.is_full:
        return files
    weight = _hash(indexed)
    bounds = [(">=", weights.from_)] if weights.from_ > MIN_WEIGHT else []
    bounds += [("<=", weights.last)] if weights.last < MAX_WEIGHT else []
    exact = " AND ".join(f"{weight} {sign} {bound}" for sign, bound in bounds)
    if stored is None:
        return keep_where(files, exact)
    coarse = _of_hidden(bounds) if stored == WEIGHT_COLUMN else _of_sample_column(stored, bounds)
    return keep_where(files, f"{coarse} AND {exact}")


def _of_hidden(bounds: list[tuple[str, int]]) -> str:
    """Return what bounds of weights mean for the hidden column: a lower bound, which files of others lack."""
    high = quoted(WEIGHT_COLUMN)
    upper = [f"{high} {sign} {bound >> 16}" for sign, bound in bounds if sign == "<="]
    return f"({high} IS NULL OR {upper[0]})" if upper else "TRUE"


def _of_sample_column(name: str, bounds: list[tuple[str, int]]) -> str:
    """Return what bounds of weights mean for the sample column."""
    values = sample_values(np.array([bound for _, bound in bounds], np.int32)).tolist()
    signs = [sign for sign, _ in bounds]
    return " AND ".join(
        f"{quoted(name)} {sign} CAST({value!r} AS FLOAT)" for sign, value in zip(signs, values, strict=True)
    )


def _hash(indexed: tuple[str, ...]) -> str:
    """Return the weight of a row as an expression of Spark's SQL."""
    return f"hash({', '.join(map(quoted, indexed))})"


def _hashes_like_spark(spark: SparkSession, schema: StructType) -> bool:
    """Return whether the server computes the weights of our tables: Sail's hash of a decimal is another."""
    if not is_connect(spark) or not any(isinstance(field.dataType, DecimalType) for field in schema.fields):
        return True
    row = spark.sql(f"SELECT hash(CAST(1.5 AS DECIMAL(10, 2))) = {_HASH_OF_DECIMAL}").first()
    return row is not None and bool(row[0])


def _spark_path(location: str) -> str:
    r"""Return a path that Spark reads as exactly this file.

    Spark reads paths as glob patterns, so special characters are escaped; ``%`` and spaces need no escape. Local
    paths get the scheme ``file://``, since Spark's default file system may be another.

    >>> _spark_path("/tables/a b/[1].parquet")
    'file:///tables/a b/\\[1\\].parquet'
    """
    full = location if _is_address(location) else f"file://{Path(location).absolute()}"
    return _GLOB.sub(r"\\\g<0>", full)


def _can_read(location: str) -> bool:
    """Return whether Spark's reader can read a file: it ignores some names silently, and fails on others.

    >>> _can_read("/tables/_orders/1.parquet"), _can_read("/tables/orders/_1.parquet")
    (True, False)
    """
    name = location.rsplit("/", 1)[-1]
    is_ignored = (
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
    )
    fails = ":" in name or (":" in _ADDRESS.sub("", location) and _GLOB.search(location) is not None)
    return not is_ignored and not fails


def _list_on_driver(spark: SparkSession, locations: list[str]) -> AbstractContextManager[None]:
    """Make Spark list many local files on the driver, instead of by a job with a task for each.

    The session's setting is restored afterwards. Files in object stores are still listed by jobs.
    """
    is_default = len(locations) <= _DEFAULT_THRESHOLD or any(map(_is_address, locations))
    return session_settings(spark, {} if is_default else {_THRESHOLD: _NO_LIMIT})


def _is_address(location: str) -> bool:
    return _ADDRESS.match(location) is not None


def change_tasks(
    snapshot: Snapshot,
    since: int | str | date,
    until: int | str | date | None,
    names: tuple[str, ...] | None = None,
) -> tuple[StructType, list[ReadTask]]:
    """Return the columns of changed rows, and the tasks that read them."""
    reader, commits = change_reader(snapshot), commits_between(snapshot, since, until)
    schema = with_feed_columns(nullable_schema(spark_schema(snapshot.schema_json)))
    if names is not None:
        schema = StructType([schema[name] for name in names])
    special = {name: dtype for name, dtype in snapshot.columns.special_types.items() if name in schema.names}
    types = arrow_schema(schema)
    return schema, [
        ReadTask(ChangeTask(reader, part, names), types, special)
        for commit in commits
        for part in commit.split()
    ]


def with_feed_columns(schema: StructType) -> StructType:
    """Return the columns of a table and those that changes add."""
    types = (StringType(), LongType(), TimestampType())
    added = [StructField(name, dtype) for name, dtype in zip(FEED_COLUMNS, types, strict=True)]
    return StructType([*schema.fields, *added])

"""What the tests of this folder share: rows, Spark's own Delta reader, and what must be true after every step."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import qbeast
from tests.helpers.tables import assert_same_rows, sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INDEXED = ["row", "a", "b"]
SAMPLES = (0.05, 0.4, (0.25, 0.8))
# In SQL and in Polars; rows whose answer is null are dropped by both.
FILTERS = {
    "a < 20": pl.col("a") < 20,
    "b = 'key 3' and row > 50": (pl.col("b") == "key 3") & (pl.col("row") > 50),
    "a is null": pl.col("a").is_null(),
}


def rows_from(start: int, count: int = 400) -> pl.DataFrame:
    """Rows with numbers of their own, nulls, and few texts."""
    numbers = pl.int_range(start, start + count, eager=True).alias("row")
    spread = (numbers * 7919) % 101
    a = pl.when(spread % 9 > 0).then(spread).cast(pl.Float64)
    return pl.select(numbers, a=a, b=pl.format("key {}", spread % 13), note=pl.format("note {}", numbers))


@dataclass(frozen=True)
class Delta:
    """A table as Spark's Delta sees it.

    Attributes
    ----------
    spark : SparkSession
        With Delta's extensions.
    path : Path
        The table.
    """

    spark: SparkSession
    path: Path

    @property
    def name(self) -> str:
        """The table in SQL."""
        return f"delta.`{self.path}`"

    def sql(self, text: str) -> list[Any]:
        """Run a statement, `{t}` standing for the table."""
        return self.spark.sql(text.format(t=self.name)).collect()

    def read(self, condition: str | None = None, **options: Any) -> pl.DataFrame:
        """All rows, or those that meet a condition, as Spark's Delta reader returns them."""
        frame = self.spark.read.format("delta").options(**options).load(str(self.path))
        return collected(frame if condition is None else frame.where(condition))

    def append(self, rows: pl.DataFrame, **options: str) -> None:
        """Let Spark's Delta writer append."""
        to_spark(self.spark, rows).write.format("delta").mode("append").options(**options).save(
            str(self.path)
        )

    def properties(self) -> dict[str, str]:
        """What `SHOW TBLPROPERTIES` says."""
        return {row["key"]: row["value"] for row in self.sql("show tblproperties {t}")}


def to_spark(spark: SparkSession, rows: pl.DataFrame) -> DataFrame:
    """A DataFrame of few rows."""
    return spark.createDataFrame(rows.to_arrow())


def collected(rows: DataFrame) -> pl.DataFrame:
    """Rows in Polars, instants in UTC."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        frame = pl.DataFrame(rows.toArrow())
    return frame.with_columns(pl.selectors.datetime(time_zone="*").dt.convert_time_zone("UTC"))


def assert_right(table: Delta, model: pl.DataFrame, indexed: list[str] | None = None) -> qbeast.Table:
    """Everybody reads the rows of the model, samples and filters hold, and the table is sound."""
    opened = qbeast.open_table(table.path)
    assert_same_rows(opened.read(), model)
    for sample in SAMPLES:
        expected = sampled(model, indexed or INDEXED, sample)
        assert_same_rows(opened.read(sample=sample), expected)
        for expr in FILTERS.values():
            assert_same_rows(opened.rows(sample=sample).lazy().filter(expr).collect(), expected.filter(expr))
    assert_same_rows(table.read(), model)
    for condition, expr in FILTERS.items():
        assert_same_rows(opened.rows().lazy().filter(expr).collect(), model.filter(expr))
        assert_same_rows(table.read(condition), model.filter(expr))
    report = opened.check()
    assert report.ok, report
    return opened

"""A data source of the numbers below 1,000 that takes filters over from Spark, and applies them exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ToySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "toy"

    def schema(self) -> str:
        return "x bigint"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 -- Spark's signature
        return ToyReader()


class ToyReader(DataSourceReader):
    def __init__(self) -> None:
        self.least, self.most = 0, 999

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 -- Spark's name
        for predicate in filters:
            if type(predicate).__name__ == "GreaterThan":
                self.least = max(self.least, predicate.value + 1)
            elif type(predicate).__name__ == "LessThan":
                self.most = min(self.most, predicate.value - 1)
            elif type(predicate).__name__ != "IsNotNull":
                yield predicate

    def partitions(self) -> list[InputPartition]:
        return [InputPartition((self.least, self.most + 1))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        for number in range(*partition.value):
            yield (number,)

"""Make ``format("qbeast")`` known to a session."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from qbeast_core.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"  # Spark 4.0 found the package first, and keeps to that


def register(spark: SparkSession) -> None:
    """Register the data source ``"qbeast"`` with a session, for reading, appending and streaming.

    Seldom needed: PySpark finds the installed package `pyspark_qbeast` by itself, unless another package of a name
    that begins with ``pyspark_`` fails when it is imported.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect. The Python of its driver (of a Connect server) and of its executors must have qbeast.

    Raises
    ------
    InvalidInputError
        If this PySpark has no Python data sources (before 4.0).
    """
    try:
        source = importlib.import_module("qbeast_spark_bridge.source")
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        msg = (
            'format("qbeast") needs PySpark 4.0 or later. qbeast_spark_bridge.read_table and write_table work with '
            "this one."
        )
        raise InvalidInputError(msg, argument="spark") from error
    try:
        spark.dataSource.register(source.QbeastDataSource)
    except AnalysisException as error:
        if error.getCondition() != _KNOWN:
            raise

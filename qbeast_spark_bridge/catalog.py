"""Tables by their names in Spark's catalog."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.spark_schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def located(spark: SparkSession, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return where a table of the catalog is, given its name in place of a path; other paths are returned as they are.

    A text without separators of a path is a name, unless there is such a file or folder here.
    """
    if not isinstance(path, str) or any(mark in path for mark in "/\\:") or os.path.exists(path):  # noqa: PTH110
        return path
    try:
        return location_of_name(spark, path) or path
    except InvalidInputError:  # not a name
        return path


def location_of_name(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table of the catalog; None if there is none, as for temporary views."""
    quoted_name = quoted_parts(name)
    if not spark.catalog.tableExists(quoted_name):
        return None
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted_name}").collect()
    places = [row["data_type"] for row in rows if row["col_name"] == "Location"]
    return str(places[-1]) if places else None


def parts_of(name: str) -> list[str]:
    """Return the parts of a name, such as db.sales."""
    parts = [part.strip("` ") for part in name.split(".")]
    if not all(parts):
        msg = f"the name of a table has parts between dots, such as db.sales, not {name!r}"
        raise InvalidInputError(msg, argument="name", value=name)
    return parts


def quoted_parts(name: str) -> str:
    """Return a name for SQL."""
    return ".".join(map(quoted, parts_of(name)))
